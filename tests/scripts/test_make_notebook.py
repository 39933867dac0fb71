"""The notebook in the repository. Its cells are run anew by scripts/make_notebook.py, which .ci/run does."""

from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from scripts import make_notebook


@pytest.fixture(scope="module")
def notebook() -> NotebookNode:
    committed: NotebookNode = nbformat.read(make_notebook.NOTEBOOK, as_version=4)
    return committed


def without_outputs(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    return [(cell.id, cell.cell_type, cell.source) for cell in notebook.cells]


def test_the_notebook_of_the_repository_has_the_cells_of_its_source(notebook: NotebookNode) -> None:
    nbformat.validate(notebook)
    assert without_outputs(notebook) == without_outputs(make_notebook.make_notebook())


def test_each_cell_of_code_was_run_once_and_in_order(notebook: NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


def test_the_outputs_are_text_and_pictures_without_errors_and_paths_of_the_machine(notebook: NotebookNode) -> None:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.text for output in outputs if output.output_type == "stream"]
    pictures = [output.data["image/png"] for output in outputs if output.output_type == "execute_result"]
    assert {(output.output_type, output.get("name")) for output in outputs} == {
        ("stream", "stdout"),
        ("execute_result", None),
    }
    assert len(pictures) >= 12
    assert not any(sign in text for text in texts for sign in (str(Path.home()), "/tmp", "Warning", "%|"))
    assert make_notebook.NOTEBOOK.stat().st_size < 1.5e6


def test_a_cell_that_raises_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = new_notebook(cells=[new_code_cell("assert 1 + 1 == 3, 'wrong sum'")])
    monkeypatch.setattr(make_notebook, "make_notebook", lambda: failing)
    output = tmp_path / "notebook.ipynb"
    monkeypatch.setattr("sys.argv", ["make_notebook.py", "--output", str(output)])
    assert make_notebook.main() == 1
    assert "wrong sum" in capsys.readouterr().err
    assert not output.exists()
