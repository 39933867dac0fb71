"""The tokenizer of a run: loaded, or trained on the training pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_seq2seq.loading import load_tokenizer
from hf_seq2seq.token_lookup import check_encodes_targets
from hf_seq2seq.tokenization import add_extra_tokens, train_tokenizer

from .arguments import DEFAULT_VOCAB_SIZE
from .settings import Settings


MAX_PAIRS = 1_000_000  # of a stream: a tokenizer learns no more from more of them


def prepare_tokenizer(settings: Settings, pairs: Any, checkpoint: str | None) -> PreTrainedTokenizerBase:
    """Loads or trains the tokenizer of a run.

    At the start of a run it is saved in `output_dir`, so that it is there however the run ends.

    Args:
        settings: The settings of the run.
        pairs: The training pairs of texts.
        checkpoint: The checkpoint that the run goes on from, if there is one.

    Raises:
        OSError: If the folder of a tokenizer is missing.
        ValueError: If a model could not learn from what the tokenizer encodes.
    """
    model_args, training_args = settings.model, settings.training
    output_dir = str(training_args.output_dir)
    is_saved = checkpoint is None and not training_args.dry_run
    path = model_args.tokenizer or model_args.model_name_or_path
    if checkpoint is not None:  # one in shards may have no tokenizer
        path = checkpoint if (Path(checkpoint) / "tokenizer_config.json").exists() else output_dir
    if path is None and is_saved and training_args.local_process_index > 0:
        path = output_dir  # where the first process has saved it
    if path is None:
        tokenizer = _train(settings, pairs)
    else:
        tokenizer = load_tokenizer(path)
        add_extra_tokens(tokenizer, settings.extra_tokens)
    if model_args.model_name_or_path is None:
        tokenizer.model_max_length = settings.data.max_length
    check_tokenizer(tokenizer, str(path))
    if is_saved and training_args.local_process_index == 0:
        tokenizer.save_pretrained(output_dir)
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    """Checks that a model can learn from what a tokenizer encodes.

    Args:
        tokenizer: The tokenizer.
        path: Where it comes from, for messages.

    Raises:
        ValueError: If it encodes only sources, or does not end each text with its end-of-sentence token.
    """
    check_encodes_targets(tokenizer)
    for side in ("text", "text_target"):
        if tokenizer(**{side: "a"})["input_ids"][-1:] != [tokenizer.eos_token_id]:
            raise ValueError(
                f"The tokenizer of `{path}` must end each text with its `eos_token` ({tokenizer.eos_token!r}), but "
                "does not, so that a model could not learn where to stop. Use another, or let one be trained."
            )


def _train(settings: Settings, pairs: Any) -> PreTrainedTokenizerBase:
    model_args = settings.model
    is_stream = not hasattr(pairs, "__len__")
    return train_tokenizer(
        _texts(pairs.take(MAX_PAIRS) if is_stream else pairs),
        vocab_size=model_args.vocab_size or DEFAULT_VOCAB_SIZE,
        kind=model_args.tokenizer_kind or "bpe",
        extra_tokens=settings.extra_tokens,
    )


def _texts(pairs: Any) -> Iterator[str]:
    for batch in pairs.iter(batch_size=1000):
        yield from batch["source"]
        yield from batch["target"]
