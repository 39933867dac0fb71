"""Marian C++ itself, in the environment that `scripts/install_peer.sh pymarian` makes, for peer tests."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


# `main` of pymarian is the program `marian`, with its verbs train, decode and score.
_RUN = "import sys, _pymarian; _pymarian.main(sys.argv[1:])"


@dataclass(frozen=True)
class Hypothesis:
    """A line of Marian's n-best list: its text, the log-probabilities of its tokens, and what ranks it."""

    text: str
    log_probs: list[float]
    score: float


@dataclass(frozen=True)
class Marian:
    """Runs Marian in a folder that holds one model."""

    python: str
    folder: Path

    def run(self, *arguments: object) -> str:
        result = subprocess.run(
            [self.python, "-c", _RUN, *map(str, arguments), "--cpu-threads", "1"],
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout

    def train(self, sources: list[str], targets: list[str], **options: Any) -> None:
        """Train a tiny model for some updates."""
        self.folder.mkdir()
        for name, lines in (("train.source", sources), ("train.target", targets)):
            (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        settings: dict[str, object] = {
            "type": "transformer",
            "model": "model.npz",
            "train-sets": ["train.source", "train.target"],
            "dim-emb": 32,
            "transformer-dim-ffn": 48,
            "enc-depth": 2,
            "dec-depth": 2,
            "transformer-heads": 4,
            "mini-batch": 64,
            "maxi-batch": 10,
            "learn-rate": 0.003,
            "after-batches": 100,
            "seed": 1,
            "workspace": 300,
            "quiet": True,
        } | options
        arguments: list[object] = ["train"]
        for name, value in settings.items():
            arguments.append(f"--{name}")
            values = value if isinstance(value, list) else [str(value).lower() if isinstance(value, bool) else value]
            arguments += values
        self.run(*arguments)

    @property
    def vocabularies(self) -> list[str]:
        path = next(path for path in (*self.folder.glob("decoder.yml"), *self.folder.glob("*.decoder.yml")))
        return list(yaml.safe_load(path.read_text())["vocabs"])

    def score(self, sources: list[str], targets: list[str], *options: object) -> list[list[float]]:
        """Return the log-probability of each token of the targets, `</s>` included."""
        files = [self._write(name, lines) for name, lines in (("in.source", sources), ("in.target", targets))]
        command = ["score", "-m", "model.npz", "-v", *self.vocabularies, "-t", *files, "--word-scores", "--quiet"]
        return [_numbers(line.split("WordScores=")[1]) for line in self.run(*command, *options).splitlines()]

    def translate(self, sources: list[str], beam_size: int, *options: object) -> list[list[Hypothesis]]:
        """Return the n-best list of each source, ranked by log-probability a token."""
        source = self._write("in.source", sources)
        command = ["decode", "-m", "model.npz", "-v", *self.vocabularies, "-i", source, "-b", beam_size]
        settings = ["--normalize", 1, "--n-best", "--word-scores", "--quiet", "--max-length-factor", 3]
        lists: list[list[Hypothesis]] = [[] for _ in sources]
        for line in self.run(*command, *settings, *options).splitlines():
            number, text, numbers, _, score = line.split(" ||| ")
            lists[int(number)].append(Hypothesis(text, _numbers(numbers.split("=")[1]), float(score)))
        return lists

    def _write(self, name: str, lines: list[str]) -> str:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        return name


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split()]
