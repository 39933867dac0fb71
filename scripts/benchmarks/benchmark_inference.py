"""Measures translation with our model and with MarianMT, which has the same weights.

    python scripts/benchmarks/benchmark_inference.py MODEL --source test.en --reference test.de --output results
    python scripts/benchmarks/benchmark_inference.py MODEL --source test.en --device cuda --dtype bfloat16

Both are measured in turn in one run, since machines differ and drift. A ratio compares two measurements that followed
each other; the table shows the median of the ratios with the least and the greatest. Times are wall times; the JSON
file has the processor's times too. The parts (`--parts`) are:

- generate: only `generate()`, on the same inputs in the same order, greedy and with a beam of 4, in batches of 1, 32
  and 64. Before it is timed, each case shows in how many rows the two models differ, and how many of these are ties:
  outputs whose scores differ so little that rounding decides between them.
- file: a whole file with a beam of 4. MarianMT translates it in file order, in batches of 32; ours is the
  `Translator`, in PyTorch and with CTranslate2 in float32 and int8.
- memory: by how many bytes memory grows at most in `generate()`, beam 4, batch 32. Each model has a process to itself.

Without MODEL the weights are random. The bias of the end token is then chosen so that outputs are about as long as
their sources on average. But their single lengths are not like those of a trained model, so that sorting by length
gains little. Quote figures of a trained model.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import PAPER_SEARCH, Translator
from hf_seq2seq.data import read_lines
from hf_seq2seq.inference.segment import Ids
from hf_seq2seq.inference.torch_search import TorchSearch
from hf_seq2seq.interop import to_ctranslate2, to_marian
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.output_limits import end_ids, longest_output, up_to_end
from hf_seq2seq.tokenization import train_tokenizer
from scripts.benchmarks.benchmark_models import OURS, PEER, ModelSizes, make_ours
from scripts.benchmarks.benchmark_report import draw_inference, inference_table
from scripts.benchmarks.benchmark_run import (
    Memory,
    Settings,
    describe_machine,
    make_profiler,
    print_operators,
    tell,
    write_json,
)


PARTS = ("generate", "file", "memory")
BEAM_SIZES = (1, 4)
BATCHES = {1: 20, 32: 4, 64: 2}  # how many batches of each size
FILE_BATCH = 32
SIZES = ModelSizes(vocab_size=8000, d_model=256, layers=3, ffn_dim=1024, heads=4)  # of a model with random weights
# Two outputs tie if their scores, log-probabilities over length^penalty, differ by less: rounding may decide then.
TIES = {"float32": 1e-3, "bfloat16": 5e-2}

Inputs = dict[str, torch.Tensor]
Models = dict[str, Any]


def random_model(tokenizer: PreTrainedTokenizerFast, sources: Sequence[Ids]) -> Any:
    """Returns a model with random weights whose outputs for `sources` are about as long as these, on average."""
    torch.manual_seed(0)
    sizes = replace(SIZES, vocab_size=max(SIZES.vocab_size, len(tokenizer)))
    # From smaller weights a model repeats one token, for ever or not at all.
    model: Any = make_ours(sizes, lm_head_bias=True, init_std=sizes.d_model**-0.5).eval()
    inputs = pad(tokenizer, sources[:FILE_BATCH], "cpu")
    wanted = inputs["attention_mask"].sum() / len(inputs["attention_mask"])
    low, high = 0.0, 20.0
    for _ in range(8):
        bias = (low + high) / 2
        model.lm_head.bias.data[model.config.eos_token_id] = bias
        outputs = search(model, inputs, beam_size=4)
        is_too_long = sum(map(len, outputs)) / len(outputs) > wanted
        low, high = (bias, high) if is_too_long else (low, bias)
    return model


def prepare_folder(options: argparse.Namespace, lines: Sequence[str], temporary: Path) -> Path:
    """Returns the folder of the given model, or one that holds random weights and a new tokenizer."""
    if options.model is not None:
        return Path(options.model)
    folder = temporary / "random"
    tokenizer = train_tokenizer(read_lines(options.source), vocab_size=SIZES.vocab_size)
    random_model(tokenizer, tokenizer(list(lines))["input_ids"]).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load_models(folder: Path, settings: Settings) -> Models:
    """Returns both models with the weights in the folder.

    Raises:
        ValueError: If MarianMT cannot hold them.
    """
    ours: Any = load_model(folder, dtype=settings.dtype)
    ours.to(settings.device)
    return {PEER: to_marian(ours), OURS: ours}


def pad(tokenizer: Any, sources: Sequence[Ids], device: str) -> Inputs:
    """Returns the ids and the mask of a batch, (B, S) each."""
    return dict(tokenizer.pad({"input_ids": list(sources)}, return_tensors="pt").to(device))


def batches_of(sources: Sequence[Ids], size: int) -> Iterator[Sequence[Ids]]:
    """Yields batches of the given size in order. The last one may be smaller."""
    for start in range(0, len(sources), size):
        yield sources[start : start + size]


@torch.inference_mode()
def generate(model: Any, inputs: Inputs, beam_size: int) -> torch.Tensor:
    """Calls `generate` with the same settings for both models, and without an end token at the greatest length."""
    search_options: dict[str, Any] = PAPER_SEARCH | {"num_beams": beam_size}
    if beam_size == 1:  # generate warns of others: not used
        search_options |= {"length_penalty": 1.0}
    ids: torch.Tensor = model.generate(
        **inputs,
        **search_options,
        do_sample=False,
        max_length=1 + longest_output(inputs["input_ids"].shape[1]),  # with the start token
        forced_eos_token_id=None,
    )
    return ids


def search(model: Any, inputs: Inputs, beam_size: int) -> list[Ids]:
    """Returns the output of each row without its start token, up to its end token if it has one."""
    ends = end_ids(model.generation_config)
    return [up_to_end(row, ends) for row in generate(model, inputs, beam_size)[:, 1:].tolist()]


def timed(work: Callable[[], Any], device: str) -> tuple[Any, float, float]:
    """Returns the result of `work`, its wall time and this process's processor time, in seconds."""
    started, cpu_started = time.perf_counter(), time.process_time()
    result = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return result, time.perf_counter() - started, time.process_time() - cpu_started


def compare_tokens(
    models: Models, sources: Sequence[Ids], outputs: dict[str, list[Ids]], beam_size: int, settings: Settings
) -> dict[str, Any]:
    """Counts the rows that differ, and the ties among them. Our model scores the outputs of both."""
    pairs = zip(sources, outputs[PEER], outputs[OURS], strict=True)
    differences = [
        score_difference(models[OURS], source, theirs, ours, beam_size)
        for source, theirs, ours in pairs
        if theirs != ours
    ]
    return {
        "rows": len(sources),
        "differing": len(differences),
        "ties": sum(difference < TIES[settings.dtype] for difference in differences),
        "largest_difference": max(differences, default=0.0),
    }


def score_difference(model: Any, source: Ids, first: Ids, second: Ids, beam_size: int) -> float:
    """Returns the difference of the scores by which the search compares two outputs.

    A beam search compares log-probability over length^penalty, and a greedy search the log-probabilities of the first
    tokens that differ.
    """
    scored = TorchSearch(model).score([source] * 2, [first, second], with_attention=False)
    if beam_size == 1:
        place = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        scores = [each.log_probs[place] for each in scored]
    else:
        penalty = PAPER_SEARCH["length_penalty"]
        scores = [sum(each.log_probs) / len(each.ids) ** penalty for each in scored]
    return abs(scores[0] - scores[1])


def measure_generate(settings: Settings, folder: Path, lines: Sequence[str], references: Any) -> dict[str, Any]:
    """Times `generate()` of both models in turn on each batch."""
    models, tokenizer = load_models(folder, settings), load_tokenizer(folder)
    sources: list[Ids] = tokenizer(list(lines))["input_ids"]
    results: dict[str, Any] = {}
    for beam_size in BEAM_SIZES:
        for size, number in BATCHES.items():
            name = f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, batch {size}"
            batches = list(islice(batches_of(sources, size), number))
            results[name] = measure_case(settings, models, tokenizer, batches, beam_size)
            tell(f"generate, {name}: {results[name]['tokens']}")
    return results


def measure_case(
    settings: Settings, models: Models, tokenizer: Any, batches: Sequence[Sequence[Ids]], beam_size: int
) -> dict[str, Any]:
    """Compares the outputs of both models, which also warms them up, and then times them."""
    inputs = [pad(tokenizer, batch, settings.device) for batch in batches]
    outputs = {
        kind: list(chain.from_iterable(search(model, batch, beam_size) for batch in inputs))
        for kind, model in models.items()
    }
    sources = list(chain.from_iterable(batches))
    found: dict[str, Any] = {"tokens": compare_tokens(models, sources, outputs, beam_size, settings)}
    for kind in models:
        lengths = list(map(len, outputs[kind]))
        found[kind] = {"sentences": len(lengths), "tokens": sum(lengths), "seconds": [], "cpu_seconds": []}
    for repeat in range(settings.repeats):
        spent = {kind: [0.0, 0.0] for kind in models}
        for number, batch in enumerate(inputs):
            for kind in list(models)[:: -1 if (repeat + number) % 2 else 1]:  # neither is always the first
                _, *times = timed(lambda: generate(models[kind], batch, beam_size), settings.device)  # noqa: B023
                spent[kind] = [total + more for total, more in zip(spent[kind], times, strict=True)]
        for kind, (seconds, cpu_seconds) in spent.items():
            found[kind]["seconds"].append(seconds)
            found[kind]["cpu_seconds"].append(cpu_seconds)
    return found


def translate_as_usual(model: Any, tokenizer: Any, lines: Sequence[str]) -> list[str]:
    """Translates batches in file order, as most scripts do, with the `Translator`'s limit of length."""
    translations: list[str] = []
    for start in range(0, len(lines), FILE_BATCH):
        texts = list(lines[start : start + FILE_BATCH])
        inputs = dict(tokenizer(texts, padding=True, return_tensors="pt").to(model.device))
        translations += tokenizer.batch_decode(generate(model, inputs, beam_size=4), skip_special_tokens=True)
    return translations


def ctranslate2_is_missing(device: str) -> str | None:
    """Returns why CTranslate2 cannot be measured, or None if it can."""
    if find_spec("ctranslate2") is None:
        return "ctranslate2 is not installed"
    import ctranslate2

    if device == "cuda" and not ctranslate2.get_cuda_device_count():
        return "ctranslate2 finds no GPU"
    return None


def ways_to_translate(
    settings: Settings, folder: Path, temporary: Path
) -> Iterator[tuple[str, Callable[[Sequence[str]], list[str]]]]:
    """Yields the name and the function of each way to translate a file."""
    models, tokenizer = load_models(folder, settings), load_tokenizer(folder)
    yield PEER, lambda lines: translate_as_usual(models[PEER], tokenizer, lines)
    translator = Translator(models[OURS], tokenizer)
    yield "Translator", lambda lines: translator(lines, beam_size=4)
    if ctranslate2_is_missing(settings.device):
        return
    for quantization in ("float32", "int8"):
        exported = temporary / quantization
        to_ctranslate2(models[OURS], tokenizer, exported, quantization)
        engine = Translator.from_pretrained(exported, device=settings.device, backend="ctranslate2")
        yield f"CTranslate2 {quantization}", lambda lines, engine=engine: engine(lines, beam_size=4)  # type: ignore[misc]


def measure_file(
    settings: Settings, folder: Path, lines: Sequence[str], references: Sequence[str] | None
) -> dict[str, Any]:
    """Translates all lines in each way in turn."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        ways = dict(ways_to_translate(settings, folder, Path(temporary)))
        for translate in ways.values():
            translate(lines[:FILE_BATCH])  # warms it up
        for repeat in range(settings.repeats):
            for name, translate in ways.items():
                found = results.setdefault(name, {"sentences": len(lines), "seconds": [], "cpu_seconds": []})
                translations, seconds, cpu_seconds = timed(lambda: translate(lines), settings.device)  # noqa: B023
                found["seconds"].append(seconds)
                found["cpu_seconds"].append(cpu_seconds)
                tell(f"file {repeat + 1}/{settings.repeats}, {name}: {len(lines) / seconds:,.1f} sentences/s")
                if references is not None:
                    found["bleu"] = bleu(translations, references)
    missing = ctranslate2_is_missing(settings.device)
    return results | ({"skipped": missing} if missing else {})


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Returns sacreBLEU's score."""
    import sacrebleu

    return float(sacrebleu.corpus_bleu(list(translations), [list(references)]).score)


def memory_of(kind: str, settings: Settings, folder: Path, sources: Sequence[Ids]) -> int:
    """Returns by how many bytes memory grows at most in a beam search."""
    torch.set_num_threads(settings.threads)
    model, tokenizer = load_models(folder, settings)[kind], load_tokenizer(folder)
    generate(model, pad(tokenizer, [sources[0][-2:]], settings.device), beam_size=4)  # allocates what stays
    inputs = pad(tokenizer, sources, settings.device)
    memory = Memory(settings.device)
    generate(model, inputs, beam_size=4)
    return memory.peak()


def measure_memory(settings: Settings, folder: Path, lines: Sequence[str], references: Any) -> dict[str, Any]:
    """Measures the memory of either model in a process of its own."""
    sources = load_tokenizer(folder)(list(lines[:FILE_BATCH]))["input_ids"]
    results: dict[str, Any] = {}
    for kind in (PEER, OURS):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            results[kind] = process.submit(memory_of, kind, settings, folder, sources).result()
        tell(f"memory, {kind}: {results[kind] / 2**20:,.0f} MiB")
    return results


def print_profile(settings: Settings, folder: Path, lines: Sequence[str]) -> None:
    """Prints which operators take the time of our beam search."""
    model, tokenizer = load_models(folder, settings)[OURS], load_tokenizer(folder)
    inputs = pad(tokenizer, tokenizer(list(lines[:FILE_BATCH]))["input_ids"], settings.device)
    generate(model, inputs, beam_size=4)
    with make_profiler(settings.device) as profiler:
        generate(model, inputs, beam_size=4)
    print_operators(profiler, settings.device)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="folder of a trained model of ours; random weights by default")
    add("--source", required=True, help="text file to translate, plain or gzipped")
    add("--reference", help="its counterpart, line by line, for BLEU")
    add("--sentences", type=int, default=1000, help="lines of the file that are read (default 1000)")
    add("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; all by default")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where to translate (default cpu)")
    add("--dtype", choices=tuple(TIES), default="float32", help="type of the weights of both models")
    add("--repeats", type=int, default=3, help="repetitions of each timing (default 3)")
    add("--threads", type=int, default=os.cpu_count(), help="threads of a process (default: all cores)")
    add("--output", type=Path, help="folder for benchmark_inference.json and benchmark_inference.png")
    add("--profile", action="store_true", help="also print the operators that take most of the time of ours")
    return parser.parse_args(arguments)


def read_first(file: str | None, number: int) -> list[str] | None:
    """Returns the first lines of a file. Blank ones stay, since the lines of two files belong together."""
    return None if file is None else list(islice(read_lines(file), number))


def measure(options: argparse.Namespace, settings: Settings, folder: Path, lines: list[str]) -> dict[str, Any]:
    """Measures the parts that were asked for."""
    if options.profile:
        print_profile(settings, folder, lines)
    measures = {"generate": measure_generate, "file": measure_file, "memory": measure_memory}
    references = read_first(options.reference, options.sentences)
    return {part: measures[part](settings, folder, lines, references) for part in PARTS if part in options.parts}


def write(options: argparse.Namespace, settings: Settings, results: dict[str, Any]) -> None:
    """Writes the JSON file and the figure."""
    machine = describe_machine(settings)
    if find_spec("ctranslate2") is not None:
        machine["versions"]["ctranslate2"] = version("ctranslate2")
    content = {"settings": vars(options), "machine": machine, "results": results}
    write_json(content, options.output / "benchmark_inference.json")
    draw_inference(results, options.output / "benchmark_inference.png")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the table and writes the files."""
    options = parse_arguments(arguments)
    settings = Settings(options.device, options.dtype, options.threads, 0, options.repeats, SIZES)
    torch.set_num_threads(settings.threads)
    lines = read_first(options.source, options.sentences) or []
    with tempfile.TemporaryDirectory() as temporary:
        folder = prepare_folder(options, lines, Path(temporary))
        try:
            to_marian(load_model(folder))
        except ValueError as error:
            sys.exit(str(error))
        results = measure(options, settings, folder, lines)
    print(inference_table(results))
    if options.output is not None:
        write(options, settings, results)


if __name__ == "__main__":
    main()
