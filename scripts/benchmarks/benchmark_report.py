"""Turns the results of benchmark_training.py and benchmark_inference.py into Markdown tables and figures."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.benchmarks.benchmark_models import OURS, PEER
from scripts.benchmarks.benchmark_run import PAIRS


Row = tuple[str, str, str, str]

MEMORY_VOCABULARY, MEMORY_SHAPE = 32_000, (64, 64)  # 4,096 target tokens
PEER_RANDOM, PEER_GROUPED = f"{PEER}, random batches of {PAIRS}", f"{PEER}, group_by_length, {PAIRS}"
OURS_RANDOM, OURS_BUDGET = f"{OURS}, random batches of {PAIRS}", f"{OURS}, tokens_per_batch"


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Returns the median with the least and the greatest value, as text."""
    middle, least, greatest = (format(f(values), form) for f in (statistics.median, min, max))
    return middle if least == greatest else f"{middle} ({least}-{greatest})"


def ratios(found: dict[str, Any], figure: str, above: str, below: str) -> list[float]:
    """Returns above / below for each repetition of two things that were measured in turn."""
    return [a / b for a, b in zip(found[above][figure], found[below][figure], strict=True)]


def table(results: dict[str, Any]) -> str:
    """Returns the Markdown table of benchmark_training.py's results."""
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
    return markdown(rows)


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Returns the Markdown of a table."""
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
    """Yields the row of the memory."""
    rows, length = MEMORY_SHAPE
    name = f"peak memory of a training step, MiB, V {MEMORY_VOCABULARY:,}, {rows * length:,} target tokens"
    peer, ours = found[PEER] / 2**20, found[OURS] / 2**20
    yield name, f"{peer:,.0f}", f"{ours:,.0f}", f"{ours / peer:.2f}"


def growth_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of time and memory at both ends of each axis."""
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
    """Draws benchmark_training.py's results, a panel for each."""
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
        draw_bars(panel, title, groups)
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


def draw_bars(panel: Any, title: str, groups: dict[str, list[float]]) -> None:
    """Draws a bar for each group of values: the median, with a line from the least to the greatest."""
    panel.set_title(title)
    panel.set_visible(bool(groups))  # the place of a part that was not asked for stays empty
    if not groups:
        return
    names = [name.replace(", ", "\n") for name in groups]
    middles = [statistics.median(values) for values in groups.values()]
    errors = [[abs(end(v) - m) for v, m in zip(groups.values(), middles, strict=True)] for end in (min, max)]
    colours = ["tab:blue" if name.startswith(PEER) else "tab:orange" for name in groups]
    panel.bar(names, middles, yerr=errors, color=colours)
    panel.tick_params(axis="x", labelsize=7)


def inference_table(results: dict[str, Any]) -> str:
    """Returns the Markdown table of benchmark_inference.py's results."""
    rows: list[Row] = [("measure", "peer", "ours", "ratio"), ("---", "---", "---", "---")]
    for name, case in results.get("generate", {}).items():
        rows += generate_rows(name, case)
    rows += file_rows(results.get("file", {}))
    if "memory" in results:
        peer, ours = (results["memory"][kind] / 2**20 for kind in (PEER, OURS))
        name = "peak memory of generate(), MiB, beam 4, batch 32"
        rows.append((name, f"{peer:,.0f}", f"{ours:,.0f}", f"{ours / peer:.2f}"))
    return markdown(rows)


def speeds(found: dict[str, Any], what: str) -> list[float]:
    """Returns the sentences or tokens a second of each repetition."""
    return [found[what] / seconds for seconds in found["seconds"]]


def generate_rows(name: str, case: dict[str, Any]) -> Iterator[Row]:
    """Yields the table's rows of one case of `generate()`: how many outputs differ, and the speed."""
    same = case["tokens"]
    differing = f"{same['differing']} of {same['rows']}"
    ties = f"{same['ties']} ties, greatest difference of scores {same['largest_difference']:.1e}"
    yield f"generate(), {name}: rows that differ", "", differing, ties if same["differing"] else ""
    for what in ("tokens", "sentences"):
        yield (
            f"generate(), {name}: {what} a second",
            spread(speeds(case[PEER], what), ",.1f"),
            spread(speeds(case[OURS], what), ",.1f"),
            spread(ratios(case, "seconds", PEER, OURS), ".2f"),
        )


def file_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Yields the rows of each way to translate a file, or why there is none."""
    for name, way in found.items():
        if name == "skipped":
            yield "a file, CTranslate2", "", "", f"skipped: {way}"
        elif name != PEER:
            yield (
                f"a file of {way['sentences']:,} sentences, beam 4: sentences a second, {name}",
                spread(speeds(found[PEER], "sentences"), ",.1f"),
                spread(speeds(way, "sentences"), ",.1f"),
                spread(ratios(found, "seconds", PEER, name), ".2f"),
            )
            if "bleu" in way:
                yield f"the same: BLEU, {name}", f"{found[PEER]['bleu']:.2f}", f"{way['bleu']:.2f}", ""


def draw_inference(results: dict[str, Any], file: Path) -> None:
    """Draws benchmark_inference.py's results, a panel for each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases, ways = results.get("generate", {}), results.get("file", {})
    panels: dict[str, dict[str, list[float]]] = {
        f"generate(), {search}: speed over {PEER}'s": {
            name.removeprefix(f"{search}, "): ratios(case, "seconds", PEER, OURS)
            for name, case in cases.items()
            if name.startswith(search)
        }
        for search in ("greedy", "beam 4")
    }
    panels["A file, beam 4: sentences a second"] = {
        name.replace(" ", ", "): speeds(way, "sentences") for name, way in ways.items() if name != "skipped"
    }
    panels["Peak memory of generate(), MiB"] = {
        kind: [memory / 2**20] for kind, memory in results.get("memory", {}).items()
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(20, 5), layout="constrained")
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        draw_bars(axis, title, groups)
        if "over" in title:
            axis.axhline(1, color="tab:blue")
    figure.savefig(file, dpi=120)
    plt.close(figure)
