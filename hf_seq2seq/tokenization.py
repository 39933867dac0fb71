"""Trains a tokenizer on raw text; its saved folder loads without this package, as a stock `PreTrainedTokenizerFast`.

Source and target share one tokenizer, as in Vaswani et al. (2017), section 5.1, and each text is encoded as
`pieces </s>`. No text is normalized. With the byte-level kinds (bpe, unigram) every text can be encoded: `<unk>` never
appears, and `decode(encode(text), skip_special_tokens=True) == text`.

A text cannot put a control token into a sequence. A literal "</s>" in a text is cut into ordinary pieces like any
other text (`split_special_tokens`), and no piece of the vocabulary spells a control token. Tokens that a user adds are
never cut.
"""

import json
import logging
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast, get_args

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .text_lines import is_blank
from .token_lookup import is_foreign_pair


logger = logging.getLogger(__name__)

Kind = Literal["bpe", "unigram", "char", "word"]

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")  # ids 0 to 3

SENTENCEPIECE_FILE = "sentencepiece.model"

# Matches the "<" of a text that spells a special token. Text is cut behind it, so that no piece and no word can spell
# a special token.
SPELT_SPECIAL = "<(?=(?:" + "|".join(token[1:] for token in SPECIAL_TOKENS) + "){end})"

# The parts into which a text is cut before pieces are made; a piece never spans two parts. In both kinds a single
# space belongs to the part that follows it. Other white space is a part by itself, and so is each digit, so that a
# number that was not in the training text is as easy to copy as one that was.
BORDERS = {
    # A word is letters with their combining marks (separate accents, vowel signs of Hindi) and with apostrophes
    # between letters, so that the data decides whether "don't" or "l'" is a piece. A run of anything else is a part by
    # itself: punctuation, symbols, emoji with their joiners and variation selectors.
    "bpe": r" ?\p{L}[\p{L}\p{M}]*(?:['\u2019]\p{L}[\p{L}\p{M}]*)*| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # Punctuation may be in one part with a word here, since this trainer considers only strings that are followed by
    # at least two different characters. A part that ends with the word would keep a frequent word from becoming a
    # piece, if no longer word contains it. (On English and German, that made texts 12 % longer.)
    "unigram": r" ?[^\s\p{N}]+| ?\p{N}|\s+(?!\S)|\s+",
}

# In characters. The time to train a byte-level kind is quadratic in the length of a part, and a text may be one part.
LONGEST_TRAINING_LINE = 2000


class Seq2SeqTransformerTokenizer(PreTrainedTokenizerFast):
    """A `PreTrainedTokenizerFast` in which tokens that a user adds are whole, while a control token in a text is text.

    The stock class has one switch for both, `split_special_tokens`: it cuts the special tokens that a user adds too.
    Here they are ordinary tokens of the tokenizers library, which are never cut, and decoding with
    `skip_special_tokens=True` leaves them out. `AutoTokenizer` finds this class by its name once `hf_seq2seq` is
    imported. Without it, `AutoTokenizer` takes the stock class: tokens added before are whole there too, but decoding
    shows them.

    One that was made from a SentencePiece model (`sentencepiece_tokenizer.load_sentencepiece`) keeps that file too.
    """

    vocab_files_names = {  # noqa: RUF012  # as in transformers
        **PreTrainedTokenizerFast.vocab_files_names,
        "sentencepiece_file": SENTENCEPIECE_FILE,
    }

    def _save_pretrained(
        self, save_directory: str | os.PathLike[str], file_names: tuple[str, ...], *options: Any, **more: Any
    ) -> tuple[str, ...]:
        source, copy = self.init_kwargs.get("sentencepiece_file"), Path(save_directory) / SENTENCEPIECE_FILE
        if source is not None and not (copy.exists() and copy.samefile(source)):
            shutil.copyfile(source, copy)
            file_names += (str(copy),)
        saved: tuple[str, ...] = super()._save_pretrained(save_directory, file_names, *options, **more)
        return saved

    def _add_tokens(self, new_tokens: Sequence[str | AddedToken], special_tokens: bool = False) -> int:
        ordinary = []
        for token in new_tokens:
            is_special = special_tokens or getattr(token, "special", False)
            if is_special and str(token) not in self.all_special_tokens:
                self._extra_special_tokens.append(str(token))
            if str(token) not in SPECIAL_TOKENS:
                fields = token.__getstate__() if isinstance(token, AddedToken) else {"content": token}
                token = AddedToken(**{**fields, "special": False})
            ordinary.append(token)
        return int(super()._add_tokens(ordinary))

    def _decode(
        self,
        token_ids: int | list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> str:
        if skip_special_tokens:
            special = set(self.all_special_ids)
            ids = [token_ids] if isinstance(token_ids, int) else token_ids
            token_ids = [token_id for token_id in ids if token_id not in special]
        return str(super()._decode(token_ids, skip_special_tokens, clean_up_tokenization_spaces, **options))


def train_tokenizer(
    files_or_iterator: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    vocab_size: int = 8000,
    kind: Kind = "bpe",
    extra_tokens: Iterable[str] = (),
    model_max_length: int | None = None,
) -> PreTrainedTokenizerFast:
    """Trains a tokenizer; the same input gives the same tokenizer.

    The kinds of tokens:

    - "bpe" (byte-pair encoding, as in the paper) and "unigram", both of bytes: lossless, never `<unk>`.
    - "char": a token for each Unicode character; lossless, except that characters that are not in the training text
      become `<unk>`.
    - "word": a token for each word between white space (phonemes, glosses, commands); a word that is not in the
      training text becomes `<unk>`. Decoding joins words with one space. A word that spells a special token is cut
      after its "<".

    Args:
        files_or_iterator: The training text: the path of a text file (or .gz), a list or tuple of such paths, or any
            other iterable, whose items are lines of text.
        vocab_size: The size of the vocabulary with its special and extra tokens. If the text supports fewer tokens,
            the vocabulary is smaller and a warning names both numbers.
        kind: The kind of tokens.
        extra_tokens: Ordinary tokens, such as the language tag ">>de<<", that are never cut and that decoding keeps.
            They come last in the vocabulary.
        model_max_length: The number of tokens, `</s>` included, to which `truncation=True` cuts a text.

    Returns:
        The tokenizer, with `<pad>`, `<s>`, `</s>`, `<unk>` as tokens 0 to 3.

    Raises:
        ValueError: If an argument is out of range, decoding would change an extra token, or there is no text.
        OSError: If a file cannot be read.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"`kind` must be one of {', '.join(get_args(Kind))}, but is {kind!r} instead.")
    is_byte_level = kind in ("bpe", "unigram")
    tokenizer = _untrained_byte_level(kind) if is_byte_level else _untrained_word_level(kind)
    extra_tokens = _checked_extra_tokens(extra_tokens, tokenizer)
    num_trained = vocab_size - len(extra_tokens)
    smallest = len(SPECIAL_TOKENS) + (256 if is_byte_level else 1)
    if num_trained < smallest:
        raise ValueError(
            f"`vocab_size` must be at least {smallest + len(extra_tokens)} for kind {kind!r} with {len(extra_tokens)} "
            f"extra tokens, but is {vocab_size} instead. The special tokens and "
            f"{'all 256 bytes' if is_byte_level else 'one token of the text'} must have room."
        )

    lines = _training_lines(files_or_iterator, extra_tokens)
    if is_byte_level:
        _train_byte_level(tokenizer, lines, num_trained)
    else:
        _train_word_level(tokenizer, kind, lines, num_trained)
    tokenizer.add_tokens(extra_tokens)
    if tokenizer.get_vocab_size() < vocab_size:
        logger.warning(
            "`vocab_size` is %d, but the training text supports no more than %d tokens: the vocabulary has that many.",
            *(vocab_size, tokenizer.get_vocab_size()),
        )
    return _as_pretrained(tokenizer, model_max_length)


def _as_pretrained(tokenizer: Tokenizer, model_max_length: int | None) -> PreTrainedTokenizerFast:
    """Returns the trained tokenizer in a class of transformers, with `</s>` after each text."""
    pad_token, bos_token, eos_token, unk_token = SPECIAL_TOKENS
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {eos_token}",
        pair=f"$A $B {eos_token}",
        special_tokens=[(eos_token, SPECIAL_TOKENS.index(eos_token))],
    )
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    return Seq2SeqTransformerTokenizer(
        tokenizer_object=tokenizer,
        pad_token=pad_token,
        bos_token=bos_token,
        eos_token=eos_token,
        unk_token=unk_token,
        # By default a "</s>" in a user's text would become the control token, and decoding would drop it.
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        **limit,
    )


def add_extra_tokens(tokenizer: PreTrainedTokenizerBase, extra_tokens: Iterable[str]) -> None:
    """Adds ordinary tokens, such as the language tag ">>de<<", that are never cut and that decoding keeps.

    They come last in the vocabulary. A token that the tokenizer has already is left as it is.

    Args:
        tokenizer: The tokenizer, which is changed.
        extra_tokens: The tokens.

    Raises:
        ValueError: If a token is blank or a control token, decoding would change it, or the tokenizer has a vocabulary
            for each side and belongs to another kind of model.
    """
    tokens = _checked_extra_tokens(extra_tokens, tokenizer.backend_tokenizer if tokenizer.is_fast else None)
    if not tokens:
        return
    if is_foreign_pair(tokenizer):
        raise ValueError(
            f"`extra_tokens` must be left out for a {type(tokenizer).__name__} with a vocabulary for each side, which "
            f"takes no more tokens, but are {', '.join(map(repr, tokens))} instead."
        )
    controls = set(tokenizer.special_tokens_map.values())
    for token in tokens:
        if token in controls:
            raise ValueError(f"`extra_tokens` must not hold a special token of the tokenizer, but one is {token!r}.")
    new = [token for token in tokens if token not in tokenizer.added_tokens_encoder]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in new])


def check_extra_tokens(extra_tokens: Iterable[str], name: str = "extra_tokens") -> None:
    """Checks extra tokens as far as they can be checked without a tokenizer.

    Args:
        extra_tokens: The tokens.
        name: The setting that names them, for messages.

    Raises:
        ValueError: If a token is blank or a special token, or one text is given in place of several.
    """
    if isinstance(extra_tokens, str):
        raise ValueError(
            f"`{name}` must be a list of tokens, but is the text {extra_tokens!r} instead. Write [{extra_tokens!r}]."
        )
    for token in extra_tokens:
        if is_blank(token) or token in SPECIAL_TOKENS:
            raise ValueError(f"`{name}` must be neither blank nor a special token, but one is {token!r} instead.")


def _checked_extra_tokens(extra_tokens: Iterable[str], tokenizer: Tokenizer | None) -> list[str]:
    """Returns the tokens, each once; without a tokenizer of the tokenizers library their decoding is not checked."""
    tokens = extra_tokens if isinstance(extra_tokens, str) else list(dict.fromkeys(extra_tokens))
    check_extra_tokens(tokens)
    for token in tokens:
        # If all characters of a token stand for bytes in the byte-level alphabet, it is decoded as those bytes.
        decoded = tokenizer.decoder.decode([token]) if tokenizer is not None and tokenizer.decoder else token
        if decoded != token:
            raise ValueError(
                f"`extra_tokens` must be such that decoding gives them back, but {token!r} would come back as "
                f"{decoded!r}. Use ASCII characters, as in '>>de<<'."
            )
    return list(tokens)


def _training_lines(
    files_or_iterator: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], extra_tokens: Sequence[str]
) -> Iterator[str]:
    """Returns the lines of text to train on, without the extra tokens.

    Raises:
        ValueError: If there is no text.
    """
    lines: Iterable[str]
    if isinstance(files_or_iterator, str | os.PathLike):
        lines = _lines_of_files([files_or_iterator])
    elif isinstance(files_or_iterator, list | tuple):
        lines = _lines_of_files(files_or_iterator)
    else:
        lines = cast(Iterable[str], files_or_iterator)
    if extra_tokens:
        longest_first = sorted(extra_tokens, key=len, reverse=True)
        extra = re.compile("|".join(map(re.escape, longest_first)))
        lines = chain.from_iterable(map(extra.split, lines))
    lines = (line for line in lines if not is_blank(line))
    first = next(lines, None)
    if first is None:
        raise ValueError("`files_or_iterator` must hold text to train on, but has none but blank lines.")
    return chain([first], lines)


def _lines_of_files(paths: Sequence[str | os.PathLike[str]]) -> Iterator[str]:
    from .data.lines import read_lines

    return chain.from_iterable(map(read_lines, paths))


def _untrained_byte_level(kind: Kind) -> Tokenizer:
    # The alphabet of both models is the 256 bytes, so that every text has pieces. (Unigram's own byte fallback would
    # do the same, but could not distinguish the text "<0x41>" from a byte.)
    tokenizer = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPELT_SPECIAL.format(end="")), behavior="isolated"),
            pre_tokenizers.Split(Regex(BORDERS[kind]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _train_byte_level(tokenizer: Tokenizer, lines: Iterator[str], vocab_size: int) -> None:
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": list(SPECIAL_TOKENS),
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "show_progress": sys.stderr.isatty(),
    }
    size = LONGEST_TRAINING_LINE
    parts = (line[start : start + size] for line in lines for start in range(0, len(line), size))
    if isinstance(tokenizer.model, models.BPE):
        # A piece that occurs once would be learned from only that place.
        tokenizer.train_from_iterator(parts, trainers.BpeTrainer(min_frequency=2, **settings))
    else:
        # The length of a piece is counted in bytes here, and most of the world's letters have two or three.
        trainer = trainers.UnigramTrainer(unk_token="<unk>", max_piece_length=32, **settings)
        tokenizer.train_from_iterator(parts, trainer)
        _make_reproducible(tokenizer)


def _make_reproducible(tokenizer: Tokenizer) -> None:
    """Removes from a Unigram model what depends on the order in which its trainer visited hash maps.

    That order differs from run to run. It leaves rounding noise in the pieces' log-probabilities. And each byte that
    training did not use gets the lowest log-probability plus a multiple of 0.0001, by its place in that order.
    """
    vocab = [(piece, round(log_prob, 4)) for piece, log_prob in json.loads(tokenizer.to_str())["model"]["vocab"]]
    special, pieces = vocab[: len(SPECIAL_TOKENS)], vocab[len(SPECIAL_TOKENS) :]
    lowest = min(log_prob for _, log_prob in pieces)
    highest_unused = lowest + 256 * 0.0001
    pieces = [
        (piece, lowest if len(piece) == 1 and log_prob <= highest_unused else log_prob) for piece, log_prob in pieces
    ]
    pieces.sort(key=lambda piece: (-piece[1], piece[0]))
    tokenizer.model = models.Unigram(special + pieces, unk_id=SPECIAL_TOKENS.index("<unk>"))


def _untrained_word_level(kind: Kind) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    if kind == "char":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        whole_word = r"\A" + SPELT_SPECIAL.format(end=r"\z")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(whole_word), behavior="isolated")]
        )
    return tokenizer


def _train_word_level(tokenizer: Tokenizer, kind: Kind, lines: Iterator[str], vocab_size: int) -> None:
    if kind == "char":
        counts = Counter(chain.from_iterable(lines))
    else:
        counts = Counter(word for line in lines for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(line))
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    room = vocab_size - len(SPECIAL_TOKENS)
    if len(ranked) > room:
        logger.warning(
            "`vocab_size` has room for %d of the %d different %ss of the training text: "
            "the others, %.2f %% of the text, become <unk>.",
            *(room, len(ranked), kind, 100 * sum(counts[token] for token in ranked[room:]) / counts.total()),
        )
    vocab = {token: id for id, token in enumerate([*SPECIAL_TOKENS, *ranked[:room]])}
    tokenizer.model = models.WordLevel(vocab, unk_token="<unk>")
