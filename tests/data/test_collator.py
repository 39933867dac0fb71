import copy
import dataclasses
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch.utils.data import DataLoader
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from hf_seq2seq.data import Seq2SeqCollator
from hf_seq2seq.tokenization import train_tokenizer


Kind = Callable[[list[int]], Any]


class ShiftingModel:
    """The one method of a model that a collator calls."""

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        start = torch.ones_like(labels[:, :1])
        return torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] == -100, 0)], dim=1)


def features(kind: Kind = list) -> list[dict[str, Any]]:
    return [
        {"input_ids": kind([4, 5, 2]), "labels": kind([6, 2]), "length": 3, "source": "a b"},
        {"input_ids": kind([7, 2]), "labels": kind([8, 9, 4, 2]), "length": 4, "source": "d"},
    ]


def as_lists(batch: Any) -> dict[str, Any]:
    assert all(tensor.dtype == torch.int64 for tensor in batch.values())
    return {name: tensor.tolist() for name, tensor in batch.items()}


EXPECTED = {
    "input_ids": [[4, 5, 2], [7, 2, 0]],
    "attention_mask": [[1, 1, 1], [1, 1, 0]],
    "labels": [[6, 2, -100, -100], [8, 9, 4, 2]],
    "decoder_input_ids": [[1, 6, 2, 0], [1, 8, 9, 4]],
}


# The library's own warning that a list of arrays is slow to make a tensor of.
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_the_same_features_twice_give_the_same_tensors_and_stay_as_they_are(
    letter_tokenizer: PreTrainedTokenizerFast, kind: Kind
) -> None:
    """https://github.com/huggingface/transformers/pull/27333, https://github.com/huggingface/transformers/issues/10452"""
    collator = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel())
    given = features(kind)
    before = copy.deepcopy(given)
    assert as_lists(collator(given)) == EXPECTED
    assert as_lists(collator(given)) == EXPECTED
    assert repr(given) == repr(before)


def test_without_a_model_there_are_no_decoder_inputs(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(letter_tokenizer)(features())
    assert as_lists(batch) == {name: rows for name, rows in EXPECTED.items() if name != "decoder_input_ids"}


def test_without_labels_there_is_no_entry_for_them(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/pull/27333"""
    collator = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel())
    unlabelled = [{"input_ids": feature["input_ids"]} for feature in features()]
    for _ in range(2):
        assert as_lists(collator(unlabelled)) == {name: EXPECTED[name] for name in ("input_ids", "attention_mask")}


def test_all_sides_are_padded_to_a_multiple_where_asked(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(letter_tokenizer, model=ShiftingModel(), pad_to_multiple_of=8)(features())
    assert {tensor.shape for tensor in batch.values()} == {(2, 8)}


def test_padding_goes_to_the_side_of_the_tokenizer(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(letter_tokenizer)
    tokenizer.padding_side = "left"
    batch = Seq2SeqCollator(tokenizer)(features())
    assert batch["input_ids"].tolist() == [[4, 5, 2], [0, 7, 2]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert batch["labels"].tolist() == [[-100, -100, 6, 2], [8, 9, 4, 2]]


def unpadded(rows: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token not in (0, -100)] for row in rows.tolist()]


TEXTS = ["the cat sat on the mat", "a hat and a bat", "</s> 12 caf\u00e9 \u4f60\u597d", "\u00e4 the"]


@pytest.fixture(scope="module")
def bpe_tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(iter(TEXTS * 5), vocab_size=330, model_max_length=60)


def text_features(tokenizer: PreTrainedTokenizerFast) -> list[dict[str, Any]]:
    sources, targets = tokenizer(TEXTS)["input_ids"], tokenizer(text_target=TEXTS[::-1])["input_ids"]
    return [
        {"input_ids": source, "labels": target, "attention_mask": [1] * len(source), "length": 0}
        for source, target in zip(sources, targets, strict=True)
    ]


def test_bpe_dropout_cuts_the_same_texts_into_other_pieces_each_time(bpe_tokenizer: PreTrainedTokenizerFast) -> None:
    collator = Seq2SeqCollator(bpe_tokenizer, model=ShiftingModel(), bpe_dropout=0.5)
    given = text_features(bpe_tokenizer)
    seen = set()
    for _ in range(5):
        batch = collator(given)
        for side, texts in (("input_ids", TEXTS), ("labels", TEXTS[::-1])):
            rows = unpadded(batch[side])
            assert bpe_tokenizer.batch_decode(rows, skip_special_tokens=True) == texts
            assert all(row[-1] == 2 for row in rows)
            seen.add(repr(rows))
        assert batch["attention_mask"].tolist() == (batch["input_ids"] != 0).int().tolist()
        assert batch["decoder_input_ids"].shape == batch["labels"].shape
    assert len(seen) == 10


def test_near_1_bpe_dropout_leaves_single_bytes(bpe_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = Seq2SeqCollator(bpe_tokenizer, bpe_dropout=1 - 1e-9)(text_features(bpe_tokenizer))
    assert [len(row) for row in unpadded(batch["input_ids"])] == [len(text.encode()) + 1 for text in TEXTS]


def test_bpe_dropout_leaves_a_merge_out_with_its_probability() -> None:
    merges = [("a", "b")]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE({"<pad>": 0, "a": 1, "b": 2, "ab": 3}, merges)), pad_token="<pad>"
    )
    rows: list[dict[str, Any]] = [{"input_ids": [3]}] * 20_000
    lengths = Seq2SeqCollator(tokenizer, bpe_dropout=0.3)(rows)["attention_mask"].sum(dim=1)
    # Five standard deviations of a binomial distribution; the draws have no seed.
    assert abs(float((lengths == 2).float().mean()) - 0.3) < 5 * (0.3 * 0.7 / len(rows)) ** 0.5


def test_bpe_dropout_changes_neither_features_nor_tokenizer_nor_global_random_state(
    bpe_tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer = copy.deepcopy(bpe_tokenizer)
    tokenizer(TEXTS, padding=True, truncation=True, max_length=7)  # a state that must stay
    given = text_features(bpe_tokenizer)
    before = copy.deepcopy(given), tokenizer.backend_tokenizer.to_str()
    states = random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()
    Seq2SeqCollator(tokenizer, bpe_dropout=0.5)(given)
    assert (given, tokenizer.backend_tokenizer.to_str()) == before
    assert (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()) == states
    assert tokenizer.backend_tokenizer.model.dropout is None


def test_a_side_that_would_get_longer_than_the_tokenizer_allows_keeps_its_tokens(
    bpe_tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer = copy.deepcopy(bpe_tokenizer)
    given = text_features(tokenizer)
    tokenizer.model_max_length = max(len(row["input_ids"]) for row in given)
    num_changed = 0
    for _ in range(20):
        batch = Seq2SeqCollator(tokenizer, bpe_dropout=0.5)(given)
        for side in ("input_ids", "labels"):
            for row, feature in zip(unpadded(batch[side]), given, strict=True):
                assert len(row) <= tokenizer.model_max_length
                num_changed += row != feature[side]
    assert num_changed


def test_rows_that_are_not_what_their_text_is_cut_into_keep_their_tokens(
    bpe_tokenizer: PreTrainedTokenizerFast,
) -> None:
    whole: Any = bpe_tokenizer("the cat sat on the mat")["input_ids"]
    letters: Any = bpe_tokenizer.convert_tokens_to_ids(list("hat"))
    rows = [whole[:-1], [*letters, 2], [*whole[:-1], 3, 2]]  # cut off, other pieces, an unknown token
    batch = Seq2SeqCollator(bpe_tokenizer, bpe_dropout=0.9)([{"input_ids": row, "labels": row} for row in rows])
    assert unpadded(batch["input_ids"]) == unpadded(batch["labels"]) == rows


def test_a_lossy_bpe_tokenizer_keeps_the_tokens_of_what_decoding_changes() -> None:
    """Its decoder joins words with one space, and its pieces know none."""
    pieces = ["<pad>", "<unk>", "a", "b", "ab"]
    backend = Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [("a", "b")], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")
    rows = [{"input_ids": [2, 3]}, {"input_ids": tokenizer("a b")["input_ids"]}]
    batch = Seq2SeqCollator(tokenizer, bpe_dropout=0.9)(rows)
    assert batch["input_ids"].tolist() == [[2, 3], [2, 3]]


def test_targets_are_cut_as_targets() -> None:
    """As where a multilingual tokenizer puts another language's tag before the target."""

    class TaggingTokenizer(PreTrainedTokenizerFast):
        def _switch_to_target_mode(self) -> None:
            self._tag("<pad>", 0)

        def _switch_to_input_mode(self) -> None:
            self._tag("</s>", 2)

        def _tag(self, token: str, id: int) -> None:
            self.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{token} $A", special_tokens=[(token, id)]
            )

    trained = train_tokenizer(iter(TEXTS * 5), vocab_size=330)
    names = {name: getattr(trained, name) for name in ("pad_token", "bos_token", "eos_token", "unk_token")}
    tokenizer = TaggingTokenizer(tokenizer_object=trained.backend_tokenizer, **names)
    tokenizer._switch_to_input_mode()
    given = [{"input_ids": tokenizer("the cat")["input_ids"], "labels": tokenizer(text_target="the")["input_ids"]}]
    batch = Seq2SeqCollator(tokenizer, bpe_dropout=1 - 1e-9)(given)
    assert (batch["input_ids"][0, 0], batch["labels"][0, 0]) == (2, 0)
    assert (batch["input_ids"].shape[1], batch["labels"].shape[1]) == (8, 4)


@pytest.mark.parametrize("dropout", [0.0, 1 - 1e-9])
def test_a_start_token_before_the_labels_is_left_out(bpe_tokenizer: PreTrainedTokenizerFast, dropout: float) -> None:
    """https://github.com/huggingface/transformers/issues/12870"""
    tokenizer = copy.deepcopy(bpe_tokenizer)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    given = [{"input_ids": tokenizer(text)["input_ids"], "labels": tokenizer(text)["input_ids"]} for text in TEXTS[:2]]
    before = copy.deepcopy(given)
    rows = Seq2SeqCollator(tokenizer, bpe_dropout=dropout)(given)
    for row, text in zip(unpadded(rows["labels"]), TEXTS, strict=False):
        pieces = bpe_tokenizer(text)["input_ids"]
        assert len(row) == len(text) + 1 if dropout else row == pieces
        assert row[0] != 1
    assert {row[0] for row in rows["input_ids"].tolist()} == {1}
    assert given == before


def test_bpe_dropout_cuts_the_text_beside_a_token_that_the_user_added(bpe_tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer = copy.deepcopy(bpe_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<2de>"]})
    given: Any = [{"input_ids": tokenizer("<2de>the cat")["input_ids"]}]
    (row,) = unpadded(Seq2SeqCollator(tokenizer, bpe_dropout=1 - 1e-9)(given)["input_ids"])
    assert row[0] == len(tokenizer) - 1
    assert len(row) == 1 + len("the cat") + 1


def test_the_collator_for_evaluation_is_a_copy_without_dropout(bpe_tokenizer: PreTrainedTokenizerFast) -> None:
    model = ShiftingModel()
    collator = Seq2SeqCollator(bpe_tokenizer, model=model, pad_to_multiple_of=4, bpe_dropout=0.9)
    evaluation = dataclasses.replace(collator, bpe_dropout=0.0)
    assert evaluation == Seq2SeqCollator(bpe_tokenizer, model=model, pad_to_multiple_of=4)
    given = text_features(bpe_tokenizer)
    batch = evaluation(given)
    assert unpadded(batch["input_ids"]) == [feature["input_ids"] for feature in given]
    again = dataclasses.replace(evaluation, bpe_dropout=0.9)
    assert unpadded(again(given)["input_ids"]) != unpadded(batch["input_ids"])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_all_sides_are_padded_to_a_multiple_with_and_without_dropout(
    bpe_tokenizer: PreTrainedTokenizerFast, dropout: float
) -> None:
    collator = Seq2SeqCollator(bpe_tokenizer, model=ShiftingModel(), pad_to_multiple_of=16, bpe_dropout=dropout)
    batch = collator(text_features(bpe_tokenizer))
    widths = {name: tensor.shape[1] for name, tensor in batch.items()}
    assert widths.keys() == {"input_ids", "attention_mask", "labels", "decoder_input_ids"}
    assert all(width % 16 == 0 for width in widths.values())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_pickled_collator_works_as_before(bpe_tokenizer: PreTrainedTokenizerFast, dropout: float) -> None:
    collator = Seq2SeqCollator(bpe_tokenizer, bpe_dropout=dropout)
    given = text_features(bpe_tokenizer)
    rows = unpadded(pickle.loads(pickle.dumps(collator))(given)["input_ids"])
    assert bpe_tokenizer.batch_decode(rows, skip_special_tokens=True) == TEXTS
    assert (rows == [feature["input_ids"] for feature in given]) == (dropout == 0)


def test_each_worker_of_a_data_loader_draws_anew_for_each_row(bpe_tokenizer: PreTrainedTokenizerFast) -> None:
    collator = Seq2SeqCollator(bpe_tokenizer, bpe_dropout=0.5)
    given = text_features(bpe_tokenizer)[:1] * 8
    loader: DataLoader[Any] = DataLoader(given, batch_size=4, collate_fn=collator, num_workers=2)  # type: ignore[arg-type]
    rows = [row for batch in loader for row in unpadded(batch["input_ids"])]
    assert bpe_tokenizer.batch_decode(rows, skip_special_tokens=True) == TEXTS[:1] * 8
    # Workers forked from a process that has drawn itself may draw alike.
    assert len({tuple(row) for row in rows[:4]}) > 1
    assert len({tuple(row) for row in rows[4:]}) > 1


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_bpe_dropout_out_of_range_is_an_error(bpe_tokenizer: PreTrainedTokenizerFast, dropout: float) -> None:
    with pytest.raises(ValueError, match=f"`bpe_dropout` must be at least 0 and below 1, but is {dropout} instead"):
        Seq2SeqCollator(bpe_tokenizer, bpe_dropout=dropout)


def test_bpe_dropout_of_another_kind_of_tokenizer_is_an_error(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(
        ValueError, match=r"`bpe_dropout` must be 0 for .* but is 0\.1 for a tokenizer that is WordLevel"
    ):
        Seq2SeqCollator(letter_tokenizer, bpe_dropout=0.1)
    with pytest.raises(ValueError, match=r"is 0\.1 for a tokenizer that is slow instead. Leave it out"):
        Seq2SeqCollator(ByT5Tokenizer(), bpe_dropout=0.1)
    Seq2SeqCollator(letter_tokenizer)  # without it, all kinds are fine


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([], "`features` must be at least one pair, but there is none"),
        ([{"labels": [5]}], r"one has only \['labels'\]"),
    ],
)
def test_a_batch_without_sources_is_an_error(
    features: list[dict[str, Any]], message: str, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(ValueError, match=message):
        Seq2SeqCollator(letter_tokenizer)(features)
