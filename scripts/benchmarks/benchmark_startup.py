"""Measures what it costs to start: CPU seconds of the command's help and mistakes, and of importing the package.

    python scripts/benchmarks/benchmark_startup.py [--rounds 7]
    python scripts/benchmarks/benchmark_startup.py --model FOLDER [--sentence "A dog runs."] [--rounds 7]

Each entry runs in a process of its own, user and system time together. The entries take turns, so that what else the
machine does weighs on all of them alike; the least of all rounds is the cost, and the median tells how steady it was.

With a model it measures in place of that how long `hf-seq2seq translate` takes from the start of its process to its
first line, and the same with MarianMT, which has the same weights, in a few lines of plain transformers. A second
table tells where the time goes: CPU seconds of each stage, in one process.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hf_seq2seq.interop import to_marian
from hf_seq2seq.loading import load_model, load_tokenizer


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


OURS, PEER = "hf-seq2seq translate", "MarianMT in transformers"

# What somebody writes who has only transformers. A line has at most as many tokens as `translate` gives it.
PEER_CODE = """\
import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = sys.argv[1]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)

for line in sys.stdin:
    inputs = tokenizer(line.strip(), return_tensors="pt")
    longest = inputs["input_ids"].shape[1] + 51
    outputs = model.generate(**inputs, num_beams=4, length_penalty=0.6, max_length=longest)
    print(tokenizer.batch_decode(outputs, skip_special_tokens=True)[0], flush=True)
"""

# The same work by stages; {folder} and {sentence} are put in.
STAGES = {
    OURS: {
        "import hf_seq2seq, the verb": "import hf_seq2seq.commands.translate",
        "import torch": "import torch",
        "import transformers": "from transformers import PreTrainedModel",
        "import Translator": "from hf_seq2seq import Translator",
        "read the model": "from hf_seq2seq.loading import load_model, load_tokenizer; model = load_model({folder!r})",
        "read the tokenizer": "tokenizer = load_tokenizer({folder!r})",
        "first line": "translator = Translator(model, tokenizer); translator({sentence!r})",
    },
    PEER: {
        "import torch": "import torch",
        "import transformers": "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel",
        "read the model": "model = AutoModelForSeq2SeqLM.from_pretrained({folder!r})",
        "read the tokenizer": "tokenizer = AutoTokenizer.from_pretrained({folder!r})",
        "first line": "inputs = tokenizer({sentence!r}, return_tensors='pt'); model.generate(**inputs, num_beams=4, "
        "length_penalty=0.6, max_length=inputs['input_ids'].shape[1] + 51)",
    },
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


def first_line(command: Sequence[str], sentence: str) -> tuple[float, float, str]:
    """Returns how long a process takes to its first line, in seconds and CPU seconds, and the line.

    More input may come, as from a person.
    """
    start = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{sentence}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        cpu = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # user and system time
        process.stdin.close()
    if not line or process.returncode:
        raise RuntimeError(f"{command[0]} must write a line, but ended with status {process.returncode} instead.")
    return seconds, cpu, line


def stage_seconds(stages: dict[str, str]) -> dict[str, float]:
    """Returns the CPU seconds of statements that one process runs after each other."""
    code = ["import json, time", "seconds, before = {}, time.process_time()"]
    for name, statements in stages.items():
        code += [statements, f"now = time.process_time(); seconds[{name!r}], before = now - before, now"]
    code.append("print(json.dumps(seconds))")
    done = subprocess.run([*python("\n".join(code))], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_first_line(folder: Path, sentence: str, rounds: int) -> str:
    """Returns Markdown tables of the first line and of the stages on the way to it."""
    with tempfile.TemporaryDirectory() as peer:
        to_marian(load_model(folder)).save_pretrained(peer)
        load_tokenizer(folder).save_pretrained(peer)
        folders = {OURS: str(folder), PEER: peer}
        commands = {OURS: (*MODULE, "translate", str(folder)), PEER: (*python(PEER_CODE), peer)}
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        lines: dict[str, set[str]] = {name: set() for name in commands}
        stages: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken, cpu, line = first_line(command, sentence)
                seconds[name].append(taken)
                lines[name].add(line)
                filled = {
                    stage: statements.format(folder=folders[name], sentence=sentence)
                    for stage, statements in STAGES[name].items()
                }
                stages[name].append({"process start to first line": cpu, **stage_seconds(filled)})
    ratios = [ours / peer for ours, peer in zip(seconds[OURS], seconds[PEER], strict=True)]
    rows = [
        table(seconds),
        f"\nratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"the same line: {'yes' if lines[OURS] == lines[PEER] else 'no'}\n",
        f"| CPU, s | {OURS} | {PEER} |",
        "|---|---|---|",
    ]
    for stage in stages[OURS][0]:
        cells = [
            f"{min(round_[stage] for round_ in of_kind):.2f}" if stage in of_kind[0] else ""
            for of_kind in stages.values()
        ]
        rows.append(f"| {' | '.join([stage, *cells])} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table, or those of the first line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each entry runs (default: 7)")
    parser.add_argument("--model", type=Path, help="a model's folder, to measure the first line that it translates")
    parser.add_argument("--sentence", default="A dog runs.", help="what is translated")
    parsed = parser.parse_args(arguments)
    if parsed.model is None:
        print(table(measure(ENTRIES, parsed.rounds)))
    else:
        print(measure_first_line(parsed.model, parsed.sentence, parsed.rounds))


if __name__ == "__main__":
    main()
