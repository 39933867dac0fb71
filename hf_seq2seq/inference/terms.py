"""Words that must or must not appear in translations: a glossary, and banned words."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import LogitsProcessor

from hf_seq2seq.data.lines import read_lines
from hf_seq2seq.text_lines import is_blank
from hf_seq2seq.token_lookup import encode_targets, unknown_id, vocabulary

from .constrained_search import Phrase


# Scripts that put no space between words: Chinese, Japanese, Thai, Lao, Burmese and Khmer.
_UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED += "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_BEFORE_UNSPACED = re.compile(f"[{_UNSPACED}]")
_IN_WORD = re.compile(rf"[^\W{_UNSPACED}]")  # a character that makes one word with such a one beside it
_Words = TypeVar("_Words", dict[str, str], list[str])
_UNREADABLE = "\ufffd"  # in place of the bytes of a part of a character


def read_terms(file: Path) -> dict[str, str]:
    """Returns the terms of a file: on each line a term of the source, a tab, and what it must become.

    Raises:
        ValueError: If a line is something else, or gives a term of the source a second translation, or all are blank.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(file), start=1):
        if is_blank(line):
            continue
        source, *targets = (cell.strip() for cell in line.split("\t"))
        if is_blank(source) or len(targets) != 1 or is_blank(targets[0]):
            raise ValueError(
                f"Line {number} of `{file}` must be a term, a tab and its translation, but is {line!r} instead."
            )
        if terms.setdefault(source, targets[0]) != targets[0]:
            raise ValueError(
                f"Line {number} of `{file}` must translate {source!r} as an earlier line does ({terms[source]!r}), "
                f"but has {targets[0]!r} instead."
            )
    return _not_empty(terms, file)


def read_words(file: Path) -> list[str]:
    """Returns the words of a file, one a line.

    Raises:
        ValueError: If there is none.
    """
    words = [line.strip() for line in read_lines(file) if not is_blank(line)]
    return _not_empty(words, file)


def _not_empty(words: _Words, file: Path) -> _Words:
    if not words:
        raise ValueError(f"`{file}` must hold at least one word, but all its lines are blank. Leave the option out.")
    return words


def token_texts(tokenizer: Any) -> dict[int, bytes]:
    """Returns what each token of the target adds to a text, in UTF-8; control tokens add nothing and are left out."""
    ids = sorted(set(vocabulary(tokenizer, "target").values()) - set(tokenizer.all_special_ids))
    alone = _decode(tokenizer, [[token] for token in ids])
    anchor, before = next(
        (token, text) for token, text in zip(ids, alone, strict=True) if text.strip() and _UNREADABLE not in text
    )
    texts = _decode(tokenizer, [[anchor, token] for token in ids])
    added = {token: text.removeprefix(before) for token, text in zip(ids, texts, strict=True)}
    bytes_of = _bytes_by_character()
    names = tokenizer.convert_ids_to_tokens([token for token in ids if _UNREADABLE in added[token]])
    parts = dict(zip((token for token in ids if _UNREADABLE in added[token]), names, strict=True))
    return {
        token: bytes(bytes_of[character] for character in parts[token])
        if token in parts and all(character in bytes_of for character in parts[token])
        else text.encode()
        for token, text in added.items()
    }


def _decode(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    if tokenizer.is_fast:
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=False)
        return texts
    return list(tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False))


def _bytes_by_character() -> dict[str, int]:
    """Returns the byte that each character of a byte-level token stands for."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


class Glossary:
    """Terms of the source with the translations that they must have where they appear.

    A term is found as it is written, in upper and lower case, and as whole words. Where two overlap, the one that
    begins first counts, and of those the longest.

    Args:
        terms: The translation of each term.
        tokenizer: The model's tokenizer.
        texts: What each token of the target adds to a text.

    Raises:
        ValueError: If a term or its translation is blank, or the model does not know a part of a translation.
    """

    def __init__(self, terms: Mapping[str, str], tokenizer: Any, texts: Mapping[int, bytes]) -> None:
        self._terms = dict(terms)
        _check_words("terms", [*terms, *terms.values()])
        self._phrases = _encode_phrases(list(dict.fromkeys(terms.values())), tokenizer)
        self.continuing_ids: Collection[int] = frozenset(
            token for token, text in texts.items() if _IN_WORD.match(text.decode(errors="ignore"))
        )

    def __repr__(self) -> str:
        return f"{len(self._terms)} terms"

    def find(self, text: str) -> list[Phrase]:
        """Returns the translations that the terms in a text must have."""
        present = [term for term in self._terms if term in text]
        if not present:
            return []
        pattern = "|".join(_as_words(term) for term in sorted(present, key=len, reverse=True))
        return [self._phrases[self._terms[match.group()]] for match in re.finditer(pattern, text)]


def _encode_phrases(translations: Sequence[str], tokenizer: Any) -> dict[str, Phrase]:
    """Returns translations of terms as tokens.

    Raises:
        ValueError: If the model does not know a part of one.
    """
    # In the middle of a text some tokenizers cut a word otherwise, with a space before it.
    leads = ["\u3002" if _BEFORE_UNSPACED.match(text) else "a " for text in translations]
    alone, after, before = (
        [[token for token in ids if token != tokenizer.eos_token_id] for ids in encode_targets(tokenizer, texts)]
        for texts in (
            translations,
            [lead + text for lead, text in zip(leads, translations, strict=True)],
            [lead.rstrip() for lead in leads],
        )
    )
    phrases, unknown = {}, unknown_id(tokenizer, "target")
    for text, ids, longer, lead in zip(translations, alone, after, before, strict=True):
        amid = longer[len(lead) :] if longer[: len(lead)] == lead else ids
        if unknown in (*ids, *amid):
            raise ValueError(
                "`terms` must have translations that the model can write, but it does not know all of "
                f"{text!r}. Leave that term out."
            )
        phrases[text] = Phrase(tuple(amid), tuple(ids), _IN_WORD.match(text[-1]) is not None)
    return phrases


def _check_words(name: str, words: Sequence[Any]) -> None:
    """Raises ValueError if one is blank or no text."""
    for word in words:
        if not isinstance(word, str) or is_blank(word) or word != word.strip():
            raise ValueError(f"`{name}` must be words without white space around them, but one is {word!r} instead.")


def _as_words(term: str) -> str:
    """Returns a pattern for a term where it is not a part of a longer word."""
    before = rf"(?<!{_IN_WORD.pattern})" if _IN_WORD.match(term[0]) else ""
    after = rf"(?!{_IN_WORD.pattern})" if _IN_WORD.match(term[-1]) else ""
    return before + re.escape(term) + after


class BannedWords(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Bans each token with which a text would end in one of some words or phrases, however these are cut into tokens.

    Where a longer word begins with a banned one, it is banned as well if one of its tokens ends there.

    Args:
        words: The words and phrases, as they are written in upper and lower case.
        texts: What each token adds to a text.

    Raises:
        ValueError: If a word is blank.
    """

    def __init__(self, words: Sequence[str], texts: Mapping[int, bytes]) -> None:
        self._words, self._texts = list(words), texts
        _check_words("bad_words", self._words)
        ids_of: dict[bytes, list[int]] = {}
        for token, text in texts.items():
            ids_of.setdefault(text, []).append(token)
        whole = [(re.compile(f".*{_as_words(word)}", re.DOTALL), word.encode()) for word in words]
        always = {
            token
            for token, text in texts.items()
            for pattern, end in whole
            if len(text) > len(end) and text.endswith(end) and pattern.fullmatch(text.decode(errors="ignore"))
        }
        self._always = torch.tensor(sorted(always), dtype=torch.long)
        # What a text ends with before the last token of a word, whether it must begin a word, and these last tokens.
        self._last: list[tuple[bytes, bool, list[int]]] = []
        for word in words:
            written = word.encode()
            for length in range(len(written)):
                if ids := ids_of.get(written[length:]):
                    self._last.append((written[:length], _IN_WORD.match(word) is not None, ids))

    def __repr__(self) -> str:
        return f"{len(self._words)} words"

    def check_terms(self, translations: Iterable[str]) -> None:
        """Raises ValueError if the translation of a term has a banned word."""
        for text in translations:
            for word in self._words:
                if re.search(_as_words(word), text):
                    raise ValueError(
                        f"`bad_words` must not be in the translation of a term, but {word!r} is in {text!r}. "
                        "Leave one of them out."
                    )

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the next tokens, with minus infinity for those that are banned, shape (rows, V)."""
        scores = scores.clone()
        scores[:, self._always.to(scores.device)] = -torch.inf
        for row, ids in enumerate(input_ids.tolist()):
            text = b"".join(self._texts.get(token, b"") for token in ids)
            for start, is_word, last_ids in self._last:
                if text.endswith(start) and not (is_word and _ends_in_word(text[: len(text) - len(start)])):
                    scores[row, last_ids] = -torch.inf
        return scores


def _ends_in_word(text: bytes) -> bool:
    return _IN_WORD.match(text[-4:].decode(errors="replace")[-1:]) is not None
