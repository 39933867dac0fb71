"""Trains and runs Marian C++ in the environment that `scripts/install_peer.sh pymarian` makes, for benchmarks.

    PYTHON marian_cpp.py train FOLDER '{"epochs": 1, "seed": 1, "vocab_size": 8000, ...}'
    PYTHON marian_cpp.py translate FOLDER BEAM_SIZE < source > target
    PYTHON marian_cpp.py decode FOLDER REPEATS < source > target

FOLDER holds train.source and train.target; the model and its vocabulary are written there. Training goes on from the
model that is there, up to `epochs` in all, or for `updates`. The settings are those of a trial of compare_learning.py.

`decode` takes a FOLDER that `hf-seq2seq export marian` wrote, searches as its decoder.yml says on one thread, and
writes the seconds of each repetition to standard error, those of loading left out.
"""

import json
import os
import sys
import time
from typing import Any

import pymarian


MODEL, VOCABULARY = "model.npz", "vocabulary.spm"


def train(settings: dict[str, Any]) -> None:
    """Trains on one thread, or goes on with a training that was stopped."""
    d_model, layers, vocab_size = (settings[name] for name in ("d_model", "layers", "vocab_size"))
    pymarian.Trainer(
        type="transformer",
        model=MODEL,
        vocabs=[VOCABULARY, VOCABULARY],
        train_sets=["train.source", "train.target"],
        dim_vocabs=[vocab_size, vocab_size],
        dim_emb=d_model,
        transformer_dim_ffn=4 * d_model,
        enc_depth=layers,
        dec_depth=layers,
        transformer_heads=settings["heads"],
        tied_embeddings_all=True,
        mini_batch_words=2048,
        mini_batch=200,
        maxi_batch=100,
        shuffle_in_ram=True,
        learn_rate=settings["learning_rate"],
        lr_warmup=settings["warmup_steps"],
        lr_decay_inv_sqrt=settings["warmup_steps"],
        label_smoothing=0.1,
        transformer_dropout=0.3,
        optimizer_params=[0.9, 0.98, 1e-9],
        clip_norm=1,
        after=f"{settings['updates']}u" if "updates" in settings else f"{settings['epochs']}e",
        disp_freq=settings.get("disp_freq", 50),
        seed=settings["seed"],
        cpu_threads=1,
        workspace=3000,
        save_freq=1000,
        overwrite=True,
    ).train()


def translate(beam_size: int) -> None:
    """Translates standard input, line by line, to standard output."""
    translator = pymarian.Translator(
        models=MODEL,
        vocabs=[VOCABULARY, VOCABULARY],
        beam_size=beam_size,
        normalize=1,
        cpu_threads=1,
        mini_batch=32,
        maxi_batch=100,
        maxi_batch_sort="src",
        max_length_factor=3,
    )
    sys.stdout.write(translator.translate(sys.stdin.read()))


def decode(repeats: int) -> None:
    """Translates standard input several times, and tells how long each took."""
    translator = pymarian.Translator(config="decoder.yml", cpu_threads=1, quiet=True)
    text = sys.stdin.read()
    translator.translate(text.partition("\n")[0])  # what is made at first use is made
    for _ in range(repeats):
        start = time.perf_counter()
        output = translator.translate(text)
        print(f"seconds {time.perf_counter() - start}", file=sys.stderr, flush=True)
    sys.stdout.write(output)


def main() -> None:
    """Reads the command line."""
    verb, folder, value = sys.argv[1:]
    os.chdir(folder)  # Marian keeps the paths that it is given in the model's settings
    if verb == "train":
        train(json.loads(value))
    elif verb == "decode":
        decode(int(value))
    else:
        translate(int(value))


if __name__ == "__main__":
    main()
