import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from tokenizers import processors
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from hf_seq2seq.data import tokenize_pairs, tokenizing
from hf_seq2seq.tokenization import train_tokenizer


def make_pairs(*pairs: tuple[str, str]) -> datasets.Dataset:
    sources, targets = zip(*pairs, strict=True)
    return datasets.Dataset.from_dict({"source": sources, "target": targets, "id": range(len(pairs))})


LONG = ("a b", "b"), ("a b c d", "a"), ("a", "a b c"), ("a", "a b c d e")


def test_both_sides_end_with_the_end_of_sentence_token(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenized = tokenize_pairs(make_pairs(("a b", "c"), ("d", "e f a")), letter_tokenizer, max_length=4)
    assert tokenized[:] == {
        "input_ids": [[4, 5, 2], [7, 2]],
        "labels": [[6, 2], [8, 9, 4, 2]],
        "length": [3, 4],
        "source_length": [3, 2],
        "target_length": [2, 4],
    }


class TwoSidedTokenizer(PreTrainedTokenizerFast):
    """Encodes targets as their ids plus 100, as a tokenizer with two vocabularies would."""

    def __call__(self, text: Any = None, text_target: Any = None, **options: Any) -> Any:
        if text_target is None:
            return super().__call__(text, **options)
        ids = super().__call__(text_target, **options)["input_ids"]
        return {"input_ids": [[token + 100 for token in row] for row in ids]}


def test_targets_are_tokenized_as_targets(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/issues/6262"""
    tokenizer = TwoSidedTokenizer(tokenizer_object=letter_tokenizer.backend_tokenizer)
    tokenized = tokenize_pairs(make_pairs(("a", "a b")), tokenizer, max_length=9)
    assert (tokenized[0]["input_ids"], tokenized[0]["labels"]) == ([4, 2], [104, 105, 102])


def test_over_long_pairs_are_dropped_and_reported(
    letter_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    tokenized = tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=4)
    assert tokenized["length"][:] == [3, 4]
    assert tokenized["labels"][:] == [[5, 2], [4, 5, 6, 2]]
    assert caplog.messages == [
        "Dropped 2 of 4 pairs, since a side has more than 4 tokens (up to 6). To keep them, raise `max_length` or set "
        "`over_long` to 'truncate'."
    ]


def test_over_long_pairs_are_truncated_before_their_end_token_and_reported(
    letter_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    tokenized = tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=4, over_long="truncate")
    assert tokenized["input_ids"][:] == [[4, 5, 2], [4, 5, 6, 2], [4, 2], [4, 2]]
    assert tokenized["labels"][:] == [[5, 2], [4, 2], [4, 5, 6, 2], [4, 5, 6, 2]]
    assert tokenized["length"][:] == [3, 4, 4, 4]
    assert tokenized["source_length"][:] == [3, 4, 2, 2]
    assert tokenized["target_length"][:] == [2, 2, 4, 4]
    assert caplog.messages == [
        "Truncated 2 of 4 pairs, since a side has more than 4 tokens (up to 6). To keep them whole, raise "
        "`max_length`."
    ]


def test_pairs_that_fit_are_kept_in_silence(
    letter_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=6)) == 4
    assert caplog.messages == []


def test_over_long_pairs_alone_are_an_error(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"`max_length` must leave at least one pair, but is 2 while .* has 3"):
        tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=2)


def test_arguments_without_a_meaning_are_errors(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"`max_length` must be at least 2 .* but is 1 instead"):
        tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=1)
    with pytest.raises(ValueError, match="`over_long` must be 'drop' or 'truncate', but is 'cut' instead"):
        tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=4, over_long="cut")  # type: ignore[arg-type]


def stream_of(*pairs: tuple[str, str]) -> datasets.IterableDataset:
    return make_pairs(*pairs).to_iterable_dataset()


@pytest.mark.parametrize("over_long", ["drop", "truncate"])
def test_a_stream_gives_the_rows_of_a_dataset_and_tells_their_number(
    letter_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture, over_long: Any
) -> None:
    expected = tokenize_pairs(make_pairs(*LONG), letter_tokenizer, max_length=4, over_long=over_long)
    told = caplog.messages[0].replace(" (up to 6)", "")
    stream = tokenize_pairs(stream_of(*LONG), letter_tokenizer, max_length=4, over_long=over_long)
    assert stream.features == expected.features
    caplog.clear()
    for _ in range(2):
        assert list(stream) == list(expected)
        assert caplog.messages == [told]  # in the first pass
    assert list(pickle.loads(pickle.dumps(stream))) == list(expected)


def test_over_long_pairs_alone_are_an_error_at_the_end_of_a_stream(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    stream = tokenize_pairs(stream_of(*LONG), letter_tokenizer, max_length=2)
    with pytest.raises(ValueError, match=r"`max_length` must leave .* but is 2 while all pairs have more tokens"):
        list(stream)
    assert len(list(tokenize_pairs(stream_of(*LONG), letter_tokenizer, max_length=2, over_long="truncate"))) == 4


@pytest.mark.parametrize("make", [make_pairs, stream_of])
def test_a_start_token_before_targets_is_left_out(make: Any, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/issues/12870"""
    tokenizer = copy.deepcopy(letter_tokenizer)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    (row,) = tokenize_pairs(make(("a b", "c")), tokenizer, max_length=9)
    assert (row["input_ids"], row["labels"]) == ([1, 4, 5, 2], [6, 2])
    assert (row["source_length"], row["target_length"]) == (4, 2)


def test_a_stream_takes_no_processes(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match=r"`num_proc` must be None for a stream, but is 2 instead\. Use workers"):
        tokenize_pairs(stream_of(*LONG), letter_tokenizer, max_length=9, num_proc=2)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs of each call that tokenizes."""
    sizes = []

    def encode_and_record(batch: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
        sizes.append(len(batch["source"]))
        return encode(batch, tokenizer)

    encode = tokenizing._encode
    monkeypatch.setattr(tokenizing, "_encode", encode_and_record)
    return sizes


@pytest.fixture
def cached_pairs(tmp_path: Path) -> datasets.Dataset:
    """Pairs in a file, without which nothing made from them is cached in one."""
    make_pairs(("the cat sat", "le chat"), ("the hat", "le chapeau"), ("a cat", "un chat")).save_to_disk(
        tmp_path / "a"
    )
    return datasets.load_from_disk(str(tmp_path / "a"))


def words_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    return train_tokenizer(
        iter(["the cat sat on the hat", "le chat chapeau un"] * 9), **{"vocab_size": 270, **options}
    )


def test_a_tokenizer_that_was_saved_and_loaded_finds_what_it_tokenized_before(
    cached_pairs: datasets.Dataset, encoded: list[int], tmp_path: Path
) -> None:
    tokenizer = words_tokenizer()
    first = tokenize_pairs(cached_pairs, tokenizer, max_length=20)
    assert encoded == [3]
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "tokenizer", model_max_length=20)
    second = tokenize_pairs(cached_pairs, loaded, max_length=20)
    assert encoded == [3]
    assert list(second) == list(first)


def test_a_call_of_the_tokenizer_does_not_hide_what_it_tokenized_before(
    cached_pairs: datasets.Dataset, encoded: list[int]
) -> None:
    tokenizer = words_tokenizer()
    first = tokenize_pairs(cached_pairs, tokenizer, max_length=20)
    tokenizer(["the", "the cat"], padding=True, truncation=True, max_length=3)
    assert list(tokenize_pairs(cached_pairs, tokenizer, max_length=20)) == list(first)
    assert encoded == [3]


def test_other_pairs_or_another_tokenizer_are_tokenized_anew(
    cached_pairs: datasets.Dataset, encoded: list[int]
) -> None:
    tokenizer = words_tokenizer()
    tokenize_pairs(cached_pairs, tokenizer, max_length=20)
    tokenize_pairs(cached_pairs.select([0, 2]), tokenizer, max_length=20)
    assert encoded == [3, 2]
    tokenize_pairs(cached_pairs, words_tokenizer(vocab_size=275), max_length=20)
    assert encoded == [3, 2, 3]
    tokenizer.split_special_tokens = False
    tokenize_pairs(cached_pairs, tokenizer, max_length=20)
    assert encoded == [3, 2, 3, 3]
    tokenize_pairs(cached_pairs, TwoSidedTokenizer(tokenizer_object=tokenizer.backend_tokenizer), max_length=199)
    assert encoded == [3, 2, 3, 3, 3]


def test_a_slow_tokenizer_is_left_to_the_keys_of_the_library(cached_pairs: datasets.Dataset) -> None:
    first, second, other = (
        tokenize_pairs(cached_pairs, tokenizer, max_length=20)
        for tokenizer in (ByT5Tokenizer(), ByT5Tokenizer(), ByT5Tokenizer(extra_ids=7))
    )
    assert first[1]["input_ids"] == [*(byte + 3 for byte in b"the hat"), 1]
    assert first.cache_files == second.cache_files != other.cache_files


def test_several_processes_give_the_same_rows(cached_pairs: datasets.Dataset) -> None:
    one, two = (tokenize_pairs(cached_pairs, words_tokenizer(), max_length=20, num_proc=num) for num in (None, 2))
    assert list(one) == list(two)
    assert len(two) == 3


def test_a_progress_bar_says_what_is_being_done(
    letter_tokenizer: PreTrainedTokenizerFast, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenize_pairs(make_pairs(("a", "b")), letter_tokenizer, max_length=9)
    assert "Tokenizing: 100%" in capfd.readouterr().err


TOKENIZE_IN_ANOTHER_PROCESS = """
import sys
from transformers import AutoTokenizer
from hf_seq2seq.data import load_parallel, tokenize_pairs
pairs = load_parallel(sys.argv[1], sys.argv[1])
tokenized = tokenize_pairs(pairs, AutoTokenizer.from_pretrained(sys.argv[2]), max_length=4, over_long="truncate")
print([file["filename"] for dataset in (pairs, tokenized) for file in dataset.cache_files])
"""


@pytest.mark.slow
def test_a_later_run_finds_the_pairs_in_the_cache(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a b c d\ne\n")
    letter_tokenizer.save_pretrained(tmp_path / "tokenizer")
    command = [sys.executable, "-c", TOKENIZE_IN_ANOTHER_PROCESS, str(text), str(tmp_path / "tokenizer")]
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache")}

    def run() -> tuple[str, list[tuple[str, int]]]:
        output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
        arrow_files = sorted((tmp_path / "cache").rglob("*.arrow"))
        return output, [(str(file), file.stat().st_mtime_ns) for file in arrow_files]

    first_output, first_files = run()
    assert len(first_files) == 3  # the pairs, the tokenized pairs, the truncated ones
    assert run() == (first_output, first_files)
