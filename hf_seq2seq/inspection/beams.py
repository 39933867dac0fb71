"""The tree of a beam search: all hypotheses that it kept at some step, and which of them finished."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedTokenizerBase, StoppingCriteria

from hf_seq2seq.inference import SearchOptions
from hf_seq2seq.model.generation_seq2seq_transformer import GnmtPenalty
from hf_seq2seq.output_limits import end_ids, up_to_end
from hf_seq2seq.search_defaults import default_search

from .decoding import run_search
from .figures import BEST, FINISHED, OPEN, PALE, Lettering, in_our_style, new_figure, wrapped
from .tokens import check_texts, readable_ids
from .trace import Model


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Node:
    """A hypothesis: a last token, after the tokens of its parents.

    Attributes:
        parent: The place in `BeamTree.nodes` of the hypothesis without the last token; None for the start token.
        step: The number of its tokens, without the start token.
        token: Its last token.
        log_prob: The natural logarithm of the last token's probability, given the tokens before it.
        sum_log_prob: The natural logarithm of the probability of the whole hypothesis.
        score: The number that ranks finished hypotheses: `sum_log_prob` divided by `step` to the power of the length
            penalty; None if the hypothesis did not finish.
        rank: Its place among the hypotheses that the search returned, from 1; None if it was not returned.
    """

    parent: int | None
    step: int
    token: str
    log_prob: float
    sum_log_prob: float
    score: float | None = None
    rank: int | None = None


@dataclass(frozen=True)
class BeamTree:
    """The tree of a beam search.

    Attributes:
        source: The text.
        translation: The best hypothesis.
        beam_size: The number of hypotheses kept at each step.
        length_penalty: The exponent of the length by which a finished hypothesis' log-probability is divided.
        nodes: The hypotheses, each after its parent.
    """

    source: str
    translation: str
    beam_size: int
    length_penalty: float
    nodes: list[Node]

    def path(self, node: Node) -> list[Node]:
        """Returns the nodes from the start token to a node, both included."""
        path = [node]
        while path[0].parent is not None:
            path.insert(0, self.nodes[path[0].parent])
        return path

    @property
    def best(self) -> Node:
        """The node of the best hypothesis."""
        return next(node for node in self.nodes if node.rank == 1)


Ids = tuple[int, ...]


class _RunningBeams(LogitsProcessor):  # type: ignore[misc, unused-ignore]
    """Records at each step the unfinished hypotheses, and the log-probabilities of the tokens that may follow each.

    `generate` calls it after its own processors, which set the log-probabilities of banned tokens to minus infinity.
    """

    def __init__(self) -> None:
        self.following: list[dict[Ids, Tensor]] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        rows = zip(input_ids[:, 1:].tolist(), scores.cpu().clone(), strict=True)
        self.following.append({tuple(ids): log_probs for ids, log_probs in rows})
        return scores


class _FinishedBeams(StoppingCriteria):  # type: ignore[misc, unused-ignore]
    """Records the hypotheses that finish: the best `beam_size` candidates of a step, as far as they end.

    `generate` calls it with the candidates of each step, the best first. It never stops a search.
    """

    def __init__(self, beam_size: int, end_ids: set[int]) -> None:
        self.beam_size, self.end_ids = beam_size, end_ids
        self.found: list[Ids] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.BoolTensor:
        candidates = map(tuple, input_ids[: self.beam_size, 1:].tolist())
        self.found += [ids for ids in candidates if ids[-1] in self.end_ids]
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)  # type: ignore[return-value]


def beam_tree(
    model: Model,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
) -> BeamTree:
    """Translates a text by the beam search of `generate`, and returns the tree of that search.

    Args:
        model: The model. It is not changed, and other threads may use it at the same time.
        tokenizer: Its tokenizer.
        text: The text.
        beam_size: The number of hypotheses kept at each step, at least 2; by default that of the model's settings.
        length_penalty: As in `SearchOptions`; by default that of the model's settings.

    Raises:
        ValueError: If the text is blank, or an option is out of range.
    """
    check_texts("text", [text])
    usual = default_search(model.generation_config)
    beam_size = usual["num_beams"] if beam_size is None else beam_size
    if beam_size < 2:
        raise ValueError(
            f"`beam_size` must be at least 2 for a tree, but is {beam_size} instead. For greedy search look "
            "at its steps."
        )
    options: SearchOptions = {"beam_size": beam_size, "n_best": beam_size}
    if length_penalty is None:
        length_penalty = float(usual["length_penalty"])
    options["length_penalty"] = length_penalty
    ends = set(end_ids(model.generation_config))
    running, finished = _RunningBeams(), _FinishedBeams(beam_size, ends)
    # The output of `generate` tells only of the hypotheses that are left at the end (`sequences`, the best first). The
    # two recorders tell of those that were given up before.
    output = run_search(
        model,
        tokenizer,
        text,
        options,
        logits_processor=[running],
        stopping_criteria=[finished],
        output_scores=True,
    )
    returned = [tuple(up_to_end(ids, ends)) for ids in output.sequences[:, 1:].tolist()]
    is_gnmt = getattr(model.generation_config, "gnmt_penalty", False)
    exponent = GnmtPenalty(length_penalty) if is_gnmt else length_penalty
    nodes = _make_nodes(running.following, finished.found, returned, exponent)
    tokens = readable_ids(tokenizer, [ids[-1] for ids in nodes if ids], "target")
    named = [model.generation_config.decoder_start_token_id or 0]
    tokens = [*readable_ids(tokenizer, named, "target"), *tokens]
    return BeamTree(
        text,
        str(tokenizer.decode(list(returned[0]), skip_special_tokens=True)),
        beam_size,
        length_penalty,
        [Node(token=token, **fields) for token, fields in zip(tokens, nodes.values(), strict=True)],
    )


def _make_nodes(
    following: list[dict[Ids, Tensor]], finished: list[Ids], returned: list[Ids], exponent: float
) -> dict[Ids, dict[str, Any]]:
    """Returns for each hypothesis, parents first, the fields of its node, apart from its token.

    Args:
        following: For each step, the log-probabilities of the tokens that may follow each unfinished hypothesis.
        finished: The hypotheses that finished at some step.
        returned: The hypotheses that the search returned, the best first.
        exponent: What `length ** exponent` is the length penalty with.
    """
    log_probs = {ids: after for of_step in following for ids, after in of_step.items()}
    ends = {*finished, *returned}
    paths = sorted(dict.fromkeys([*log_probs, *finished, *returned]), key=len)
    nodes: dict[Ids, dict[str, Any]] = {(): {"parent": None, "step": 0, "log_prob": 0.0, "sum_log_prob": 0.0}}
    places: dict[Ids, int] = {(): 0}
    for ids in paths:
        if not ids:
            continue
        log_prob = float(log_probs[ids[:-1]][ids[-1]])
        places[ids] = len(nodes)
        fields: dict[str, Any] = {"parent": places[ids[:-1]], "step": len(ids), "log_prob": log_prob}
        fields["sum_log_prob"] = nodes[ids[:-1]]["sum_log_prob"] + log_prob
        if ids in ends:
            fields["score"] = fields["sum_log_prob"] / len(ids) ** exponent
            fields["rank"] = returned.index(ids) + 1 if ids in returned else None
        nodes[ids] = fields
    return nodes


@in_our_style
def draw_beam_tree(tree: BeamTree) -> "Figure":
    """Draws the tree of a beam search: a row for each step, the best hypothesis at the left, given up ones pale."""
    lettering = Lettering([node.token for node in tree.nodes])
    kept = _kept(tree)
    places = _places(tree, kept)
    widest = max(x for x, _ in places) + 1
    column = 0.085 * (max(len(node.token) for node in tree.nodes) + 8) + 0.3
    last = tree.nodes[-1].step
    width = max(widest * column + 0.8, 6.5)
    figure = new_figure(width, 0.36 * (last + 1) + 1.3)
    axes = figure.subplots()
    best = {id(node) for node in tree.path(tree.best)}
    for number, (node, place) in enumerate(zip(tree.nodes, places, strict=True)):
        is_best, is_finished = id(node) in best, node.score is not None
        colour = BEST if is_best else PALE if number not in kept else FINISHED if is_finished else OPEN
        if node.parent is not None:
            x, y = zip(places[node.parent], place, strict=True)
            axes.plot(x, y, color=colour, linewidth=2.2 if is_best else 0.9 if number in kept else 0.5, zorder=1)
        box: dict[str, Any] = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        if is_finished:
            box = {"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
        style = {"fontsize": 8.5, "color": colour, "ha": "center", "va": "center", **lettering.style}
        axes.text(*place, lettering(_describe(node)), bbox=box, **style)
    axes.set(xlim=(-0.6, widest - 0.4), ylim=(last + 0.6, -0.6), xticks=[], ylabel="step")
    axes.set_yticks(range(last + 1))
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    title = f"Beam search, {tree.beam_size} beams, length penalty {tree.length_penalty:g}"
    meaning = (
        "Beside a token stands the log-probability of all tokens so far. Box: finished, with its rank and its score: "
        f"the log-probability / number of tokens ^ {tree.length_penalty:g}. Green: the best. Pale: given up."
    )
    axes.set_title(f"{title}\n{wrapped(meaning, width)}")
    return figure


def _kept(tree: BeamTree) -> set[int]:
    """Returns the places of the nodes that a returned hypothesis goes through."""
    kept: set[int] = set()
    for number in reversed(range(len(tree.nodes))):
        node = tree.nodes[number]
        if (node.rank is not None or number in kept) and node.parent is not None:
            kept |= {number, node.parent}
    return kept


def _describe(node: Node) -> str:
    if node.parent is None:
        return node.token
    number = f"{node.sum_log_prob if node.score is None else node.score:.2f}".replace("-", "\N{MINUS SIGN}")
    return f"{node.token}  {f'#{node.rank}: ' if node.rank else ''}{number}"


def _places(tree: BeamTree, kept: set[int]) -> list[tuple[int, int]]:
    """Returns the column and the row of each node.

    A row is a step. In it the nodes that lead to the best hypothesis and to other returned ones come first, and
    children stand in the order of their parents, so that few lines cross.
    """
    best = {id(node) for node in tree.path(tree.best)}
    columns: list[int] = []
    for step in range(tree.nodes[-1].step + 1):
        ranked = []
        for number, node in enumerate(tree.nodes):
            if node.step == step:
                above = 0 if node.parent is None else columns[node.parent]
                ranked.append((id(node) not in best, number not in kept, above, -node.sum_log_prob, number))
        # Nodes are listed by their steps, so that these are the next ones.
        place = {order[-1]: column for column, order in enumerate(sorted(ranked))}
        columns += [place[number] for number in sorted(place)]
    return [(column, node.step) for column, node in zip(columns, tree.nodes, strict=True)]
