"""Makes the quick start's corpus: dates, times, numbers and amounts, as two languages write them.

    python scripts/phrase_corpus.py --source-language en --target-language de --output DIR [--pairs N] [--seed S]

writes train.en, train.de, validation.en, ..., test.de: UTF-8, one phrase a line. The same seed gives the same files.
num2words writes numbers in words, and Babel everything else, with the formats and names of the Unicode CLDR. Any two
languages that CLDR knows will do. If num2words lacks a language, such as Chinese, its numbers are in digits ("three
hundred and forty-two" -> "342"), and there are no ordinals. If CLDR lacks names of countries in a language, there are
no lists of countries.

Three things make the corpus a fair test of a trained model:

- A source has one target. If the source language writes two styles alike ("May 3, 2025" is both the long and the
  medium date), only the first is used.
- Held-out phrases are new on both sides: no source and no target of validation and test occurs in training.
- Sources have plain spaces, as people type them. Targets have CLDR's no-break spaces.
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

from hf_seq2seq.atomic_writing import replaced_files


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
    """One kind of value: its share of the corpus, how one is drawn, and the styles in which a language writes it."""

    share: int
    draw: Callable[[random.Random], Any]
    styles: Sequence[Callable[..., str]]  # (value, locale=...) -> text


def _draw_number(rng: random.Random, max_digits: int) -> int:
    """Draws a whole number above 0. Every number of digits is equally likely."""
    num_digits = rng.randint(1, max_digits)
    return rng.randrange(10 ** (num_digits - 1), 10**num_digits)


def _draw_decimal(rng: random.Random, max_digits: int, num_decimals: int) -> Decimal:
    """Draws a number with decimals, or a whole one without. CLDR writes 1 in the singular, but 1.0 in the plural."""
    whole = Decimal(_draw_number(rng, max_digits))
    decimals = rng.randrange(10**num_decimals)
    return whole + Decimal(decimals).scaleb(-num_decimals) if decimals else whole


def _draw_fraction(rng: random.Random) -> Decimal:
    """Draws a number whose decimals are not all 0, so that nobody mistakes it for a whole number."""
    num_decimals = rng.randint(1, 3)
    return _draw_number(rng, 5) + Decimal(rng.randrange(1, 10**num_decimals)).scaleb(-num_decimals)


def _draw_moment(rng: random.Random) -> datetime:
    """Draws a second of the years 2000 to 2049, since short formats show two digits of the year."""
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
    """Returns a number in words.

    Raises:
        NotImplementedError: If num2words does not have them in the language.
    """
    language = next((code for code in (str(locale), locale.language) if code in CONVERTER_CLASSES), None)
    if language is None:
        raise NotImplementedError
    return " ".join(num2words(value, lang=language, to=form).split())


def _write_cardinal(value: int, locale: Locale) -> str:
    try:
        return _write_words(value, locale, "cardinal")
    except NotImplementedError:
        return format_decimal(value, locale=locale)


# If the source language writes two styles of a value alike, the first one counts.
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
    """Returns the text as people type it: with plain spaces, and without marks of writing direction."""
    marks = "\u200e\u200f\u061c"
    return "".join(" " if unicodedata.category(char) == "Zs" else char for char in text if char not in marks)


def find_locale(language: str, argument: str) -> Locale:
    """Returns CLDR's locale of a language code such as "de", "pt-BR" or "zh_Hant".

    Raises:
        ValueError: If CLDR does not know the code. The message names similar ones.
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
        value: A value that the kind's `draw` returned.
        style: The index of the style to use.
        source: The source language.
        target: The target language.

    Returns:
        The phrase. `None` if a library lacks what the style needs in one of the languages, or if the source language
        writes an earlier style of the value alike.
    """
    styles = KINDS[kind].styles
    try:
        # num2words raises several errors at some numbers of some languages, and Babel a KeyError at a missing name.
        *earlier, text = (plain_spaces(write(value, locale=source)) for write in styles[: style + 1])
        return None if text in earlier else Phrase(text, styles[style](value, locale=target), kind)
    except (LookupError, NotImplementedError, TypeError):
        return None


def draw_phrases(source: Locale, target: Locale, num_pairs: int, rng: random.Random) -> list[Phrase]:
    """Draws phrases of all kinds, with a source each that no other has.

    Phrases that were drawn more than once come last: there are few of their sort, such as "first" and "12:00 AM".

    Raises:
        ValueError: If there are fewer different phrases.
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
    """Splits phrases into the parts of a corpus. Phrases with the same target go to the same part.

    The first phrases are held out. The last ones are for training, since they can be learned in no other way.
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
    """Returns phrases with their kinds in turns, so that the first few show what there is."""
    counts: defaultdict[str, int] = defaultdict(int)
    keys = []
    for phrase in phrases:
        keys.append((counts[phrase.kind], list(KINDS).index(phrase.kind), phrase))
        counts[phrase.kind] += 1
    return [phrase for *_, phrase in sorted(keys)]


def make_corpus(source_language: str, target_language: str, *, num_pairs: int = NUM_PAIRS, seed: int = 0) -> Corpus:
    """Makes a corpus. The same arguments and versions of Babel and num2words make the same one.

    Args:
        source_language: The code of the source language, such as "en".
        target_language: The code of the target language.
        num_pairs: The number of training pairs. There are 500 more for validation and 500 for testing.
        seed: The seed of the draws.

    Raises:
        ValueError: If a language is unknown, both are the same, or `num_pairs` is below 1 or too large.
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
    """Writes the parts as text files, all of them or none."""
    with replaced_files(folder) as unfinished:
        for part, phrases in corpus._asdict().items():
            for side, language in (("source", source_language), ("target", target_language)):
                text = "".join(f"{getattr(phrase, side)}\n" for phrase in phrases)
                (unfinished / f"{part}.{language}").write_text(text, "utf-8", newline="\n")


def main() -> int:
    """Runs the command, and returns its exit status."""
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
