"""Times Marian C++ and this package on one thread: translating a file with the same weights, and training.

    MARIAN=$(scripts/install_peer.sh pymarian)
    python scripts/benchmarks/compare_marian_cpp.py translate MODEL SOURCE --marian $MARIAN
    python scripts/benchmarks/compare_marian_cpp.py train SOURCE TARGET --marian $MARIAN

`translate` exports MODEL, which has a SentencePiece tokenizer, for Marian, and translates the first 1,000 lines of
SOURCE with beam 4 in both; loading is not timed. `train` trains new models of the same sizes on about 2,000 target
tokens an update, in turn, and counts target tokens a second after a warm-up. Both print a Markdown table with median,
least and greatest value. Nothing else should run on the machine.
"""

import argparse
import dataclasses
import itertools
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from hf_seq2seq import Translator
from hf_seq2seq.data import read_lines
from hf_seq2seq.interop import to_marian_cpp
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece, sentencepiece_file
from hf_seq2seq.token_lookup import encode_sources, encode_targets
from scripts.benchmarks.benchmark_models import OURS, ModelSizes, make_ours
from scripts.benchmarks.benchmark_report import Row, markdown, spread
from scripts.benchmarks.benchmark_run import Settings, tell, train


MARIAN_SCRIPT = Path(__file__).with_name("marian_cpp.py")
HEADER: list[Row] = [("measure", "Marian C++", "ours", "ratio"), ("---", "---", "---", "---")]
BEAM_SIZE, LENGTH_PENALTY = 4, 1.0


def marian(python: str, verb: str, folder: Path, value: str, text: str = "") -> tuple[str, str]:
    """Runs marian_cpp.py in Marian's own environment; returns its output and its log."""
    done = subprocess.run(
        [python, str(MARIAN_SCRIPT), verb, str(folder), value], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"Marian must end well, but ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout, done.stderr


def row_of(measure: str, theirs: Sequence[float], ours: Sequence[float], form: str, *, is_time: bool) -> Row:
    """Returns a row of the table; its ratio is above 1 where we are faster."""
    pairs = zip(theirs, ours, strict=True)
    ratios = [their / our if is_time else our / their for their, our in pairs]
    return measure, spread(theirs, form), spread(ours, form), spread(ratios, ".2f")


def compare_translation(model_folder: str, source: str, python: str, lines: int, repeats: int) -> Iterator[Row]:
    """Yields the row of the seconds, and that of the lines on which both agree."""
    model, tokenizer = load_model(model_folder, dtype="float32"), load_tokenizer(model_folder)
    if sentencepiece_file(tokenizer) is None:
        raise ValueError(f"The tokenizer of `{model_folder}` must be a SentencePiece model, but is none.")
    model.generation_config.update(num_beams=BEAM_SIZE, length_penalty=LENGTH_PENALTY)
    texts = list(itertools.islice(read_lines(source), lines))
    text = "".join(f"{line}\n" for line in texts)
    translator = Translator(model, tokenizer)
    translator(texts[:1])
    theirs, ours = [], []
    with tempfile.TemporaryDirectory() as folder:
        to_marian_cpp(model, tokenizer, Path(folder) / "marian")
        for _ in range(repeats):
            output, log = marian(python, "decode", Path(folder) / "marian", "1", text)
            theirs += [float(seconds) for seconds in re.findall(r"^seconds (\S+)", log, re.M)]
            start = time.perf_counter()
            outputs = translator(texts, beam_size=BEAM_SIZE, length_penalty=LENGTH_PENALTY)
            ours.append(time.perf_counter() - start)
            tell(f"Marian {theirs[-1]:.1f} s, ours {ours[-1]:.1f} s")
    yield row_of(f"{len(texts):,} lines, beam {BEAM_SIZE}, one thread, seconds", theirs, ours, ".1f", is_time=True)
    equal = sum(their == our for their, our in zip(output.splitlines(), outputs, strict=True))
    yield "lines with the same translation", "", f"{equal:,}", ""


def compare_training(files: Sequence[str], python: str, sizes: ModelSizes, steps: int, repeats: int) -> Iterator[Row]:
    """Yields the row of the target tokens a second."""
    theirs, ours = [], []
    settings = Settings(device="cpu", dtype="float32", threads=1, steps=steps, repeats=repeats, sizes=sizes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, file in zip(("source", "target"), files, strict=True):
            (folder / f"train.{side}").write_text("".join(f"{line}\n" for line in read_lines(file)), encoding="utf-8")
        for repeat in range(repeats):
            speed = _marian_speed(python, folder, sizes, settings.warmup, steps, seed=repeat + 1)
            tokenizer: Any = load_sentencepiece(folder / "vocabulary.spm")
            pairs = _tokenized(tokenizer, files)
            ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
            model = make_ours(
                dataclasses.replace(sizes, vocab_size=len(tokenizer)),
                decoder_start_token_id=tokenizer.bos_token_id,
                **ids,
            )
            measured = train(OURS, settings, pairs, tokenizer, model=model, seed=repeat, tokens_per_batch=2048)
            theirs.append(speed)
            ours.append(measured.tokens_per_second)
            tell(f"Marian {theirs[-1]:,.0f}, ours {ours[-1]:,.0f} target tokens a second")
    measure = f"training, target tokens a second, {sizes.layers}+{sizes.layers} layers, d {sizes.d_model}, one thread"
    yield row_of(measure, theirs, ours, ",.0f", is_time=False)


def _marian_speed(python: str, folder: Path, sizes: ModelSizes, warmup: int, steps: int, seed: int) -> float:
    """Trains Marian anew and returns its target tokens a second, as its log counts them after a warm-up."""
    for old in folder.glob("model.npz*"):
        old.unlink()
    settings = {
        "d_model": sizes.d_model,
        "layers": sizes.layers,
        "heads": sizes.heads,
        "vocab_size": sizes.vocab_size,
        "learning_rate": 1e-4,
        "warmup_steps": 4000,
        "seed": seed,
        "updates": warmup + steps,
        "disp_freq": 1,
    }
    _, log = marian(python, "train", folder, json.dumps(settings))
    # "... * 1,931 @ 64 after 9,655 : Time 1.06s : 1821.70 words/s ...": one line for each update
    updates = re.findall(r"\* ([\d,]+) @ .*? : Time ([\d.]+)s", log)[warmup:]
    if not updates:
        raise ValueError(f"Marian's log must tell its speed, but ends so: {log[-1000:]}")
    return sum(int(words.replace(",", "")) for words, _ in updates) / sum(float(seconds) for _, seconds in updates)


def _tokenized(tokenizer: Any, files: Sequence[str]) -> Any:
    """Returns the pairs of two files as the trainer takes them."""
    from datasets import Dataset

    sources, targets = (list(read_lines(file)) for file in files)
    rows = {"input_ids": encode_sources(tokenizer, sources), "labels": encode_targets(tokenizer, targets)}
    lengths = [max(map(len, pair)) for pair in zip(*rows.values(), strict=True)]
    return Dataset.from_dict(rows | {"length": lengths})


def main() -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(description="Compare the speed of Marian C++ and of this package.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, names in (("translate", ("model", "source")), ("train", ("source", "target"))):
        arguments = verbs.add_parser(verb)
        for name in names:
            arguments.add_argument(name)
        arguments.add_argument(
            "--marian", required=True, help="the Python that scripts/install_peer.sh pymarian prints"
        )
        arguments.add_argument("--repeats", type=int, default=5)
        if verb == "translate":
            arguments.add_argument("--lines", type=int, default=1000)
            continue
        arguments.add_argument("--steps", type=int, default=100, help="timed updates, after 5 that are not")
        for size, value in (("d_model", 256), ("layers", 3), ("heads", 4), ("vocab_size", 8000)):
            arguments.add_argument(f"--{size}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "translate":
        rows = compare_translation(given.model, given.source, given.marian, given.lines, given.repeats)
    else:
        sizes = ModelSizes(given.vocab_size, given.d_model, given.layers, 4 * given.d_model, given.heads, dropout=0.3)
        rows = compare_training([given.source, given.target], given.marian, sizes, given.steps, given.repeats)
    print(markdown([*HEADER, *rows]))


if __name__ == "__main__":
    main()
