"""Translates texts, or lines without end, with a trained model."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Literal, Self, Unpack, overload

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_seq2seq.error_messages import first_line
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.token_lookup import unknown_id

from .encoding import decode, encode
from .hypothesis import Hypothesis
from .ranking import rank
from .segment import Output, Segment, number_lines
from .sentences import join_lines, split_lines, split_sentences
from .settings import DecodingSettings, SearchOptions, check_number
from .terms import BannedWords, Glossary, token_texts
from .torch_search import TorchSearch
from .windows import in_batches, in_windows


# Up to so many rows of the decoder for each text a batch has as many tokens as asked for.
_USUAL_ROWS = 16

BACKENDS = ("torch", "ctranslate2")


class Translator:
    """Translates texts: `translator("text")`, `translator(["text", ...])` or `translator.stream(lines)`.

    Each text is one line and so is its translation: a line break that the model writes becomes a space. A blank text
    has a blank translation. An output has at most 50 tokens more than its source (Vaswani et al. 2017, section 6.1).
    A text has the same translation by itself and among others.

    `translator.hypotheses(texts)` tells more: several translations of each text, their log-probabilities, and the
    attention of their tokens to the source.

    A text longer than the tokenizer's `model_max_length`, the length that the model was trained on, is translated
    with a warning. One of more than 1,024 tokens is cut with a warning, unless the options `max_source_tokens` and
    `over_long` say otherwise. So is one that is longer than the table of a model with learned positions.

    A translator can be pickled and copied, so it can go to worker processes; forked ones can use it too. There the
    backend ctranslate2 loads the model from its folder again, and torch computes with one thread in a forked process.

    Args:
        model: A sequence-to-sequence model, which is put in evaluation mode, or the search of another backend.
        tokenizer: The tokenizer it was trained with.
        batch_tokens: The most source tokens, with padding, that are translated at once. More are faster, up to what
            the device can use, and need more memory.

    Raises:
        TypeError: If a folder's name is given in place of a model, or there is no tokenizer.
        ValueError: If `batch_tokens` is not positive.
    """

    def __init__(
        self,
        model: "PreTrainedModel | TorchSearch",
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        batch_tokens: int = 1024,
    ) -> None:
        if model is None or tokenizer is None or isinstance(model, str | os.PathLike):
            folder = "FOLDER" if isinstance(model, torch.nn.Module) or model is None else model
            raise TypeError(
                "`Translator` must be given a model and its tokenizer, but one of them is missing. Load both from a "
                f"folder, or from the Hub, with `Translator.from_pretrained({str(folder)!r})`."
            )
        check_number("batch_tokens", batch_tokens)
        self._searcher: Any = TorchSearch(model) if isinstance(model, torch.nn.Module) else model
        self.tokenizer: Any = tokenizer
        self.batch_tokens = batch_tokens

    @property
    def model(self) -> Any:
        """The model that the backend runs."""
        return self._searcher.model

    @property
    def num_positions(self) -> float:
        """The most tokens of a text that the model has positions for; infinity where nothing limits them."""
        return float(self._searcher.num_positions)

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        batch_tokens: int = 1024,
        backend: Literal["torch", "ctranslate2"] = "torch",
        revision: str | None = None,
    ) -> Self:
        """Loads a model and its tokenizer.

        Args:
            path_or_repo: A folder, or the name of a repository on the Hub. Several of them, such as checkpoints, make
                an `Ensemble`, which needs the memory and the time of all; their vocabulary is one.
            device: Where it runs, such as "cpu" or "cuda:1"; by default an accelerator where there is one.
            dtype: The type of the weights, such as "bfloat16"; by default the one they were saved in.
            batch_tokens: The most source tokens, with padding, that are translated at once.
            backend: "torch", or "ctranslate2" for a folder that `hf-seq2seq export ctranslate2` wrote.
            revision: Branch, tag or commit of a repository; by default "main".

        Raises:
            OSError: If the folder or repository does not exist or holds no model.
            ValueError: If its files cannot be read, or there is no such device or backend, or if several models
                have different vocabularies, a `revision` or the backend ctranslate2.
            ImportError: If the backend is not installed.
        """
        if backend not in BACKENDS:
            raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, but is {backend!r} instead.")
        if not isinstance(path_or_repo, str | os.PathLike):
            if backend != "torch" or revision is not None:
                raise ValueError(
                    "Several models must have the backend torch and no `revision`, but have the backend "
                    f"{backend} and the revision {revision}. Give one model, or leave both out."
                )
            chosen = _check_device(device)
            _check_dtype(dtype)
            ensemble, tokenizer = _load_ensemble(path_or_repo, dtype)
            return cls(ensemble.to(chosen), tokenizer, batch_tokens=batch_tokens)
        if backend == "ctranslate2":
            from .ctranslate2_search import CTranslate2Search

            searcher: Any = CTranslate2Search(path_or_repo, device=device, dtype=dtype)
            return cls(searcher, load_tokenizer(path_or_repo, revision=revision), batch_tokens=batch_tokens)
        chosen = _check_device(device)
        _check_dtype(dtype)
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
        """Translates one text or several.

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
        **options: Unpack[SearchOptions],
    ) -> list[list[Hypothesis]]:
        """Translates texts and tells of each translation more than its text.

        Args:
            texts: The texts.
            prefix: What each translation begins with: one for all texts, or one for each.
            scores: Whether the log-probabilities of the tokens are wanted. They cost a forward pass over the output.
            attention: Whether the attention of the tokens to the source is wanted, from the same pass.
            **options: See `SearchOptions`.

        Returns:
            For each text its `n_best` hypotheses, the best first; for a blank text blank ones.

        Raises:
            ValueError: As calling the translator does.
        """
        settings = self.settings(scores=scores, attention=attention, **options)
        texts = list(texts)
        prefixes = [prefix] * len(texts) if prefix is None or isinstance(prefix, str) else list(prefix)
        if len(prefixes) != len(texts):
            raise ValueError(
                f"`prefix` must be one text, or one for each of the {len(texts)} texts, but are {len(prefixes)} "
                "instead."
            )
        return [list(line.hypotheses) for line in self.translate_lines(list(number_lines(texts, prefixes)), settings)]

    def stream(
        self,
        texts: Iterable[str],
        *,
        window: int | None = None,
        prefix: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Iterator[str]:
        """Translates texts as they come, in order, reading ahead no more than a window of them.

        Args:
            texts: The texts; they may have no end.
            window: The most texts to read ahead; by default half of `batch_tokens`.
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
        """Translates as `stream` does, and returns what `hypotheses` returns for all texts of a window together.

        The first window is one text, and the next ones are larger up to the full size: the first translation comes at
        once, and the batches of later windows are full. Where `texts` raises, what it gave before is translated first.

        Args:
            texts: The texts; they may have no end.
            window: The most texts to read ahead; they are sorted by length to share batches. By default half of
                `batch_tokens`, which makes about ten batches of ordinary sentences.
            prefix: What each translation begins with.
            scores: Whether the log-probabilities of the tokens are wanted.
            attention: Whether the attention of the tokens to the source is wanted.
            **options: See `SearchOptions`.

        Returns:
            An iterator over windows: for each text of a window its hypotheses.

        Raises:
            ValueError: As calling the translator does, or if `window` is not positive.
        """
        window = self.window if window is None else window
        check_number("window", window)
        settings = self.settings(scores=scores, attention=attention, **options)
        windows = in_windows(number_lines(texts, repeat(prefix)), window)
        return ([list(line.hypotheses) for line in self.translate_lines(lines, settings)] for lines in windows)

    @property
    def window(self) -> int:
        """The most texts that are read ahead of their translation, where nothing else is asked for."""
        return max(1, self.batch_tokens // 2)

    def settings(
        self, *, scores: bool = False, attention: bool = False, **options: Unpack[SearchOptions]
    ) -> DecodingSettings:
        """Returns options as they are followed, those that are left out being the model's own.

        Raises:
            ValueError: If an option is out of range, or some contradict each other.
            ImportError: If a library that an option needs is not installed.
        """
        given: Any = dict(options)
        if terms := given.pop("terms", None):
            given["terms"] = Glossary(terms, self.tokenizer, self._token_texts)
        if bad_words := given.pop("bad_words", None):
            given["bad_words"] = BannedWords(bad_words, self._token_texts)
            given["bad_words"].check_terms((terms or {}).values())
        settings = DecodingSettings.resolve(
            given,
            self._searcher.generation_config,
            unknown_id=unknown_id(self.tokenizer, "target"),
            scores=scores,
            attention=attention,
        )
        for name in self._searcher.lacks:
            value = getattr(settings, name)
            if value is not None and value is not False:
                raise ValueError(
                    f"`{name}` must be left out with the backend {self._searcher.name}, but is {value!r} instead. "
                    "Take the backend torch for it."
                )
        if settings.split_language is not None:
            split_sentences("", settings.split_language)  # fails where the library for it is missing
        return settings

    @cached_property
    def _token_texts(self) -> dict[int, bytes]:
        return token_texts(self.tokenizer)

    def translate_lines(self, lines: Sequence[Segment], settings: DecodingSettings) -> list[Segment]:
        """Returns lines with their hypotheses. Each step on the way is a function from segments to segments.

        Args:
            lines: Lines with numbers of their own.
            settings: What the method `settings` returned.

        Raises:
            ValueError: If a token is not in the model's vocabulary, or a prefix is too long.
        """
        segments = encode(
            split_lines(lines, settings.split_language, self.tokenizer),
            self.tokenizer,
            settings,
            vocab_size=self._searcher.vocab_size,
            num_positions=self._searcher.num_positions,
        )
        blank = [Hypothesis("")] * settings.n_best
        translated = [replace(segment, hypotheses=blank) for segment in segments if not segment.ids]
        with_ids = [segment for segment in segments if segment.ids]
        # Many samples or beams of a text would need the memory of many texts.
        batch_tokens = self.batch_tokens * _USUAL_ROWS // max(_USUAL_ROWS, settings.num_hypotheses, settings.beam_size)
        batches = [  # the search for terms is slower
            batch
            for has_terms in (False, True)
            for batch in in_batches(
                (segment for segment in with_ids if bool(segment.required) is has_terms),
                lambda segment: len(segment.ids),
                batch_tokens,
            )
        ]
        for batch in batches:
            found = self._search(batch, settings)
            if settings.needs_log_probs or settings.attention:
                found = self._score(found, settings)
            translated += [rank(decode(segment, self.tokenizer, settings), settings) for segment in found]
        return join_lines(lines, translated)

    def _search(self, batch: Sequence[Segment], settings: DecodingSettings) -> list[Segment]:
        """Returns segments with their outputs."""
        found = self._searcher.search(batch, settings)
        return [replace(segment, outputs=outputs) for segment, outputs in zip(batch, found, strict=True)]

    def _score(self, segments: Sequence[Segment], settings: DecodingSettings) -> list[Segment]:
        """Returns segments with what the model says of their outputs.

        The batches are others than those of the search, since an output may be longer than its source.
        """
        pairs = [(segment.ids, output) for segment in segments for output in segment.outputs]
        lengths = [max(len(source), len(output.ids)) for source, output in pairs]
        scored: dict[int, Output] = {}
        for numbers in in_batches(range(len(pairs)), lambda number: lengths[number], self.batch_tokens):
            sources, outputs = zip(*(pairs[number] for number in numbers), strict=True)
            found = self._searcher.score(
                sources, [output.ids for output in outputs], with_attention=settings.attention
            )
            for number, output, told in zip(numbers, outputs, found, strict=True):
                log_probs = told.log_probs if settings.needs_log_probs else ()
                scored[number] = replace(output, log_probs=log_probs, attention=told.attention)
        in_order = iter([scored[number] for number in range(len(pairs))])
        return [replace(segment, outputs=[next(in_order) for _ in segment.outputs]) for segment in segments]


def _load_ensemble(
    paths_or_repos: Sequence[str | os.PathLike[str]], dtype: str | torch.dtype | None
) -> tuple[Any, PreTrainedTokenizerBase]:
    """Returns the ensemble of several models, or the model if there is one, and their tokenizer."""
    from .ensemble import Ensemble, check_same_tokenizer

    if not paths_or_repos:
        raise ValueError("`path_or_repo` must name at least one model, but is empty.")
    first, *others = paths_or_repos
    tokenizer = load_tokenizer(first)
    for other in others:
        check_same_tokenizer(tokenizer, load_tokenizer(other), first, other)
    models = [load_model(each, dtype=dtype) for each in paths_or_repos]
    return Ensemble(models) if others else models[0], tokenizer


def _check_dtype(dtype: str | torch.dtype | None) -> None:
    """Raises ValueError if weights cannot have a type."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype not in (None, "auto") and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise ValueError(
            f"`dtype` must be a type of floating point numbers that torch has, but is {dtype!r} instead. Take "
            "'float32', 'bfloat16' or 'float16'."
        )


def _check_device(device: str | torch.device | None) -> str | torch.device:
    """Returns a device that computes: the given one, or an accelerator where there is one."""
    if device is None:
        return torch.accelerator.current_accelerator(check_available=True) or "cpu"
    if str(device) == "meta":
        raise ValueError("`device` must be one that computes, but is 'meta' instead. Take 'cpu'.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise ValueError(
            f"`device` must be one that torch finds on this machine, but is {str(device)!r} instead "
            f"({first_line(error)})."
        ) from error
    return device
