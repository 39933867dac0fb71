"""Measures the memory and time that reading a TMX file takes, for files of several sizes.

    python scripts/benchmarks/benchmark_tmx.py --megabytes 3 300

Each size is read in a process of its own, once as a stream (`load_parallel(streaming=True)`) and once by the reader
alone, and the last units are broken, so that the place of the fault is measured too.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hf_seq2seq.data import load_parallel
from hf_seq2seq.data.tmx import Memory


UNIT = """<tu tuid="{n}" creationdate="20260101T000000Z">
  <prop type="domain">test</prop>
  <tuv xml:lang="en-GB"><seg>Sentence {n} of a memory, with <bpt i="1">&lt;b&gt;</bpt>bold<ept i="1">&lt;/b&gt;</ept> type.</seg></tuv>
  <tuv xml:lang="de-DE"><seg>Satz {n} eines Speichers, mit <bpt i="1">&lt;b&gt;</bpt>fetter<ept i="1">&lt;/b&gt;</ept> Schrift.</seg></tuv>
</tu>
"""  # noqa: E501


def write_memory(file: Path, megabytes: int) -> None:
    """Writes a memory of a size, whose last unit is broken."""
    with file.open("w", encoding="utf-8") as output:
        output.write('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="en"/><body>\n')
        number = 0
        while output.tell() < megabytes * 1_000_000:
            output.writelines(UNIT.format(n=number + i) for i in range(1000))
            number += 1000
        output.write("<tu></tmx>\n")


def measure(file: Path, way: str) -> dict[str, object]:
    """Reads a memory, and returns what that took and how it ended."""
    stream = load_parallel(file=file, source_language="en", target_language="de", streaming=True)
    before, start, number, error = peak_megabytes(), time.perf_counter(), 0, ""  # the imports are done now
    try:
        for _ in Memory(file).units() if way == "reader" else stream:
            number += 1
    except ValueError as fault:
        error = str(fault)
    return {
        "way": way,
        "megabytes": round(file.stat().st_size / 1e6),
        "pairs": number,
        "seconds": round(time.perf_counter() - start, 1),
        "peak before (MB)": round(before),
        "peak after (MB)": round(peak_megabytes()),
        "error": error.replace(str(file), file.name),
    }


def peak_megabytes() -> float:
    """Returns the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    """Measures each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[3, 300], help="sizes of the files")
    parser.add_argument("--read", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        print(json.dumps(measure(Path(args.read[1]), args.read[0])))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.tmx"
        for megabytes in args.megabytes:
            write_memory(file, megabytes)
            for way in ("reader", "stream"):
                subprocess.run([sys.executable, __file__, "--read", way, str(file)], check=True)


if __name__ == "__main__":
    main()
