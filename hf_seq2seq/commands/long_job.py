"""A translation of a file that takes hours: killed at any moment, it goes on when the same command is run again.

The lines are written to `G.unfinished` until `G` is whole. Beside it, `G.unfinished.json` is the record of the job:
what the text depends on (model, options, input), and how far it is. A text may depend, in the last digits of its
numbers, on the other texts of its batch. So a job goes on at the start of a window: the lines of a window are sorted
into batches together.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import typer

from hf_seq2seq.atomic_writing import UNFINISHED, only_writer, write_text
from hf_seq2seq.json_files import parse_json


logger = logging.getLogger(__name__)

# What a model's folder holds of the model. A folder of a run also holds logs and checkpoints.
_MODEL_FILES = (
    *("config.json", "generation_config.json", "*token*.json", "*vocab*", "merges.txt", "*.spm", "*.model"),
    *("*.safetensors", "*.bin"),
)
_MODEL_CONTENT, _INPUT_CONTENT, _MODELS = "the model", "the content of `--input`", "--ensemble"
_CONTENTS = {
    **{name: name.capitalize() for name in (_MODEL_CONTENT, _INPUT_CONTENT)},
    **{name: f"The content of `{name}`" for name in (_MODELS, "--terms", "--bad-words")},
}


@dataclass
class LongJob:
    """How far a job is.

    Attributes:
        file: What is written; None for standard output.
        facts: What the text depends on; None for an output that begins anew each time.
        num_windows: The windows that the file holds.
        num_lines: The lines of the input in those windows.
        num_bytes: The size of the file at the end of the last of them.
    """

    file: Path | None
    facts: dict[str, Any] | None = None
    num_windows: int = 0
    num_lines: int = 0
    num_bytes: int = 0

    @property
    def record(self) -> Path:
        """The file that holds all this."""
        assert self.file is not None
        return self.file.with_name(f"{self.file.name}.json")

    def save(self) -> None:
        """Writes the record, whole or not at all."""
        values = asdict(self) | {"file": str(self.file)}
        write_text(self.record, json.dumps(values, indent=2, ensure_ascii=False) + "\n")

    def advance(self, output: BinaryIO, num_lines: int) -> None:
        """Records that one more window is written.

        Args:
            output: The open file.
            num_lines: The lines of the input in the window.
        """
        self.num_windows, self.num_lines = self.num_windows + 1, self.num_lines + num_lines
        if self.facts is not None:
            os.fsync(output.fileno())  # the record must not be ahead of the file, even after a power cut
            self.num_bytes = output.tell()
            self.save()


@contextmanager
def long_job(output_file: Path | None, facts: dict[str, Any] | None, is_writer: bool = True) -> Iterator[LongJob]:
    """Yields the job that writes a file, as far as it is. On success the file gets its name, on failure it is kept.

    Args:
        output_file: The file; None for standard output.
        facts: What the text depends on; None for an output that begins anew each time.
        is_writer: Whether this process writes. Another one only learns how far the job is, and writes nowhere.

    Raises:
        ValueError: If the file was begun with other facts, the record is damaged, or another process writes it.
    """
    if output_file is None or facts is None:
        yield LongJob(output_file if is_writer else Path(os.devnull))
        return
    target = output_file.resolve()  # a link stays a link
    unfinished = target.with_name(f"{target.name}{UNFINISHED}")
    job = LongJob(unfinished, facts)
    if not is_writer:
        _resume(job)
        yield LongJob(Path(os.devnull), num_windows=job.num_windows)
        return
    with only_writer(target, target.parent):
        _resume(job)
        job.save()
        try:
            yield job
        except BaseException:
            _stop(job)
            raise
        unfinished.replace(target)
        job.record.unlink()


def _stop(job: LongJob) -> None:
    """Says what is kept of a job that fails; nothing is kept of one that has written nothing."""
    assert job.file is not None
    if job.num_windows:
        logger.warning(
            "`%s` holds the translations of %d lines. The same command goes on after them.", job.file, job.num_lines
        )
    elif job.file.exists() and job.file.stat().st_size == 0:
        job.file.unlink()
        job.record.unlink()


def _resume(job: LongJob) -> None:
    """Fills in how far a job was when it was stopped, if it was begun.

    Raises:
        ValueError: As `long_job` does.
    """
    assert job.file is not None
    if not job.file.exists():
        return
    begin_anew = f"To begin anew, delete `{job.file}`."
    try:
        values = parse_json(job.record.read_text(encoding="utf-8"))
        before, counts = dict(values["facts"]), [int(values[f"num_{unit}"]) for unit in ("windows", "lines", "bytes")]
        if job.file.stat().st_size < counts[-1]:
            raise ValueError(f"the file has fewer bytes than the record says, {counts[-1]}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"`{job.file}` must have the record of its job beside it, but {job.record.name} is missing or damaged "
            f"({type(error).__name__}: {error}). {begin_anew}"
        ) from None
    if not counts[0]:
        return  # nothing is lost
    _compare(before, job, f"Give the same command to go on with it. {begin_anew}")
    job.num_windows, job.num_lines, job.num_bytes = counts
    logger.info("Going on after line %d of the input, with what `%s` holds.", job.num_lines, job.file)


def _compare(before: dict[str, Any], job: LongJob, way_out: str) -> None:
    """Raises ValueError if a job was begun with other facts."""
    now = job.facts or {}
    for name in [*now, *(before.keys() - now.keys())]:
        if before.get(name) == now.get(name):
            continue
        if name in _CONTENTS and before.get(name) and now.get(name):
            raise ValueError(
                f"{_CONTENTS[name]} must be what `{job.file}` was begun with, but is another instead. {way_out}"
            )
        if name in _CONTENTS:
            rule = "be given, as it was when" if before.get(name) else "be left out, as it was when"
            raise ValueError(f"`{name}` must {rule} `{job.file}` was begun. {way_out}")
        raise ValueError(
            f"`{name}` must be {before.get(name)!r}, with which `{job.file}` was begun, but is {now.get(name)!r} "
            f"instead. {way_out}"
        )


def facts_of_job(context: typer.Context, input_file: Path | None, output_file: Path | None) -> dict[str, Any] | None:
    """Returns what the text of a command depends on: its options, and checksums of the files that they name.

    Args:
        context: The command's call. The model is its argument, and has been loaded.
        input_file: The input.
        output_file: The output.

    Returns:
        The facts; None if the output is written at once: if either is no file, such as standard input or a pipe.
    """
    from hf_seq2seq.data.lines import content_digest

    if input_file is None or output_file is None or not input_file.is_file():
        return None
    if output_file.exists() and not output_file.is_file():
        return None
    options = {parameter.opts[0]: context.params[str(parameter.name)] for parameter in context.command.params}
    model = options.pop("model")
    if not Path(model).is_dir():
        model = commit_of(model, context.params["revision"])
    facts = {name: _fact(value) for name, value in options.items() if name not in ("--input", "--output", _MODELS)}
    facts[_MODELS] = [_model_fact(one) for one in options[_MODELS] or ()]
    return {_MODEL_CONTENT: _model_fact(model), _INPUT_CONTENT: content_digest(input_file), **facts}


def commit_of(model: str, revision: str | None) -> str:
    """Returns the commit of a model of the Hub that has been loaded, as the cache of huggingface_hub knows it."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json", revision=revision)
    return f"{model} at {Path(config).parent.name if isinstance(config, str) else revision}"


def _fact(value: Any) -> Any:
    """Returns the value of an option as JSON has it: a checksum for a file."""
    from hf_seq2seq.data.lines import content_digest

    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path) and value.is_file():
        return content_digest(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _model_fact(model: str) -> Any:
    """Returns checksums of the files of a model's folder, or else its name."""
    from hf_seq2seq.data.lines import content_digest

    if not Path(model).is_dir():
        return model
    files = sorted({file for pattern in _MODEL_FILES for file in Path(model).glob(pattern)})
    return {file.name: content_digest(file) for file in files if file.is_file()}
