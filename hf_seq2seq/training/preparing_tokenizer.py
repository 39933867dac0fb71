"""The tokenizer of a run: loaded, or trained on the training pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_seq2seq.loading import load_tokenizer
from hf_seq2seq.sentencepiece_tokenizer import load_sentencepiece
from hf_seq2seq.token_lookup import check_encodes_targets
from hf_seq2seq.tokenization import add_extra_tokens, train_tokenizer
from hf_seq2seq.tokenizer_pair import pair_tokenizers

from .arguments import DEFAULT_VOCAB_SIZE
from .settings import Settings


_SENTENCEPIECE_SUFFIXES = (".model", ".spm")
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
    paths = [model_args.source_tokenizer, model_args.target_tokenizer]
    if checkpoint is not None:  # one in shards may have no tokenizer
        path = checkpoint if (Path(checkpoint) / "tokenizer_config.json").exists() else output_dir
    if path is None and is_saved and training_args.local_process_index > 0:
        path = output_dir  # where the first process has saved it
    if path is not None:
        tokenizer = _load(path)
    elif None not in paths:
        tokenizer, path = pair_tokenizers(*(_load(str(each)) for each in paths)), " and ".join(map(str, paths))
    else:
        tokenizer = _train(settings, pairs)
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


def _load(path: str) -> PreTrainedTokenizerBase:
    """Loads a tokenizer from a folder or the Hub, or from a SentencePiece model, alone or in a folder of its own."""
    model = _sentencepiece_model(Path(path))
    return load_tokenizer(path) if model is None else load_sentencepiece(model)


def _sentencepiece_model(path: Path) -> Path | None:
    """Returns the SentencePiece model that a path names, or None where it names something else."""
    if path.is_file() and path.suffix in _SENTENCEPIECE_SUFFIXES:
        return path
    if not path.is_dir() or (path / "tokenizer_config.json").exists() or (path / "tokenizer.json").exists():
        return None
    models = sorted(file for file in path.iterdir() if file.suffix in _SENTENCEPIECE_SUFFIXES)
    if len(models) > 1:
        raise ValueError(
            f"`{path}` must hold one tokenizer, but holds the SentencePiece models {models[0].name} and "
            f"{models[1].name}. Name the file."
        )
    return models[0] if models else None


def _train(settings: Settings, pairs: Any) -> PreTrainedTokenizerBase:
    """Returns a tokenizer of both sides or, where the settings give the target a vocabulary size, one for each."""
    model_args = settings.model
    sizes: dict[tuple[str, ...], int | None] = {("source", "target"): model_args.vocab_size}
    if model_args.decoder_vocab_size is not None:
        sizes = {("source",): model_args.vocab_size, ("target",): model_args.decoder_vocab_size}
    is_stream = not hasattr(pairs, "__len__")
    trained = [
        train_tokenizer(
            _texts(pairs.take(MAX_PAIRS) if is_stream else pairs, sides),
            vocab_size=size or DEFAULT_VOCAB_SIZE,
            kind=model_args.tokenizer_kind or "bpe",
            extra_tokens=settings.extra_tokens,
        )
        for sides, size in sizes.items()
    ]
    return trained[0] if len(trained) == 1 else pair_tokenizers(*trained)


def _texts(pairs: Any, sides: tuple[str, ...]) -> Iterator[str]:
    for batch in pairs.iter(batch_size=1000):
        for side in sides:
            yield from batch[side]
