from .attention import (
    AttentionMaps,
    SoftAlignment,
    attention_maps,
    draw_attention_maps,
    draw_soft_alignment,
    soft_alignment,
)
from .beams import BeamTree, Node, beam_tree, draw_beam_tree
from .decoding import GreedyDecode, Step, draw_greedy_steps, greedy_steps
from .embeddings import Neighbours, Projection, draw_neighbours, draw_projection, nearest_neighbours, project_tokens
from .figures import as_json, write_view
from .former_names import make_demo, write_space
from .head_scores import HeadScores, draw_head_scores, head_scores
from .masks import Masks, attention_masks, draw_masks
from .positions import Positions, draw_positions, position_vectors
from .tokens import readable_tokens
from .trace import Attention, Trace, trace
from .training_curves import Curve, Panel, draw_training_curves, training_curves

__all__ = [
    "Attention",
    "AttentionMaps",
    "BeamTree",
    "Curve",
    "GreedyDecode",
    "HeadScores",
    "Masks",
    "Neighbours",
    "Node",
    "Panel",
    "Positions",
    "Projection",
    "SoftAlignment",
    "Step",
    "Trace",
    "as_json",
    "attention_maps",
    "attention_masks",
    "beam_tree",
    "draw_attention_maps",
    "draw_beam_tree",
    "draw_greedy_steps",
    "draw_head_scores",
    "draw_masks",
    "draw_neighbours",
    "draw_positions",
    "draw_projection",
    "draw_soft_alignment",
    "draw_training_curves",
    "greedy_steps",
    "head_scores",
    "make_demo",
    "nearest_neighbours",
    "position_vectors",
    "project_tokens",
    "readable_tokens",
    "soft_alignment",
    "trace",
    "training_curves",
    "write_space",
    "write_view",
]
