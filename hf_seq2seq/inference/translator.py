"""Translate texts, or lines without end, with a trained model: sort, batch, generate, restore the order."""

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Self, TypedDict, Unpack, overload

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria

from hf_seq2seq.loading import load_model, load_tokenizer


logger = logging.getLogger(__name__)

# Vaswani et al. (2017), section 6.1: how many more tokens than its source an output may have.
EXTRA_LENGTH = 50


class SearchOptions(TypedDict, total=False):
    """How outputs are searched for; what is left out comes from the model's `generation_config`.

    Attributes:
        beam_size: Number of hypotheses kept at each step; 1 is greedy search.
        length_penalty: The power of a hypothesis' length that its log-probability is divided by: 0 prefers short
            outputs, larger values longer ones. Greedy search does not use it.
    """

    beam_size: int
    length_penalty: float


class Translator:
    """Translates texts: `translator("text")`, `translator(["text", ...])` or `translator.stream(lines)`.

    A text is one line and so is its translation, whatever it holds: a line break that the model writes becomes a
    space. A blank text has a blank translation. An output has at most as many tokens as its source and 50 more, as in
    Vaswani et al. (2017), section 6.1. A text is translated the same alone and among others.

    A text longer than `model_max_length` of the tokenizer, the length that the model was trained on, is translated
    with a warning. Where learned positions end, it is cut, which the warning says.

    Args:
        model: A sequence-to-sequence model; it is put in evaluation mode.
        tokenizer: The tokenizer it was trained with.
        batch_tokens: The most source tokens, with padding, that are translated at once. More are faster, up to what
            the device can use, and need more memory.

    Raises:
        ValueError: If `batch_tokens` is not positive.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, batch_tokens: int = 1024
    ) -> None:
        if batch_tokens < 1:
            raise ValueError(f"`batch_tokens` must be at least 1, but is {batch_tokens} instead.")
        self.model: Any = model.eval()
        self.tokenizer: Any = tokenizer
        self.batch_tokens = batch_tokens

    @classmethod
    def from_pretrained(
        cls,
        path_or_repo: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        batch_tokens: int = 1024,
    ) -> Self:
        """Load a model and its tokenizer.

        Args:
            path_or_repo: A folder, or the name of a repository on the Hub.
            device: Where to run, such as "cpu" or "cuda:1"; by default on an accelerator where there is one.
            dtype: The type of the weights, such as "bfloat16"; by default the one they were saved in.
            batch_tokens: As for the class.

        Raises:
            OSError: If the folder or repository does not exist or holds no model, **or**
            ValueError: If its files cannot be read, or there is no such device.
        """
        if device is None:
            device = torch.accelerator.current_accelerator() or "cpu"
        if str(device) == "meta":
            raise ValueError("`device` must be one that computes, but is 'meta' instead. Take 'cpu'.")
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
            raise ValueError(
                f"`device` must be one that torch finds on this machine, but is {str(device)!r} instead "
                f"({str(error).splitlines()[0]})."
            ) from error
        model: Any = load_model(path_or_repo, dtype=dtype)
        return cls(model.to(device), load_tokenizer(path_or_repo), batch_tokens=batch_tokens)

    @overload
    def __call__(self, texts: str, **options: Unpack[SearchOptions]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, texts: Iterable[str], **options: Unpack[SearchOptions]) -> list[str]: ...

    def __call__(self, texts: str | Iterable[str], **options: Unpack[SearchOptions]) -> str | list[str]:
        """Translate one text or several.

        Args:
            texts: The text, or the texts.
            **options: See `SearchOptions`.

        Returns:
            The translation, or the list of translations in the order of the texts.

        Raises:
            ValueError: If an option is out of range, a text is not a string, or a token of it is not in the model's
                vocabulary.
        """
        settings = self._generation_settings(**options)
        if isinstance(texts, str):
            return self._translate([texts], settings)[0]
        return self._translate(list(texts), settings)

    def stream(
        self, texts: Iterable[str], *, window: int | None = None, **options: Unpack[SearchOptions]
    ) -> Iterator[str]:
        """Translate texts as they come, in order, holding no more than a window of them.

        Args:
            texts: The texts; they may have no end.
            window: As for `windows`.
            **options: See `SearchOptions`.

        Returns:
            An iterator over the translations.

        Raises:
            ValueError: As calling the translator does, or if `window` is not positive.
        """
        return chain.from_iterable(self.windows(texts, window=window, **options))

    def windows(
        self, texts: Iterable[str], *, window: int | None = None, **options: Unpack[SearchOptions]
    ) -> Iterator[list[str]]:
        """Translate as `stream` does, and give out together what is done at the same time.

        The first window is one text, and the next ones are larger up to the full size: the first translation comes at
        once, and the batches of later windows are full. Where `texts` raises, what it gave before is translated first.

        Args:
            texts: The texts; they may have no end.
            window: The most texts to read ahead; they are sorted by length to share batches. By default half of
                `batch_tokens`, which makes about ten batches of ordinary sentences.
            **options: See `SearchOptions`.

        Returns:
            An iterator over lists of translations.

        Raises:
            ValueError: As calling the translator does, or if `window` is not positive.
        """
        window = max(1, self.batch_tokens // 2) if window is None else window
        if window < 1:
            raise ValueError(f"`window` must be at least 1, but is {window} instead.")
        return self._translate_windows(_growing_windows(texts, window), self._generation_settings(**options))

    def _translate_windows(self, windows: Iterable[list[str]], settings: dict[str, Any]) -> Iterator[list[str]]:
        first_number = 1
        for texts in windows:
            yield self._translate(texts, settings, first_number)
            first_number += len(texts)

    def _generation_settings(
        self, *, beam_size: int | None = None, length_penalty: float | None = None
    ) -> dict[str, Any]:
        """Check the options and put them in terms of `generate`."""
        defaults = self.model.generation_config
        beam_size = (defaults.num_beams or 1) if beam_size is None else beam_size
        if beam_size < 1:
            raise ValueError(f"`beam_size` must be at least 1, but is {beam_size} instead.")
        settings = {"num_beams": beam_size, "use_cache": True}
        if beam_size == 1:
            return settings | {"early_stopping": False, "length_penalty": 1.0}  # generate warns of others: not used
        return settings | ({} if length_penalty is None else {"length_penalty": length_penalty})

    def _translate(self, texts: Sequence[str], settings: dict[str, Any], first_number: int = 1) -> list[str]:
        """Translate texts of which the first is called line `first_number` in messages."""
        translations = [""] * len(texts)
        sources = self._encode(texts, first_number)
        for rows in _token_budget_batches({row: len(ids) for row, ids in sources.items()}, self.batch_tokens):
            outputs = self._search([sources[row] for row in rows], settings)
            texts_of_rows = self.tokenizer.batch_decode(outputs, skip_special_tokens=True)
            for row, text in zip(rows, texts_of_rows, strict=True):
                translations[row] = text.replace("\n", " ").replace("\r", " ")
        return translations

    def _encode(self, texts: Sequence[str], first_number: int) -> dict[int, list[int]]:
        """Return the token ids of each text that is not blank, by its row."""
        for number, text in enumerate(texts, first_number):
            _check_text(text, number)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        if not rows:
            return {}
        # Not `verbose`: the tokenizer would warn of long texts too, once, and without a number.
        encoded = self.tokenizer([texts[row] for row in rows], verbose=False)["input_ids"]
        sources = {row: ids for row, ids in zip(rows, encoded, strict=True) if ids}
        self._check_vocabulary(sources, first_number)
        return self._fit_length(sources, first_number)

    def _check_vocabulary(self, sources: dict[int, list[int]], first_number: int) -> None:
        vocab_size = self.model.config.vocab_size
        for row, ids in sources.items():
            if max(ids) >= vocab_size:
                raise ValueError(
                    f"Token ids must be below the size of the model's vocabulary ({vocab_size}), but the token "
                    f"{self.tokenizer.convert_ids_to_tokens(max(ids))!r} in line {first_number + row} has the id "
                    f"{max(ids)} instead. Use the tokenizer that the model was trained with."
                )

    def _fit_length(self, sources: dict[int, list[int]], first_number: int) -> dict[int, list[int]]:
        """Warn of texts longer than the model knows, and cut those that its position table cannot hold."""
        trained_length, longest = self.tokenizer.model_max_length, self._position_limit()
        too_long = [row for row, ids in sources.items() if len(ids) > longest]
        unusual = [row for row, ids in sources.items() if trained_length < len(ids) <= longest]
        if too_long:
            logger.warning(
                "%s: only the first %d tokens are translated, since the model has no positions for more.",
                *(_name_lines(too_long, first_number), longest),
            )
        if unusual:
            logger.warning(
                "%s: longer than the %d tokens that the model was trained on; the translation may be poor.",
                *(_name_lines(unusual, first_number), trained_length),
            )
        cut = {row: sources[row][: int(longest) - 1] + sources[row][-1:] for row in too_long}  # keeps the end token
        return sources | cut

    def _position_limit(self) -> float:
        config = self.model.config
        is_learned = getattr(config, "position_embedding_type", None) == "learned"
        return config.max_position_embeddings if is_learned else math.inf

    @torch.inference_mode()
    def _search(self, sources: Sequence[list[int]], settings: dict[str, Any]) -> list[list[int]]:
        """Return the model's output for each source, without its start and end tokens."""
        limits = [int(min(len(ids) + EXTRA_LENGTH, self._position_limit())) for ids in sources]
        config, device = self.model.config, self.model.device
        input_ids = pad_sequence(list(map(torch.tensor, sources)), batch_first=True, padding_value=config.pad_token_id)
        lengths = torch.tensor(list(map(len, sources)))
        attention_mask = (torch.arange(input_ids.shape[1]) < lengths[:, None]).long()
        suppressed = self.model.generation_config.suppress_tokens
        outputs = self.model.generate(
            input_ids=input_ids.to(device),
            attention_mask=attention_mask.to(device),
            max_length=1 + max(limits),  # with the start token
            stopping_criteria=[_OutputLimits(torch.tensor(limits, device=device))],
            suppress_tokens=None,
            logits_processor=[_SuppressedTokens(torch.tensor(suppressed, device=device))] if suppressed else [],
            **settings,
        )
        eos_ids = self.model.generation_config.eos_token_id
        ends = set(eos_ids if isinstance(eos_ids, list) else [eos_ids])
        return [_cut(ids[1 : 1 + limit], ends) for ids, limit in zip(outputs.tolist(), limits, strict=True)]


class _OutputLimits(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Ends each output at a length of its own; `generate` itself has one limit for the whole batch."""

    def __init__(self, limits: torch.Tensor) -> None:
        self.limits = limits

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Tell for each hypothesis, those of one source being neighbours, whether it is as long as may be."""
        is_done = input_ids.shape[1] > self.limits  # > and not >=, since the start token does not count
        return is_done.repeat_interleave(input_ids.shape[0] // len(self.limits))


class _SuppressedTokens(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Bans tokens in place; for `suppress_tokens` `generate` itself copies all scores at each step."""

    def __init__(self, token_ids: torch.Tensor) -> None:
        self.token_ids = token_ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of shape (rows, V), those of the banned tokens set to minus infinity."""
        return scores.index_fill_(-1, self.token_ids, -torch.inf)


def _check_text(text: str, number: int) -> None:
    if not isinstance(text, str):
        raise ValueError(f"`texts` must be strings, but the one of line {number} is {text!r} instead.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"`texts` must be valid Unicode, but line {number} holds half of a surrogate pair. Take it out."
        ) from None


def _cut(ids: list[int], ends: set[int]) -> list[int]:
    """Return the ids before the first end token. Beam search fills up with end tokens, greedy search with padding."""
    for position, token in enumerate(ids):
        if token in ends:
            return ids[:position]
    return ids


def _growing_windows(texts: Iterable[str], largest: int) -> Iterator[list[str]]:
    """Yield texts in lists of 1, 8, 64, ... up to `largest`; where `texts` raises, first those that came before."""
    window: list[str] = []
    size, failure = 1, None
    try:
        for text in texts:
            window.append(text)
            if len(window) == size:
                yield window
                window, size = [], min(8 * size, largest)
    except Exception as error:
        failure = error
    if window:
        yield window
    if failure is not None:
        raise failure


def _token_budget_batches(lengths: dict[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield rows in batches of like length that hold, padded, at most `batch_tokens` tokens or a single row.

    The longest come first: what does not fit into memory fails at once.
    """
    batch: list[int] = []
    for row in sorted(lengths, key=lengths.__getitem__, reverse=True):
        if batch and lengths[batch[0]] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _name_lines(rows: Sequence[int], first_number: int) -> str:
    """Return "Line 3" or "Lines 3, 5 and 8", with at most ten numbers."""
    numbers = [str(first_number + row) for row in rows[:10]]
    if len(rows) > 10:
        numbers.append(f"{len(rows) - 10} more")
    return f"Line {numbers[0]}" if len(numbers) == 1 else f"Lines {', '.join(numbers[:-1])} and {numbers[-1]}"
