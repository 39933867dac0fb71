"""A tokenizer for each side, in one object: where source and target share neither alphabet nor pieces."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase

from .tokenization import Seq2SeqTransformerTokenizer


# What has to be the same token with the same id on both sides, since a model has one of each.
_SHARED = ("pad_token", "bos_token", "eos_token", "unk_token")


class Seq2SeqTransformerTokenizerPair(Seq2SeqTransformerTokenizer):
    """Encodes sources by one tokenizer, and encodes and decodes targets by another.

    As with other tokenizers of transformers that have two vocabularies, `tokenizer(texts)` encodes sources,
    `tokenizer(text_target=texts)` targets, ids are decoded as those of targets, and `get_vocab()` is the source's.
    `source_tokenizer` and `target_tokenizer` are tokenizers of one side.

    `AutoTokenizer` finds this class by its name once `hf_seq2seq` is imported. Without it, loading fails: no class of
    transformers does the same.
    """

    vocab_files_names = {  # noqa: RUF012  # as in transformers
        "source_file": "source_tokenizer.json",
        "target_file": "target_tokenizer.json",
    }
    source_tokenizer: Any = None
    target_tokenizer: Any = None

    def __init__(self, source_file: str, target_file: str, **options: Any) -> None:
        backends = [
            options.pop(f"{side}_object", None) or Tokenizer.from_file(file)
            for side, file in (("source", source_file), ("target", target_file))
        ]
        options.pop("tokenizer_file", None)
        super().__init__(tokenizer_object=backends[0], **options)
        sides = [
            Seq2SeqTransformerTokenizer(
                tokenizer_object=backend,
                split_special_tokens=self.split_special_tokens,
                clean_up_tokenization_spaces=False,
                **self.special_tokens_map,
            )
            for backend in backends
        ]
        for one in sides:
            one._extra_special_tokens = list(self._extra_special_tokens)
        self.source_tokenizer, self.target_tokenizer = sides
        self._switch_to_input_mode()

    def _switch_to_input_mode(self) -> None:
        self._tokenizer = self.source_tokenizer.backend_tokenizer

    def _switch_to_target_mode(self) -> None:
        self._tokenizer = self.target_tokenizer.backend_tokenizer

    def _add_tokens(self, new_tokens: Sequence[str | AddedToken], special_tokens: bool = False) -> int:
        if self.target_tokenizer is None:  # while it is made
            return super()._add_tokens(new_tokens, special_tokens)
        self.target_tokenizer._add_tokens(new_tokens, special_tokens)
        number = int(self.source_tokenizer._add_tokens(new_tokens, special_tokens))
        self._extra_special_tokens = list(self.source_tokenizer._extra_special_tokens)
        return number

    def _decode(self, *arguments: Any, **options: Any) -> str:
        return str(self.target_tokenizer._decode(*arguments, **options))

    def convert_ids_to_tokens(self, ids: int | list[int], skip_special_tokens: bool = False) -> Any:
        """Returns the target tokens of ids."""
        return self.target_tokenizer.convert_ids_to_tokens(ids, skip_special_tokens)

    def _save_pretrained(
        self, save_directory: str | os.PathLike[str], file_names: tuple[str, ...], *options: Any, **more: Any
    ) -> tuple[str, ...]:
        for name, one in (("source_file", self.source_tokenizer), ("target_file", self.target_tokenizer)):
            file = str(Path(save_directory) / self.vocab_files_names[name])
            one.backend_tokenizer.save(file)
            file_names += (file,)
        return file_names


def pair_tokenizers(
    source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase
) -> Seq2SeqTransformerTokenizerPair:
    """Returns the tokenizer of a model whose sides have one each.

    Raises:
        ValueError: If one is written in Python, or padding, start, end or unknown token differ.
    """
    sides: list[tuple[str, Any]] = [("source", source), ("target", target)]
    for side, one in sides:
        if not one.is_fast or isinstance(one, Seq2SeqTransformerTokenizerPair):
            raise ValueError(
                f"`{side}_tokenizer` must be one tokenizer with a tokenizer.json, but is a {type(one).__name__} "
                "instead. Take another, or let both be trained."
            )
    for name in _SHARED:
        (_, wanted), (_, found) = ((side, (getattr(one, name), getattr(one, f"{name}_id"))) for side, one in sides)
        if wanted != found:
            raise ValueError(
                f"The `{name}` of both tokenizers must be one token with one id, but is {wanted[0]!r} with the id "
                f"{wanted[1]} of the source and {found[0]!r} with {found[1]} of the target. Let both be trained by "
                "`hf-seq2seq`, or make SentencePiece models with the same `--pad_id`, `--bos_id`, `--eos_id`, "
                "`--unk_id`."
            )
    controls = {name: getattr(source, name) for name in _SHARED if getattr(source, name) is not None}
    backends = {f"{side}_object": one.backend_tokenizer for side, one in sides}
    return Seq2SeqTransformerTokenizerPair(
        "", "", split_special_tokens=True, clean_up_tokenization_spaces=False, **controls, **backends
    )
