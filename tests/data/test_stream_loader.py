"""A loader of a stream goes on with the batches that an earlier one would have come to."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from hf_seq2seq import train_tokenizer
from hf_seq2seq.data import TokenBudgetStream, filter_pairs, load_parallel, mix_corpora, tokenize_pairs
from hf_seq2seq.data.stream_loader import StreamLoader


TOKENIZER = train_tokenizer(iter(["0123456789 "]), vocab_size=50, kind="char")
SIZES = {"a": 230, "b": 90, "c": 50}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora of gzipped text and of Parquet, of which some lines are blank and some too long."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, size in SIZES.items():
        lines = [str(ord(name) * 10_000 + i) * (1 + i % 3) if i % 11 else "" for i in range(size)]
        text = "".join(f"{line}\n" for line in lines).encode()
        for side in ("source", "target"):
            (folder / f"{name}.{side}.gz").write_bytes(gzip.compress(text))
        Dataset.from_dict({"source": lines, "target": lines}).to_parquet(folder / f"{name}.parquet")
    return folder


def load(files: Path, kind: str, rank: int, num_ranks: int, num_workers: int) -> StreamLoader:
    corpora: list[Any] = []
    for name in SIZES:
        if kind == "Parquet":
            pairs = load_parallel(file=files / f"{name}.parquet", streaming=True)
        else:
            pairs = load_parallel(files / f"{name}.source.gz", files / f"{name}.target.gz", streaming=True)
        corpora.append(filter_pairs(pairs, max_characters=12))
    mixture: Any = mix_corpora(corpora, [3, 2, 1] if kind == "weights" else None, seed=5)
    tokenized: Any = tokenize_pairs(mixture, TOKENIZER, max_length=40)
    stream = TokenBudgetStream(tokenized, tokens_per_batch=60, num_ranks=num_ranks, rank=rank, window_size=40)
    return StreamLoader(stream, collate_fn=texts, num_workers=min(num_workers, stream.num_shards))


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [str(TOKENIZER.decode(row["input_ids"], skip_special_tokens=True)) for row in rows]


def take(loader: StreamLoader, number: int) -> list[list[str]]:
    batches = iter(loader)
    return [next(batches) for _ in range(number)]


@pytest.mark.parametrize(
    ("kind", "num_ranks", "num_workers"),
    [
        ("text", 1, 0),
        ("weights", 1, 0),
        ("weights", 2, 1),
        pytest.param("text", 2, 2, marks=pytest.mark.slow),
        pytest.param("Parquet", 1, 3, marks=pytest.mark.slow),
    ],
)
def test_a_loader_goes_on_with_the_batches_that_would_have_come(
    kind: str, num_ranks: int, num_workers: int, files: Path
) -> None:
    for rank in range(num_ranks):
        arguments = files, kind, rank, num_ranks, num_workers
        expected = take(load(*arguments), 120)  # several windows and passes
        for number in (1, 4, 61):
            first, second = load(*arguments), load(*arguments)
            assert take(first, number) == expected[:number]
            second.position = json.loads(json.dumps(first.position))
            assert take(second, 30) == expected[number : number + 30]


def test_workers_read_shards_of_their_own(files: Path) -> None:
    loader = load(files, "text", 0, 1, num_workers=3)
    assert loader.num_workers == 3
    workers: list[set[str]] = [set(), set(), set()]
    for number, batch in enumerate(take(loader, 90)):
        workers[number % 3].update(text[:2] for text in batch)
    assert workers == [{"97"}, {"98"}, {"99"}]  # numbers of corpus "a" begin with 97, of "b" with 98, of "c" with 99


def test_going_on_draws_no_random_number(files: Path) -> None:
    loader = load(files, "text", 0, 1, 0)
    take(loader, 2)
    state = torch.get_rng_state()
    take(loader, 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_repairs_and_dropped_pairs_are_told_once_however_often_a_stream_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.source").write_bytes(b"1\r1\n\n333333333\n4\n")
    (tmp_path / "a.target").write_bytes(b"1\n2\n3\n4\n")
    pairs = load_parallel(tmp_path / "a.source", tmp_path / "a.target", streaming=True)
    tokenized: Any = tokenize_pairs(filter_pairs(pairs, min_characters=1, max_characters=50), TOKENIZER, max_length=5)
    loader = StreamLoader(TokenBudgetStream(tokenized, tokens_per_batch=60, window_size=4), collate_fn=texts)
    assert len(take(loader, 9)) == 9
    told = [message.split(": ")[-1].partition(",")[0] for message in caplog.messages]
    assert told == [
        "1 carriage return(s) inside lines became spaces",
        "dropped 1 of 4 pairs",
        "Dropped 1 of 3 pairs",
    ]
