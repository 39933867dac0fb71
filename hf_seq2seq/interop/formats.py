"""Foreign formats, found by the names of the files in this folder.

A format is one file. It may define:

- `import_model(path_or_repo)`, which returns a model of this package and its tokenizer, or None for one that has none:
  the verb `import` then offers the format.
- `export_model(model, tokenizer, folder)`, which writes a new folder and returns a sentence on how to use it: the verb
  `export` then offers the format. Of the verb's options it gets those that it has a parameter for, such as
  `quantization`.
- `from_NAME` and `to_NAME`, after the name of the file: `hf_seq2seq.interop` then has them too.

The formats are found by reading the files, not by importing them: each needs libraries that the others do not.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def format_names(function: str) -> list[str]:
    """Returns the names of the formats whose file defines a function, such as "import_model"."""
    return sorted(path.stem for path in _files() if _defines(path, function))


def format_function(name: str, function: str) -> Callable[..., Any]:
    """Returns a function of a format.

    Raises:
        ImportError: If a library that the format needs is not installed.
    """
    found: Callable[..., Any] = getattr(import_module(f"{__package__}.{name}"), function)
    return found


def converters() -> dict[str, list[str]]:
    """Returns the functions `from_NAME` and `to_NAME` of each format that defines one."""
    found = {
        path.stem: [name for name in (f"from_{path.stem}", f"to_{path.stem}") if _defines(path, name)]
        for path in _files()
    }
    return {name: functions for name, functions in found.items() if functions}


def _defines(path: Path, function: str) -> bool:
    return re.search(rf"^def {function}\(", path.read_text("utf-8"), re.M) is not None


def _files() -> list[Path]:
    return list(Path(__file__).parent.glob("*.py"))
