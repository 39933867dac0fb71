"""Source and target have a tokenizer each: every use takes the right one, and what is saved loads again."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands.test_import import write_marian
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_seq2seq import train_tokenizer
from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.token_lookup import (
    encode_sources,
    encode_targets,
    ids_to_tokens,
    readable_texts,
    unknown_id,
    vocabulary,
)
from hf_seq2seq.tokenizer_pair import Seq2SeqTransformerTokenizerPair, pair_tokenizers


SOURCE, TARGET = "the cat sat", "кот сел"


@pytest.fixture(scope="module")
def sides() -> tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]:
    source = train_tokenizer(iter([SOURCE] * 9), vocab_size=270)
    return source, train_tokenizer(iter([TARGET] * 9), vocab_size=266)


@pytest.fixture
def pair(sides: Any, tmp_path: Path) -> Any:
    pair_tokenizers(*sides).save_pretrained(tmp_path / "pair")
    return AutoTokenizer.from_pretrained(tmp_path / "pair")


def test_a_loaded_pair_encodes_each_side_by_its_tokenizer_and_decodes_targets(sides: Any, pair: Any) -> None:
    assert type(pair) is Seq2SeqTransformerTokenizerPair
    source, target = sides
    both = pair([SOURCE], text_target=[TARGET])
    assert both["input_ids"] == encode_sources(pair, [SOURCE]) == source([SOURCE])["input_ids"]
    assert both["labels"] == encode_targets(pair, [TARGET]) == target([TARGET])["input_ids"]
    assert both["labels"] != source([TARGET])["input_ids"]
    assert pair.batch_decode(both["labels"], skip_special_tokens=True) == [TARGET]
    for side, one, ids in (("source", source, both["input_ids"][0]), ("target", target, both["labels"][0])):
        assert vocabulary(pair, side) == one.get_vocab()  # type: ignore[arg-type]
        assert ids_to_tokens(pair, ids, side) == one.convert_ids_to_tokens(ids)  # type: ignore[arg-type]
    assert readable_texts(pair, both["input_ids"], "source") == [SOURCE]
    assert readable_texts(pair, both["labels"], "target") == [TARGET]
    assert pair("</s>")["input_ids"].count(2) == pair(text_target="</s>")["input_ids"].count(2) == 1
    assert unknown_id(pair, "target") == 3


def test_a_copy_of_a_pair_does_not_share_its_state(pair: Any) -> None:
    twin = copy.deepcopy(pair)
    twin.add_tokens(["<new>"])
    assert (len(twin), len(twin.target_tokenizer)) == (len(pair) + 1, len(pair.target_tokenizer) + 1)


def test_tokens_that_are_added_are_whole_on_both_sides_with_an_id_of_each(pair: Any, tmp_path: Path) -> None:
    sizes = len(pair), len(pair.target_tokenizer)
    pair.add_special_tokens({"additional_special_tokens": ["<new>"]})
    pair.save_pretrained(tmp_path / "again")
    again: Any = AutoTokenizer.from_pretrained(tmp_path / "again")
    for each in (pair, again):
        ids = each("<new>")["input_ids"], each(text_target="<new>")["input_ids"]
        assert ids == ([sizes[0], 2], [sizes[1], 2])
        assert each.decode(ids[1]) == "<new></s>"
        assert each.decode([*ids[1], *each(text_target=TARGET)["input_ids"]], skip_special_tokens=True) == TARGET


def test_bpe_dropout_cuts_both_sides_by_their_own_merges(sides: Any, pair: Any) -> None:
    collator = Seq2SeqCollator(pair, bpe_dropout=0.99)
    row = {"input_ids": pair(SOURCE)["input_ids"], "labels": pair(text_target=TARGET)["input_ids"]}
    batch = collator([row])
    for name, one, text in (("input_ids", sides[0], SOURCE), ("labels", sides[1], TARGET)):
        ids = batch[name][0].tolist()
        assert len(ids) > len(row[name])
        assert one.decode(ids, skip_special_tokens=True) == text
    assert pair(SOURCE)["input_ids"] == row["input_ids"]


def test_without_this_package_a_pair_does_not_load_in_place_of_decoding_wrongly(pair: Any, tmp_path: Path) -> None:
    program = f"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained({str(tmp_path / 'pair')!r})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode != 0


def test_tokenizers_that_differ_in_control_tokens_are_refused(sides: Any) -> None:
    other: Any = copy.deepcopy(sides[1])
    other.add_special_tokens({"pad_token": "<empty>"})
    message = r"`pad_token` of both tokenizers must be one .* but is '<pad>' with the id 0 .* and '<empty>' with 266"
    with pytest.raises(ValueError, match=message):
        pair_tokenizers(sides[0], other)


def test_a_tokenizer_written_in_python_or_for_two_sides_is_refused(sides: Any, pair: Any, tmp_path: Path) -> None:
    write_marian(tmp_path / "marian", separate=False)
    for wrong in (AutoTokenizer.from_pretrained(tmp_path / "marian"), pair):
        with pytest.raises(
            ValueError, match=r"`target_tokenizer` must be one tokenizer with a tokenizer.json, but is"
        ):
            pair_tokenizers(sides[0], wrong)
