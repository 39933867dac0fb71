"""Each picture holds what it did when somebody last looked at it.

Where a picture is changed on purpose, look at it, delete its file in pictures/ and run the test once: it writes the
file anew, and fails this once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from inspection.picture_parts import describe

from hf_seq2seq.inspection import (
    AttentionMaps,
    BeamTree,
    Curve,
    GreedyDecode,
    HeadScores,
    Masks,
    Neighbours,
    Node,
    Panel,
    Positions,
    Projection,
    SoftAlignment,
    Step,
    draw_attention_maps,
    draw_beam_tree,
    draw_greedy_steps,
    draw_head_scores,
    draw_masks,
    draw_neighbours,
    draw_positions,
    draw_projection,
    draw_soft_alignment,
    draw_training_curves,
)


FOLDER = Path(__file__).with_name("pictures")
READ, WRITTEN, SOURCE = ["<s>", "Ein", "狗"], ["Ein", "狗", "</s>"], ["我", "一条", "dog", "</s>"]
CAUSAL = torch.ones(3, 3).tril().bool()
SELF = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.2, 0.3]])
CROSS = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.0, 0.0, 0.1, 0.9]])
PRODUCTS = torch.tensor([[4.0, -2.0, 1.0], [0.5, 3.0, -6.0], [1.0, 0.0, 0.5]])
VECTORS = torch.linspace(-1, 1, 3 * 12).reshape(3, 12).double()

PICTURES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "attention_of_a_head": (
        draw_attention_maps,
        AttentionMaps("decoder", 2, 3, 1, 4, READ, READ, CAUSAL, SELF[None], WRITTEN),
    ),
    "attention_of_all_heads": (
        draw_attention_maps,
        AttentionMaps("cross", 1, 3, "all", 2, READ, SOURCE, CROSS >= 0, torch.stack([CROSS, CROSS.flip(0)]), WRITTEN),
    ),
    "attention_of_the_encoder": (
        draw_attention_maps,
        AttentionMaps("encoder", 1, 1, "mean", 2, READ, READ, CAUSAL | True, SELF[None]),
    ),
    "alignment": (draw_soft_alignment, SoftAlignment("Ein 狗", SOURCE, WRITTEN, CROSS, [0, 2, 3])),
    "scores_with_a_mask": (
        draw_head_scores,
        HeadScores("decoder", 2, 1, 16, READ, READ, CAUSAL, PRODUCTS, PRODUCTS / 4, SELF, 3, 4, WRITTEN),
    ),
    "scores_without_a_mask": (
        draw_head_scores,
        HeadScores(*("cross", 2, 1, 16, READ, SOURCE, CROSS >= 0, CROSS * 8 - 4, CROSS * 2 - 1, CROSS, 3, 4, WRITTEN)),
    ),
    "masks": (
        draw_masks,
        [
            Masks(SOURCE, READ, torch.ones(4, 4).bool(), CAUSAL, torch.ones(3, 4).bool(), "我一条 dog"),
            Masks(SOURCE, READ, torch.ones(4, 4).triu().bool(), CAUSAL, CROSS > 0.1, "a dog"),
        ],
    ),
    "sinusoidal_positions": (draw_positions, Positions("sinusoidal", "source", VECTORS, VECTORS @ VECTORS.T)),
    "learned_positions": (draw_positions, Positions("learned", "target", VECTORS, VECTORS @ VECTORS.T)),
    "neighbours": (draw_neighbours, [Neighbours("dog", "source", ["cat", "␣狗"], [0.75, 0.5])]),
    "projection": (
        draw_projection,
        Projection("target", ["a", "b", "狗"], torch.tensor([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]), [0.75, 0.25]),
    ),
    "steps": (
        draw_greedy_steps,
        GreedyDecode(
            "dog", "狗", [Step("狗", 0.9, ["狗", "cat"], [0.9, 0.1]), Step("</s>", 0.6, ["</s>", "a"], [0.6, 0.0])]
        ),
    ),
    "beams": (
        draw_beam_tree,
        BeamTree(
            *("dog", "狗", 2, 0.6),
            [
                Node(None, 0, "<s>", 0.0, 0.0),
                Node(0, 1, "cat", -2.0, -2.0),
                Node(0, 1, "狗", -0.5, -0.5),
                Node(2, 2, "</s>", -0.1, -0.6, -0.4, 1),
                Node(1, 2, "s", -3.0, -5.0),
                Node(2, 2, "a", -1.0, -1.5),
                Node(5, 3, "</s>", -0.5, -2.0, -1.0, 2),
            ],
        ),
    ),
    "training": (
        draw_training_curves,
        [
            Panel(
                "loss for each target token",
                [
                    Curve("training, with label smoothing", [1, 2], [3.0, 2.0]),
                    Curve("validation", [2], [1.5]),
                    Curve("the least that it can be", [1, 2], [1.2, 1.2]),
                ],
            ),
            Panel("learning rate", [Curve("learning rate", [1, 2], [0.5, 1.0])]),
        ],
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_the_one_that_was_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fonts that a machine has don't matter here.
    monkeypatch.setattr(
        "hf_seq2seq.inspection.figures._find_fonts", lambda characters: (("DejaVu Sans",), frozenset())
    )
    draw, view = PICTURES[name]
    drawn = describe(draw(view))
    stored = FOLDER / f"{name}.txt"
    if not stored.exists():
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(drawn, encoding="utf-8")
        pytest.fail(f"{stored.name} was missing and is written now: look at the picture, and at the file.")
    assert drawn == stored.read_text(encoding="utf-8")


def test_a_caller_s_style_is_left_alone_and_has_no_effect() -> None:
    import matplotlib

    draw, view = PICTURES["attention_of_a_head"]
    expected = draw(view).axes[0].get_yticklabels()[0].get_fontsize()
    with matplotlib.rc_context({"ytick.labelsize": 30, "axes.grid": True}):
        assert draw(view).axes[0].get_yticklabels()[0].get_fontsize() == expected
        assert matplotlib.rcParams["ytick.labelsize"] == 30
