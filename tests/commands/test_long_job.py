"""A translation that is killed goes on when the same command is run again, and ends with the same text."""

import contextlib
import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import tiny_model

from hf_seq2seq import Translator, train_tokenizer
from hf_seq2seq.commands import streams
from hf_seq2seq.commands.long_job import commit_of
from hf_seq2seq.inference.segment import Segment


Command = Callable[..., tuple[int, str, str]]

TEXT = "".join(f"{'ab' * (number % 4)}c{'cba' * (number % 3)}\n" for number in range(23))
OPTIONS = ("--batch-tokens", 10, "--device", "cpu", "--max-new-tokens", 6)  # windows of 1, 5, 5, ... lines


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(iter(["abc"]), kind="char", model_max_length=50)
    model = tiny_model(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1.0  # translations that are not blank
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "new.en"
    file.write_text(TEXT, encoding="utf-8")
    return file


class _Killed(BaseException):
    """What a test raises where a process could be killed."""


@pytest.fixture
def kill_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Makes the command stop while it writes a window, which it leaves half written, as a kill does."""

    @contextlib.contextmanager
    def stopped(num_windows: int) -> Any:
        left = [num_windows]

        def write(lines: list[str], output: Any, output_file: Path | None) -> None:
            if not left[0]:
                output.write(b"half of a li" * 1000)  # longer than all that follows
                raise _Killed
            left[0] -= 1
            streams.write_lines(lines, output, output_file)

        with monkeypatch.context() as patch:
            patch.setattr("hf_seq2seq.commands.translate.write_lines", write)
            with pytest.raises(_Killed):
                yield

    return stopped


def content(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@pytest.mark.parametrize(("name", "num_windows"), [("new.de", 0), ("new.de", 3), ("new.de.gz", 1)])
def test_the_same_command_goes_on_after_the_last_whole_window(
    name: str,
    num_windows: int,
    model_folder: Path,
    source: Path,
    tmp_path: Path,
    command: Command,
    kill_after: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hf_seq2seq.commands.long_job")
    undisturbed, output = tmp_path / f"whole.{name}", tmp_path / name
    windows: list[list[str]] = []
    translate = Translator.translate_lines

    def record(self: Translator, lines: Sequence[Segment], settings: Any) -> list[Segment]:
        windows.append([line.text for line in lines])
        return translate(self, lines, settings)

    monkeypatch.setattr(Translator, "translate_lines", record)
    arguments = ("translate", model_folder, "--input", source, *OPTIONS, "--scores")
    assert command(*arguments, "--output", undisturbed) == (0, "", "")
    all_windows = list(windows)
    with kill_after(num_windows):
        command(*arguments, "--output", output)
    assert names(tmp_path) == {"new.en", undisturbed.name, f"{name}.unfinished", f"{name}.unfinished.json"}
    windows.clear()
    caplog.clear()
    assert command(*arguments, "--output", output)[0] == 0
    assert windows == all_windows[num_windows:]  # the same windows, so that the same texts share batches
    assert content(output) == content(undisturbed)
    assert names(tmp_path) == {"new.en", undisturbed.name, name}
    lines = [0, 1, 6, 11][num_windows]
    told = f"Going on after line {lines} of the input, with what `{output}.unfinished` holds."
    assert [message for message in caplog.messages if "Going on" in message] == ([told] if lines else [])


def test_an_earlier_output_stays_until_the_new_one_is_whole(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, kill_after: Callable[[int], Any]
) -> None:
    real, output = tmp_path / "real.de", tmp_path / "new.de"
    real.write_text("of an earlier run\n")
    output.symlink_to(real)
    arguments = ("translate", model_folder, "--input", source, *OPTIONS, "--output", output)
    with kill_after(2):
        command(*arguments)
    assert output.read_text() == "of an earlier run\n"
    assert command(*arguments)[0] == 0
    assert output.is_symlink()
    assert len(real.read_text(encoding="utf-8").splitlines()) == 23


def test_what_differs_is_named_with_the_way_to_begin_anew(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, kill_after: Callable[[int], Any]
) -> None:
    output, other = tmp_path / "new.de", tmp_path / "other"
    arguments = ("translate", model_folder, "--input", source, *OPTIONS)
    with kill_after(2):
        command(*arguments, "--output", output)
    unfinished = (tmp_path / "new.de.unfinished").read_bytes()
    begin_anew = f"Give the same command to go on with it. To begin anew, delete `{output}.unfinished`.\n"

    status, _, err = command(*arguments, "--output", output, "--beam-size", 2)
    assert (status, err) == (
        1,
        f"Error: `--beam-size` must be None, with which `{output}.unfinished` was begun, but is 2 instead. "
        f"{begin_anew}",
    )
    source.write_text(TEXT.replace("c", "a", 1), encoding="utf-8")
    status, _, err = command(*arguments, "--output", output)
    assert err == (
        f"Error: The content of `--input` must be what `{output}.unfinished` was begun with, but is another instead. "
        f"{begin_anew}"
    )
    source.write_text(TEXT, encoding="utf-8")
    model = Translator.from_pretrained(model_folder, device="cpu")
    with torch.no_grad():
        model.model.lm_head.bias[5] += 1
    model.model.save_pretrained(other)
    model.tokenizer.save_pretrained(other)
    status, _, err = command("translate", other, "--input", source, *OPTIONS, "--output", output)
    assert (status, err) == (
        1,
        f"Error: The model must be what `{output}.unfinished` was begun with, but is another instead. {begin_anew}",
    )
    assert (tmp_path / "new.de.unfinished").read_bytes() == unfinished
    (tmp_path / "new.de.unfinished").unlink()
    assert command(*arguments, "--output", output, "--beam-size", 2)[0] == 0


def test_other_words_are_told_without_their_checksum(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, kill_after: Callable[[int], Any]
) -> None:
    output, words = tmp_path / "new.de", tmp_path / "words.txt"
    words.write_text("xyz\n", encoding="utf-8")
    arguments = ("translate", model_folder, "--input", source, "--output", output, *OPTIONS)
    with kill_after(2):
        command(*arguments, "--bad-words", words)
    way_out = f"Give the same command to go on with it. To begin anew, delete `{output}.unfinished`.\n"
    assert command(*arguments)[2] == (
        f"Error: `--bad-words` must be given, as it was when `{output}.unfinished` was begun. {way_out}"
    )
    assert command(*arguments, "--bad-words", words, "--ensemble", model_folder)[2] == (
        f"Error: `--ensemble` must be left out, as it was when `{output}.unfinished` was begun. {way_out}"
    )
    words.write_text("zyx\n", encoding="utf-8")
    assert command(*arguments, "--bad-words", words)[2] == (
        f"Error: The content of `--bad-words` must be what `{output}.unfinished` was begun with, but is another "
        f"instead. {way_out}"
    )


def test_an_option_that_names_a_folder_by_chance_is_a_text(
    model_folder: Path,
    source: Path,
    tmp_path: Path,
    command: Command,
    kill_after: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        Path(name).mkdir()
    arguments = ("translate", model_folder, "--input", source, "--output", "new.de", *OPTIONS)
    with kill_after(2):
        command(*arguments, "--prefix", "a")
    status, _, err = command(*arguments, "--prefix", "b")
    assert (status, err.split(",")[0]) == (1, "Error: `--prefix` must be 'a'")
    Path("new.de.unfinished").unlink()
    too_long_for_a_name = command(*arguments, "--prefix", "a" * 300)[2]
    assert "Errno" not in too_long_for_a_name


def test_a_model_and_an_input_that_were_moved_are_the_same(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, kill_after: Callable[[int], Any]
) -> None:
    arguments = (*OPTIONS, "--output", tmp_path / "new.de")
    with kill_after(2):
        command("translate", model_folder, "--input", source, *arguments)
    (tmp_path / "link").symlink_to(model_folder)
    moved = source.rename(tmp_path / "moved.en")
    assert command("translate", tmp_path / "link", "--input", moved, *arguments)[0] == 0


@pytest.mark.parametrize(
    "record", [None, "", "{}", '{"facts": {}, "num_windows": 1, "num_lines": 1, "num_bytes": 99}']
)
def test_an_unfinished_file_without_its_record_is_left_alone(
    record: str | None, model_folder: Path, source: Path, tmp_path: Path, command: Command
) -> None:
    unfinished = tmp_path / "new.de.unfinished"
    unfinished.write_text("somebody's\n")
    if record is not None:
        (tmp_path / "new.de.unfinished.json").write_text(record)
    status, _, err = command("translate", model_folder, "--input", source, "--output", tmp_path / "new.de")
    assert status == 1
    assert err.startswith(
        f"Error: `{unfinished}` must have the record of its job beside it, but new.de.unfinished.jso"
    )
    assert err.endswith(f"To begin anew, delete `{unfinished}`.\n")
    assert unfinished.read_text() == "somebody's\n"


def test_a_line_that_cannot_be_read_keeps_the_translations_before_it(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    source.write_bytes(TEXT.encode() + b"\xe4\n")
    arguments = ("translate", model_folder, "--input", source, "--output", tmp_path / "new.de")
    status, _, err = command(*arguments)
    assert status == 1
    assert "line 24 holds the byte 0xe4" in err
    kept = tmp_path / "new.de.unfinished"
    assert len(kept.read_text(encoding="utf-8").splitlines()) == 23
    assert caplog.messages == [f"`{kept}` holds the translations of 23 lines. The same command goes on after them."]


def test_a_job_on_a_disk_that_becomes_full_goes_on_when_there_is_room(
    model_folder: Path,
    source: Path,
    tmp_path: Path,
    command: Command,
    little_room: Callable[[int], AbstractContextManager[None]],
) -> None:
    arguments = ("translate", model_folder, "--input", source, *OPTIONS, "--format", "jsonl", "--scores", "--output")
    undisturbed, output = tmp_path / "whole.jsonl", tmp_path / "new.jsonl"
    assert command(*arguments, undisturbed)[0] == 0
    with little_room(6000):
        status, _, err = command(*arguments, output)
    assert status == 1
    assert f"No space is left for `{output}.unfinished`. The lines before are kept; free some space." in err
    kept = (tmp_path / "new.jsonl.unfinished").read_text(encoding="utf-8")
    assert 3000 < len(kept.encode()) <= 6000
    assert undisturbed.read_text(encoding="utf-8").startswith(kept)
    assert command(*arguments, output)[0] == 0
    assert output.read_bytes() == undisturbed.read_bytes()


def test_two_commands_do_not_write_one_file(
    model_folder: Path, source: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("translate", model_folder, "--input", source, "--output", tmp_path / "new.de")
    second: list[tuple[int, str, str]] = []
    translate = Translator.translate_lines

    def translate_twice(self: Translator, lines: Sequence[Segment], settings: Any) -> list[Segment]:
        if not second:
            second.append((0, "", ""))
            second[0] = command(*arguments)
        return translate(self, lines, settings)

    monkeypatch.setattr(Translator, "translate_lines", translate_twice)
    assert command(*arguments)[0] == 0
    assert second[0][0] == 1
    assert "new.de` must be written by one process at a time, but another one is writing it" in second[0][2]


def test_a_model_of_the_hub_is_told_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--me--m"
    (folder / "refs").mkdir(parents=True)
    for commit in ("a" * 40, "b" * 40):
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text("{}")
    (folder / "refs" / "main").write_text("a" * 40)
    assert commit_of("me/m", None) == f"me/m at {'a' * 40}"
    assert commit_of("me/m", "b" * 40) == f"me/m at {'b' * 40}"
    assert commit_of("me/other", "v1") == "me/other at v1"


def run(script: str, *arguments: object, num_processes: int = 1) -> int:
    """Runs a script in processes of its own, and returns the exit status."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={num_processes}"]
    start = [sys.executable, *(launch if num_processes > 1 else []), str(Path(__file__).with_name(script))]
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    return subprocess.run([*start, *map(str, arguments)], env=environment, timeout=240, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new.jsonl", "new.jsonl.gz"])
def test_a_process_that_is_killed_again_and_again_ends_with_the_text_of_an_undisturbed_one(
    name: str, model_folder: Path, source: Path, tmp_path: Path, command: Command
) -> None:
    source.write_text(TEXT * 4, encoding="utf-8")
    arguments = ["translate", model_folder, "--input", source, *OPTIONS, "--format", "jsonl", "--scores"]
    undisturbed, output, record = tmp_path / f"whole.{name}", tmp_path / name, tmp_path / f"{name}.unfinished.json"
    assert command(*arguments, "--output", undisturbed)[0] == 0

    def windows_done() -> int:
        return int(json.loads(record.read_text(encoding="utf-8"))["num_windows"]) if record.exists() else 0

    start = [sys.executable, "-m", "hf_seq2seq", *map(str, arguments), "--output", str(output)]
    for least in (1, 4, 9):
        with subprocess.Popen(start) as process:
            while windows_done() < least:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert not output.exists()
    assert 9 <= windows_done() < 20
    assert command(*arguments, "--output", output)[0] == 0
    assert content(output) == content(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize("point", ["before a record", "after a record", "before the last name"])
def test_a_job_killed_at_a_point_ends_with_the_text_of_an_undisturbed_one(
    point: str, num_processes: int, model_folder: Path, source: Path, tmp_path: Path, command: Command
) -> None:
    arguments = ["translate", model_folder, "--input", source, *OPTIONS, "--scores", "--output"]
    undisturbed, output = tmp_path / "whole.de", tmp_path / "new.de"
    assert command(*arguments, undisturbed)[0] == 0
    assert run("killed_translation.py", point, *arguments, output, num_processes=num_processes) != 0
    assert not output.exists()
    assert run("killed_translation.py", "nowhere", *arguments, output, num_processes=num_processes) == 0
    assert output.read_bytes() == undisturbed.read_bytes()
    assert names(tmp_path) == {"new.en", "whole.de", "new.de"}
