"""Texts as lines for the workers, and the lines' translations as answers to clients."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_seq2seq.text_lines import is_blank

from .messages import Failure, Result, Translation
from .requests import Asked


_LINE_END = re.compile(r"(\r\n|\r|\n)")


@dataclass(frozen=True)
class Text:
    """A text, whose lines are translated one by one, since models are trained on lines.

    Attributes:
        lines: Its lines.
        ends: What stands after each: a line end, or nothing.
    """

    lines: tuple[str, ...]
    ends: tuple[str, ...]

    @classmethod
    def split(cls, text: str) -> "Text":
        """Returns a text, cut at its line ends."""
        parts = [*_LINE_END.split(text), ""]
        return cls(tuple(parts[::2]), tuple(parts[1::2]))

    @property
    def to_translate(self) -> list[str]:
        """The lines that are not blank."""
        return [line for line in self.lines if not is_blank(line)]

    def join(self, results: Sequence[Result], num_hypotheses: int) -> Result:
        """Returns the translations of the whole text, the nth one made of the nth of each line.

        Args:
            results: What became of each line that is not blank.
            num_hypotheses: How many translations there are of a blank text.
        """
        for result in results:
            if isinstance(result, Failure):
                return result
        translations = [result for result in results if isinstance(result, Translation)]
        if not translations:
            return Translation(("".join(self.ends),) * num_hypotheses)
        several = range(len(translations[0].texts))
        return Translation(
            tuple(self._join_texts([found.texts[number] for found in translations]) for number in several),
            tuple(_sum([found.scores[number] for found in translations if found.scores]) for number in several)
            if translations[0].scores
            else None,
            tuple(self._join_alignments(translations, number) for number in several)
            if translations[0].alignments
            else None,
        )

    def _join_texts(self, texts: Sequence[str]) -> str:
        left = iter(texts)
        return "".join(
            ("" if is_blank(line) else next(left)) + end for line, end in zip(self.lines, self.ends, strict=True)
        )

    def _join_alignments(self, translations: Sequence[Translation], number: int) -> tuple[tuple[int, int], ...]:
        """Returns pairs of words of the text; the words of each line come after those of the lines before."""
        pairs: list[tuple[int, int]] = []
        num_sources = num_targets = 0
        for line, found in zip(self.to_translate, translations, strict=True):
            pairs += [
                (num_sources + source, num_targets + target) for source, target in (found.alignments or ())[number]
            ]
            num_sources += len(line.split())
            num_targets += len(found.texts[number].split())
        return tuple(pairs)


def _sum(scores: Sequence[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return sum(known) if len(known) == len(scores) else None


def answer(asked: Asked, translations: Sequence[Translation]) -> Any:
    """Returns the whole answer to a request, as JSON has it."""
    if asked.is_hugging_face:
        return [{"translation_text": found.texts[0]} for found in translations]
    each = [describe(asked, found) for found in translations]
    if not asked.is_list:
        return each[0]
    return {name: [one[name] for one in each] for name in _names(asked)}


def describe(asked: Asked, found: Translation) -> Mapping[str, Any]:
    """Returns the answer for one text of a request."""
    if asked.is_hugging_face:
        return {"translation_text": found.texts[0]}
    values: dict[str, Any] = {
        "translatedText": found.texts[0],
        "alternatives": list(found.texts[1:]),
        "scores": found.scores or [None] * len(found.texts),
        "alignments": found.alignments or [[]] * len(found.texts),
    }
    return {name: values[name] for name in _names(asked)}


def _names(asked: Asked) -> Iterator[str]:
    yield "translatedText"
    if asked.num_hypotheses > 1:
        yield "alternatives"
    if asked.scores:
        yield "scores"
    if asked.alignments:
        yield "alignments"
