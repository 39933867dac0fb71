"""Trains by tokens on each rank of a process group and writes which pairs each update saw: see test_two_ranks.py."""

import json
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training import Seq2SeqTransformerTrainer, Seq2SeqTransformerTrainingArguments


Batches = list[list[tuple[int, int]]]


def train(
    folder: Path, tokenizer: PreTrainedTokenizerFast, *, resume: bool = False, **settings: Any
) -> tuple[int, Batches]:
    """Returns the rank and its batches, each pair by the lengths of its two sides."""
    lengths = [(source, target) for source in range(1, 11) for target in range(1, 11)]
    pairs = Dataset.from_list([{"input_ids": [5] * s, "labels": [6] * t, "length": max(s, t)} for s, t in lengths])
    sizes: dict[str, Any] = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size"), 8)
    layers: dict[str, Any] = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    model = Seq2SeqTransformerForConditionalGeneration(Seq2SeqTransformerConfig(**sizes, **layers))
    trainer: Any = Seq2SeqTransformerTrainer(
        model=model,
        args=Seq2SeqTransformerTrainingArguments(
            output_dir=str(folder), tokens_per_batch=60, num_train_epochs=2, disable_tqdm=True, **settings
        ),
        train_dataset=pairs,
        eval_dataset=pairs.select(range(5)),
        data_collator=Seq2SeqCollator(tokenizer, model=model),
        processing_class=tokenizer,
    )
    batches: Batches = []
    compute_loss = trainer.compute_loss

    def record(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            sides = inputs["attention_mask"].sum(dim=1).tolist(), (inputs["labels"] != -100).sum(dim=1).tolist()
            batches.append(list(zip(*sides, strict=True)))
        return compute_loss(model, inputs, *args, **kwargs)

    trainer.compute_loss = record
    trainer.train(resume_from_checkpoint=resume)
    trainer.evaluate()  # must end, though the ranks have different numbers of pairs
    return trainer.args.process_index, batches


def main(folder: Path) -> None:
    """Trains without a break, and with one in the second epoch."""
    tokenizer = train_tokenizer(iter(["abcd"]), vocab_size=8, kind="char")
    rank, straight = train(folder / "straight", tokenizer, save_strategy="no")
    middle = len(straight) // 2 + 2
    _, first = train(folder / "parts", tokenizer, max_steps=middle, save_steps=middle)
    _, second = train(folder / "parts", tokenizer, resume=True, save_steps=1000)
    result = {"straight": straight, "first": first, "second": second}
    (folder / f"rank{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
