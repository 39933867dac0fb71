"""Batches by tokens on two processes, which share each update's pairs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_ranks_share_the_pairs_of_each_epoch_and_of_a_resumed_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_ranks.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run([*launch, str(script), str(tmp_path)], check=True, timeout=250)
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]

    everything = [[source, target] for source in range(1, 11) for target in range(1, 11)]
    num_updates = len(ranks[0]["straight"])
    assert num_updates == len(ranks[1]["straight"])
    for epoch in (slice(0, num_updates // 2), slice(num_updates // 2, num_updates)):
        seen = [pair for rank in ranks for batch in rank["straight"][epoch] for pair in batch]
        assert sorted(seen) == everything
    for rank in ranks:
        assert rank["first"] + rank["second"] == rank["straight"]
