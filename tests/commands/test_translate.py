"""The verb `translate`: every line has its translation on the same line, whatever it is read from and written to."""

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model

from hf_seq2seq import Translator, train_tokenizer
from hf_seq2seq.commands.streams import check_output
from hf_seq2seq.inference.segment import Segment
from hf_seq2seq.inference.settings import DecodingSettings
from hf_seq2seq.text_lines import LINE_ENDS


Command = Callable[..., tuple[int, str, str]]

SAMPLING = ("temperature", "top_k", "top_p", "seed")
CHOICE = ("diversity_rate", "mbr_utility", "mbr_candidates")
WORDS = ("terms", "bad_words")
LENGTHS = ("min_new_tokens", "max_new_tokens")
LINES = ["äöü", "", "ü文", "  ", "中文字中文字", "ß"]


def as_text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


TEXT = as_text(LINES)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model whose tokens are the letters of LINES, so that all it writes is beyond ASCII."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(iter(["äöüß", "中文字"]), kind="char", model_max_length=50)
    model = tiny_model(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2:4] = -1e4  # no </s> and no <unk>: as many letters as the length limit allows
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translations(model_folder: Path) -> list[str]:
    translations = Translator.from_pretrained(model_folder, device="cpu")(LINES)
    assert [len(translation) > 50 for translation in translations] == [bool(line.strip()) for line in LINES]
    assert not "".join(translations).isascii()
    return translations


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], None]]:
    with ExitStack() as files:

        def set_standard_input(data: bytes) -> None:
            (tmp_path / "typed").write_bytes(data)
            file = files.enter_context((tmp_path / "typed").open(encoding="ascii"))
            monkeypatch.setattr(sys, "stdin", file)

        yield set_standard_input


def start(*arguments: object, environment: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "hf_seq2seq", "translate", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


# What goes in and comes out


def test_each_line_of_standard_input_becomes_one_of_standard_output(
    model_folder: Path, translations: list[str], command: Command, type_in: Callable[[bytes], None]
) -> None:
    """https://github.com/joeynmt/joeynmt/issues/183 and https://github.com/awslabs/sockeye/issues/477."""
    type_in(TEXT.encode())
    assert command("translate", model_folder) == (0, as_text(translations), "")
    assert [translations[1], translations[3]] == ["", ""]


@pytest.mark.parametrize("text", ["", "\n", " \n\n\t\n"])
def test_input_without_text_is_no_error(
    text: str, model_folder: Path, command: Command, type_in: Callable[[bytes], None]
) -> None:
    type_in(text.encode())
    assert command("translate", model_folder) == (0, "\n" * text.count("\n"), "")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_files_are_read_and_written_plain_or_gzipped(
    ending: str, model_folder: Path, translations: list[str], command: Command, tmp_path: Path
) -> None:
    source, target = tmp_path / f"new.en{ending}", tmp_path / f"new.de{ending}"
    data = TEXT.replace("\n", "\r\n").encode()
    source.write_bytes(gzip.compress(data) if ending else data)
    target.write_bytes(b"of an earlier run")
    assert command("translate", model_folder, "--input", source, "--output", target) == (0, "", "")
    written = gzip.decompress(target.read_bytes()) if ending else target.read_bytes()
    assert written == as_text(translations).encode()


def test_a_named_pipe_is_read_once_and_whole(
    model_folder: Path, translations: list[str], command: Command, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(TEXT,), kwargs={"encoding": "utf-8"})
    writer.start()
    assert command("translate", model_folder, "--input", pipe) == (0, as_text(translations), "")
    writer.join()


def test_options_reach_the_translator(
    model_folder: Path,
    command: Command,
    type_in: Callable[[bytes], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {}
    settings = Translator.settings

    def record(self: Translator, **options: Any) -> DecodingSettings:
        given.update(options, batch_tokens=self.batch_tokens, device=self.model.device)
        return settings(self)

    monkeypatch.setattr(Translator, "settings", record)

    def record_prefix(self: Translator, lines: list[Segment], settings: DecodingSettings) -> list[Segment]:
        given["prefix"] = lines[0].prefix
        return []

    monkeypatch.setattr(Translator, "translate_lines", record_prefix)
    type_in(b"")
    assert command("translate", model_folder, "--device", "cpu")[0] == 0
    left_out = dict.fromkeys(
        ("beam_size", "length_penalty", "gnmt_penalty", "split_language", *SAMPLING, *LENGTHS, *CHOICE, *WORDS)
    )
    plain = {"scores": False, "attention": False, "n_best": 1, **left_out, "do_sample": False, "mbr": False}
    plain |= {"max_source_tokens": 1024, "over_long": "cut"}
    assert given == plain | {"batch_tokens": 1024, "device": torch.device("cpu")}
    type_in(TEXT.encode())
    options = (
        "--beam-size 3 --batch-tokens 7 --length-penalty 0.5 --n-best 2 --prefix ß --split-language de "
        "--dtype float64 --max-source-tokens 99 --over-long skip --gnmt-penalty --do-sample --temperature 0.5 "
        "--top-k 3 --top-p 0.9 --seed 4 --min-new-tokens 5 --max-new-tokens 6 --diversity-rate 0.3 --mbr "
        "--mbr-utility bleu --mbr-candidates 7"
    )
    (tmp_path / "terms.tsv").write_text("ä\tü\n\nß\t文字\n", encoding="utf-8")
    (tmp_path / "bad_words.txt").write_text("ö\n\näü\n", encoding="utf-8")
    words = ("--terms", tmp_path / "terms.tsv", "--bad-words", tmp_path / "bad_words.txt")
    command("translate", model_folder, "--device", "cpu", *options.split(), *words, "--scores", "--alignments")
    assert given == {
        "beam_size": 3,
        "batch_tokens": 7,
        "length_penalty": 0.5,
        "n_best": 2,
        "prefix": "ß",
        "attention": True,
        "split_language": "de",
        "max_source_tokens": 99,
        "over_long": "skip",
        "gnmt_penalty": True,
        "do_sample": True,
        **dict(zip(SAMPLING, (0.5, 3, 0.9, 4), strict=True)),
        **dict(zip(LENGTHS, (5, 6), strict=True)),
        **dict(zip(WORDS, ({"ä": "ü", "ß": "文字"}, ["ö", "äü"]), strict=True)),
        "mbr": True,
        **dict(zip(CHOICE, (0.3, "bleu", 7), strict=True)),
        "scores": True,
        "device": torch.device("cpu"),
    }


def test_the_revision_reaches_the_hub_and_is_refused_where_there_is_none(
    model_folder: Path, command: Command, type_in: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def from_pretrained(model: str, *, revision: str | None, **_: object) -> Translator:
        asked.append((model, revision))
        return translator

    translator = Translator.from_pretrained(model_folder, device="cpu")
    monkeypatch.setattr(Translator, "from_pretrained", from_pretrained)
    type_in(b"")
    assert command("translate", "me/m", "--revision", "v2")[0] == 0
    assert asked == [("me/m", "v2")]
    status, _, err = command("translate", "me/m", "--revision", "v2", "--backend", "ctranslate2")
    assert status == 1
    assert err == (
        "Error: `--revision` must be left out with `--backend ctranslate2`, which reads a folder, but is 'v2' "
        "instead.\n"
    )
    assert len(asked) == 1


def test_more_hypotheses_are_lines_of_their_own_with_scores_and_alignments_after_tabs(
    model_folder: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(TEXT, encoding="utf-8")
    options = ("--input", tmp_path / "in", "--n-best", 2, "--beam-size", 2, "--scores", "--alignments")
    status, out, _ = command("translate", model_folder, *options)
    assert status == 0
    found = Translator.from_pretrained(model_folder, device="cpu").hypotheses(
        LINES, n_best=2, beam_size=2, attention=True
    )
    expected = []
    for hypothesis in (hypothesis for hypotheses in found for hypothesis in hypotheses):
        if hypothesis.score is None:
            expected.append("\t\t")
        else:
            pairs = " ".join(f"{source}-{target}" for source, target in hypothesis.alignment or ())
            expected.append(f"{hypothesis.text}\t{hypothesis.score:.4f}\t{pairs}")
    assert len(expected) == 2 * len(LINES)
    assert out.splitlines() == expected


def test_each_line_can_be_a_json_object(
    model_folder: Path, translations: list[str], command: Command, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text(TEXT, encoding="utf-8")
    options = ("--input", tmp_path / "in", "--format", "jsonl")
    _, out, _ = command("translate", model_folder, *options)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["source"] for row in rows] == LINES
    assert [row["translation"] for row in rows] == translations
    assert rows[0]["hypotheses"][0].keys() == {"text", "tokens"}
    _, out, _ = command("translate", model_folder, *options, "--scores", "--alignments")
    hypothesis = json.loads(out.splitlines()[0])["hypotheses"][0]
    assert hypothesis["sum_log_prob"] == pytest.approx(sum(hypothesis["token_log_probs"]))
    assert hypothesis["score"] == pytest.approx(hypothesis["sum_log_prob"] / len(hypothesis["tokens"]) ** 0.6)
    assert hypothesis["source_tokens"] == ["ä", "ö", "ü", "</s>"]
    assert hypothesis["alignment"] == [[0, 0]]  # a text without white space is one word
    assert [target for _, target, _ in hypothesis["token_alignment"]] == list(range(len(hypothesis["tokens"])))
    assert all(source < 3 and 0 < weight <= 1 for source, _, weight in hypothesis["token_alignment"])


def test_scores_that_are_no_numbers_are_null_in_json(command: Command, tmp_path: Path, model_folder: Path) -> None:
    translator = Translator.from_pretrained(model_folder, device="cpu")
    with torch.no_grad():
        translator.model.lm_head.bias[0] = torch.nan
    (tmp_path / "in").write_text("ä\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Translator, "from_pretrained", lambda *_, **__: translator)
        options = ("--input", tmp_path / "in", "--format", "jsonl", "--scores", "--beam-size", 1)
        _, out, _ = command("translate", model_folder, *options)
    [hypothesis] = json.loads(out, parse_constant=pytest.fail)["hypotheses"]
    assert hypothesis["score"] is hypothesis["sum_log_prob"] is None


def test_a_line_that_is_too_long_is_named_and_the_others_stay_in_their_place(
    model_folder: Path,
    translations: list[str],
    command: Command,
    type_in: Callable[[bytes], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    type_in(as_text([LINES[0], "ü" * 2000, *LINES[1:]]).encode())
    status, out, _ = command("translate", model_folder, "--max-source-tokens", 20, "--over-long", "skip")
    assert (status, out) == (0, as_text([translations[0], "", *translations[1:]]))
    assert caplog.messages == ["Line 2: not translated, being longer than 20 tokens, as `max_source_tokens` says."]


def test_what_a_model_writes_makes_neither_more_lines_nor_more_cells(
    command: Command, type_in: Callable[[bytes], None], tmp_path: Path
) -> None:
    """https://github.com/thammegowda/mtdata/issues/44"""
    tokenizer = train_tokenizer(iter([f"a\t{LINE_ENDS}"]), kind="char", vocab_size=16)
    model = tiny_model(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2:4] = -1e4  # no </s> and no <unk>
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    lines = ["a a", "", "aaa a\u2028a"]

    def translate(*options: str) -> list[str]:
        type_in(as_text(lines).encode())
        status, out, _ = command("translate", tmp_path / "model", "--prefix", f"\t{LINE_ENDS}\ta", *options)
        assert status == 0
        return out.splitlines()

    texts = translate()
    assert [text[:13] for text in texts] == [f"\t{' ' * 10}\ta", "", f"\t{' ' * 10}\ta"]
    for cells, options in enumerate((["--scores"], ["--scores", "--alignments"]), start=2):
        rows = [line.split("\t") for line in translate(*options)]
        assert [len(row) for row in rows] == [cells] * 3
        assert [row[0] for row in rows] == [text.replace("\t", " ") for text in texts]
    objects = [json.loads(line) for line in translate("--format", "jsonl", "--n-best", "2", "--scores")]
    assert [found["source"] for found in objects] == lines
    assert [found["translation"] for found in objects] == texts
    assert all(len(one["text"].splitlines()) <= 1 for found in objects for one in found["hypotheses"])


@pytest.mark.slow
def test_two_processes_share_the_lines_of_a_file(model_folder: Path, translations: list[str], tmp_path: Path) -> None:
    (tmp_path / "in").write_text(TEXT * 7, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "hf_seq2seq"]
    options = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--batch-tokens", "10"]
    subprocess.run([*launch, "translate", str(model_folder), *options], check=True, timeout=300)
    assert (tmp_path / "out").read_text(encoding="utf-8") == as_text(translations) * 7


@pytest.mark.slow
def test_processes_that_share_a_file_keep_what_comes_before_a_bad_line_and_end_when_nobody_reads_on(
    model_folder: Path, translations: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.write_bytes((TEXT * 7).encode() + b"\xe4\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "hf_seq2seq"]
    command = [*launch, "translate", str(model_folder), "--input", str(source), "--batch-tokens", "10"]
    result = subprocess.run(command, capture_output=True, timeout=300)
    assert result.returncode == 1
    assert result.stdout.decode() == as_text(translations) * 7
    assert b"line 43 holds the byte 0xe4" in result.stderr
    source.write_text(TEXT * 700, encoding="utf-8")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{translations[0]}\n".encode()
        process.stdout.close()
        assert process.wait(timeout=300) == 0


def test_processes_can_share_neither_standard_input_nor_a_device(
    model_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    status, _, err = command("translate", model_folder)
    assert status == 1
    assert "`--input` must name a file where 2 processes share its lines" in err
    (tmp_path / "in").write_text("a\n")
    status, _, err = command("translate", model_folder, "--input", tmp_path / "in", "--device", "cuda:3")
    assert status == 1
    assert "`--device` must have no number where 2 processes share the lines" in err


@pytest.mark.parametrize("option", ["--beam-size", "--batch-tokens"])
def test_a_number_below_1_is_refused(option: str, model_folder: Path, command: Command) -> None:
    status, _, err = command("translate", model_folder, option, 0)
    assert status == 2
    assert f"Invalid value for '{option}'" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--dtype", "load"),
            "`dtype` must be a type of floating point numbers that torch has, but is 'load' instead.",
        ),
        (
            ("--beam-size", 100_000_000),
            "`beam_size` must be a whole number from 1 to 1,000, but is 100000000 instead.",
        ),
        (("--length-penalty", 1000), "`length_penalty` must be a number from -10 to 10, but is 1000.0 instead."),
        (("--length-penalty", "nan"), "`length_penalty` must be a number from -10 to 10, but is nan instead."),
    ],
)
def test_an_option_out_of_range_is_one_line(
    options: tuple[object, ...], message: str, model_folder: Path, command: Command, type_in: Callable[[bytes], None]
) -> None:
    type_in(TEXT.encode())
    status, out, err = command("translate", model_folder, *options)
    assert (status, out) == (1, "")
    assert err.startswith(f"Error: {message}")
    assert err.count("\n") == 1


# Bad input


def test_a_line_that_is_not_utf8_is_named_after_the_lines_before_it_are_translated(
    model_folder: Path, translations: list[str], command: Command, type_in: Callable[[bytes], None]
) -> None:
    type_in(as_text(LINES[:3]).encode() + b"\xe4\n" + LINES[0].encode())
    status, out, err = command("translate", model_folder)
    assert (status, out) == (1, as_text(translations[:3]))
    assert err.startswith("Error: ")
    assert "must be UTF-8 text, but line 4 holds the byte 0xe4" in err
    assert err.count("\n") == 1


def test_a_file_or_model_that_is_not_there_is_named_and_an_earlier_output_kept(
    model_folder: Path, command: Command, tmp_path: Path
) -> None:
    output, missing, source = tmp_path / "new.de", tmp_path / "missing", tmp_path / "new.en"
    output.write_text("of an earlier run")
    source.write_text(TEXT, encoding="utf-8")
    for arguments in ((model_folder, "--input", missing), (missing, "--input", source)):
        status, _, err = command("translate", *arguments, "--output", output)
        assert status == 1
        assert err.startswith(f"Error: `{missing}` must be ")
        assert output.read_text() == "of an earlier run"


def test_the_output_may_be_none_of_the_inputs(model_folder: Path, command: Command, tmp_path: Path) -> None:
    source = tmp_path / "new.en"
    source.write_text(TEXT, encoding="utf-8")
    (tmp_path / "link").symlink_to(source)
    status, _, err = command("translate", model_folder, "--input", source, "--output", tmp_path / "link")
    assert status == 1
    assert "`--output` must be another file than the input, but both are" in err
    assert source.read_text(encoding="utf-8") == TEXT
    standard_input = os.dup(0)
    with source.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        with pytest.raises(ValueError, match="`--output` must be another file than the input"):
            check_output(source, None)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's device that is always full")
def test_a_full_disk_is_an_error_that_names_the_file(model_folder: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("a b\n")
    status, _, error = command("translate", model_folder, "--input", tmp_path / "input", "--output", "/dev/full")
    assert status == 1
    assert error.strip() == "Error: No space is left for `/dev/full`. The lines before are kept; free some space."


def test_the_output_must_be_a_file_in_a_folder_that_exists(
    model_folder: Path, command: Command, tmp_path: Path
) -> None:
    for output in (tmp_path, tmp_path / "missing" / "new.de"):
        status, _, err = command("translate", model_folder, "--output", output)
        assert (status, err) == (
            1,
            f"Error: `--output` must be a file in an existing folder, but is {output} instead.\n",
        )


# While it runs


def test_translations_appear_while_the_input_is_still_open_in_utf8_whatever_the_locale(
    model_folder: Path, translations: list[str]
) -> None:
    locale = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    with start(model_folder, environment=locale) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line, translation in zip(LINES, translations, strict=True):  # asked and answered, one by one
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == f"{translation}\n".encode()
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.slow
def test_head_closing_the_pipe_is_no_error(model_folder: Path, translations: list[str], tmp_path: Path) -> None:
    (tmp_path / "new.en").write_text(TEXT * 20, encoding="utf-8")
    with start(model_folder, "--input", tmp_path / "new.en") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == f"{translations[0]}\n".encode()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_lines_that_have_come_are_translated_together_whether_or_not_one_can_ask_for_more(
    model_folder: Path,
    translations: list[str],
    command: Command,
    type_in: Callable[[bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows: list[int] = []
    monkeypatch.setattr("hf_seq2seq.commands.translate.write_lines", lambda lines, *_: windows.append(len(lines)))
    type_in(TEXT.encode() * 3)
    assert command("translate", model_folder)[0] == 0
    assert windows == [1, 8, 9]

    def refuse(*_: object) -> None:
        raise OSError("an operation was attempted on something that is not a socket")

    windows.clear()
    monkeypatch.setattr("select.select", refuse)
    type_in(TEXT.encode())  # all of it comes at once, so that nothing has to be asked
    assert command("translate", model_folder)[0] == 0
    assert windows == [1, 5]


def test_the_progress_is_shown_on_a_terminal_alone(
    model_folder: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.en").write_text(TEXT, encoding="utf-8")
    arguments = ("translate", model_folder, "--input", tmp_path / "new.en")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, _, err = command(*arguments)
    assert "6 sentences [" in err
    assert "sentences/s" in err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert command(*arguments)[2] == ""  # it would be mixed with the translations
    assert "sentences/s" in command(*arguments, "--output", tmp_path / "new.de")[2]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_what_was_translated_can_be_read_after_a_kill(
    ending: str, model_folder: Path, translations: list[str], tmp_path: Path
) -> None:
    output = tmp_path / f"new.de{ending}"
    with start(model_folder, "--output", output) as process:
        assert process.stdin is not None
        process.stdin.write(f"{LINES[0]}\n".encode())
        process.stdin.flush()
        while not (output.exists() and output.stat().st_size):
            assert process.poll() is None
            time.sleep(0.1)
        process.kill()
    data = gzip.decompress(output.read_bytes()) if ending else output.read_bytes()
    assert data == f"{translations[0]}\n".encode()
