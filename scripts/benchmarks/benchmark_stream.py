"""Measures the memory and time that streaming a corpus takes, for corpora of several sizes.

    python scripts/benchmarks/benchmark_stream.py --lines 100000 1000000

Each corpus is read once, by a process of its own, tokenized and put into batches as a run with `--streaming true` does
it.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hf_seq2seq import train_tokenizer
from hf_seq2seq.data import TokenBudgetStream, load_parallel, tokenize_pairs


def write_corpus(folder: Path, num_lines: int) -> None:
    """Writes pairs of about ten words a side."""
    for side, word in (("source", "word"), ("target", "Wort")):
        with (folder / side).open("w", encoding="utf-8") as file:
            file.writelines(
                " ".join(f"{word}{(n + i) % 997}" for i in range(6 + n % 9)) + "\n" for n in range(num_lines)
            )


def read(folder: Path, num_lines: int) -> dict[str, float]:
    """Returns the seconds and the MiB at the highest that reading all pairs takes."""
    started = time.perf_counter()
    tokenizer = train_tokenizer(iter([" ".join(f"word{n} Wort{n}" for n in range(997))] * 2), vocab_size=2000)
    pairs = load_parallel(folder / "source", folder / "target", streaming=True)
    tokenized: Any = tokenize_pairs(pairs, tokenizer, max_length=256)
    batches, num_seen = iter(TokenBudgetStream(tokenized, 4096)), 0
    while num_seen < num_lines:
        num_seen += len(next(batches))
    return {
        "lines": num_lines,
        "seconds": round(time.perf_counter() - started, 1),
        "mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Prints a line of JSON for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="+", default=[100_000, 1_000_000], help="Numbers of pairs.")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read is not None:
        print(json.dumps(read(arguments.read, arguments.lines[0])))
        return
    for num_lines in arguments.lines:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(Path(folder), num_lines)
            subprocess.run([sys.executable, __file__, "--read", folder, "--lines", str(num_lines)], check=True)


if __name__ == "__main__":
    main()
