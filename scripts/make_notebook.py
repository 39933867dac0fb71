"""Makes notebooks/attention_is_all_you_need.ipynb from the .py file beside it, and runs it.

    python scripts/make_notebook.py [--output FILE]

The .py file holds the cells in jupytext's percent format. The notebook is written with the outputs of its cells, if no
cell raises.
"""

import argparse
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode


FOLDER = Path(__file__).parent.parent / "notebooks"
SOURCE = FOLDER / "attention_is_all_you_need.py"
NOTEBOOK = SOURCE.with_suffix(".ipynb")
CELL_TIMEOUT = 600  # seconds; the training takes about one minute


def make_notebook() -> NotebookNode:
    """Returns the notebook without outputs. The same cells make the same notebook."""
    notebook: NotebookNode = jupytext.read(SOURCE, fmt="py:percent")
    notebook.cells = notebook.cells[1:]  # the first is the comment at the top of the file
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def run_notebook(notebook: NotebookNode) -> None:
    """Runs the cells in the notebook's own folder and keeps their outputs.

    Raises:
        CellExecutionError: If a cell raises. The message shows the cell and the line.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()


def main() -> int:
    """Runs the command, and returns its exit status."""
    parser = argparse.ArgumentParser(description="Make the notebook and run it.")
    parser.add_argument("--output", type=Path, default=NOTEBOOK, help="the notebook (default: %(default)s)")
    arguments = parser.parse_args()
    notebook = make_notebook()
    try:
        run_notebook(notebook)
    except CellExecutionError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    nbformat.write(notebook, arguments.output)
    print(f"Written: {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
