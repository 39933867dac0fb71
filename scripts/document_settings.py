"""Shows the settings of `train` in the API reference: an extension of griffe, which reads the docstrings for it.

`hf_seq2seq/training/arguments.py` gives each setting its help text and its default in one call. In a signature such
calls are unreadable, so the reference shows the defaults there, and the help texts as documented arguments.
"""

import dataclasses
import inspect
from importlib import import_module
from typing import Any

import griffe


class SettingsExtension(griffe.Extension):
    """Documents the dataclasses of settings."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Is called by griffe for each class that it has read."""
        if cls.module.path != "hf_seq2seq.training.arguments" or cls.docstring is None:
            return
        lines = []
        for field in dataclasses.fields(getattr(import_module(cls.module.path), cls.name)):
            attribute = cls.members.get(field.name)
            if isinstance(attribute, griffe.Attribute) and "help" in field.metadata:
                attribute.value = repr(field.default)
                text = field.metadata["help"].replace("<", "&lt;")  # the help is plain text, docstrings are Markdown
                lines.append(f"    {field.name}: {text}")
        documented = inspect.cleandoc(cls.docstring.value)
        new = [line for line in lines if f"\n{line.split(':')[0]}:" not in documented]
        cls.docstring.value = "\n".join([documented, "", "Args:", *new])
