import random
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from babel import Locale, UnknownLocaleError
from num2words import CONVERTER_CLASSES

from scripts import phrase_corpus
from scripts.phrase_corpus import Corpus, Kind, Phrase, find_locale, make_corpus, write_corpus, write_phrase


SCRIPT = Path(phrase_corpus.__file__)


@pytest.fixture(scope="module", params=[("en", "de"), ("en", "zh"), ("fr", "es")], ids="-".join)
def languages(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture(scope="module")
def corpus(languages: tuple[str, str]) -> Corpus:
    return make_corpus(*languages, num_pairs=3000)


def read_pairs(folder: Path, part: str, languages: tuple[str, str]) -> list[tuple[str, ...]]:
    sides = ((folder / f"{part}.{language}").read_bytes().decode().split("\n") for language in languages)
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize(
    ("kind", "value", "style", "english", "german", "chinese"),
    [
        ("date", datetime(2025, 3, 3), 0, "Monday, March 3, 2025", "Montag, 3. März 2025", "2025年3月3日星期一"),
        ("date", datetime(2025, 3, 3), 1, "March 3, 2025", "3. März 2025", "2025年3月3日"),
        ("date", datetime(2025, 3, 3), 3, "3/3/25", "03.03.25", "2025/3/3"),
        ("time", time(15, 5), 1, "3:05 PM", "15:05", "15:05"),
        ("time", time(0, 5), 1, "12:05 AM", "00:05", "00:05"),
        ("cardinal", 342, 0, "three hundred and forty-two", "dreihundertzweiundvierzig", "342"),
        ("cardinal", 21345, 0, None, "einundzwanzigtausenddreihundertfünfundvierzig", "21,345"),
        ("ordinal", 21, 0, "twenty-first", "einundzwanzigste", None),
        ("money", (Decimal("1234.5"), "EUR"), 1, "€1,234.50", "1.234,50\u00a0€", "€1,234.50"),
        ("money", (Decimal("1234.5"), "USD"), 0, "1,234.50 US dollars", "1.234,50 US-Dollar", "1,234.50美元"),
        ("percentage", Decimal("0.342"), 0, "34.2%", "34,2\u00a0%", "34.2%"),
        ("number", Decimal("12345.67"), 0, "12,345.67", "12.345,67", "12,345.67"),
        ("round number", Decimal(3_200_000), 0, "3.2 million", "3,2 Millionen", "320万"),
        ("measurement", (Decimal(12), "length-kilometer"), 0, "12 kilometers", "12 Kilometer", "12公里"),
        ("countries", ["DE", "JP"], 0, "Germany and Japan", "Deutschland und Japan", "德国和日本"),
    ],
)
def test_values_are_written_as_each_language_writes_them(
    kind: str, value: Any, style: int, english: str | None, german: str, chinese: str | None
) -> None:
    locales = {language: Locale(language) for language in ("en", "de", "zh")}
    to_german = write_phrase(kind, value, style, locales["en"], locales["de"])
    assert to_german is not None
    assert to_german == Phrase(english or to_german.source, german, kind)
    to_chinese = write_phrase(kind, value, style, locales["en"], locales["zh"])
    assert to_chinese == (None if chinese is None else Phrase(to_german.source, chinese, kind))


def test_sources_have_plain_spaces_and_targets_keep_those_of_cldr() -> None:
    english, french = Locale("en"), Locale("fr")
    to_french = write_phrase("number", Decimal("12345.5"), 0, english, french)
    to_english = write_phrase("number", Decimal("12345.5"), 0, french, english)
    assert to_french is not None
    assert to_english is not None
    assert to_french.target == "12\u202f345,5"
    assert to_english.source == "12 345,5"
    arabic = write_phrase("date", datetime(2025, 3, 3), 3, Locale("ar", "EG"), english)
    assert arabic is not None
    assert not {"\u200e", "\u200f", "\u061c"} & set(arabic.source)


def test_a_style_that_the_source_writes_like_an_earlier_one_is_left_out() -> None:
    english, german = Locale("en"), Locale("de")
    long, medium = (write_phrase("date", datetime(2025, 5, 3), style, english, german) for style in (1, 2))
    assert long == Phrase("May 3, 2025", "3. Mai 2025", "date")
    assert medium is None
    march = write_phrase("date", datetime(2025, 3, 3), 2, english, german)
    assert march == Phrase("Mar 3, 2025", "03.03.2025", "date")


def values_that_could_be_confused() -> list[tuple[str, Any]]:
    """Many draws of each kind, each day of a leap year, each minute of a day, some intervals, small numbers."""
    rng = random.Random(0)
    days = [datetime(2048, 1, 1) + timedelta(day) for day in range(366)]
    minutes = [time(hour, minute, second) for hour in range(24) for minute in range(60) for second in (0, 30)]
    intervals = [(date(2025, m, 1), date(2025, m, 1) + timedelta(n)) for m in range(1, 13) for n in (1, 40, 365, 366)]
    return [
        *((name, kind.draw(rng)) for name, kind in phrase_corpus.KINDS.items() for _ in range(500)),
        *(("date", day) for day in days),
        *(("time", minute) for minute in minutes),
        *(("interval", interval) for interval in intervals),
        *(("cardinal", number) for number in range(1, 500)),
        *(("round number", tenths * Decimal(100_000)) for tenths in range(10, 10_000, 11)),
    ]


@pytest.mark.parametrize("pair", [("en", "de"), ("en", "zh"), ("zh", "en")], ids="-".join)
def test_no_source_could_ever_have_two_targets(pair: tuple[str, str]) -> None:
    source, target = map(Locale, pair)
    targets: dict[str, str] = {}
    for kind, value in values_that_could_be_confused():
        for style in range(len(phrase_corpus.KINDS[kind].styles)):
            phrase = write_phrase(kind, value, style, source, target)
            if phrase is not None:
                assert targets.setdefault(phrase.source, phrase.target) == phrase.target
    assert len(targets) > 5000


def test_the_first_target_of_a_source_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(value: int, locale: Locale) -> str:
        return str(value % 10) if locale.language == "en" else str(value)

    monkeypatch.setattr(phrase_corpus, "KINDS", {"digits": Kind(1, lambda rng: rng.randrange(1000), [write])})
    phrases = phrase_corpus.draw_phrases(Locale("en"), Locale("de"), 10, random.Random(0))
    assert sorted(phrase.source for phrase in phrases) == list("0123456789")


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another() -> None:
    assert make_corpus("en", "de", num_pairs=100, seed=1) == make_corpus("en", "de", num_pairs=100, seed=1)
    assert make_corpus("en", "de", num_pairs=100, seed=1) != make_corpus("en", "de", num_pairs=100, seed=2)


def test_the_corpus_has_the_size_asked_for_and_500_pairs_of_validation_and_test(corpus: Corpus) -> None:
    assert len(corpus.train) == 3000
    assert len(corpus.validation) == 500
    assert len(corpus.test) == 500


def test_no_source_occurs_twice(corpus: Corpus) -> None:
    sources = Counter(phrase.source for part in corpus for phrase in part)
    assert sources.most_common(1)[0][1] == 1


def test_held_out_phrases_are_new_on_both_sides(corpus: Corpus) -> None:
    for side in ("source", "target"):
        train, validation, test = ({getattr(phrase, side) for phrase in part} for part in corpus)
        assert not train & validation
        assert not train & test
        assert not validation & test


def test_words_that_only_they_themselves_teach_are_trained_on() -> None:
    corpus = make_corpus("en", "de", num_pairs=5000)
    assert {"one", "two", "nine", "first", "third", "ninth"} <= {phrase.source for phrase in corpus.train}


def test_phrases_are_lines_that_no_reader_would_change(corpus: Corpus) -> None:
    for phrase in (phrase for part in corpus for phrase in part):
        for text in (phrase.source, phrase.target):
            assert text == text.strip()
            assert len(text.splitlines()) == 1


def test_the_first_test_phrases_are_of_different_kinds(corpus: Corpus) -> None:
    assert len({phrase.kind for phrase in corpus.test[:8]}) == 8


def test_every_kind_is_in_every_part_where_the_languages_have_it() -> None:
    for part in make_corpus("en", "de", num_pairs=3000):
        assert {phrase.kind for phrase in part} == set(phrase_corpus.KINDS)


def test_languages_that_num2words_lacks_get_digits_and_no_ordinals() -> None:
    phrases = [phrase for part in make_corpus("zh", "de", num_pairs=500) for phrase in part]
    assert "ordinal" not in {phrase.kind for phrase in phrases}
    cardinals = [phrase for phrase in phrases if phrase.kind == "cardinal"]
    assert cardinals
    assert all(phrase.source.replace(",", "").isdigit() and phrase.target.isalpha() for phrase in cardinals)


def test_every_language_of_num2words_that_cldr_knows_can_be_asked_for() -> None:
    for code in CONVERTER_CLASSES:
        try:
            locale = find_locale(code, "target_language")
        except ValueError:
            assert code in ("kz", "tet")  # num2words' own codes
            continue
        phrase = write_phrase("cardinal", 7, 0, Locale("es"), locale)
        assert phrase is not None
        assert phrase.source == "siete"
        assert not phrase.target.isdigit()


def test_locale_codes_with_a_region_are_understood() -> None:
    assert find_locale("pt-BR", "source_language") == Locale("pt", "BR")
    assert find_locale("zh_Hant", "source_language") == Locale("zh", script="Hant")


@pytest.mark.parametrize(
    ("language", "near"),
    [("german", r"german \(de\)"), ("pt_BT", "pt_BR"), ("", "No code is near it"), ("xxxxxxx", "No code is near it")],
)
def test_an_unknown_language_is_an_error_that_names_near_ones(language: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"`source_language` must be .* CLDR knows.* but is '{language}'.*{near}"):
        make_corpus(language, "de")
    with pytest.raises(ValueError, match="`target_language` must be"):
        make_corpus("en", language)


def test_babel_has_no_language_that_is_called_unknown_here() -> None:
    with pytest.raises(UnknownLocaleError):
        Locale.parse("pt_BT")


def test_two_names_of_one_language_are_an_error() -> None:
    with pytest.raises(ValueError, match="`target_language` must be another language than `source_language`"):
        make_corpus("en_US", "en-US")


def test_more_pairs_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Kind(1, lambda rng: rng.randrange(10), [lambda value, locale: str(value)])
    monkeypatch.setattr(phrase_corpus, "KINDS", {"digit": few})
    with pytest.raises(ValueError, match=r"`pairs` must be at most .* is 1100 instead, .* gave 10\. Ask for fewer"):
        make_corpus("en", "de", num_pairs=100)


def test_a_corpus_of_no_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="`pairs` must be at least 1, but is 0 instead"):
        make_corpus("en", "de", num_pairs=0)


def test_the_command_writes_the_corpus_whatever_the_hash_seed(tmp_path: Path) -> None:
    for hash_seed in ("1", "2"):
        command = [sys.executable, str(SCRIPT), "--target-language", "zh", "--pairs", "50", "--seed", "7"]
        result = subprocess.run(
            [*command, "--output", str(tmp_path / hash_seed)],
            env={"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert "train.{en,zh}: 50 pairs" in result.stdout
    expected = make_corpus("en", "zh", num_pairs=50, seed=7)
    for part in ("train", "validation", "test"):
        for folder in ("1", "2"):
            written = read_pairs(tmp_path / folder, part, ("en", "zh"))
            assert written == [*((phrase.source, phrase.target) for phrase in getattr(expected, part)), ("", "")]
    assert len(list((tmp_path / "1").iterdir())) == 6


def test_the_command_reports_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["phrase_corpus.py", "--source-language", "english", "--output", str(tmp_path)])
    assert phrase_corpus.main() == 1
    error = capsys.readouterr().err
    assert error.startswith("Error: `source_language` must be")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_corpus_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrases = {name: [Phrase(f"old {name}", f"alt {name}", "date")] for name in ("train", "validation", "test")}
    write_corpus(Corpus(**phrases), tmp_path, "en", "de")
    write_text = Path.write_text

    def fail_at_test(path: Path, *args: Any, **kwargs: Any) -> int:
        if path.name.startswith("test.de"):
            raise OSError("No space left on device")
        return write_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", fail_at_test)
    new = Corpus(*([Phrase("new", "neu", "date")] for _ in range(3)))
    with pytest.raises(OSError, match="No space left"):
        write_corpus(new, tmp_path, "en", "de")
    assert read_pairs(tmp_path, "train", ("en", "de")) == [("old train", "alt train"), ("", "")]
