"""Counts how often a model's outputs in CTranslate2 equal those of generate().

    python scripts/benchmarks/compare_ctranslate2.py MODEL SOURCE

Both search with `early_stopping=True` and the same limit of length. In float32 they may differ only where rounding
decides between two outputs. In int8 the weights themselves differ.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from hf_seq2seq.data import read_lines
from hf_seq2seq.inference.padding import pad_rows
from hf_seq2seq.interop import to_ctranslate2
from hf_seq2seq.interop.ctranslate2 import banned_tokens
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.output_limits import end_ids, longest_output, up_to_end


Ids = list[list[int]]

BATCH_SIZE = 50
LENGTH_PENALTY = 0.6
# Two outputs tie if their scores, log-probabilities over length^penalty, differ by less: rounding may decide then.
TIE = 1e-3


def search_with_generate(model: Any, sources: Ids, beam_size: int, max_new_tokens: int, **settings: Any) -> Ids:
    """Returns the output for each source without start token and padding, with its end token if it has one."""
    if beam_size > 1:
        settings |= {"early_stopping": True, "length_penalty": LENGTH_PENALTY}
    else:
        settings |= {"early_stopping": False, "length_penalty": 1.0}  # generate warns of others: not used
    outputs: Ids = []
    for start in range(0, len(sources), BATCH_SIZE):
        input_ids, mask = pad_rows(sources[start : start + BATCH_SIZE], model.config.pad_token_id)
        rows = model.generate(
            input_ids, attention_mask=mask, num_beams=beam_size, max_length=1 + max_new_tokens, **settings
        )
        outputs += [up_to_end(row[1:], end_ids(model.generation_config)) for row in rows.tolist()]
    return outputs


def search_with_ctranslate2(folder: Path, sources: Ids, beam_size: int, max_new_tokens: int) -> Ids:
    """Returns the output of an exported model for each source, with its end token if it has one."""
    translator = ctranslate2.Translator(str(folder), intra_threads=1)
    vocabularies = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*_vocabulary.json"))]
    ids = {token: index for index, token in enumerate(vocabularies[-1])}  # of the target, or shared
    results = translator.translate_batch(
        [[vocabularies[0][index] for index in source] for source in sources],
        beam_size=beam_size,
        length_penalty=LENGTH_PENALTY,
        max_batch_size=BATCH_SIZE,
        max_input_length=0,
        max_decoding_length=max_new_tokens,
        min_decoding_length=0,
        return_end_token=True,  # without it, an output that was cut would look whole
    )
    return [[ids[token] for token in result.hypotheses[0]] for result in results]


def ties(model: Any, sources: Ids, ours: Ids, theirs: Ids, beam_size: int) -> Iterator[tuple[int, float]]:
    """Yields the row of each two outputs that differ, and the difference of their scores.

    A beam search compares log-probability over length^penalty, and a greedy search the log-probabilities of the first
    tokens that differ.
    """
    for row, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their:
            both = [_log_probabilities(model, sources[row], output) for output in (our, their)]
            if beam_size == 1:
                first = next(i for i in range(max(len(our), len(their))) if our[i : i + 1] != their[i : i + 1])
                scores = [float(each[first]) for each in both]
            else:
                scores = [float(each.sum()) / len(each) ** LENGTH_PENALTY for each in both]
            yield row, abs(scores[0] - scores[1])


@torch.no_grad()
def _log_probabilities(model: Any, source: Sequence[int], output: Sequence[int]) -> torch.Tensor:
    """Returns the log-probability of each token of an output. Tokens that are never written have none."""
    decoder_input_ids = torch.tensor([[model.generation_config.decoder_start_token_id, *output[:-1]]])
    logits: torch.Tensor = model(torch.tensor([source]), decoder_input_ids=decoder_input_ids).logits[0]
    logits[:, banned_tokens(model)] = -torch.inf
    return logits.log_softmax(dim=-1).gather(-1, torch.tensor(output)[:, None])[:, 0]


def main() -> None:
    """Exports the model in float32 and int8, and compares greedy and beam search."""
    parser = argparse.ArgumentParser(description="Compare a model in CTranslate2 and with generate().")
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("source", help="lines to translate, plain or gzipped")
    arguments = parser.parse_args()
    model, tokenizer = load_model(arguments.model, dtype="float32"), load_tokenizer(arguments.model)
    sources = [
        ids for ids in tokenizer(list(read_lines(arguments.source)), verbose=False)["input_ids"] if len(ids) > 1
    ]
    max_new_tokens = longest_output(max(map(len, sources)), model.config.max_position_embeddings - 1)
    ours = {beam_size: search_with_generate(model, sources, beam_size, max_new_tokens) for beam_size in (1, 4)}
    for quantization in ("float32", "int8"):
        with tempfile.TemporaryDirectory() as folder:
            to_ctranslate2(model, tokenizer, folder, quantization)
            for beam_size in (1, 4):
                theirs = search_with_ctranslate2(Path(folder), sources, beam_size, max_new_tokens)
                differing = list(ties(model, sources, ours[beam_size], theirs, beam_size))
                line = f"{quantization:7}  beam {beam_size}  {len(sources) - len(differing)} of {len(sources)} agree"
                if quantization != "float32":
                    print(line)
                    continue
                print(line, f"{sum(difference < TIE for _, difference in differing)} ties", sep=", ")
                for row, difference in differing:
                    texts = tokenizer.batch_decode([sources[row], ours[beam_size][row], theirs[row]])
                    print(f"  scores differ by {difference:.1e}", *texts, sep="\n    ")


if __name__ == "__main__":
    main()
