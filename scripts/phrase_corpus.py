"""Makes the quick start's corpus: dates, times, numbers and amounts as one language writes them -> as another does.

    python scripts/phrase_corpus.py --source-language en --target-language de --output DIR [--pairs N] [--seed S]

writes train.en, train.de, validation.en, ..., test.de: UTF-8, a phrase a line. The same seed gives the same files.
What is written comes from two libraries: Babel (the Unicode CLDR's formats and names) for everything but numbers in
words, which are num2words'. Any two languages that CLDR knows can be asked for. A language that num2words lacks
(Chinese, for one) has its numbers in digits, so that "three hundred and forty-two" -> "342", and no ordinals; a
language without CLDR's names of countries has no lists of them.

Three things make the corpus a fair test of a trained model:

- One source has one target. Of two styles that the source language writes alike ("May 3, 2025" is both the long and
  the medium date), only the first is used.
- Held-out phrases are new on both sides: no source and no target of validation and test occurs in training.
- Sources are written as people type them, with plain spaces; targets as CLDR writes them, with its no-break spaces.
"""

import argparse
import difflib
import random
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_datetime, format_interval, format_time
from babel.lists import format_list
from babel.localedata import locale_identifiers
from babel.numbers import format_compact_decimal, format_currency, format_decimal, format_percent
from babel.units import format_unit
from num2words import CONVERTER_CLASSES, num2words


NUM_PAIRS = 40_000
NUM_HELD_OUT = 500  # of validation and test each

_COUNTRIES = (
    *("AR", "AT", "AU", "BE", "BR", "CA", "CH", "CL", "CN", "CZ", "DE", "DK", "EG", "ES", "FI", "FR", "GB"),
    *("GR", "IN", "IT", "JP", "KE", "KR", "MX", "NL", "NO", "NZ", "PE", "PL", "PT", "SE", "TH", "TR", "US"),
)
_CURRENCIES = ("BRL", "CHF", "CNY", "EUR", "GBP", "INR", "JPY", "USD")
_UNITS = (
    *("area-square-meter", "digital-gigabyte", "duration-day", "duration-hour", "length-centimeter"),
    *("length-kilometer", "length-meter", "mass-kilogram", "speed-kilometer-per-hour", "temperature-celsius"),
    "volume-liter",
)


class Phrase(NamedTuple):
    """One pair of the corpus, and the kind of phrase it is."""

    source: str
    target: str
    kind: str


class Corpus(NamedTuple):
    """The three parts of a corpus."""

    train: list[Phrase]
    validation: list[Phrase]
    test: list[Phrase]


class Kind(NamedTuple):
    """One kind of value: how often it is used, how one is drawn, and the styles that a language writes it in."""

    share: int
    draw: Callable[[random.Random], Any]
    styles: Sequence[Callable[..., str]]  # (value, locale=...) -> text


def _draw_number(rng: random.Random, max_digits: int) -> int:
    """Draws a whole number above 0; each number of digits is as likely as the others."""
    num_digits = rng.randint(1, max_digits)
    return rng.randrange(10 ** (num_digits - 1), 10**num_digits)


def _draw_decimal(rng: random.Random, max_digits: int, num_decimals: int) -> Decimal:
    """Draws a number with decimals, or a whole one without: CLDR writes 1 in the singular and 1.0 in the plural."""
    whole = Decimal(_draw_number(rng, max_digits))
    decimals = rng.randrange(10**num_decimals)
    return whole + Decimal(decimals).scaleb(-num_decimals) if decimals else whole


def _draw_fraction(rng: random.Random) -> Decimal:
    """Draws a number with decimals that are not all 0, which a whole number in digits could be mistaken for."""
    num_decimals = rng.randint(1, 3)
    return _draw_number(rng, 5) + Decimal(rng.randrange(1, 10**num_decimals)).scaleb(-num_decimals)


def _draw_moment(rng: random.Random) -> datetime:
    """Draws a second of the years 2000 to 2049: short formats show two digits of the year."""
    start = datetime(2000, 1, 1)
    return start + timedelta(seconds=rng.randrange(round((datetime(2050, 1, 1) - start).total_seconds())))


def _draw_interval(rng: random.Random) -> tuple[date, date]:
    """Draws two dates of the same month, of two months, or of two years."""
    start = _draw_moment(rng).date()
    return start, start + timedelta(days=rng.randint(1, rng.choice((10, 100, 1000))))


def _draw_time(rng: random.Random) -> time:
    return _draw_moment(rng).time()


def _draw_money(rng: random.Random) -> tuple[Decimal, str]:
    return _draw_decimal(rng, 5, 2), rng.choice(_CURRENCIES)


def _draw_percentage(rng: random.Random) -> Decimal:
    return _draw_decimal(rng, 3, 1) / 100


def _draw_round_number(rng: random.Random) -> Decimal:
    """Draws millions, billions or trillions with one decimal."""
    return _draw_decimal(rng, 3, 1) * 10 ** rng.choice((6, 9, 12))


def _draw_measurement(rng: random.Random) -> tuple[Decimal, str]:
    return _draw_decimal(rng, 4, rng.randint(0, 1)), rng.choice(_UNITS)


def _draw_countries(rng: random.Random) -> list[str]:
    return rng.sample(_COUNTRIES, rng.randint(2, 3))


def _write_interval(value: tuple[date, date], locale: Locale) -> str:
    return format_interval(*value, skeleton="yMMMd", locale=locale)


def _write_money(value: tuple[Decimal, str], locale: Locale, style: Literal["name", "standard"]) -> str:
    amount, currency = value
    return format_currency(amount, currency, locale=locale, format_type=style)


def _write_measurement(value: tuple[Decimal, str], locale: Locale) -> str:
    amount, unit = value
    return format_unit(amount, unit, length="long", locale=locale)


def _write_countries(value: list[str], locale: Locale) -> str:
    return format_list([locale.territories[code] for code in value], locale=locale)


def _write_words(value: int, locale: Locale, form: str) -> str:
    """Writes a number in words; raises NotImplementedError where num2words has no such words in the language."""
    language = next((code for code in (str(locale), locale.language) if code in CONVERTER_CLASSES), None)
    if language is None:
        raise NotImplementedError
    return " ".join(num2words(value, lang=language, to=form).split())


def _write_cardinal(value: int, locale: Locale) -> str:
    try:
        return _write_words(value, locale, "cardinal")
    except NotImplementedError:
        return format_decimal(value, locale=locale)


# Where the source language writes two styles of a value alike, the first one counts.
KINDS = {
    "date": Kind(4, _draw_moment, [partial(format_date, format=f) for f in ("full", "long", "medium", "short")]),
    "cardinal": Kind(4, partial(_draw_number, max_digits=5), [_write_cardinal]),
    "money": Kind(2, _draw_money, [partial(_write_money, style="name"), partial(_write_money, style="standard")]),
    "countries": Kind(2, _draw_countries, [_write_countries]),
    "interval": Kind(2, _draw_interval, [_write_interval]),
    "ordinal": Kind(2, partial(_draw_number, max_digits=4), [partial(_write_words, form="ordinal")]),
    "measurement": Kind(2, _draw_measurement, [_write_measurement]),
    "time": Kind(2, _draw_time, [partial(format_time, format=f) for f in ("medium", "short")]),
    "round number": Kind(
        1, _draw_round_number, [partial(format_compact_decimal, format_type="long", fraction_digits=3)]
    ),
    "date and time": Kind(1, _draw_moment, [partial(format_datetime, format=f) for f in ("medium", "short")]),
    "percentage": Kind(1, _draw_percentage, [partial(format_percent, decimal_quantization=False)]),
    "number": Kind(1, _draw_fraction, [format_decimal]),
}


def plain_spaces(text: str) -> str:
    """Returns the text as people type it: spaces of every width plain, and without marks of writing direction."""
    marks = "\u200e\u200f\u061c"
    return "".join(" " if unicodedata.category(char) == "Zs" else char for char in text if char not in marks)


def find_locale(language: str, argument: str) -> Locale:
    """Returns CLDR's locale of a language code such as "de", "pt-BR" or "zh_Hant".

    Raises:
        ValueError: If CLDR does not know the code; the message names near ones.
    """
    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError, TypeError):
        codes = {code.lower(): code for code in locale_identifiers()}
        names = {name.lower(): code for code, name in Locale("en").languages.items() if code in codes}
        near = difflib.get_close_matches(language.lower(), [*names, *codes], n=5, cutoff=0.7)
        found = ", ".join(dict.fromkeys(f"{name} ({names[name]})" if name in names else codes[name] for name in near))
        raise ValueError(
            f"`{argument}` must be the code of a language that CLDR knows, such as de or pt-BR, but is {language!r} "
            f"instead. {f'Near it: {found}.' if found else 'No code is near it.'}"
        ) from None


def write_phrase(kind: str, value: Any, style: int, source: Locale, target: Locale) -> Phrase | None:
    """Writes a value in both languages.

    Args:
        kind: The kind, a key of `KINDS`.
        value: A value that the kind's `draw` made.
        style: Which of the kind's styles is used.
        source: The source language.
        target: The target language.

    Returns:
        The phrase, or `None` where a library lacks what the style needs in one of the languages, or where the source
        language writes an earlier style of the value alike.
    """
    styles = KINDS[kind].styles
    try:
        # num2words fails in several ways at some numbers of some languages, Babel with a KeyError at a missing name.
        *earlier, text = (plain_spaces(write(value, locale=source)) for write in styles[: style + 1])
        return None if text in earlier else Phrase(text, styles[style](value, locale=target), kind)
    except (LookupError, NotImplementedError, TypeError):
        return None


def draw_phrases(source: Locale, target: Locale, num_pairs: int, rng: random.Random) -> list[Phrase]:
    """Draws different phrases of all kinds; no two have the same source.

    Those drawn several times come last. They are what few values make, such as "first" and "12:00 AM".

    Raises:
        ValueError: If the kinds have not so many different phrases.
    """
    phrases: dict[str, Phrase] = {}
    drawn_again: set[str] = set()
    shares = [kind.share for kind in KINDS.values()]
    max_draws = 20 * num_pairs
    for kind in rng.choices(list(KINDS), shares, k=max_draws):
        value = KINDS[kind].draw(rng)
        phrase = write_phrase(kind, value, rng.randrange(len(KINDS[kind].styles)), source, target)
        if phrase is None:
            continue
        if phrase.source in phrases:
            drawn_again.add(phrase.source)
        phrases.setdefault(phrase.source, phrase)
        if len(phrases) == num_pairs:
            return sorted(phrases.values(), key=lambda phrase: phrase.source in drawn_again)
    raise ValueError(
        f"`pairs` must be at most the number of different phrases, but is {num_pairs} instead, and {max_draws} draws "
        f"gave {len(phrases)}. Ask for fewer."
    )


def split_phrases(phrases: Iterable[Phrase], num_held_out: int) -> Corpus:
    """Splits phrases, so that no target stands in two parts: those of one target go to the same part.

    The first are held out: what few values make is trained on, since nothing but itself tells how it is written.
    """
    by_target: defaultdict[str, list[Phrase]] = defaultdict(list)
    for phrase in phrases:
        by_target[phrase.target].append(phrase)
    corpus = Corpus([], [], [])
    for group in by_target.values():
        part = next((p for p in (corpus.test, corpus.validation) if len(p) + len(group) <= num_held_out), corpus.train)
        part.extend(group)
    return corpus


def in_turns(phrases: Iterable[Phrase]) -> list[Phrase]:
    """Orders phrases so that the kinds take turns, and the first few show what there is."""
    counts: defaultdict[str, int] = defaultdict(int)
    keys = []
    for phrase in phrases:
        keys.append((counts[phrase.kind], list(KINDS).index(phrase.kind), phrase))
        counts[phrase.kind] += 1
    return [phrase for *_, phrase in sorted(keys)]


def make_corpus(source_language: str, target_language: str, *, num_pairs: int = NUM_PAIRS, seed: int = 0) -> Corpus:
    """Makes the corpus, which the arguments and the versions of Babel and num2words determine.

    Args:
        source_language: The code of the source language, such as "en".
        target_language: The code of the target language.
        num_pairs: The number of training pairs; 500 of validation and 500 of test come on top.
        seed: The seed of the draws.

    Raises:
        ValueError: If a language is unknown, both are the same, or there are not so many phrases, or none is wanted.
    """
    source = find_locale(source_language, "source_language")
    target = find_locale(target_language, "target_language")
    if source == target:
        raise ValueError(
            f"`target_language` must be another language than `source_language`, but both are {source_language!r}."
        )
    if num_pairs < 1:
        raise ValueError(f"`pairs` must be at least 1, but is {num_pairs} instead.")
    phrases = draw_phrases(source, target, num_pairs + 2 * NUM_HELD_OUT, random.Random(seed))
    train, validation, test = split_phrases(phrases, NUM_HELD_OUT)
    return Corpus(train, in_turns(validation), in_turns(test))


def write_corpus(corpus: Corpus, folder: Path, source_language: str, target_language: str) -> None:
    """Writes the parts as text files; each appears whole or not at all, and none before all are written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for part, phrases in corpus._asdict().items():
        for side, language in (("source", source_language), ("target", target_language)):
            path = folder / f"{part}.{language}"
            unfinished = path.with_name(f"{path.name}.unfinished")
            unfinished.write_text("".join(f"{getattr(phrase, side)}\n" for phrase in phrases), "utf-8", newline="\n")
            paths.append((unfinished, path))
    for unfinished, path in paths:
        unfinished.replace(path)


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Make a parallel corpus of dates, times, numbers and amounts.")
    parser.add_argument("--source-language", default="en", help="code of the source language (default: %(default)s)")
    parser.add_argument("--target-language", default="de", help="code of the target language (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder for the six files")
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS, help="number of training pairs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws (default: %(default)s)")
    arguments = parser.parse_args()
    languages = arguments.source_language, arguments.target_language
    try:
        corpus = make_corpus(*languages, num_pairs=arguments.pairs, seed=arguments.seed)
        write_corpus(corpus, arguments.output, *languages)
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for part, phrases in corpus._asdict().items():
        print(f"{arguments.output / part}.{{{','.join(languages)}}}: {len(phrases)} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
