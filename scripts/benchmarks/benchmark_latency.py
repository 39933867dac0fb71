"""Measures how long one sentence takes, and where the time of a step goes.

    python scripts/benchmarks/benchmark_latency.py --sizes small base --output results
    python scripts/benchmarks/benchmark_latency.py --model MODEL --source test.en

A step computes one token of each hypothesis. The script prints three tables for each model, in milliseconds a step:

- Against others: MarianMT with the same weights, `generate()`, `Translator`, and CTranslate2 in float32 and int8 where
  that is installed. Each is measured in turn with the others, and a ratio compares the medians. It says first in how
  many outputs the ids of `Translator` and `generate()` are those of MarianMT.
- The floor: what a step of one sentence needs to read the weights, for its linear products, for the whole network, and
  what is on top of it in either search.
- Trials: what each part of a step takes in two ways.

Without a model the weights are random, and each output has the same length. With one, its own outputs are measured.
Times are the processor's, which other programs disturb least, with one thread; with more threads they are wall times,
for which the machine should be idle.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedTokenizerFast
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from hf_seq2seq import PAPER_SEARCH, Translator
from hf_seq2seq.data import read_lines
from hf_seq2seq.interop import to_ctranslate2, to_marian
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.model import packed_seq2seq_transformer
from hf_seq2seq.model.packed_seq2seq_transformer import PackedNetwork, SearchCache, pack, packed_network
from hf_seq2seq.output_limits import end_ids, up_to_end
from scripts.benchmarks.benchmark_models import OURS, PEER, ModelSizes, make_ours
from scripts.benchmarks.benchmark_run import tell, write_json


SIZES = {
    "small": ModelSizes(vocab_size=8000, d_model=256, layers=3, ffn_dim=1024, heads=4),
    "base": ModelSizes(vocab_size=32000, d_model=512, layers=6, ffn_dim=2048, heads=8),
}
SOURCE_LENGTH, OUTPUT_LENGTH = 20, 20  # of random models
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
CASES = {"one sentence, greedy": (1, 1), "one sentence, beam 4": (1, 4), "32 sentences, greedy": (32, 1)}
CASES |= {"32 sentences, beam 4": (32, 4)}
OF_THE_SOURCE = ("k_proj", "v_proj")  # what cross-attention computes once
TRIALS_AT = 10  # tokens so far, at which parts of a step are measured

Milliseconds = dict[str, list[float]]
Work = Callable[[], Any]


class Bench:
    """A model with its tokenizer and texts, and how many tokens its outputs have.

    Args:
        model: Our model.
        tokenizer: Its tokenizer.
        texts: What is translated.
        length: The length of all outputs; None if they end where they end.
    """

    def __init__(self, model: Any, tokenizer: Any, texts: Sequence[str], length: int | None) -> None:
        self.model, self.tokenizer, self.texts, self.length = model.eval(), tokenizer, texts, length
        self.marian = to_marian(model)
        self.translator = Translator(model, tokenizer)

    def inputs(self, size: int) -> dict[str, Tensor]:
        """Returns the first texts as ids and mask."""
        return dict(self.tokenizer(list(self.texts[:size]), padding=True, return_tensors="pt"))

    @torch.inference_mode()
    def generate(self, model: Any, size: int, beam_size: int) -> list[list[int]]:
        """Returns the outputs of a model's `generate()`, up to the end token."""
        inputs = self.inputs(size)
        banned = list(self.translator.settings().banned_ids)  # with the unknown token
        options: dict[str, Any] = PAPER_SEARCH | {"num_beams": beam_size, "suppress_tokens": banned or None}
        if beam_size == 1:
            options["length_penalty"] = 1.0
        length = self.length or inputs["input_ids"].shape[1] + 50
        ids = model.generate(**inputs, **options, do_sample=False, max_length=1 + length, forced_eos_token_id=None)
        ends = end_ids(self.model.generation_config)
        return [up_to_end(row, ends) for row in ids[:, 1:].tolist()]

    def translate(self, translator: Translator, size: int, beam_size: int, **options: Any) -> list[str]:
        """Returns the translations of a translator."""
        return translator(self.texts[:size], beam_size=beam_size, max_new_tokens=self.length, **options)

    def outputs(self, size: int, beam_size: int) -> list[list[int]]:
        """Returns the ids of the translator's outputs."""
        found = self.translator.hypotheses(
            self.texts[:size], beam_size=beam_size, max_new_tokens=self.length, scores=False
        )
        return [list(hypotheses[0].token_ids) for hypotheses in found]


def word_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Returns a tokenizer of as many words, each of which is its number."""
    words = [*SPECIAL_TOKENS, *map(str, range(len(SPECIAL_TOKENS), vocab_size))]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL_TOKENS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def random_bench(sizes: ModelSizes) -> Bench:
    """Returns a model with random weights whose outputs never end before their limit."""
    torch.manual_seed(0)
    model: Any = make_ours(sizes)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            for weight in layer.parameters():
                weight *= 1.5  # else all outputs are alike
    model.generation_config.suppress_tokens = [0, 1, 2, 3]
    ids = torch.randint(len(SPECIAL_TOKENS), sizes.vocab_size, (32, SOURCE_LENGTH - 1))
    texts = [" ".join(map(str, row)) for row in ids.tolist()]
    return Bench(model, word_tokenizer(sizes.vocab_size), texts, OUTPUT_LENGTH)


def in_turn(works: dict[str, Work], repeats: int, threads: int = 1, number: int = 1) -> Milliseconds:
    """Returns how long each work takes, measured in turn with the others."""
    clock = time.process_time if threads == 1 else time.perf_counter
    found: Milliseconds = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            started = clock()
            for _ in range(number):
                work()
            found[name].append((clock() - started) / number * 1e3)
    return found


def ctranslate2_ways(bench: Bench, folder: Path, size: int, beam_size: int) -> dict[str, Work]:
    """Returns the model exported to CTranslate2, as works."""
    if find_spec("ctranslate2") is None:
        return {}
    works: dict[str, Work] = {}
    fewest = {} if bench.length is None else {"min_new_tokens": bench.length - 1}
    for quantization in ("float32", "int8"):
        exported = folder / quantization
        if not exported.exists():
            suppressed, bench.model.generation_config.suppress_tokens = (
                bench.model.generation_config.suppress_tokens,
                [0, 1],
            )
            to_ctranslate2(bench.model, bench.tokenizer, exported, quantization)
            bench.model.generation_config.suppress_tokens = suppressed
        engine = Translator.from_pretrained(exported, backend="ctranslate2", device="cpu")
        works[f"CTranslate2 {quantization}"] = lambda engine=engine: bench.translate(  # type: ignore[misc]
            engine, size, beam_size, **fewest
        )
    return works


def against_others(bench: Bench, repeats: int, threads: int) -> dict[str, Any]:
    """Times all ways to translate in each case."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for case, (size, beam_size) in CASES.items():
            theirs = bench.generate(bench.marian, size, beam_size)
            works: dict[str, Work] = {
                PEER: lambda: bench.generate(bench.marian, size, beam_size),  # noqa: B023
                "generate()": lambda: bench.generate(bench.model, size, beam_size),  # noqa: B023
                "Translator": lambda: bench.translate(bench.translator, size, beam_size),  # noqa: B023
                **ctranslate2_ways(bench, Path(temporary), size, beam_size),
            }
            ours = {
                "generate()": bench.generate(bench.model, size, beam_size),
                "Translator": bench.outputs(size, beam_size),
            }
            equal = {
                name: sum(row == other for row, other in zip(rows, theirs, strict=True)) for name, rows in ours.items()
            }
            steps = max(map(len, theirs))
            found = in_turn(works, repeats, threads, number=3 if size == 1 else 1)
            results[case] = {"steps": steps, "outputs": len(theirs), "equal": equal, "milliseconds": found}
            tell(f"{case}: { ({name: round(statistics.median(each), 1) for name, each in found.items()}) }")
    return results


@contextmanager
def own_steps() -> Any:
    """Lets `generate()` compute all steps with the model itself."""
    can_be_packed = packed_seq2seq_transformer._can_be_packed
    packed_seq2seq_transformer._can_be_packed = lambda *_: False
    try:
        yield
    finally:
        packed_seq2seq_transformer._can_be_packed = can_be_packed


def linears_of_a_step(model: Any) -> list[nn.Linear]:
    """Returns the linear layers that a step computes."""
    layers = [module for name, module in model.model.decoder.named_modules() if isinstance(module, nn.Linear)]
    from_source = {
        id(getattr(layer.encoder_attn, name)) for layer in model.model.decoder.layers for name in OF_THE_SOURCE
    }
    return [*(layer for layer in layers if id(layer) not in from_source), model.lm_head]


@torch.inference_mode()
def floor(bench: Bench, beam_size: int, repeats: int, threads: int) -> dict[str, Any]:
    """Times what a step of one sentence consists of, from what cannot be saved to all of it."""
    model, network = bench.model, packed_network(bench.model)
    assert network is not None
    linears = linears_of_a_step(model)
    inputs = [torch.randn(beam_size, linear.in_features) for linear in linears]
    packed = [pack(linear) for linear in linears]
    transposed = [linear.weight.t().contiguous().t() for linear in linears]
    step, forward = packed_step(network, bench, beam_size), model_step(bench, beam_size)

    works: dict[str, Work] = {
        "the weights, read once": lambda: [linear.weight.sum() for linear in linears],
        "linear products, weights as stored": lambda: [
            nn.functional.linear(x, linear.weight, linear.bias) for x, linear in zip(inputs, linears, strict=True)
        ],
        "linear products, weights transposed in memory": lambda: [
            nn.functional.linear(x, weight, linear.bias)
            for x, weight, linear in zip(inputs, transposed, linears, strict=True)
        ],
        "linear products, weights packed": lambda: [product(x) for x, product in zip(inputs, packed, strict=True)],
        **int8_products(linears, inputs),
        "a step of the packed network": step,
        "a step of the model, its forward called by hand": forward,
    }
    found = in_turn(works, repeats, threads, number=5)
    steps = max(map(len, bench.outputs(1, beam_size)))
    searches: dict[str, Work] = {
        "`Translator`, per step": lambda: bench.translate(bench.translator, 1, beam_size),
        "`generate()`, per step": lambda: bench.generate(model, 1, beam_size),
        f"`generate()` of {PEER}, per step": lambda: bench.generate(bench.marian, 1, beam_size),
    }
    for name, times in in_turn(searches, repeats, threads).items():
        found[name] = [each / steps for each in times]
    with own_steps():
        times = in_turn({"": lambda: bench.generate(model, 1, beam_size)}, repeats, threads)[""]
    found["`generate()`, all steps by the model, per step"] = [each / steps for each in times]
    num_bytes = sum(4 * linear.weight.numel() for linear in linears)
    return {"megabytes": num_bytes / 1e6, "milliseconds": found}


def int8_products(linears: Sequence[nn.Linear], inputs: Sequence[Tensor]) -> dict[str, Work]:
    """Returns the products with weights in int8 and dynamic scales, as torch's quantization makes them."""
    quantized = []
    for linear in linears:
        scales = linear.weight.abs().amax(dim=1) / 127
        weight = torch.quantize_per_channel(linear.weight, scales, torch.zeros(len(scales)).long(), 0, torch.qint8)
        quantized.append(torch.ops.quantized.linear_prepack(weight, linear.bias))
    multiply = torch.ops.quantized.linear_dynamic
    return {
        "linear products, int8": lambda: [multiply(x, weight) for x, weight in zip(inputs, quantized, strict=True)]
    }


def packed_step(network: PackedNetwork, bench: Bench, beam_size: int) -> Work:
    """Returns a step of the packed network, which starts over when the outputs are long."""
    inputs = bench.inputs(1)
    start = torch.tensor([[bench.model.config.decoder_start_token_id]])
    memories = network.encode(inputs["input_ids"], None)
    state: dict[str, SearchCache] = {}
    tokens = torch.full((1, beam_size), 7)
    parents = None if beam_size == 1 else torch.arange(beam_size)[None]

    def step() -> None:
        if not state or state["cache"].layers[0].length > beam_size * OUTPUT_LENGTH:
            state["cache"] = SearchCache(network, memories, None)
            state["cache"].start(start, None)
        state["cache"].step(tokens, parents)

    return step


def model_step(bench: Bench, beam_size: int) -> Work:
    """Returns a step of the model itself, which starts over when the outputs are long."""
    encoded = bench.model.model.encoder(**bench.inputs(1))
    state: dict[str, Any] = {}
    tokens = torch.full((beam_size, 1), 7)

    def step() -> None:
        if state.get("length", OUTPUT_LENGTH) >= OUTPUT_LENGTH:
            state.update(length=0, cache=None)
        outputs = bench.model(decoder_input_ids=tokens, encoder_outputs=encoded, cache=state["cache"], use_cache=True)
        state.update(length=state["length"] + 1, cache=outputs.cache)

    return step


@torch.inference_mode()
def trials(bench: Bench, repeats: int) -> dict[str, Milliseconds]:
    """Times parts of a step in two ways, each as often as a step does it."""
    decoder = bench.model.model.decoder
    config, layers = bench.model.config, decoder.layers
    first = layers[0].self_attn
    heads, width = config.decoder_attention_heads, first.key_dim
    hidden, new = torch.randn(1, 1, config.d_model), torch.randn(1, heads, 1, width)
    three, one = (
        [pack(first.q_proj), pack(first.k_proj), pack(first.v_proj)],
        pack(first.q_proj, first.k_proj, first.v_proj),
    )
    kept, room = torch.randn(1, heads, TRIALS_AT, width), torch.randn(1, heads, 64, width)
    beams = torch.randn(4, heads, TRIALS_AT, width)
    cache = DynamicCache()
    cache.update(kept, kept, 0)
    source, memory = torch.ones(1, SOURCE_LENGTH), torch.randn(1, SOURCE_LENGTH, config.d_model)
    table, position = decoder.embed_positions(torch.arange(64)).float(), torch.tensor([[TRIALS_AT]])

    def write() -> Tensor:
        room[:, :, TRIALS_AT : TRIALS_AT + 1] = new
        return room[:, :, : TRIALS_AT + 1]

    def masks() -> Any:
        create_causal_mask(config=config, inputs_embeds=hidden, attention_mask=None, cache=cache)
        return create_bidirectional_mask(
            config=config, inputs_embeds=hidden, attention_mask=source, encoder_hidden_states=memory
        )

    number = len(layers)
    order = torch.tensor([1, 0, 0, 3])
    pairs: dict[str, tuple[str, Work, str, Work]] = {
        "queries, keys and values": (
            "three products", lambda: [[each(hidden) for each in three] for _ in range(number)],
            "one product", lambda: [one(hidden) for _ in range(number)],
        ),
        "keys and values of a step": (
            "`torch.cat`", lambda: [torch.cat((kept, new), dim=2) for _ in range(2 * number)],
            "written in their place", lambda: [write() for _ in range(2 * number)],
        ),
        "beams that change places": (
            "keys and values copied", lambda: [beams.index_select(0, order) for _ in range(2 * number)],
            "a mask over shared slots", lambda: torch.full((1, 4, 44), -1e30).scatter_(
                2, torch.zeros(1, 4, 11, dtype=torch.long), 0.0
            ),
        ),
        "masks where nothing is padded": ("made", masks, "none", lambda: None),
        "positions": (
            "sines computed", lambda: decoder.embed_positions(position).float(),
            "looked up", lambda: nn.functional.embedding(position, table),
        ),
    }  # fmt: skip
    return {
        part: in_turn({before: old, after: fresh}, repeats, number=20)
        for part, (before, old, after, fresh) in pairs.items()
    }


def compiled(bench: Bench, repeats: int) -> dict[str, Any]:
    """Times `generate()` with a static cache and a compiled forward, and its first call."""
    bench.model.generation_config.cache_implementation = "static"
    bench.model.forward = torch.compile(bench.model.forward)
    try:
        started = time.perf_counter()
        bench.generate(bench.model, 1, 1)
        start_up = time.perf_counter() - started
        found = in_turn({"compiled": lambda: bench.generate(bench.model, 1, 1)}, repeats)["compiled"]
    finally:
        del bench.model.forward
        bench.model.generation_config.cache_implementation = None
    steps = max(map(len, bench.outputs(1, 1)))
    return {"start-up seconds": start_up, "milliseconds": [each / steps for each in found]}


def tables(results: dict[str, Any]) -> str:
    """Returns the three Markdown tables of a model."""
    median = statistics.median
    ways = list(next(iter(results["against others"].values()))["milliseconds"])
    lines = [f"| ms a step, and ratio to {PEER} | {' | '.join(ways)} | equal ids |", "|---" * (len(ways) + 2) + "|"]
    for case, found in results["against others"].items():
        base = median(found["milliseconds"][PEER])
        cells = [
            f"{median(times) / found['steps']:.2f} ({base / median(times):.2f})"
            for times in found["milliseconds"].values()
        ]
        lines.append(f"| {case} | {' | '.join(cells)} | {min(found['equal'].values())} of {found['outputs']} |")
    for search, found in results["floor"].items():
        lines += ["", f"| one sentence, {search}: {found['megabytes']:.1f} MB of weights a step | ms |", "|---|---|"]
        lines += [f"| {name} | {median(times):.3f} |" for name, times in found["milliseconds"].items()]
    lines += ["", "| part of a greedy step | before, ms | now, ms |", "|---|---|---|"]
    for part, found in results["trials"].items():
        cells = [f"{name}: {median(times):.3f}" for name, times in found.items()]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    if "compiled" in results:
        found = results["compiled"]
        lines += [
            "",
            f"`torch.compile` with a static cache, one sentence, greedy: {median(found['milliseconds']):.2f} ms a "
            f"step after a start-up of {found['start-up seconds']:.0f} s.",
        ]
    return "\n".join(lines)


def measure(bench: Bench, options: argparse.Namespace) -> dict[str, Any]:
    """Measures all of a model."""
    results: dict[str, Any] = {"against others": against_others(bench, options.repeats, options.threads)}
    results["floor"] = {
        name: floor(bench, beam_size, options.repeats, options.threads)
        for name, beam_size in (("greedy", 1), ("beam 4", 4))
    }
    results["trials"] = trials(bench, options.repeats)
    if options.compile:
        results["compiled"] = compiled(bench, options.repeats)
    return results


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--sizes", nargs="+", choices=SIZES, default=[], help="random models: small (d 256), base (the paper's, d 512)"
    )
    add("--model", help="folder of a trained model of ours, with --source")
    add("--source", help="text file, of which the first 32 lines are translated")
    add("--repeats", type=int, default=7, help="repetitions of each timing (default 7)")
    add("--threads", type=int, default=1, help="threads (default 1)")
    add("--compile", action="store_true", help="also time torch.compile, which takes minutes")
    add("--output", type=Path, help="folder for benchmark_latency.json")
    options = parser.parse_args(arguments)
    if bool(options.model) != bool(options.source) or not (options.model or options.sizes):
        parser.error("give --sizes, or --model and --source")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints the tables and writes the file."""
    options = parse_arguments(arguments)
    torch.set_num_threads(options.threads)
    makers: dict[str, Callable[[], Bench]] = {
        name: lambda name=name: random_bench(SIZES[name])  # type: ignore[misc]
        for name in options.sizes
    }
    if options.model:
        makers[options.model] = lambda: Bench(
            load_model(options.model),
            load_tokenizer(options.model),
            list(islice(filter(str.strip, read_lines(options.source)), 32)),
            None,
        )
    results = {}
    for name, make in makers.items():
        results[name] = measure(make(), options)
        print(f"{OURS}: {name}, {options.threads} thread(s)\n\n{tables(results[name])}\n", flush=True)
    if options.output is not None:
        write_json({"settings": vars(options), "results": results}, options.output / "benchmark_latency.json")


if __name__ == "__main__":
    main()
