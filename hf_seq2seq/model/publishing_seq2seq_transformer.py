# Copyright 2026 The hf_seq2seq authors. Licensed under the Apache License, Version 2.0.
"""How a model is saved and pushed with the code that loads it.

A folder that carries the code loads where hf_seq2seq is not installed, with `trust_remote_code=True`. This file is a
part of that code.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import ModelCard, file_exists
from transformers.modeling_utils import PreTrainedModel

from .generation_seq2seq_transformer import without_unused_settings


# Where the Auto classes find the code in a folder that carries it. `register_for_auto_class` would name one of them.
_AUTO_MAP = {
    "AutoConfig": "configuration_seq2seq_transformer.Seq2SeqTransformerConfig",
    "AutoModel": "modeling_seq2seq_transformer.Seq2SeqTransformerModel",
    "AutoModelForSeq2SeqLM": "modeling_seq2seq_transformer.Seq2SeqTransformerForConditionalGeneration",
}


class Seq2SeqTransformerPublishing(PreTrainedModel):
    """A model of transformers that is published with its code and a card.

    Attributes:
        carries_code: Whether `save_pretrained` saves the code too. What is pushed to the Hub carries it in any case.
        make_card: A method that returns the text of a card, from the name of the repository and tags. The package
            sets it, since this file travels without the package.
    """

    carries_code: bool = False
    make_card: ClassVar[Any] = None

    @contextmanager
    def carrying_code(self) -> Iterator[None]:
        """Makes each save within the `with` statement carry the code."""
        before, self.carries_code = self.carries_code, True
        try:
            yield
        finally:
            self.carries_code = before

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        state_dict: dict[str, Any] | None = None,
        push_to_hub: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Saves as `PreTrainedModel` does, and the code too where it was loaded from such a folder or is asked for.

        Args:
            save_directory: The folder.
            is_main_process: Whether this process writes.
            state_dict: The weights, where they are not the model's own.
            push_to_hub: Whether what is saved goes to the Hub too.
            *args: As for `PreTrainedModel.save_pretrained`.
            **kwargs: As for `PreTrainedModel.save_pretrained`.

        Raises:
            ValueError: If the code is to go along, but is not here: that of a subclass which is not registered.
        """
        carries_code = self.carries_code or push_to_hub or self.is_remote_code()
        if carries_code and not _is_ours(type(self)) and not self.is_remote_code():
            raise ValueError(
                "A model that carries its code must be of a class of hf_seq2seq, or registered, but "
                f"{type(self).__name__} is neither. Call its `register_for_auto_class`."
            )
        settings = vars(self.config)
        before = settings.pop("auto_map", None)
        generation_config = getattr(self, "generation_config", None)  # of models that generate
        if carries_code:
            settings["auto_map"] = dict(_AUTO_MAP)
        try:
            if generation_config is not None:
                self.generation_config = without_unused_settings(generation_config)
            super().save_pretrained(save_directory, is_main_process, state_dict, push_to_hub, *args, **kwargs)
        finally:
            if generation_config is not None:
                self.generation_config = generation_config
            settings.pop("auto_map", None)
            if before is not None:
                settings["auto_map"] = before
        if carries_code and is_main_process:
            _copy_code(save_directory)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # its base has more names
        """Uploads as `PreTrainedModel` does, with the code, and with a card where the repository has none."""
        with self.carrying_code():
            return super().push_to_hub(*args, **kwargs)

    def _upload_modified_files(  # type: ignore[override]  # as above
        self, working_dir: str | os.PathLike[str], repo_id: str, files_timestamps: dict[str, float], **kwargs: Any
    ) -> Any:
        """Adds the code, and puts the package's card in the place of an empty one, before what was saved is sent."""
        _copy_code(working_dir)
        path = Path(working_dir, "README.md")
        can_be_ours = self.make_card is not None and path.name not in files_timestamps
        if can_be_ours and not file_exists(repo_id, path.name, token=kwargs.get("token")):
            tags = ModelCard.load(path).data.get("tags", [])
            path.write_text(self.make_card(repo_id, tags), encoding="utf-8")
        return super()._upload_modified_files(working_dir, repo_id, files_timestamps, **kwargs)


def _code() -> list[Path]:
    """Returns the files that travel: all that are named as this one is, and lie beside it."""
    return sorted(Path(__file__).parent.glob("*_seq2seq_transformer.py"))


def _is_ours(model_class: type) -> bool:
    """Returns whether a class is defined in one of those files."""
    module = model_class.__module__
    return module.rpartition(".")[0] == __name__.rpartition(".")[0] and module.endswith("_seq2seq_transformer")


def _copy_code(folder: str | os.PathLike[str]) -> None:
    for path in _code():
        shutil.copyfile(path, Path(folder, path.name))
