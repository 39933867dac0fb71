"""Translate texts, or lines without end, with a trained model: sort, batch, search, restore the order."""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, Self, Unpack, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.output_limits import longest_output
from hf_seq2seq.token_lookup import encode_sources, encode_targets, ids_to_tokens

from .hypothesis import Hypothesis, SearchOptions
from .sentences import join_hypotheses, split_sentences
from .torch_search import Ids, TorchSearch
from .windows import growing_sizes, in_lists


logger = logging.getLogger(__name__)

BACKENDS = ("torch", "ctranslate2")

# A text counts as at least so many tokens in a batch, since what very short ones become may be long.
_SHORTEST = 8


class Translator:
    """Translates texts: `translator("text")`, `translator(["text", ...])` or `translator.stream(lines)`.

    A text is one line and so is its translation, whatever it holds: a line break that the model writes becomes a
    space. A blank text has a blank translation. An output has at most as many tokens as its source and 50 more, as in
    Vaswani et al. (2017), section 6.1. A text is translated the same alone and among others.

    `translator.hypotheses(texts)` tells more: several translations of each text, their log-probabilities, and the
    attention of their tokens to the source.

    A text longer than `model_max_length` of the tokenizer, the length that the model was trained on, is translated
    with a warning. Where learned positions end, it is cut, which the warning says.

    Args:
        model: A sequence-to-sequence model; it is put in evaluation mode. Or what searches in its place: see
            `from_pretrained` for the backends.
        tokenizer: The tokenizer it was trained with.
        batch_tokens: The most source tokens, with padding, that are translated at once. More are faster, up to what
            the device can use, and need more memory.

    Raises:
        ValueError: If `batch_tokens` is not positive.
    """

    def __init__(
        self,
        model: "PreTrainedModel | TorchSearch",
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_tokens: int = 1024,
    ) -> None:
        if batch_tokens < 1:
            raise ValueError(f"`batch_tokens` must be at least 1, but is {batch_tokens} instead.")
        self._searcher: Any = TorchSearch(model) if isinstance(model, torch.nn.Module) else model
        self.tokenizer: Any = tokenizer
        self.batch_tokens = batch_tokens

    @property
    def model(self) -> Any:
        """The model, where PyTorch runs it."""
        return self._searcher.model

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        batch_tokens: int = 1024,
        backend: Literal["torch", "ctranslate2"] = "torch",
        revision: str | None = None,
    ) -> Self:
        """Load a model and its tokenizer.

        Args:
            path_or_repo: A folder, or the name of a repository on the Hub.
            device: Where to run, such as "cpu" or "cuda:1"; by default on an accelerator where there is one.
            dtype: The type of the weights, such as "bfloat16"; by default the one they were saved in.
            batch_tokens: As for the class.
            backend: "torch", or "ctranslate2" for a folder that `hf-seq2seq export ctranslate2` wrote.
            revision: Branch, tag or commit of a repository; by default "main".

        Raises:
            OSError: If the folder or repository does not exist or holds no model, **or**
            ValueError: If its files cannot be read, or there is no such device or backend.
            ImportError: If the backend is not installed.
        """
        if backend not in BACKENDS:
            raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, but is {backend!r} instead.")
        if backend == "ctranslate2":
            from .ctranslate2_search import CTranslate2Search

            searcher: Any = CTranslate2Search(path_or_repo, device=device, dtype=dtype)
            return cls(searcher, load_tokenizer(path_or_repo, revision=revision), batch_tokens=batch_tokens)
        chosen = _check_device(device)
        model: Any = load_model(path_or_repo, dtype=dtype, revision=revision)
        return cls(model.to(chosen), load_tokenizer(path_or_repo, revision=revision), batch_tokens=batch_tokens)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, texts: str, *, prefix: str | None = None, **options: Unpack[SearchOptions]
    ) -> str: ...

    @overload
    def __call__(
        self, texts: Iterable[str], *, prefix: str | Sequence[str] | None = None, **options: Unpack[SearchOptions]
    ) -> list[str]: ...

    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        prefix: str | Sequence[str] | None = None,
        **options: Unpack[SearchOptions],
    ) -> str | list[str]:
        """Translate one text or several.

        Args:
            texts: The text, or the texts.
            prefix: What each translation begins with, such as a language tag that the model was trained with as the
                first target token: one for all texts, or one for each.
            **options: See `SearchOptions`.

        Returns:
            The translation, or the list of translations in the order of the texts.

        Raises:
            ValueError: If an option is out of range, a text is not a string, a token of it is not in the model's
                vocabulary, or the number of prefixes differs.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        translations = [found[0].text for found in self.hypotheses(several, prefix=prefix, scores=False, **options)]
        return translations[0] if isinstance(texts, str) else translations

    def hypotheses(
        self,
        texts: Iterable[str],
        *,
        prefix: str | Sequence[str] | None = None,
        scores: bool = True,
        attention: bool = False,
        first_number: int = 1,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hypothesis]]:
        """Translate texts and tell of each translation more than its text.

        Args:
            texts: The texts.
            prefix: As for calling the translator.
            scores: Whether the log-probabilities of the tokens are wanted: those of one more forward pass, in which
                the output is given.
            attention: Whether their attention to the source is wanted, from the same pass.
            first_number: Number of the line that the first text is called in messages.
            **options: See `SearchOptions`.

        Returns:
            For each text its `n_best` hypotheses, the best first; for a blank one a blank one.

        Raises:
            ValueError: As calling the translator does.
        """
        settings = self._settings(options, attention)
        return self._translate(list(texts), prefix, settings, (scores, attention), first_number)

    def stream(
        self,
        texts: Iterable[str],
        *,
        window: int | None = None,
        prefix: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Iterator[str]:
        """Translate texts as they come, in order, holding no more than a window of them.

        Args:
            texts: The texts; they may have no end.
            window: As for `windows`.
            prefix: What each translation begins with.
            **options: See `SearchOptions`.

        Returns:
            An iterator over the translations.

        Raises:
            ValueError: As calling the translator does, or if `window` is not positive.
        """
        windows = self.windows(texts, window=window, prefix=prefix, scores=False, **options)
        return (found[0].text for found in chain.from_iterable(windows))

    def windows(
        self,
        texts: Iterable[str],
        *,
        window: int | None = None,
        prefix: str | None = None,
        scores: bool = True,
        attention: bool = False,
        **options: Unpack[SearchOptions],
    ) -> Iterator[list[list[Hypothesis]]]:
        """Translate as `stream` does, and give out together what is done at the same time, as `hypotheses` does.

        The first window is one text, and the next ones are larger up to the full size: the first translation comes at
        once, and the batches of later windows are full. Where `texts` raises, what it gave before is translated first.

        Args:
            texts: The texts; they may have no end.
            window: The most texts to read ahead; they are sorted by length to share batches. By default half of
                `batch_tokens`, which makes about ten batches of ordinary sentences.
            prefix: What each translation begins with.
            scores: As for `hypotheses`.
            attention: As for `hypotheses`.
            **options: See `SearchOptions`.

        Returns:
            An iterator over lists of what `hypotheses` returns for each text.

        Raises:
            ValueError: As calling the translator does, or if `window` is not positive.
        """
        window = max(1, self.batch_tokens // 2) if window is None else window
        if window < 1:
            raise ValueError(f"`window` must be at least 1, but is {window} instead.")
        settings = self._settings(options, attention)
        return self._translate_windows(in_lists(texts, growing_sizes(window)), prefix, settings, (scores, attention))

    def _settings(self, options: SearchOptions, attention: bool) -> dict[str, Any]:
        settings: dict[str, Any] = self._searcher.settings(options)
        split_language = options.get("split_language")
        if split_language is not None and (attention or settings["num_return_sequences"] > 1):
            raise ValueError(
                f"`split_language` must be left out with several hypotheses or `attention`, but is {split_language!r}."
            )
        if split_language is not None:
            split_sentences("", split_language)  # tells at once where the library for it is missing
        return settings | {"split_language": split_language}

    def _translate_windows(
        self, windows: Iterable[list[str]], prefix: str | None, settings: dict[str, Any], wanted: tuple[bool, bool]
    ) -> Iterator[list[list[Hypothesis]]]:
        first_number = 1
        for texts in windows:
            yield self._translate(texts, prefix, settings, wanted, first_number)
            first_number += len(texts)

    def _translate(
        self,
        texts: Sequence[str],
        prefix: str | Sequence[str] | None,
        settings: dict[str, Any],
        wanted: tuple[bool, bool],
        first_number: int,
    ) -> list[list[Hypothesis]]:
        """Translate texts of which the first is called line `first_number` in messages."""
        numbers = list(range(first_number, first_number + len(texts)))
        for number, text in zip(numbers, texts, strict=True):
            _check_text(text, f"Line {number}")
        prefixes = self._encode_prefixes(prefix, len(texts))
        language = settings["split_language"]
        settings = {name: value for name, value in settings.items() if name != "split_language"}
        if language is None:
            return self._translate_sentences(texts, prefixes, numbers, settings, wanted)
        sentences = [split_sentences(text, language) for text in texts]
        owners = [row for row, of_text in enumerate(sentences) for _ in of_text]
        found = self._translate_sentences(
            list(chain.from_iterable(sentences)),
            [prefixes[row] for row in owners],
            [numbers[row] for row in owners],
            settings,
            wanted,
        )
        parts = iter(found)
        return [[join_hypotheses([next(parts)[0] for _ in of_text])] for of_text in sentences]

    def _translate_sentences(
        self,
        texts: Sequence[str],
        prefixes: Sequence[Ids],
        numbers: Sequence[int],
        settings: dict[str, Any],
        wanted: tuple[bool, bool],
    ) -> list[list[Hypothesis]]:
        found = [[Hypothesis("")] * settings["num_return_sequences"] for _ in texts]
        sources = self._encode(texts, numbers)
        for row, ids in sources.items():
            if len(prefixes[row]) >= longest_output(len(ids)):
                raise ValueError(
                    f"`prefix` must be shorter than the longest output of its text ({longest_output(len(ids))} "
                    f"tokens), but that of line {numbers[row]} has {len(prefixes[row])} tokens."
                )
        for rows in _token_budget_batches({row: len(ids) for row, ids in sources.items()}, self.batch_tokens):
            batch = [sources[row] for row in rows]
            outputs = self._searcher.search(batch, [prefixes[row] for row in rows], settings)
            hypotheses = [[self._hypothesis(ids) for ids in ids_of_row] for ids_of_row in outputs]
            if any(wanted):
                hypotheses = self._score(batch, outputs, hypotheses, *wanted)
            for row, hypotheses_of_row in zip(rows, hypotheses, strict=True):
                found[row] = hypotheses_of_row
        return found

    def _hypothesis(self, ids: Ids) -> Hypothesis:
        text = self.tokenizer.decode(ids, skip_special_tokens=True).replace("\n", " ").replace("\r", " ")
        return Hypothesis(text, tuple(ids_to_tokens(self.tokenizer, ids, "target")), tuple(ids))

    def _score(
        self,
        sources: Sequence[Ids],
        outputs: Sequence[Sequence[Ids]],
        hypotheses: Sequence[Sequence[Hypothesis]],
        with_scores: bool,
        with_attention: bool,
    ) -> list[list[Hypothesis]]:
        """Add what the model says of its outputs, in batches of their own: outputs may be longer than sources."""
        scored = [list(of_row) for of_row in hypotheses]
        places = [(row, rank) for row, of_row in enumerate(outputs) for rank in range(len(of_row))]
        lengths = {
            number: max(len(sources[row]), len(outputs[row][rank])) for number, (row, rank) in enumerate(places)
        }
        for numbers in _token_budget_batches(lengths, self.batch_tokens):
            batch = [places[number] for number in numbers]
            found = self._searcher.score(
                [sources[row] for row, _ in batch],
                [outputs[row][rank] for row, rank in batch],
                with_attention=with_attention,
            )
            for (row, rank), scores in zip(batch, found, strict=True):
                more: dict[str, Any] = {"token_log_probs": tuple(scores.log_probs)} if with_scores else {}
                if with_attention:
                    more["attention"] = scores.attention
                    more["source_tokens"] = tuple(ids_to_tokens(self.tokenizer, sources[row], "source"))
                scored[row][rank] = replace(scored[row][rank], **more)
        return scored

    def _encode_prefixes(self, prefix: str | Sequence[str] | None, number: int) -> list[Ids]:
        """Return the token ids of each translation's beginning, without an end token."""
        if prefix is None:
            return [[]] * number
        prefixes = [prefix] * number if isinstance(prefix, str) else list(prefix)
        if len(prefixes) != number:
            raise ValueError(
                f"`prefix` must be one text, or one for each of the {number} texts, but are {len(prefixes)} instead."
            )
        if not prefixes:
            return []
        for text in prefixes:
            _check_text(text, "`prefix`")
        encoded = encode_targets(self.tokenizer, prefixes)
        return [[token for token in ids if token != self.tokenizer.eos_token_id] for ids in encoded]

    def _encode(self, texts: Sequence[str], numbers: Sequence[int]) -> dict[int, Ids]:
        """Return the token ids of each text that is not blank, by its row."""
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return {}
        encoded = encode_sources(self.tokenizer, [texts[row] for row in rows])
        sources = {row: ids for row, ids in zip(rows, encoded, strict=True) if ids}
        self._check_vocabulary(sources, numbers)
        return self._fit_length(sources, numbers)

    def _check_vocabulary(self, sources: dict[int, Ids], numbers: Sequence[int]) -> None:
        vocab_size = self._searcher.vocab_size
        for row, ids in sources.items():
            if max(ids) >= vocab_size:
                raise ValueError(
                    f"Token ids must be below the size of the model's vocabulary ({vocab_size}), but the token "
                    f"{ids_to_tokens(self.tokenizer, [max(ids)], 'source')[0]!r} in line {numbers[row]} has the id "
                    f"{max(ids)} instead. Use the tokenizer that the model was trained with."
                )

    def _fit_length(self, sources: dict[int, Ids], numbers: Sequence[int]) -> dict[int, Ids]:
        """Warn of texts longer than the model knows, and cut those that its position table cannot hold."""
        trained_length, longest = self.tokenizer.model_max_length, self._searcher.position_limit
        too_long = [row for row, ids in sources.items() if len(ids) > longest]
        unusual = [row for row, ids in sources.items() if trained_length < len(ids) <= longest]
        if too_long:
            logger.warning(
                "%s: only the first %d tokens are translated, since the model has no positions for more.",
                *(_name_lines([numbers[row] for row in too_long]), longest),
            )
        if unusual:
            logger.warning(
                "%s: longer than the %d tokens that the model was trained on; the translation may be poor.",
                *(_name_lines([numbers[row] for row in unusual]), trained_length),
            )
        cut = {row: sources[row][: int(longest) - 1] + sources[row][-1:] for row in too_long}  # keeps the end token
        return sources | cut


def _check_device(device: str | torch.device | None) -> str | torch.device:
    """Return a device that computes: the given one, or an accelerator where there is one."""
    if device is None:
        return torch.accelerator.current_accelerator(check_available=True) or "cpu"
    if str(device) == "meta":
        raise ValueError("`device` must be one that computes, but is 'meta' instead. Take 'cpu'.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise ValueError(
            f"`device` must be one that torch finds on this machine, but is {str(device)!r} instead "
            f"({str(error).splitlines()[0]})."
        ) from error
    return device


def _check_text(text: str, name: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a string, but is {text!r} instead.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode, but holds half of a surrogate pair. Take it out.") from None


def _token_budget_batches(lengths: dict[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield rows in batches of like length that hold, padded, at most `batch_tokens` tokens or a single row.

    The longest come first: what does not fit into memory fails at once.
    """
    batch: list[int] = []
    for row in sorted(lengths, key=lengths.__getitem__, reverse=True):
        if batch and max(lengths[batch[0]], _SHORTEST) * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _name_lines(numbers: Sequence[int]) -> str:
    """Return "Line 3" or "Lines 3, 5 and 8", with at most ten numbers."""
    several = sorted(set(numbers))
    names = [str(number) for number in several[:10]]
    if len(several) > 10:
        names.append(f"{len(several) - 10} more")
    return f"Line {names[0]}" if len(names) == 1 else f"Lines {', '.join(names[:-1])} and {names[-1]}"
