"""What each rank of a process group does, written to rank0.json and rank1.json: see test_two_ranks.py.

The tests call the same functions in one process, to compare.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from reference.tiny_models import random_sentences, tiny_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.evaluation import decode, generation_metrics
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training import Seq2SeqTransformerTrainer, Seq2SeqTransformerTrainingArguments


Batches = list[list[tuple[int, int]]]


def make_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(iter(["abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRS"]), vocab_size=50, kind="char")


def pairs_of_all_lengths() -> Dataset:
    """A hundred pairs, no two with the same two lengths."""
    lengths = [(source, target) for source in range(1, 11) for target in range(1, 11)]
    return Dataset.from_list([{"input_ids": [5] * s, "labels": [6] * t, "length": max(s, t)} for s, t in lengths])


def random_pairs(number: int) -> Dataset:
    """Pairs of unequal lengths, which end with </s>."""
    sides = [random_sentences([1 + (7 * i + k) % 9 for i in range(number)], seed=k) for k in (1, 2)]
    rows = zip(*sides, strict=True)
    return Dataset.from_list(
        [{"input_ids": [*s, 2], "labels": [*t, 2], "length": max(len(s), len(t)) + 1} for s, t in rows]
    )


def make_trainer(folder: Path, dataset: Dataset, **settings: Any) -> Any:
    """A trainer of a tiny model without dropout, whose every weight is random."""
    model, tokenizer = tiny_model(), make_tokenizer()
    fields: dict[str, Any] = {"num_train_epochs": 2, "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no"}
    return Seq2SeqTransformerTrainer(
        model=model,
        args=Seq2SeqTransformerTrainingArguments(output_dir=str(folder), **(fields | settings)),
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=Seq2SeqCollator(tokenizer, model=model),
        processing_class=tokenizer,
    )


def train_by_tokens(folder: Path, *, resume: bool = False, **settings: Any) -> Batches:
    """Returns this rank's batches, each pair by the lengths of its two sides."""
    trainer = make_trainer(folder, pairs_of_all_lengths(), tokens_per_batch=60, **settings)
    batches: Batches = []
    compute_loss = trainer.compute_loss

    def record(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if model.training:
            sides = inputs["attention_mask"].sum(dim=1).tolist(), (inputs["labels"] != -100).sum(dim=1).tolist()
            batches.append(list(zip(*sides, strict=True)))
        return compute_loss(model, inputs, *args, **kwargs)

    trainer.compute_loss = record
    trainer.train(resume_from_checkpoint=resume)
    return batches


def losses_and_weights(folder: Path, batch_size: int, accumulated: int) -> dict[str, Any]:
    """Trains on 20 pairs of unequal lengths, smoothed, and returns what was logged and the norms of the weights."""
    trainer = make_trainer(
        folder,
        random_pairs(20),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulated,
        train_sampling_strategy="sequential",
        learning_rate=0.01,
    )
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "losses": [entry["loss"] for entry in logged],
        "grad_norms": [entry["grad_norm"] for entry in logged],
        "weights": {name: weight.double().norm().item() for name, weight in trainer.model.named_parameters()},
    }


def evaluate(folder: Path, number: int) -> dict[str, Any]:
    """Evaluates on that many pairs, two a batch, and returns the metrics and the hypotheses."""
    dataset = random_pairs(number)
    trainer = make_trainer(
        folder, dataset, predict_with_generate=True, per_device_eval_batch_size=2, generation_num_beams=2
    )
    trainer.compute_metrics = generation_metrics(trainer.processing_class)
    output = trainer.predict(dataset)
    metrics = {name: output.metrics[f"test_{name}"] for name in ("loss", "bleu", "chrf", "ter")}
    return {"metrics": metrics, "hypotheses": decode(trainer.processing_class, output.predictions)}


def step(*, sharded: bool) -> dict[str, Any]:
    """Takes one optimizer step on a batch that every rank has, and generates from the new weights."""
    model = tiny_model()
    model.train()
    if sharded:
        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        register_fsdp_forward_method(model, "generate")
    rows = [row["input_ids"] for row in random_pairs(6)]
    batch = make_tokenizer().pad({"input_ids": rows}, return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss = model(**batch, labels=labels, smoothing=0.1).loss
    loss.backward()
    optimizer.step()
    weights = {
        name: weight.full_tensor() if isinstance(weight, DTensor) else weight
        for name, weight in model.named_parameters()
    }
    generated = model.eval().generate(**batch, max_length=12)
    return {
        "loss": loss.item(),
        "weights": {name: weight.detach().flatten().tolist() for name, weight in weights.items()},
        "generated": generated.tolist(),
    }


def main(folder: Path) -> None:
    """Does all of it on this rank."""
    straight = train_by_tokens(folder / "straight")
    middle = len(straight) // 2 + 2
    parts: dict[str, Any] = {"folder": folder / "parts", "save_strategy": "steps"}
    results = {
        "straight": straight,
        "first": train_by_tokens(**parts, max_steps=middle, save_steps=middle),
        "second": train_by_tokens(**parts, resume=True, save_steps=1000),
        "training": losses_and_weights(folder / "losses", batch_size=2, accumulated=2),
        "evaluation": {number: evaluate(folder / "evaluation", number) for number in (1, 5, 8)},
        "sharded": step(sharded=True),
    }
    rank = torch.distributed.get_rank()
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
