"""The corpora of the recipes: which files a corpus has, how pairs are made of them, and what a model card says of it.

Each part of a corpus is two files, PART.SIDE.gz, with a line for each pair: UTF-8 text that is gzipped.

| corpus | parts | sides | where it comes from |
| --- | --- | --- | --- |
| multi30k | train, val, test_2016_flickr, test_2017_flickr, test_2017_mscoco | en, de | github.com/multi30k/dataset |
| cmudict | train, val, test | word, phon | cmudict.dict of github.com/cmusphinx/cmudict, commit 0f8072f |
| scan | train, test | command, action | a split of github.com/brendenlake/SCAN: what follows IN: and OUT: |
| tatoeba | train, val, test | en, zh | manythings.org/anki, cmn-eng of 2022-05-02, split at random: 90 %, 5 %, 5 % |
| scitldr | train, val, test | abstract, tldr | SciTLDR-A of github.com/allenai/scitldr, commit 5ccad9c |

- Multi30k: the raw files of task 1.
- CMUdict: a word with several pronunciations has as many lines. The SHA-256 of a word's letters, as a fraction of 1,
  decides its part: below 0.02 test, below 0.04 val, else train. Comments are left out, and words with other characters
  than letters, hyphens and apostrophes.
- SciTLDR: an abstract is its sentences with spaces between them, and its summary the first of its summaries.
  PART.refs.tsv.gz has all of them, with tabs between them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from hf_seq2seq.data import load_parallel, read_lines


VALIDATION = "validation"
TOKENIZED = "lc.norm.tok"  # Multi30k's name for text that is lower-cased, with normalised punctuation, and tokenized
HELD_OUT = 20  # each 20th training pair that occurs once, where a corpus has no validation pairs

Pairs = tuple[list[str], list[str]]
Recipe = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a corpus.

    Attributes:
        pairs: The sources and the targets, as `train` gets them.
        sources: What is translated and scored, each once.
        references: All that is right for each of these.
    """

    pairs: Pairs
    sources: list[str]
    references: list[list[str]]


@dataclass(frozen=True)
class Corpus:
    """What is known of a corpus.

    Attributes:
        title: Its name for people.
        directions: The sides that can be source and target, such as "en-de"; the first is the default.
        sets: The parts that are scored, by the names that tables and cards have for them.
        clean: Makes the pairs of the texts that are read, by the recipe and the names of the sides.
        card: Facts of a model card.
        has_validation: Whether it has validation pairs. If not, some are taken out of the training pairs.
        has_alternatives: Whether pairs of one source are alternatives, all of them right.
        has_references: Whether a file of each set has several references for each source.
    """

    title: str
    directions: Sequence[str]
    sets: Mapping[str, str]
    clean: Callable[[Pairs, Recipe, Sequence[str]], Pairs]
    card: Mapping[str, Any]
    has_validation: bool = True
    has_alternatives: bool = False
    has_references: bool = False


def read_parts(
    data: Path, corpus: Corpus, sides: Sequence[str], names: Sequence[str], recipe: Recipe
) -> dict[str, Part]:
    """Returns the named parts of a corpus.

    Args:
        data: The folder with its files.
        corpus: The corpus.
        sides: The names of source and target.
        names: The parts, such as "train".
        recipe: The recipe.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If a file is damaged, or the files of a part have different numbers of lines.
    """
    pairs = {name: _read_pairs(data, name, sides) for name in names if corpus.has_validation or name != "val"}
    if not corpus.has_validation:
        pairs["train"], pairs["val"] = hold_out(pairs["train"])
    parts = {}
    for name in names:
        references = None
        if corpus.has_references and name in corpus.sets.values():
            references = _read_references(data / f"{name}.refs.tsv.gz", len(pairs[name][0]))
        parts[name] = _make_part(corpus.clean(pairs[name], recipe, sides), corpus, references)
    return parts


def _read_pairs(data: Path, name: str, sides: Sequence[str]) -> Pairs:
    pairs = list(load_parallel(*(data / f"{name}.{side}.gz" for side in sides), streaming=True))
    return _sides((pair["source"].strip(), pair["target"].strip()) for pair in pairs)


def _read_references(file: Path, number: int) -> list[list[str]]:
    references = [[text.strip() for text in line.split("\t") if text.strip()] for line in read_lines(file)]
    if len(references) != number or not all(references):
        raise ValueError(f"`{file}` must have a line for each of {number} pairs, with a text, but has not.")
    return references


def hold_out(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Returns the pairs without some of those whose source occurs once, and these."""
    counts = Counter(pairs[0])
    rows = list(zip(*pairs, strict=True))
    taken = set([row for row in rows if counts[row[0]] == 1][::HELD_OUT])
    return _sides([row for row in rows if row not in taken]), _sides([row for row in rows if row in taken])


def _sides(rows: Iterable[tuple[str, str]]) -> Pairs:
    rows = list(rows)
    return [source for source, _ in rows], [target for _, target in rows]


def _make_part(pairs: Pairs, corpus: Corpus, references: list[list[str]] | None) -> Part:
    sources, targets = pairs
    if not corpus.has_alternatives:
        return Part(pairs, sources, references or [[target] for target in targets])
    found: dict[str, list[str]] = {}
    for source, target in zip(sources, targets, strict=True):
        found.setdefault(source, []).append(target)
    return Part(pairs, list(found), list(found.values()))


def lower_and_tokenize(lines: Sequence[str], language: str) -> list[str]:
    """Returns lines as Multi30k's lc.norm.tok files have them. Every line of its test sets comes out equal."""
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in lines]


def _as_they_are(pairs: Pairs, recipe: Recipe, sides: Sequence[str]) -> Pairs:
    return pairs


def _clean_multi30k(pairs: Pairs, recipe: Recipe, sides: Sequence[str]) -> Pairs:
    if recipe.get("text") != TOKENIZED:
        return pairs
    source, target = (lower_and_tokenize(*side) for side in zip(pairs, sides, strict=True))
    return source, target


def _clean_cmudict(pairs: Pairs, recipe: Recipe, sides: Sequence[str]) -> Pairs:
    """Spells words, and takes the digits that mark stress off the phonemes, unless the recipe keeps them."""
    words, phonemes = pairs
    if not recipe["stress"]:
        phonemes = [line.translate(str.maketrans("", "", "012")) for line in phonemes]
    return _sides(dict.fromkeys(zip(map(" ".join, words), phonemes, strict=True)))  # each pair once


_CLEAN = {"multi30k": _clean_multi30k, "cmudict": _clean_cmudict}

CORPORA = {
    name: Corpus(**values, clean=_CLEAN.get(name, _as_they_are))
    for name, values in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}
