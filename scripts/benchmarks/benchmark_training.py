"""Measures the training of our model, and that of MarianMT with transformers' Seq2SeqTrainer.

    python scripts/benchmarks/benchmark_training.py --source train.en --target train.de
    python scripts/benchmarks/benchmark_training.py --source train.en --target train.de --device cuda --dtype bfloat16

Both models have the same sizes, vocabulary, label smoothing and optimizer. They are measured in turn in one run, since
machines differ and drift. A ratio compares two measurements that followed each other; the table shows the median of
the ratios with the least and the greatest. The parts (`--parts`) are:

- throughput: real (not padding) target tokens a second of the trainer's steps, data loading included.
- padding: the share of real tokens in the batches of a whole epoch.
- memory: by how many bytes memory grows at most in a training step. Each model has a process of its own.
- growth: time and memory of a step with longer texts at the same number of tokens, and with larger vocabularies.
- processes: tokens a second of two processes with a thread each, compared with one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.data import TokenBudgetBatchSampler, load_parallel, tokenize_pairs
from hf_seq2seq.tokenization import train_tokenizer
from scripts.benchmarks.benchmark_models import MODEL_MAKERS, OURS, PEER, ModelSizes
from scripts.benchmarks.benchmark_report import (
    MEMORY_SHAPE,
    MEMORY_VOCABULARY,
    OURS_BUDGET,
    OURS_RANDOM,
    PEER_GROUPED,
    PEER_RANDOM,
    draw,
    ratios,
    spread,
    table,
)
from scripts.benchmarks.benchmark_run import (
    PAIRS,
    Measurement,
    Settings,
    describe_machine,
    make_profiler,
    make_trainer,
    print_operators,
    tell,
    train,
    write_json,
)


PARTS = ("throughput", "padding", "memory", "growth", "processes")
LENGTHS, VOCABULARIES = (32, 64, 128, 256, 512), (8_000, 16_000, 32_000, 64_000)
GROWTH_TOKENS = {"cpu": 1024, "cuda": 8192}  # in a batch
GROWTH_STEPS = {"cpu": (1, 3), "cuda": (5, 20)}  # steps of warm-up, timed steps

# Each way to train: the model, and the options by which batches are made. `tokens_per_batch` depends on the data.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    PEER_RANDOM: (PEER, {}),
    PEER_GROUPED: (PEER, {"train_sampling_strategy": "group_by_length"}),
    OURS_RANDOM: (OURS, {}),
    OURS_BUDGET: (OURS, {"tokens_per_batch": None}),
}


def load_corpus(source: str, target: str, vocab_size: int) -> tuple[Dataset, PreTrainedTokenizerFast]:
    """Returns the tokenized pairs, and the tokenizer, which is trained on both sides."""
    pairs = load_parallel(source, target)
    texts = (text for side in ("source", "target") for text in pairs[side])
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size)
    return tokenize_pairs(pairs, tokenizer, max_length=256), tokenizer


def choose_budget(data: Dataset) -> int:
    """Returns the `tokens_per_batch` that makes about as many batches as PAIRS pairs a batch do."""
    wanted = -(-len(data) // PAIRS)
    low = high = int(max(data["length"]))
    while len(TokenBudgetBatchSampler.from_dataset(data, high)) > wanted:
        low, high = high, 2 * high
    while high - low > 8:
        middle = (low + high) // 2
        too_small = len(TokenBudgetBatchSampler.from_dataset(data, middle)) > wanted
        low, high = (middle, high) if too_small else (low, middle)
    return high


def ways_to_train(budget: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields name, kind of model and training arguments of each way to train."""
    for name, (kind, options) in WAYS.items():
        yield name, kind, {option: budget if value is None else value for option, value in options.items()}


def measure_throughput(settings: Settings, data: Dataset, tokenizer: Any, budget: int) -> dict[str, Any]:
    """Trains in each way in turn, and repeats that with other seeds."""
    results: dict[str, Any] = {name: [] for name in WAYS}
    for repeat in range(settings.repeats):
        for name, kind, options in ways_to_train(budget):
            measured = train(kind, settings, data, tokenizer, seed=repeat, **options)
            results[name].append(asdict(measured) | {"tokens_per_second": measured.tokens_per_second})
            tell(f"throughput {repeat + 1}/{settings.repeats}, {name}: {measured.tokens_per_second:,.0f} tokens/s")
    return results


def measure_padding(settings: Settings, data: Dataset, tokenizer: Any, budget: int) -> dict[str, Any]:
    """Counts the real tokens in the batches that each trainer makes of an epoch."""
    results: dict[str, Any] = {}
    for name, kind, options in ways_to_train(budget):
        if name == OURS_RANDOM:  # the same batches as MarianMT's
            continue
        loader = make_trainer(kind, replace(settings, device="cpu"), data, tokenizer, **options).get_train_dataloader()
        results[name] = count_padding(loader)
        tell(f"padding, {name}: {results[name]['share']:.1%} real tokens")
    return results


def count_padding(batches: DataLoader[Any]) -> dict[str, float]:
    """Returns the share of real tokens of both sides and of the target, and the target tokens a batch."""
    counts = []
    for batch in batches:
        is_source, is_target = batch["attention_mask"].bool(), batch["labels"] != -100
        counts.append([int(is_source.sum()), is_source.numel(), int(is_target.sum()), is_target.numel()])
    source, source_places, target, target_places = (sum(column) for column in zip(*counts, strict=True))
    return {
        "share": (source + target) / (source_places + target_places),
        "target_share": target / target_places,
        "target_tokens_per_batch": target / len(counts),
        "batches": len(counts),
    }


def synthetic_pairs(num_pairs: int, length: int, vocab_size: int) -> list[dict[str, torch.Tensor]]:
    """Returns pairs of random tokens, all of one length."""
    ids = torch.randint(3, vocab_size, (num_pairs, 3, length), generator=torch.Generator().manual_seed(0))
    names = ("input_ids", "labels", "decoder_input_ids")
    ones = torch.ones(length, dtype=torch.long)
    return [dict(zip(names, sides, strict=True)) | {"attention_mask": ones} for sides in ids]


def train_synthetic(kind: str, settings: Settings, rows: int, length: int) -> Measurement:
    """Trains on batches of `rows` pairs of `length` tokens, and measures the memory too."""
    data = synthetic_pairs(rows * (settings.warmup + settings.steps + 1), length, settings.sizes.vocab_size)
    return train(kind, settings, data, measures_memory=True, per_device_train_batch_size=rows)


def measure_memory(settings: Settings) -> dict[str, Any]:
    """Measures the memory of a step of either model, in a process of its own."""
    settings = replace(settings, steps=1, warmup=1, sizes=replace(settings.sizes, vocab_size=MEMORY_VOCABULARY))
    results: dict[str, Any] = {}
    for kind in MODEL_MAKERS:
        context = get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as process:
            task = process.submit(train_synthetic, kind, settings, *MEMORY_SHAPE)
            results[kind] = task.result().memory
        tell(f"memory, {kind}: {results[kind] / 2**20:,.0f} MiB")
    return results


def measure_growth(settings: Settings) -> dict[str, Any]:
    """Measures steps of both models in turn, with longer and longer texts and with larger and larger vocabularies."""
    tokens, (warmup, steps) = GROWTH_TOKENS[settings.device], GROWTH_STEPS[settings.device]
    cases = [("length", length, length, settings.sizes.vocab_size) for length in LENGTHS]
    cases += [("vocabulary", vocab_size, MEMORY_SHAPE[1], vocab_size) for vocab_size in VOCABULARIES]
    results: dict[str, Any] = {"length": {}, "vocabulary": {}}
    for axis, value, length, vocab_size in cases:
        sizes = replace(settings.sizes, vocab_size=vocab_size)
        case = replace(settings, warmup=warmup, steps=steps, sizes=sizes)
        found: dict[str, Any] = {kind: {"seconds": [], "memory": []} for kind in MODEL_MAKERS}
        for _ in range(settings.repeats):
            for kind in MODEL_MAKERS:
                measured = train_synthetic(kind, case, tokens // length, length)
                found[kind]["seconds"].append(measured.seconds / steps)
                found[kind]["memory"].append(measured.memory)
        results[axis][value] = found
        tell(f"growth, {axis} {value}: {spread(ratios(found, 'seconds', PEER, OURS), '.2f')}x faster")
    return results


def measure_processes(settings: Settings, data: Dataset, tokenizer: Any, budget: int) -> dict[str, Any]:
    """Trains our model in one process and in two, in turn. Each has one thread and batches of the same budget."""
    if settings.device == "cuda":
        return {"skipped": "processes would share one GPU; see `accelerate launch` for several"}
    if (os.cpu_count() or 1) < 2:
        return {"skipped": "this machine has one core"}
    results: dict[str, Any] = {"1": [], "2": []}
    with tempfile.TemporaryDirectory() as folder:
        data.save_to_disk(f"{folder}/data")
        tokenizer.save_pretrained(folder)
        state = asdict(replace(settings, threads=1)) | {"budget": budget}
        Path(folder, "settings.json").write_text(json.dumps(state))
        for repeat in range(settings.repeats):
            for number, measured in results.items():
                measured.append(run_processes(int(number), folder))
                tell(f"processes {repeat + 1}/{settings.repeats}, {number}: {measured[-1]:,.0f} tokens/s")
    return results


def run_processes(number: int, folder: str) -> float:
    """Starts `worker` in a number of processes and returns the tokens a second of all of them."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={number}"] if number > 1 else []
    command = [sys.executable, *launcher, __file__, "--worker", folder]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return float(Path(folder, "result").read_text())


def worker(folder: str) -> None:
    """Trains our model as one of the processes of `run_processes`. The first of them writes the result."""
    state = json.loads(Path(folder, "settings.json").read_text())
    budget = state.pop("budget")
    settings = Settings(**(state | {"sizes": ModelSizes(**state["sizes"])}))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    measured = train(OURS, settings, Dataset.load_from_disk(f"{folder}/data"), tokenizer, tokens_per_batch=budget)
    tokens = torch.tensor(measured.tokens)
    rank = 0
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(tokens)
        rank = torch.distributed.get_rank()
    if rank == 0:
        Path(folder, "result").write_text(str(tokens.item() / measured.seconds))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def print_profile(settings: Settings, data: Dataset, tokenizer: Any, budget: int) -> None:
    """Prints which operators take the time of our training."""
    profiler = make_profiler(settings.device)
    train(OURS, settings, data, tokenizer, profiler=profiler, tokens_per_batch=budget)
    print_operators(profiler, settings.device)


def describe_corpus(data: Dataset, budget: int) -> dict[str, float]:
    """Returns the number of pairs, and the target tokens in a batch of PAIRS pairs and in one of ours."""
    target_tokens = sum(len(labels) for labels in data["labels"])
    return {
        "pairs": len(data),
        "tokens_per_batch": budget,
        f"target tokens in a batch of {PAIRS} pairs": target_tokens / -(-len(data) // PAIRS),
        "target tokens in a batch of ours": target_tokens / len(TokenBudgetBatchSampler.from_dataset(data, budget)),
    }


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    steps_help = "timed steps of a run (50); group_by_length sorts 50 batches at a time, so take a multiple of that"
    add("--source", required=True, help="text file with the source side of the training pairs, plain or gzipped")
    add("--target", required=True, help="its counterpart, line by line")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; all by default")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where to train (default cpu)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16 is the trainers' bf16")
    add("--steps", type=int, default=50, help=steps_help)
    add("--repeats", type=int, default=3, help="repetitions of each timing (default 3)")
    add("--threads", type=int, default=os.cpu_count(), help="threads of a process (default: all cores)")
    add("--vocab-size", type=int, default=8000, help="size of the tokenizer (default 8000)")
    add("--d-model", type=int, default=256, help="width of the models (default 256)")
    add("--layers", type=int, default=3, help="layers of either stack (default 3)")
    add("--ffn-dim", type=int, default=1024, help="inner width of the feed-forward networks (default 1024)")
    add("--heads", type=int, default=4, help="attention heads (default 4)")
    add("--output", type=Path, help="folder for benchmark_training.json and benchmark_training.png")
    add("--profile", action="store_true", help="also print the operators that take most of the time of ours")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the results of the parts that were asked for, and the facts of the corpus."""
    results: dict[str, Any] = {}
    of_corpus = {"throughput": measure_throughput, "padding": measure_padding, "processes": measure_processes}
    corpus: tuple[Dataset, PreTrainedTokenizerFast, int] | None = None
    facts: dict[str, Any] = {}
    if options.profile or not of_corpus.keys().isdisjoint(options.parts):
        data, tokenizer = load_corpus(options.source, options.target, options.vocab_size)
        corpus = (data, tokenizer, choose_budget(data))
        facts = describe_corpus(data, corpus[2]) | {"vocab_size": len(tokenizer)}
        tell(", ".join(f"{name} {value:,.0f}" for name, value in facts.items()))
        settings = replace(settings, sizes=replace(settings.sizes, vocab_size=len(tokenizer)))
        if options.profile:
            print_profile(settings, *corpus)
    for part in (part for part in PARTS if part in options.parts):
        if part in of_corpus:
            assert corpus is not None
            results[part] = of_corpus[part](settings, *corpus)
        else:
            results[part] = (measure_memory if part == "memory" else measure_growth)(settings)
    return results, facts


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table and writes the files."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--worker"]:  # started by `run_processes`
        worker(given[1])
        return
    options = parse_arguments(given)
    sizes = ModelSizes(options.vocab_size, options.d_model, options.layers, options.ffn_dim, options.heads)
    settings = Settings(options.device, options.dtype, options.threads, options.steps, options.repeats, sizes)
    results, corpus = measure(options, settings)
    print(table(results))
    if options.output is not None:
        content = {"settings": vars(options), "machine": describe_machine(settings), "corpus": corpus}
        write_json(content | {"results": results}, options.output / "benchmark_training.json")
        draw(results, options.output / "benchmark_training.png")


if __name__ == "__main__":
    main()
