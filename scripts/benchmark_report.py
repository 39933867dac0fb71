"""Writes what benchmark_training.py measured as a Markdown table and as a figure."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark_models import OURS, PEER
from benchmark_run import PAIRS


Row = tuple[str, str, str, str]

MEMORY_VOCABULARY, MEMORY_SHAPE = 32_000, (64, 64)  # 4,096 target tokens
PEER_RANDOM, PEER_GROUPED = f"{PEER}, random batches of {PAIRS}", f"{PEER}, group_by_length, {PAIRS}"
OURS_RANDOM, OURS_BUDGET = f"{OURS}, random batches of {PAIRS}", f"{OURS}, tokens_per_batch"


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Writes the median with the least and the greatest value."""
    middle, least, greatest = (format(f(values), form) for f in (statistics.median, min, max))
    return middle if least == greatest else f"{middle} ({least}-{greatest})"


def ratios(found: dict[str, Any], figure: str, above: str, below: str) -> list[float]:
    """Returns above / below for each repetition of two things measured in turn."""
    return [a / b for a, b in zip(found[above][figure], found[below][figure], strict=True)]


def table(results: dict[str, Any]) -> str:
    """Returns the Markdown table of what was measured."""
    rows = [("measure", "peer", "ours", "ratio"), ("---", "---", "---", "---")]
    writers: dict[str, Callable[[Any], Iterator[Row]]] = {
        "throughput": throughput_rows,
        "padding": padding_rows,
        "memory": memory_rows,
        "growth": growth_rows,
        "processes": process_rows,
    }
    for part, found in results.items():
        rows += writers[part](found)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def throughput_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of the real target tokens a second."""
    speeds = {name: {"speed": [run["tokens_per_second"] for run in runs]} for name, runs in found.items()}
    for ours, peer in ((OURS_BUDGET, PEER_RANDOM), (OURS_BUDGET, PEER_GROUPED), (OURS_RANDOM, PEER_RANDOM)):
        yield (
            f"training, real target tokens a second: {ours}; {peer}",
            spread(speeds[peer]["speed"]),
            spread(speeds[ours]["speed"]),
            spread(ratios(speeds, "speed", ours, peer), ".2f"),
        )


def padding_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of the shares of real tokens."""
    for peer in (PEER_RANDOM, PEER_GROUPED):
        for what, share in (("both sides", "share"), ("target", "target_share")):
            peers, ours = found[peer][share], found[OURS_BUDGET][share]
            yield f"real tokens in a batch, {what}; {peer}", f"{peers:.1%}", f"{ours:.1%}", f"{ours / peers:.2f}"


def memory_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the row of the peak memory."""
    rows, length = MEMORY_SHAPE
    name = f"peak memory of a training step, MiB, V {MEMORY_VOCABULARY:,}, {rows * length:,} target tokens"
    peer, ours = found[PEER] / 2**20, found[OURS] / 2**20
    yield name, f"{peer:,.0f}", f"{ours:,.0f}", f"{ours / peer:.2f}"


def growth_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of time and memory at the ends of either axis."""
    for axis, cases in found.items():
        for value, case in [*cases.items()][:: max(1, len(cases) - 1)]:
            for figure, unit, scale in (("seconds", "ms", 1e-3), ("memory", "MiB", 2**20)):
                peer, ours = ([x / scale for x in case[kind][figure]] for kind in (PEER, OURS))
                name = f"{'time' if unit == 'ms' else 'memory'} of a step, {unit}, {axis} {value:,}"
                yield name, spread(peer), spread(ours), spread(ratios(case, figure, OURS, PEER), ".2f")


def process_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the row of two processes, or why there is none."""
    name = "ours, tokens a second of two processes with a thread each (peer: of one)"
    if "skipped" in found:
        yield name, "", "", f"skipped: {found['skipped']}"
        return
    speedups = [two / one for one, two in zip(found["1"], found["2"], strict=True)]
    yield name, spread(found["1"]), spread(found["2"]), spread(speedups, ".2f")


def draw(results: dict[str, Any], file: Path) -> None:
    """Draws a panel for each thing that was measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(20, 9), layout="constrained")
    panels = list(axes.flat)
    bars: dict[str, dict[str, list[float]]] = {
        "Real target tokens a second": {
            name: [run["tokens_per_second"] for run in runs] for name, runs in results.get("throughput", {}).items()
        },
        "Share of real tokens": {name: [found["share"]] for name, found in results.get("padding", {}).items()},
        f"Peak memory of a step, MiB, V {MEMORY_VOCABULARY:,}": {
            kind: [memory / 2**20] for kind, memory in results.get("memory", {}).items()
        },
        "Ours, tokens a second by processes": {
            number: speeds for number, speeds in results.get("processes", {}).items() if number != "skipped"
        },
    }
    for panel, (title, groups) in zip(panels, bars.items(), strict=False):
        panel.set_title(title)
        panel.set_visible(bool(groups))  # a part that was not asked for leaves its place empty
        if not groups:
            continue
        names = [name.replace(", ", "\n") for name in groups]
        middles = [statistics.median(values) for values in groups.values()]
        errors = [[abs(end(v) - m) for v, m in zip(groups.values(), middles, strict=True)] for end in (min, max)]
        colours = ["tab:blue" if name.startswith(PEER) else "tab:orange" for name in groups]
        panel.bar(names, middles, yerr=errors, color=colours)
        panel.tick_params(axis="x", labelsize=7)
    lines = [(axis, figure) for axis in ("length", "vocabulary") for figure in ("seconds", "memory")]
    for panel, (axis, what) in zip(panels[len(bars) :], lines, strict=True):
        cases, scale = results.get("growth", {}).get(axis, {}), 2**20 if what == "memory" else 1
        panel.set_visible(bool(cases))
        if not cases:
            continue
        for kind, colour in ((PEER, "tab:blue"), (OURS, "tab:orange")):
            middles = [statistics.median(case[kind][what]) / scale for case in cases.values()]
            panel.plot(list(cases), middles, "o-", color=colour, label=kind)
        panel.set(title=f"{'Memory, MiB,' if scale > 1 else 'Seconds'} of a step by {axis}", ylim=(0, None))
        panel.set_xscale("log", base=2)
        panel.legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)
