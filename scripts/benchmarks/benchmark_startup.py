"""Measures what it costs to start: CPU seconds of the command's help and mistakes, and of importing the package.

    python scripts/benchmarks/benchmark_startup.py [--rounds 7]

Each entry runs in a process of its own, user and system time together. The entries take turns, so that what else the
machine does weighs on all of them alike; the least of all rounds is the cost, and the median tells how steady it was.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


COMMAND = str(Path(sysconfig.get_path("scripts"), "hf-seq2seq"))
MODULE = (sys.executable, "-m", "hf_seq2seq")
TRANSFORMERS = "from transformers import AutoModelForSeq2SeqLM, PreTrainedModel"


def python(code: str) -> tuple[str, ...]:
    """Returns the words that run code."""
    return sys.executable, "-c", code


ENTRIES: dict[str, tuple[str, ...]] = {
    "python, nothing imported": python("pass"),
    "import hf_seq2seq": python("import hf_seq2seq"),
    "from transformers import PreTrainedConfig": python("from transformers import PreTrainedConfig"),
    TRANSFORMERS: python(TRANSFORMERS),
    "the same after import hf_seq2seq": python(f"import hf_seq2seq; {TRANSFORMERS}"),
    "the same before import hf_seq2seq": python(f"{TRANSFORMERS}; import hf_seq2seq"),
    "hf-seq2seq --help": (COMMAND, "--help"),
    "hf-seq2seq --version": (COMMAND, "--version"),
    "hf-seq2seq translate --help": (COMMAND, "translate", "--help"),
    "hf-seq2seq tokenizer --help": (COMMAND, "tokenizer", "--help"),
    "hf-seq2seq translate MODEL --beams 4": (COMMAND, "translate", "MODEL", "--beams", "4"),
    "hf-seq2seq train --help": (COMMAND, "train", "--help"),
    "hf-seq2seq train --d_modle 8": (COMMAND, "train", "--d_modle", "8"),
    "python -m hf_seq2seq --help": (*MODULE, "--help"),
    "python -m hf_seq2seq train --help": (*MODULE, "train", "--help"),
    "python -m hf_seq2seq train --d_modle 8": (*MODULE, "train", "--d_modle", "8"),
}


def cpu_seconds(command: Sequence[str]) -> float:
    """Returns the CPU time that a process takes, however it ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(entries: dict[str, tuple[str, ...]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each entry in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in entries}
    for _ in range(rounds):
        for name, command in entries.items():
            seconds[name].append(cpu_seconds(command))
    return seconds


def table(seconds: dict[str, list[float]]) -> str:
    """Returns a Markdown table of the least and the median seconds of each entry."""
    lines = ["| entry | least, s | median, s |", "|---|---|---|"]
    lines += [f"| `{name}` | {min(taken):.2f} | {statistics.median(taken):.2f} |" for name, taken in seconds.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each entry runs (default: 7)")
    print(table(measure(ENTRIES, parser.parse_args(arguments).rounds)))


if __name__ == "__main__":
    main()
