import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import PreTrainedTokenizerFast

from hf_seq2seq.data import tokenize_pairs


def make_pairs(*pairs: tuple[str, str]) -> datasets.Dataset:
    sources, targets = zip(*pairs, strict=True)
    return datasets.Dataset.from_dict({"source": sources, "target": targets, "id": range(len(pairs))})


LONG = ("a b", "b"), ("a b c d", "a"), ("a", "a b c"), ("a", "a b c d e")


def test_both_sides_end_with_the_end_of_sentence_token(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenized = tokenize_pairs(make_pairs(("a b", "c"), ("d", "e f a")), letter_tokenizer, max_length=4)
    assert tokenized.column_names == ["input_ids", "labels", "length"]
    assert tokenized[:] == {"input_ids": [[4, 5, 2], [7, 2]], "labels": [[6, 2], [8, 9, 4, 2]], "length": [3, 4]}


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
    assert tokenized[0] == {"input_ids": [4, 2], "labels": [104, 105, 102], "length": 3}


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
