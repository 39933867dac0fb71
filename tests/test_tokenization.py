import copy
import gzip
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from commands.test_import import write_marian
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_seq2seq import train_tokenizer
from hf_seq2seq.tokenization import SPECIAL_TOKENS, Kind, add_extra_tokens


KINDS: tuple[Kind, ...] = ("bpe", "unigram", "char", "word")
LOSSLESS_KINDS: tuple[Kind, ...] = ("bpe", "unigram")
CONTROL_IDS = {0, 1, 2}
EOS_ID, UNK_ID = 2, 3
TAGS = (">>de<<", "<2 fr>", "日本")

CORPUS = [
    "How many people live in this old town? Not many, I think: 1984, perhaps 2025.",
    "Wie viele Menschen leben in dieser alten Stadt? Nicht viele, denke ich.",
    "I don't know. He doesn't know, and they don't either!",
    "这座古城里住着多少人？不多。",
    "many, many thanks; so many of them (many?)",
    "<s>struck out</s> and <pad> and <unk>, </s> </s></s> <s> <s>",
] * 5

AWKWARD = [
    "",
    " ",
    "  two  spaces at both ends  ",
    "\t\x0b\x0c\x85\xa0\u2028\u2029\u3000",
    "▁ and ▁▁ and Ġ and Ċ and ## and @@ and <0x41>",
    "stray\rreturn, NUL\0, \x7f, \ufeffmark, \ufffd, \U0010ffff",
    "</s> <s><pad></s> x<unk>y <mask> <s>struck</s>",
    ">>de<< a<2 fr>b 日本 日本語 >>de<<>>de<<",
    "👩‍👩‍👧‍👦 ❤️ 1️⃣ 🇩🇪 👍🏽",
    "e\u0301 \u0301 हिन्दी 각각 ไทย العَرَبِيَّة",
    "0123456789 ٣ ½ ３ 1,234.50",
    "don't l’homme n't , . ? ! 's 've 're",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U00020000",
]


def train(kind: Kind, *, extra_tokens: tuple[str, ...] = TAGS, **options: Any) -> PreTrainedTokenizerFast:
    vocab_size = {"bpe": 400, "unigram": 290, "char": 110, "word": 75}[kind]
    options = {"vocab_size": vocab_size, **options}
    return train_tokenizer(iter(CORPUS), kind=kind, extra_tokens=extra_tokens, **options)


@pytest.fixture(scope="module")
def trained() -> dict[str, PreTrainedTokenizerFast]:
    return {kind: train(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def reloaded(
    trained: dict[str, PreTrainedTokenizerFast], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, PreTrainedTokenizerFast]:
    folder = tmp_path_factory.mktemp("tokenizers")
    for kind, tokenizer in trained.items():
        tokenizer.save_pretrained(folder / kind)
    return {kind: load(folder / kind) for kind in trained}


def load(folder: Path) -> PreTrainedTokenizerFast:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def assert_lossless(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert ids[-1] == EOS_ID
    assert not (CONTROL_IDS | {UNK_ID}) & set(ids[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_the_first_four_and_each_text_ends_with_eos(
    trained: dict[str, PreTrainedTokenizerFast], kind: Kind
) -> None:
    tokenizer = trained[kind]
    assert tokenizer.convert_ids_to_tokens([0, 1, 2, 3]) == list(SPECIAL_TOKENS)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (
        *(0, 1, 2, 3),
    )
    for text in ("many people", "", "many"):
        assert [id for id in tokenizer.encode(text) if id < 3] == [EOS_ID]
        assert tokenizer.encode(text)[-1] == EOS_ID
    assert tokenizer.encode("many", "people").count(EOS_ID) == 1


@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_bpe_and_unigram_lose_nothing_of_awkward_texts(
    trained: dict[str, PreTrainedTokenizerFast], reloaded: dict[str, PreTrainedTokenizerFast], kind: Kind, text: str
) -> None:
    """Line and paragraph separators, stray returns and NUL are data to the tokenizer.

    https://github.com/rsennrich/subword-nmt/issues/29 and https://github.com/mjpost/sacrebleu/pull/24
    """
    assert_lossless(trained[kind], text)
    assert_lossless(reloaded[kind], text)
    assert trained[kind].encode(text) == reloaded[kind].encode(text)


single_lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
mixed_lines = st.lists(single_lines | st.sampled_from([*AWKWARD, *SPECIAL_TOKENS, *TAGS, " ", *CORPUS])).map("".join)


@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
@settings(max_examples=150, deadline=None)
@given(text=single_lines | mixed_lines)
def test_bpe_and_unigram_lose_nothing_of_any_line(
    trained: dict[str, PreTrainedTokenizerFast], reloaded: dict[str, PreTrainedTokenizerFast], kind: Kind, text: str
) -> None:
    assert_lossless(trained[kind], text)
    assert_lossless(reloaded[kind], text)


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_spells_control_tokens_never_becomes_them(
    trained: dict[str, PreTrainedTokenizerFast], reloaded: dict[str, PreTrainedTokenizerFast], kind: Kind
) -> None:
    """The training text is full of them, too, so that they could be learnt as pieces or words."""
    text = "<pad> <s> </s> x</s>y <s>many</s>"
    unpickled = pickle.loads(pickle.dumps(trained[kind]))  # as a worker process of datasets gets it
    for tokenizer in (trained[kind], reloaded[kind], unpickled):
        for ids in (tokenizer.encode(text), tokenizer([text])["input_ids"][0]):
            assert not CONTROL_IDS & set(ids[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_extra_tokens_stay_whole_and_survive_decoding(
    trained: dict[str, PreTrainedTokenizerFast], reloaded: dict[str, PreTrainedTokenizerFast], kind: Kind
) -> None:
    text = "many >>de<< people <2 fr> in 日本 many"
    for tokenizer in (trained[kind], reloaded[kind]):
        assert [token for token in tokenizer.tokenize(text) if token in TAGS] == list(TAGS)
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
        ids = [tokenizer.get_vocab()[tag] for tag in TAGS]
        assert ids == list(range(len(tokenizer) - 3, len(tokenizer)))


@pytest.mark.parametrize("kind", KINDS)
def test_extra_tokens_in_the_training_text_teach_no_pieces(kind: Kind) -> None:
    tokenizer = train_tokenizer(iter([">>de<< many"] * 9), vocab_size=300, kind=kind, extra_tokens=[">>de<<"])
    assert not any(">" in token or "<" in token for token in list(tokenizer.get_vocab()) if len(token) == 2)
    assert tokenizer.tokenize(">>de<<") == [">>de<<"]
    assert tokenizer.get_vocab().get(">") is None or kind in LOSSLESS_KINDS


def test_char_has_one_token_for_each_character_and_unk_for_unseen_ones_only(
    trained: dict[str, PreTrainedTokenizerFast], reloaded: dict[str, PreTrainedTokenizerFast]
) -> None:
    for tokenizer in (trained["char"], reloaded["char"]):
        for text in (*CORPUS, "  town 城 </s> "):
            assert tokenizer.tokenize(text) == list(text)
            assert UNK_ID not in tokenizer.encode(text)
            assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
        assert tokenizer.encode("mañéy").count(UNK_ID) == 2


def test_word_cuts_at_white_space_and_joins_with_one_space(reloaded: dict[str, PreTrainedTokenizerFast]) -> None:
    phonemes = ["HH AH0 L OW1", "W ER1 L D", "ˈ ɡ ▁ ##a @@ <b> x</s>"]
    for tokenizer in (train_tokenizer(iter(phonemes), vocab_size=18, kind="word"),):
        for text in phonemes:
            assert tokenizer.tokenize(text) == text.split()
            assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
        assert tokenizer.decode(tokenizer.encode(" HH \t L\xa0D  "), skip_special_tokens=True) == "HH L D"
        assert tokenizer.encode("HH QQ AH0").count(UNK_ID) == 1
    assert reloaded["word"].tokenize("many  people") == ["many", "people"]


def test_a_word_that_spells_a_special_token_is_cut_after_its_angle_bracket(
    reloaded: dict[str, PreTrainedTokenizerFast],
) -> None:
    assert reloaded["word"].tokenize("</s> <unk>, <s>") == ["<", "/s>", "<unk>,", "<", "s>"]


@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_each_digit_is_a_token_and_frequent_words_are_whole(kind: Kind) -> None:
    lines = [f"It was in 1984{digit} in 1984 it was{mark}" for digit, mark in zip("123456", ".,;:?!", strict=True)] * 5
    tokens = train_tokenizer(iter(lines), vocab_size=285, kind=kind).tokenize("It was in 1984.")
    pieces = [token.removeprefix("Ġ") for token in tokens]
    assert [piece for piece in pieces if piece.isdigit()] == list("1984")
    assert "Ġwas" in tokens


def test_bpe_words_hold_combining_marks_and_apostrophes_but_no_punctuation() -> None:
    tokenizer = train_tokenizer(iter(["हिन्दी e\u0301te\u0301 don't l’homme. (homme!)"] * 9), vocab_size=320)
    for word in ("हिन्दी", " e\u0301te\u0301", " don't", " l’homme", "homme", " (", "!)"):
        assert len(tokenizer.tokenize(word)) == 1
    assert len(tokenizer.tokenize("homme!)")) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_training_again_gives_the_same_tokenizer(trained: dict[str, PreTrainedTokenizerFast], kind: Kind) -> None:
    again = train(kind).backend_tokenizer
    assert again.to_str() == trained[kind].backend_tokenizer.to_str()


@pytest.mark.parametrize("kind", KINDS)
def test_paths_and_gzipped_files_train_as_their_lines_do(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in CORPUS[:15]), encoding="utf-8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in CORPUS[15:])
    options: dict[str, Any] = {"vocab_size": 300 if kind in LOSSLESS_KINDS else 70, "kind": kind}
    from_lines = train_tokenizer(iter(CORPUS), **options)
    from_files = train_tokenizer([tmp_path / "a.txt", str(tmp_path / "b.txt.gz")], **options)
    assert from_files.get_vocab() == from_lines.get_vocab()
    (tmp_path / "all.txt").write_text("\n".join(CORPUS), encoding="utf-8")
    assert train_tokenizer(tmp_path / "all.txt", **options).get_vocab() == from_lines.get_vocab()


def test_a_saved_tokenizer_loads_as_a_stock_class_without_this_package(tmp_path: Path) -> None:
    train("unigram", model_max_length=64).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert "auto_map" not in config
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}
    script = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
assert not any(name.startswith("hf_seq2seq") for name in sys.modules)
print(json.dumps([
    tokenizer.encode(" many </s> >>de<<  , people "),
    tokenizer.model_max_length, tokenizer.model_input_names, tokenizer.clean_up_tokenization_spaces,
    tokenizer.decode(tokenizer.encode(" many </s> >>de<<  , people "), skip_special_tokens=True),
]))
"""
    run = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    text = " many </s> >>de<<  , people "
    assert json.loads(run.stdout) == [
        *(train("unigram").encode(text), 64, ["input_ids", "attention_mask"], False, text),
    ]


WAYS_TO_ADD: dict[str, Callable[[Path], Any]] = {
    "add_special_tokens": lambda folder: with_added(
        load(folder), lambda it: it.add_special_tokens({"additional_special_tokens": ["<2de>"]})
    ),
    "add_tokens as special": lambda folder: with_added(
        load(folder), lambda it: it.add_tokens(["<2de>"], special_tokens=True)
    ),
    "add_tokens": lambda folder: with_added(load(folder), lambda it: it.add_tokens("<2de>")),
    "from_pretrained": lambda folder: AutoTokenizer.from_pretrained(folder, additional_special_tokens=["<2de>"]),
}


def with_added(
    tokenizer: PreTrainedTokenizerFast, add: Callable[[PreTrainedTokenizerFast], int]
) -> PreTrainedTokenizerFast:
    assert add(tokenizer) == 1
    return tokenizer


@pytest.mark.parametrize("way", WAYS_TO_ADD)
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_a_user_adds_is_whole_and_spelt_control_tokens_are_still_text(
    trained: dict[str, PreTrainedTokenizerFast], kind: Kind, way: str, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/29564"""
    trained[kind].save_pretrained(tmp_path / "trained")
    tokenizer = WAYS_TO_ADD[way](tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "added")
    new_id = len(trained[kind])
    literal = "many</s> <s> people"
    one: Any
    for one in (tokenizer, load(tmp_path / "added"), pickle.loads(pickle.dumps(tokenizer))):
        assert len(one) == new_id + 1
        assert one.tokenize("<2de> many") == ["<2de>", *trained[kind].tokenize(" many")]
        assert one.encode("many <2de>")[-2:] == [new_id, EOS_ID]
        assert one.encode(literal) == trained[kind].encode(literal)
        shown = one.decode(one.encode("many <2de>"), skip_special_tokens=True)
        assert shown.rstrip() == ("many <2de>" if way == "add_tokens" else "many")
        assert one.decode(one.encode("many<2de>"), skip_special_tokens=False).replace(" ", "") == "many<2de></s>"


def test_added_tokens_are_whole_in_a_process_without_this_package(
    trained: dict[str, PreTrainedTokenizerFast], tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/29564"""
    for kind in KINDS:
        trained[kind].save_pretrained(tmp_path / kind)
        for way, added in WAYS_TO_ADD.items():
            added(tmp_path / kind).save_pretrained(tmp_path / kind / way)
    script = """
import sys, json
from transformers import AutoTokenizer
folders, texts = sys.argv[2:], json.loads(sys.argv[1])
tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in folders]
assert not any(name.startswith("hf_seq2seq") for name in sys.modules)
print(json.dumps([tokenizer(texts)["input_ids"] for tokenizer in tokenizers]))
"""
    folders = [tmp_path / kind / way for kind in KINDS for way in WAYS_TO_ADD]
    texts = ["<2de> many</s> people", "<s>", "<2de>"]
    command = [sys.executable, "-c", script, json.dumps(texts), *map(str, folders)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [
        [
            [len(trained[kind])] * text.count("<2de>") + trained[kind].encode(text.removeprefix("<2de>"))
            for text in texts
        ]
        for kind in KINDS
        for _ in WAYS_TO_ADD
    ]


def test_extra_tokens_of_another_list_are_whole_beside_those_of_the_first(tmp_path: Path) -> None:
    tokenizer = train("bpe", extra_tokens=())
    tokenizer.add_special_tokens({"extra_special_tokens": ["<2de>"], "mask_token": "<mask>"})
    tokenizer.add_special_tokens({"extra_special_tokens": ["<2fr>"]}, replace_extra_special_tokens=False)
    tokenizer.save_pretrained(tmp_path)
    for one in (tokenizer, load(tmp_path)):
        assert one.tokenize("<2de><2fr><mask>") == ["<2de>", "<2fr>", "<mask>"]
        assert one.extra_special_tokens == ["<2de>", "<2fr>"]
        assert one.mask_token == "<mask>"
        assert one.decode(one.encode("<2de>a<mask>"), skip_special_tokens=True) == "a"
        assert one.decode(EOS_ID, skip_special_tokens=True) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_truncation_keeps_eos(kind: Kind) -> None:
    tokenizer = train(kind, model_max_length=4)
    text = "many people live in this old town"
    full = tokenizer.encode(text)
    assert tokenizer(text, truncation=True)["input_ids"] == [*full[:3], EOS_ID]
    assert tokenizer(text_target=[text], truncation=True, max_length=2)["input_ids"] == [[full[0], EOS_ID]]
    assert tokenizer.encode(text) == full


def test_text_target_gives_labels_and_leaves_the_tokenizer_as_it_was(
    trained: dict[str, PreTrainedTokenizerFast],
) -> None:
    """https://github.com/huggingface/transformers/issues/6262"""
    tokenizer = trained["bpe"]
    source, target = tokenizer.encode("many people"), tokenizer.encode("viele Menschen")
    batch = tokenizer("many people", text_target="viele Menschen")
    assert (batch["input_ids"], batch["labels"]) == (source, target)
    with pytest.raises(ValueError, match="text input must be of type"):
        tokenizer(text_target=3)
    assert tokenizer(text_target="viele Menschen")["input_ids"] == target
    assert tokenizer("many people")["input_ids"] == source


@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_batches_are_padded_masked_and_decoded_back(trained: dict[str, PreTrainedTokenizerFast], kind: Kind) -> None:
    texts = ["many , people .", "", " I do n't </s>"]
    batch = trained[kind](texts, padding=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    assert {len(ids) for ids in batch["input_ids"]} == {max(map(sum, batch["attention_mask"]))}
    assert trained[kind].batch_decode(batch["input_ids"], skip_special_tokens=True) == texts
    assert trained[kind]("many", return_token_type_ids=True)["token_type_ids"] == [0, 0]


def test_lines_with_line_separators_stay_lines_and_pieces_that_hold_them_reload(tmp_path: Path) -> None:
    """https://github.com/rsennrich/subword-nmt/issues/29, https://github.com/rsennrich/subword-nmt/pull/92"""
    lines = ["a\u2028b", "a\u0085b", "a\x0b\x0cb"]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines * 9), encoding="utf-8", newline="")
    for kind in KINDS:
        tokenizer = train_tokenizer(tmp_path / "lines.txt", vocab_size=300, kind=kind)
        tokenizer.save_pretrained(tmp_path / kind)
        loaded = load(tmp_path / kind)
        assert loaded.get_vocab() == tokenizer.get_vocab()
        assert len(loaded(lines)["input_ids"]) == 3
        if kind != "word":
            assert loaded.batch_decode(loaded(lines)["input_ids"], skip_special_tokens=True) == lines
    assert "\u2028" in load(tmp_path / "char").get_vocab()
    assert len(load(tmp_path / "bpe").tokenize("\u2028")) == 1


def test_no_token_holds_a_carriage_return_of_the_files(tmp_path: Path) -> None:
    """https://github.com/mjpost/sacrebleu/pull/24, https://github.com/facebookresearch/flores/pull/9"""
    (tmp_path / "a.en").write_bytes(b"one two\nthree\rfour\n" * 9)
    (tmp_path / "a.de").write_bytes(b"eins zwei\r\ndrei vier\r\n" * 9)
    byte_cr = "\u010d"  # how the byte-level alphabet writes it
    for kind in KINDS:
        vocab = train_tokenizer([tmp_path / "a.en", tmp_path / "a.de"], vocab_size=300, kind=kind).get_vocab()
        assert not [token for token in vocab if "\r" in token or (byte_cr in token and token != byte_cr)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_larger_than_the_text_supports_is_smaller_with_a_warning(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = train(kind, vocab_size=3000)
    assert len(tokenizer) < 3000
    assert f"`vocab_size` is 3000, but the training text supports no more than {len(tokenizer)} tokens" in caplog.text


@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_a_vocabulary_the_text_supports_has_exactly_the_size_asked_for(
    trained: dict[str, PreTrainedTokenizerFast], kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = train(kind)
    assert len(tokenizer) == max(tokenizer.get_vocab().values()) + 1 == {"bpe": 400, "unigram": 290}[kind]
    assert not caplog.records


@pytest.mark.parametrize("kind", ["char", "word"])
def test_a_vocabulary_smaller_than_the_alphabet_keeps_the_most_frequent_with_a_warning(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["c b c b c a"] if kind == "word" else ["cbcb ca  "]
    tokenizer = train_tokenizer(iter(lines), vocab_size=6, kind=kind)
    assert len(tokenizer) == 6
    assert tokenizer.get_vocab().keys() >= ({"c", "b"} if kind == "word" else {"c", " "})
    expected = {"word": "2 of the 3 different words", "char": "2 of the 4 different chars"}[kind]
    assert f"`vocab_size` has room for {expected}" in caplog.text
    assert f"{16.67 if kind == 'word' else 33.33} % of the text" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "wordpiece"}, r"`kind` must be one of bpe, unigram, char, word, but is 'wordpiece' instead"),
        ({"vocab_size": 259}, r"`vocab_size` must be at least 260 for kind 'bpe' with 0 extra tokens, but is 259"),
        (
            {"vocab_size": 261, "kind": "unigram", "extra_tokens": ["<a>", "<b>"]},
            r"`vocab_size` must be at least 262 for kind 'unigram' with 2 extra tokens, but is 261 .*all 256 bytes",
        ),
        ({"vocab_size": 4, "kind": "char"}, r"`vocab_size` must be at least 5 .* but is 4 .*one token of the text"),
        ({"extra_tokens": ">>de<<"}, r"`extra_tokens` must be a list of tokens, but is the text '>>de<<' instead"),
        ({"extra_tokens": [" "]}, r"`extra_tokens` must be neither blank nor a special token, but one is ' '"),
        ({"extra_tokens": ["</s>"]}, r"`extra_tokens` must be neither blank nor a special token, but one is '</s>'"),
        (
            {"extra_tokens": ["«de»"]},
            r"`extra_tokens` must be such that decoding gives them back, but '«de»' .* ASCII",
        ),
    ],
)
def test_an_argument_out_of_range_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_tokenizer(iter(CORPUS), **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", "  ", "\u2028"], [">>de<<", ">>de<< >>de<<"]])
def test_no_text_is_an_error(kind: Kind, lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"`files_or_iterator` must hold text to train on, but has none"):
        train_tokenizer(iter(lines), kind=kind, extra_tokens=[">>de<<"])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        train_tokenizer([tmp_path / "no-such-file"])


def test_lines_come_from_a_generator_or_a_column_of_a_dataset(trained: dict[str, PreTrainedTokenizerFast]) -> None:
    from datasets import Dataset

    options: dict[str, Any] = {"vocab_size": 400, "extra_tokens": TAGS}
    column = Dataset.from_dict({"en": CORPUS})["en"]
    for lines in (column, (line for line in CORPUS)):
        assert train_tokenizer(lines, **options).get_vocab() == trained["bpe"].get_vocab()


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_without_end_is_cut_where_training_on_it_whole_takes_too_long(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_seq2seq.tokenization.LONGEST_TRAINING_LINE", 8)
    tokenizer = train_tokenizer(iter(["longwordlongword longwordlongword!"]), vocab_size=300, kind=kind)
    text = "longwordlongword longwordlongword!"
    if kind in LOSSLESS_KINDS:
        assert max(map(len, tokenizer.tokenize(text))) <= 8
    else:
        assert UNK_ID not in tokenizer.encode(text)


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_a_progress_bar_is_shown_on_a_terminal_only(
    kind: Kind, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def spy(make_trainer: Any) -> Any:
        def make(**options: Any) -> Any:
            asked.append(options["show_progress"])
            return make_trainer(**{**options, "show_progress": False})

        return make

    for name in ("BpeTrainer", "UnigramTrainer"):
        trainer = f"hf_seq2seq.tokenization.trainers.{name}"
        monkeypatch.setattr(trainer, spy(resolve_name(trainer)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    train(kind)
    assert asked == [is_terminal]


def test_extra_tokens_are_added_once_and_keep_the_ids_of_the_others(
    trained: dict[str, PreTrainedTokenizerFast],
) -> None:
    tokenizer = copy.deepcopy(trained["bpe"])
    before = tokenizer.get_vocab()
    for _ in range(2):
        add_extra_tokens(tokenizer, ["<new>", TAGS[0]])
    assert tokenizer.get_vocab() == before | {"<new>": len(before)}
    assert tokenizer("x<new>")["input_ids"] == [*before_ids(trained["bpe"], "x"), len(before), 2]


def before_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("\u0120x", "decoding gives them back"),
        ("<end>", "must not hold a special token of the tokenizer, but one is '<end>'"),
    ],
)
def test_an_extra_token_that_cannot_be_added_is_named(
    token: str, message: str, trained: dict[str, PreTrainedTokenizerFast]
) -> None:
    tokenizer = copy.deepcopy(trained["bpe"])
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    with pytest.raises(ValueError, match=message):
        add_extra_tokens(tokenizer, [token])


def test_a_foreign_tokenizer_with_two_vocabularies_takes_no_tokens(tmp_path: Path) -> None:
    write_marian(tmp_path / "marian", separate=True)
    with pytest.raises(ValueError, match=r"left out for a MarianTokenizer with a vocabulary for each side.*'<new>'"):
        add_extra_tokens(AutoTokenizer.from_pretrained(tmp_path / "marian"), ["<new>"])
