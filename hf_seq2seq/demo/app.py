"""A page on which a model translates and shows how it does, and what a Hugging Face Space needs to show that page."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.atomic_writing import PathLike, new_folder
from hf_seq2seq.inspection.trace import Model


if TYPE_CHECKING:
    import gradio


EXAMPLE = "A dog runs in the snow."

_README = """\
---
title: Inside {name}
emoji: 🔎
colorFrom: green
colorTo: gray
sdk: gradio
sdk_version: {gradio_version}
app_file: app.py
models:
- {repo_id}
---

[{repo_id}](https://huggingface.co/{repo_id}) translates, and shows how it does: its best translations, what each token
attends to, and the tree of its beam search. `hf-seq2seq demo {repo_id} --space DIR` wrote these files.
"""

_APP = """\
from hf_seq2seq import Translator
from hf_seq2seq.demo import make_demo


translator = Translator.from_pretrained({repo_id!r})
make_demo(translator.model, translator.tokenizer, example={example!r}).launch()
"""

_REQUIREMENTS = "hf-seq2seq[inspect]\n"


def make_demo(model: Model, tokenizer: PreTrainedTokenizerBase, *, example: str = EXAMPLE) -> "gradio.Blocks":
    """Make a page that translates what is typed into it and shows what the model did.

    It shows the best translations with their scores, the alignment, any head's attention, and the tree of the beam
    search. Several people can use it at once: what a person sees is kept in that person's session and nowhere else.
    `make_demo(...).launch()` serves it; nothing on the page comes from another server, and nothing is reported.

    Args:
        model: The model; it is put in evaluation mode. Nothing else should use it meanwhile.
        tokenizer: Its tokenizer.
        example: What stands in the text box at first.

    Raises:
        ImportError: If gradio, plotly or matplotlib is not installed.
    """
    check_libraries()
    from .page import make_page
    from .views import DemoTranslator

    return make_page(DemoTranslator(model, tokenizer), example)


def check_libraries() -> None:
    """Raises ImportError if a library that the page needs is not installed."""
    try:
        for name in ("gradio", "matplotlib.figure", "plotly.graph_objects"):
            import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The demo needs the library {(error.name or 'gradio').split('.')[0]}, which is not installed: "
            "pip install 'hf-seq2seq[inspect]'"
        ) from error


def write_space(repo_id: str, folder: PathLike, *, example: str = EXAMPLE) -> list[str]:
    """Write the files of a Hugging Face Space that shows a model's page.

    Args:
        repo_id: The model's name on the Hub, OWNER/NAME.
        folder: A new or empty folder.
        example: What stands in the page's text box at first.

    Returns:
        The names of the files.

    Raises:
        ValueError: If the name is none that the Hub knows, or the folder is not empty, **or**
        OSError: If the folder cannot be written.
        ImportError: As `make_demo` does: the Space gets the installed version of gradio.
    """
    _check_name(repo_id)
    check_libraries()
    import gradio

    fields = {
        "repo_id": repo_id,
        "name": repo_id.split("/")[1],
        "example": example,
        "gradio_version": gradio.__version__,
    }
    files = {
        "README.md": _README.format(**fields),
        "app.py": _APP.format(**fields),
        "requirements.txt": _REQUIREMENTS,
    }
    with new_folder(folder) as unfinished:
        for name, text in files.items():
            (unfinished / name).write_text(text, encoding="utf-8")
    return sorted(files)


def _check_name(repo_id: str) -> None:
    way_out = "Upload it with `hf-seq2seq push` first, and give the name that it has there."
    if Path(repo_id).exists():
        raise ValueError(
            f"`MODEL` must be a name on the Hub for a Space, but is the folder {repo_id} instead. {way_out}"
        )
    try:
        validate_repo_id(repo_id)
    except HFValidationError:
        is_name = False
    else:
        is_name = repo_id.count("/") == 1
    if not is_name:
        raise ValueError(f"`MODEL` must be OWNER/NAME on the Hub for a Space, but is {repo_id!r} instead. {way_out}")
