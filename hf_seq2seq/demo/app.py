"""Makes the demo page of a model, and the files of a Hugging Face Space that shows it."""

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
    """Returns a page that translates a text and shows how the model did it.

    The page shows the best translations with their scores, the alignment, the attention of any head, and the tree of
    the beam search. Several people can use it at once. What a person sees is kept in that person's session and nowhere
    else. `make_demo(...).launch()` serves the page. Nothing on it comes from another server, and no usage is reported.

    Args:
        model: The model. It is put in evaluation mode. Nothing else should use it at the same time.
        tokenizer: Its tokenizer.
        example: The first text in the text box.

    Raises:
        ImportError: If gradio, plotly or matplotlib is not installed.
    """
    check_libraries()
    from .page import make_page
    from .views import DemoTranslator

    return make_page(DemoTranslator(model, tokenizer), example)


def check_libraries() -> None:
    """Checks that the libraries that the page needs are installed.

    Raises:
        ImportError: If one is not.
    """
    try:
        for name in ("gradio", "matplotlib.figure", "plotly.graph_objects"):
            import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The demo needs the library {(error.name or 'gradio').split('.')[0]}, which is not installed: "
            "pip install 'hf-seq2seq[inspect]'"
        ) from error


def write_space(repo_id: str, folder: PathLike, *, example: str = EXAMPLE) -> list[str]:
    """Writes the files of a Hugging Face Space that shows a model's page.

    Args:
        repo_id: The model's name on the Hub, OWNER/NAME.
        folder: A new or empty folder.
        example: The first text in the text box.

    Returns:
        The names of the files.

    Raises:
        ValueError: If the name is not OWNER/NAME, or the folder is not empty.
        OSError: If the folder cannot be written.
        ImportError: If gradio, plotly or matplotlib is not installed: the Space gets the same version of gradio.
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
