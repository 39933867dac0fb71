"""Measures the speed of `hf-seq2seq serve` against `hf-seq2seq translate` on a file.

    OMP_NUM_THREADS=1 python scripts/benchmarks/benchmark_serving.py MODEL --source test.en [--rounds 3]

Clients ask for the lines of the file, each for one after the other, or one client for all of them in lists. In each
round the file is translated once, and then each number of clients asks for all of its lines, so that what else the
machine does weighs on all of them alike. The start of a process is left out: for `translate` it is the time that a
file of one line takes. Each kind of client has asked for some lines before it is measured.

The table has the median of the rounds, with the least and the most: sentences a second, their ratio to those of
`translate` in the same round, and how long 50 and 95 of 100 answers took at most. Arguments behind `--` go to both
verbs, such as `-- --backend ctranslate2`.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from queue import Empty, SimpleQueue


VERB = (sys.executable, "-m", "hf_seq2seq")
CLIENTS = (1, 8, 64)
LIST_LENGTH = 200  # of the client that asks for several lines at once
PORT = 5017


@dataclass(frozen=True)
class Run:
    """All lines, asked for once.

    Attributes:
        sentences_per_second: How fast they were translated.
        seconds: How long each answer took; empty for a file.
    """

    sentences_per_second: float
    seconds: Sequence[float] = ()


def translate_file(model: str, lines: Sequence[str], arguments: Sequence[str]) -> Run:
    """Returns the speed of `translate` without the start of its process."""
    with tempfile.TemporaryDirectory() as folder:

        def time_lines(some: Sequence[str]) -> float:
            source, output = Path(folder, "source"), Path(folder, "output")
            source.write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
            start = time.perf_counter()
            subprocess.run(
                [*VERB, "translate", model, "--input", str(source), "--output", str(output), *arguments], check=True
            )
            return time.perf_counter() - start

        return Run((len(lines) - 1) / (time_lines(lines) - time_lines(lines[:1])))


@contextmanager
def serving(model: str, arguments: Sequence[str]) -> Iterator[None]:
    """Lets a server run."""
    command = [*VERB, "serve", model, "--port", str(PORT), "--char-limit", "10000000", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line.startswith("Serving at"):
            raise RuntimeError(f"The server must say where it listens, but ended instead ({line!r}).")
        try:
            yield
        finally:
            server.terminate()


def ask_server(requests: Sequence[Sequence[str]], num_clients: int) -> Run:
    """Returns the speed at which clients get their answers.

    Args:
        requests: The lines of each request.
        num_clients: How many ask at the same time.
    """
    waiting: SimpleQueue[Sequence[str]] = SimpleQueue()
    for request in requests:
        waiting.put(request)
    seconds: list[float] = []

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", PORT)
        while True:
            try:
                body = json.dumps({"q": waiting.get_nowait()})
            except Empty:
                return
            start = time.perf_counter()
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            seconds.append(time.perf_counter() - start)
            if response.status != 200:
                raise RuntimeError(f"The server must answer with 200, but did with {response.status}: {answer!r}.")

    clients = [threading.Thread(target=ask) for _ in range(num_clients)]
    start = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if len(seconds) < len(requests):
        raise RuntimeError(f"All {len(requests)} requests must be answered, but {len(seconds)} were.")
    return Run(sum(map(len, requests)) / (time.perf_counter() - start), seconds)


def measure(model: str, lines: Sequence[str], rounds: int, arguments: Sequence[str]) -> dict[str, list[Run]]:
    """Returns the runs of each kind, one of each round."""
    runs: dict[str, list[Run]] = {}
    alone = [[line] for line in lines]
    lists = [lines[start : start + LIST_LENGTH] for start in range(0, len(lines), LIST_LENGTH)]
    kinds: dict[str, tuple[Sequence[Sequence[str]], int]]
    kinds = {f"{number} client{'s' if number > 1 else ''}": (alone, number) for number in CLIENTS}
    kinds[f"1 client, lists of {LIST_LENGTH}"] = (lists, 1)
    with serving(model, arguments):
        for requests, number in kinds.values():
            ask_server(requests[: 2 * number], number)
        for _ in range(rounds):
            runs.setdefault("translate, a file", []).append(translate_file(model, lines, arguments))
            for name, (requests, number) in kinds.items():
                runs.setdefault(name, []).append(ask_server(requests, number))
    return runs


def table(runs: dict[str, list[Run]]) -> str:
    """Returns a Markdown table of runs, of which the first kind is what the others are compared with."""
    base = next(iter(runs.values()))
    rows = ["| asked by | sentences a second | ratio | p50, ms | p95, ms |", "|---|---|---|---|---|"]
    for name, of_kind in runs.items():
        speeds = [run.sentences_per_second for run in of_kind]
        ratios = [speed / other.sentences_per_second for speed, other in zip(speeds, base, strict=True)]
        cells = [_spread(speeds, ".1f"), _spread(ratios, ".2f")]
        for share in (50, 95):
            cells.append(_spread([1000 * _percentile(run.seconds, share) for run in of_kind if run.seconds], ".0f"))
        rows.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(rows)


def _percentile(values: Sequence[float], share: int) -> float:
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the model's folder")
    parser.add_argument("--source", type=Path, required=True, help="the lines to translate")
    parser.add_argument("--rounds", type=int, default=3, help="how often all of it is measured (default: 3)")
    parsed = parser.parse_args(words[:split])
    lines = [line for line in re.split(r"\r?\n", parsed.source.read_text(encoding="utf-8")) if line.strip()]
    print(table(measure(parsed.model, lines, parsed.rounds, words[split + 1 :])))


if __name__ == "__main__":
    main()
