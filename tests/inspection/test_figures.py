"""Files are written by their ending, whole or not at all, in letters that the machine can draw."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib import font_manager
from matplotlib.figure import Figure

from hf_seq2seq.inspection import as_json, figures, write_view
from hf_seq2seq.inspection.figures import Lettering, draw_heat_map, new_figure


@dataclass(frozen=True)
class View:
    tokens: list[str]
    values: torch.Tensor


VIEW = View(["a", "狗"], torch.tensor([[0.5, 1.0], [0.25, 0.0]]))
PLAIN = {"tokens": ["a", "狗"], "values": [[0.5, 1.0], [0.25, 0.0]]}


@pytest.fixture(autouse=True)
def _no_font_is_remembered() -> Iterator[None]:
    figures._find_fonts.cache_clear()
    yield
    figures._find_fonts.cache_clear()


def draw(view: View) -> Figure:
    figure = new_figure(3, 3)
    figure.subplots().imshow(view.values)
    return figure


def test_the_ending_says_what_is_written(tmp_path: Path) -> None:
    for name in ("view.png", "view.svg", "view.JSON"):
        write_view(VIEW, draw, tmp_path / name)
    assert (tmp_path / "view.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "view.svg").read_text()
    assert json.loads((tmp_path / "view.JSON").read_text(encoding="utf-8")) == PLAIN
    assert json.loads(as_json([VIEW, VIEW])) == [PLAIN, PLAIN]
    assert "狗" in as_json(VIEW)


def test_numbers_that_json_does_not_have_are_null() -> None:
    view = View(["a"], torch.tensor([[torch.nan, torch.inf], [-torch.inf, 0.5]]))
    assert json.loads(as_json(view), parse_constant=pytest.fail)["values"] == [[None, None], [None, 0.5]]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("view.gif", r"`output` must be a file whose name ends in \.png, \.svg, \.json, but is .*view\.gif instead"),
        ("view", "`output` must be a file whose name ends in"),
        ("nowhere/view.png", "`output` must be a file in an existing folder, but is .*nowhere"),
    ],
)
def test_an_output_that_cannot_be_is_named(output: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_view(VIEW, draw, tmp_path / output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["view.png", "view.svg", "view.json"])
def test_a_full_disk_leaves_what_was_there_before(
    name: str, tmp_path: Path, little_room: Callable[[int], AbstractContextManager[None]]
) -> None:
    (tmp_path / name).write_text("of an earlier day")
    view = View(["a" * 9999], torch.zeros(2, 2))
    with little_room(1000), pytest.raises(OSError, match=rf"{name}` must be written whole, .*File too large"):
        write_view(view, draw, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "of an earlier day"


def test_a_picture_is_written_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("view.json")
    write_view(VIEW, draw, tmp_path / "link.json")
    assert json.loads((tmp_path / "view.json").read_text(encoding="utf-8")) == PLAIN
    assert (tmp_path / "link.json").is_symlink()
    (tmp_path / "lost.json").symlink_to("nowhere/view.json")
    with pytest.raises(ValueError, match="`output` must be a file in an existing folder"):
        write_view(VIEW, draw, tmp_path / "lost.json")


def test_a_picture_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail(view: View) -> Figure:
        figure = draw(view)
        figure.text(0, 0, "$\\unknown$")  # matplotlib finds out as it writes
        return figure

    with pytest.raises(ValueError, match="unknown"):
        write_view(VIEW, fail, tmp_path / "view.png")
    assert not list(tmp_path.iterdir())


def test_tokens_are_on_the_axes_and_never_formulas(tmp_path: Path) -> None:
    rows, columns = ["$\\unknown$", "b"], ["c", "␣d_e^", "f"]
    figure = new_figure(4, 4)
    axes = figure.subplots()
    allowed = torch.tensor([[True, False, True], [True, True, True]])
    draw_heat_map(axes, torch.ones(2, 3), rows, columns, Lettering(rows, columns), allowed=allowed)
    figure.savefig(tmp_path / "map.png")
    assert [label.get_text() for label in axes.get_yticklabels()] == rows
    assert [label.get_text() for label in axes.get_xticklabels()] == columns
    cells: Any = axes.images[0].get_array()
    assert (~cells.mask).tolist() == allowed.tolist()


def test_a_font_is_found_for_what_matplotlib_s_own_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    useless, useful = str(folder / "DejaVuSerif.ttf"), str(folder / "STIXGeneral.ttf")  # looked at in this order
    own, first, second = map(figures._characters_of, (str(folder / "DejaVuSans.ttf"), useless, useful))
    character = chr(min(second - own - first))
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [useful, useless])
    lettering = Lettering(["a", character])
    assert lettering.style["fontfamily"] == ["DejaVu Sans", "STIXGeneral"]
    assert lettering(character) == character


def test_characters_without_a_font_are_squares_and_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    with caplog.at_level(logging.WARNING):
        lettering = Lettering(["a 狗"], ["跑狗"])
    assert lettering("狗跑a") == "\u25a1\u25a1a"
    assert len(caplog.records) == 1
    assert "No font of this machine has the characters 狗 跑:" in caplog.text
    assert "fonts-noto-cjk" in caplog.text


def test_fonts_made_for_many_scripts_come_first() -> None:
    paths = ["/f/AAA.ttf", "/f/NotoSansCJK-Bold.ttc", "/f/wqy-microhei.ttc", "/f/NotoSansCJK-Regular.ttc"]
    assert sorted(paths, key=figures._by_preference) == [paths[3], paths[2], paths[0], paths[1]]


def test_tokens_of_one_character_stand_upright() -> None:
    axes = new_figure(4, 4).subplots()
    draw_heat_map(axes, torch.ones(1, 3), ["a"], ["b", "c", "</s>"], Lettering(["a", "b", "c", "</s>"]))
    assert [label.get_rotation() for label in axes.get_xticklabels()] == [0, 0, 90]
