"""Makes a corpus, trains a small model on it, evaluates it on held-out pairs, translates some, and saves the model.

    scripts/quickstart.sh [--source-language en] [--target-language de] [--output DIR]

The corpus is that of phrase_corpus.py. The command `hf-seq2seq train` trains the model, in this process. It is
printed, and does the same from a shell. Started again with the same output folder, a run that was stopped goes on, and
a finished one is only evaluated.
"""

import argparse
import logging
import shlex
import sys
import time
from pathlib import Path

from scripts.phrase_corpus import make_corpus, write_corpus


# A small model learns these short phrases within minutes on two cores. Pre-norm allows a high learning rate. Dropout
# would not help, since the corpus has no noise. Few pieces are enough, since digits and number words have few parts.
TRAINING_OPTIONS = {
    "norm_position": "pre",
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 384,
    "decoder_ffn_dim": 384,
    "dropout": 0.0,
    "vocab_size": 600,
    "max_length": 64,
    "tokens_per_batch": 800,
    "learning_rate": 2e-3,
    "lr_scheduler_type": "linear",
    "num_train_epochs": 4,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
}
NUM_SHOWN = 5
LEAST_EXACT_MATCH = 98.0  # percent, of held-out phrases


def train_command(source: str, target: str, corpus: Path, output_dir: Path) -> list[str]:
    """Returns the words of the `hf-seq2seq` command that trains the model."""
    files = {
        "train_source": corpus / f"train.{source}",
        "train_target": corpus / f"train.{target}",
        "validation_source": corpus / f"validation.{source}",
        "validation_target": corpus / f"validation.{target}",
    }
    options = {**files, **TRAINING_OPTIONS, "output_dir": output_dir}
    return ["train", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def heading(text: str) -> None:
    """Prints a line that says what comes next."""
    print(f"\n== {text}", flush=True)


def run(source: str, target: str, output: Path) -> float:
    """Runs the quick start in the folder `output`, and returns the percentage of exact matches."""
    started = time.monotonic()
    corpus_dir, model_dir = output / "corpus", output / "model"
    heading(f"Making a corpus of phrases, {source} to {target}, in {corpus_dir}")
    corpus = make_corpus(source, target)
    write_corpus(corpus, corpus_dir, source, target)
    print(", ".join(f"{len(phrases):,} {part} pairs" for part, phrases in corpus._asdict().items()))

    heading("Training a tokenizer and a model on it, with this command:")
    words = train_command(source, target, corpus_dir, model_dir)
    print("hf-seq2seq", shlex.join(words).replace(" --", " \\\n    --"), flush=True)
    # Imported here, since it takes seconds, and an unknown language is an error at once.
    from transformers.utils.logging import disable_progress_bar

    from hf_seq2seq import Translator
    from hf_seq2seq.training import parse_arguments, run_training, score

    disable_progress_bar()  # transformers' bars for reading and writing weights; that of the training stays
    run_training(*parse_arguments(words[1:]))

    heading(f"Translating {len(corpus.test)} held-out phrases, none of which occurs in training")
    translator = Translator.from_pretrained(model_dir)
    hypotheses = translator([phrase.source for phrase in corpus.test])
    scores = score(hypotheses, [phrase.target for phrase in corpus.test])
    print(f"exact match  {scores['exact_match']:.1f} %")
    print(f"BLEU         {scores['bleu']:.1f}  {scores['bleu_signature']}")
    print(f"chrF         {scores['chrf']:.1f}  {scores['chrf_signature']}")
    for phrase, hypothesis in list(zip(corpus.test, hypotheses, strict=True))[:NUM_SHOWN]:
        print(f"\n  source     {phrase.source}\n  model      {hypothesis}\n  reference  {phrase.target}")

    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    heading(f"Done in {minutes} min {seconds} s. The model is in {model_dir}. Try next, after `. .venv/bin/activate`:")
    print(f"echo {shlex.quote(corpus.test[0].source)} | hf-seq2seq translate {shlex.quote(str(model_dir))}")
    print("hf-seq2seq train --train_source your.src --train_target your.tgt --output_dir my-model")
    print("hf-seq2seq train --help")
    return float(scores["exact_match"])


def main() -> int:
    """Runs the command, and returns its exit status."""
    parser = argparse.ArgumentParser(description="Train and evaluate a small model on a corpus made on the spot.")
    parser.add_argument("--source-language", default="en", help="code of the source language (default: %(default)s)")
    parser.add_argument("--target-language", default="de", help="code of the target language (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="folder of corpus and model (default: quickstart-SOURCE-TARGET)")
    arguments = parser.parse_args()
    source, target = arguments.source_language, arguments.target_language
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hf_seq2seq").setLevel(logging.INFO)
    try:
        exact_match = run(source, target, arguments.output or Path(f"quickstart-{source}-{target}"))
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from the last checkpoint.", file=sys.stderr)
        return 130
    if exact_match < LEAST_EXACT_MATCH:
        message = f"Error: exact match must be at least {LEAST_EXACT_MATCH} %, but is {exact_match:.1f} % instead."
        print(message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
