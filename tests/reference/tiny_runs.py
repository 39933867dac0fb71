"""Runs of a few seconds that learn little, of the command `train`."""

import random
from pathlib import Path
from typing import Any


Settings = dict[str, Any]
SOURCE_WORDS = ["one", "two", "three", "four", "five"]
TARGET_WORDS = ["eins", "zwei", "drei", "vier", "fünf"]


def write_pairs(folder: Path, name: str, num_pairs: int, seed: int) -> Settings:
    """Writes numerals in two languages and returns the two settings that name them."""
    generator = random.Random(seed)
    rows = [generator.choices(range(5), k=generator.randint(1, 4)) for _ in range(num_pairs)]
    for side, words in (("source", SOURCE_WORDS), ("target", TARGET_WORDS)):
        text = "".join(" ".join(words[i] for i in row) + "\n" for row in rows)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    return {f"{name}_{side}": str(folder / f"{name}.{side}") for side in ("source", "target")}


def tiny_settings(folder: Path) -> Settings:
    """Writes pairs to a folder and returns the settings of a run on them, of two or three epochs, with dropout."""
    return {
        **write_pairs(folder, "train", 60, seed=1),
        **write_pairs(folder, "validation", 12, seed=2),
        "tokenizer_kind": "char",
        "vocab_size": 50,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "max_length": 40,
        "tokens_per_batch": 250,
        "max_steps": 6,
        "save_steps": 3,
        "learning_rate": 0.01,
        "seed": 7,
    }


def command_line(settings: Settings) -> list[str]:
    """Returns the settings as options, without those that are None."""
    return [f"--{name}={value}" for name, value in settings.items() if value is not None]
