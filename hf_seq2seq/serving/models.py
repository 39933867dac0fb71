"""Which models are served, and which of them translates between two languages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


Pair = tuple[str, str]

_NAMED = re.compile(r"(\w+)-(\w+)=(.+)")


@dataclass(frozen=True)
class Loading:
    """How models are loaded; see `Translator.from_pretrained`.

    Attributes:
        backend: "torch" or "ctranslate2".
        device: Where they run.
        dtype: The type of the weights.
        batch_tokens: The most source tokens, with padding, that are translated at once.
        beam_size: Hypotheses kept at each step where a request does not say; None for the model's own.
    """

    backend: str = "torch"
    device: str | None = None
    dtype: str | None = None
    batch_tokens: int = 1024
    beam_size: int | None = None


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve.

    Attributes:
        place: Its folder, or its name on the Hub.
        pairs: Its languages, (source, target). None are known where nobody named them.
    """

    place: str
    pairs: tuple[Pair, ...] = ()

    @property
    def name(self) -> str:
        """What clients call it: nothing of the path of its folder but the last part."""
        return Path(self.place).resolve().name if Path(self.place).exists() else self.place

    @classmethod
    def parse(cls, text: str) -> "ModelSpec":
        """Returns the model of an argument: `FOLDER`, or with languages `en-de=FOLDER`."""
        found = None if Path(text).exists() else _NAMED.fullmatch(text)
        return cls(text) if found is None else cls(found[3], ((found[1], found[2]),))


def pairs_of_card(folder: str) -> tuple[Pair, ...]:
    """Returns the languages that the card in a model's folder names; none for a model of the Hub.

    Raises:
        ValueError: If the card is damaged, or names several target languages.
    """
    if not Path(folder).is_dir():
        return ()
    from hf_seq2seq.hub.publishing import facts_in

    facts = facts_in(folder)
    if len(facts.target_languages) > 1:
        raise ValueError(
            f"The card of `{folder}` must name one target language for a server, but names "
            f"{', '.join(facts.target_languages)}. Say which pair it translates, such as en-de={folder}."
        )
    return tuple((source, target) for target in facts.target_languages for source in facts.source_languages)


class UnknownLanguageError(ValueError):
    """A pair of languages that no model translates."""


@dataclass(frozen=True)
class ServedModels:
    """The models of a server.

    Attributes:
        models: Each with its languages.

    Raises:
        ValueError: If one of several models has no languages, or two have the same.
    """

    models: Sequence[ModelSpec]
    _numbers: dict[Pair, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for number, model in enumerate(self.models):
            if not model.pairs and len(self.models) > 1:
                raise ValueError(
                    f"Each of several models must have its languages, but `{model.place}` names none. Write them "
                    f"before it, such as en-de={model.place}."
                )
            for pair in model.pairs:
                if pair in self._numbers:
                    raise ValueError(
                        f"`MODEL` must be one model for each pair of languages, but `{model.place}` and "
                        f"`{self.models[self._numbers[pair]].place}` both translate {pair[0]}-{pair[1]}. Leave one "
                        "out."
                    )
                self._numbers[pair] = number

    def find(self, source: str | None, target: str | None) -> int:
        """Returns the number of the model that translates between two languages.

        Args:
            source: Code of the language; None or "auto" for the only model's.
            target: Code of the language; None for the only model's.

        Raises:
            UnknownLanguageError: If there is none, or several.
        """
        source = None if source == "auto" else source
        if not self._numbers:  # one model, of which only its user knows the languages
            return 0
        sources = sorted({known for known, _ in self._numbers})
        if source is not None and source not in sources:
            raise UnknownLanguageError(f"`source` must be {_one_of(sources)}, but is {source!r} instead.")
        pairs = [pair for pair in self._numbers if source in (None, pair[0])]
        targets = sorted({known for _, known in pairs})
        if target is not None and target not in targets:
            raise UnknownLanguageError(f"`target` must be {_one_of(targets)}, but is {target!r} instead.")
        numbers = {self._numbers[pair] for pair in pairs if target in (None, pair[1])}
        if source is None and len(self.models) > 1:
            raise UnknownLanguageError(f"`source` must be {_one_of(sources)}: it is not found out from the text.")
        if len(numbers) > 1:
            raise UnknownLanguageError(f"`target` must be {_one_of(targets)}, but is missing.")
        return numbers.pop()

    def languages(self) -> list[dict[str, Any]]:
        """Returns the source languages as LibreTranslate does: code, name, and the codes of the targets."""
        targets: dict[str, list[str]] = {}
        for source, target in self._numbers:
            targets.setdefault(source, []).append(target)
        return [
            {"code": source, "name": _name(source), "targets": sorted(found)}
            for source, found in sorted(targets.items())
        ]


def _one_of(codes: Sequence[str]) -> str:
    return codes[0] if len(codes) == 1 else f"one of {', '.join(codes)}"


def _name(code: str) -> str:
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("-", "_")).english_name or code
    except (ValueError, UnknownLocaleError):
        return code
