"""The model card: what the Hub reads of it, what it tells, and what it leaves out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from reference.tiny_models import tiny_config

from hf_seq2seq import Seq2SeqTransformerConfig, Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.evaluation import METRICS
from hf_seq2seq.hub.card import CardFacts, make_card, make_facts, nearest_paper_model, read_facts
from hf_seq2seq.model.configuration_seq2seq_transformer import PAPER_ROWS
from scripts.render_model_cards import FOLDER, render


SCORES = {
    "test_set": "Letters, test",
    "num_sentences": 1234,
    "bleu": 26.9148,
    "bleu_signature": "nrefs:1|case:mixed",
    "exact_match": 8.61,
}

FULL = CardFacts(
    title="From letters to letters",
    summary="It doubles letters.",
    source_languages=["en"],
    target_languages=["de", "en"],
    license="cc-by-4.0",
    data="Letters.",
    datasets=["tester/letters"],
    data_license="CC0",
    base_model="tester/letters-0",
    tokenizer="26 letters",
    command="hf-seq2seq train --d_model 16",
    hyperparameters={"learning_rate": 0.01, "optim": "a|b"},
    hardware="one abacus",
    versions={"torch": "2.8.0", "hf_seq2seq": "0.1.0"},
    num_pairs=2345,
    num_target_tokens=3456,
    updates=4567,
    epochs=1.768,
    seconds=5678.4,
    target_tokens_per_second=6789.1,
    scores=[SCORES],
    examples=[['a | "b"', "aa\nbb", "a a"]],
    intended_use="Doubling.",
    limits="No digits.",
)


def card_of(facts: CardFacts, config: Seq2SeqTransformerConfig | None = None, repo_id: str | None = "me/m") -> str:
    return str(make_card(facts, config or tiny_config(), repo_id=repo_id))


def test_the_hub_reads_languages_licence_data_and_scores_with_their_signatures(tmp_path: Path) -> None:
    make_card(FULL, tiny_config(), repo_id="me/m").save(tmp_path / "README.md")
    data: Any = ModelCard.load(tmp_path / "README.md").data
    assert (data.language, data.license, data.datasets) == (["en", "de"], "cc-by-4.0", ["tester/letters"])
    assert (data.library_name, data.pipeline_tag, data.base_model) == (
        "transformers",
        "translation",
        "tester/letters-0",
    )
    assert data.metrics == ["bleu", "exact_match"]
    assert data.model_name == "m"
    found = [(one.metric_type, one.metric_name, one.metric_value, one.metric_args) for one in data.eval_results]
    assert found == [
        ("bleu", "BLEU", 26.91, {"signature": "nrefs:1|case:mixed"}),
        ("exact_match", "exact match", 8.61, None),
    ]
    assert {(one.task_type, one.dataset_name, one.dataset_type) for one in data.eval_results} == {
        ("translation", "Letters, test", "local")
    }


def test_the_hub_keeps_the_scores_of_test_sets_apart(tmp_path: Path) -> None:
    scores = [{"test_set": name, "bleu": value} for name, value in (("Letters", 1.5), ("Numbers", 2.5))]
    make_card(replace(FULL, scores=scores), tiny_config(), repo_id="me/m").save(tmp_path / "README.md")
    data: Any = ModelCard.load(tmp_path / "README.md").data
    found = [
        (one["dataset"]["name"], one["metrics"][0]["value"]) for one in data.to_dict()["model-index"][0]["results"]
    ]
    assert found == [("Letters", 1.5), ("Numbers", 2.5)]


@pytest.mark.parametrize(
    "text",
    [
        "# From letters to letters",
        "It doubles letters.",
        "from en to de, en",
        "**Licence**: cc-by-4.0",
        "**Data**: Letters.",
        "**Licence of the data**: CC0",
        "[tester/letters-0](https://huggingface.co/tester/letters-0)",
        "26 letters, all embeddings tied",
        "hf-seq2seq train --d_model 16",
        "| `learning_rate` | 0.01 |\n| `optim` | a\\|b |",
        "**Machine**: one abacus",
        "- **Versions**: torch 2.8.0, hf_seq2seq 0.1.0\n\n```bash\n",
        "4,567 updates (1.77 epochs) on 2,345 pairs in 5,678 s, evaluations included.",
        "The training targets have 3,456 tokens.",
        "6,789 real target tokens a second",
        "**Letters, test**, 1,234 pairs",
        "| BLEU | 26.9 | `nrefs:1\\|case:mixed` |\n| exact match | 8.6 % |",
        '| a \\| "b" | aa bb | a a |',
        'tokenizer(["a | \\"b\\""], return_tensors="pt")',
        "Doubling.",
        "No digits.",
        "Nothing was measured but the scores below.",
        "@inproceedings{vaswani2017attention",
    ],
)
def test_a_card_tells_what_is_known(text: str) -> None:
    assert text in card_of(FULL)


def test_what_is_not_known_is_left_out() -> None:
    card = card_of(CardFacts())
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert headings == ["# m", "## How to use it", "## Limits", "## Citation"]
    assert "None" not in card
    assert "model-index" not in card
    assert "No score was measured for this card." in card
    assert "## How to use it" not in card_of(CardFacts(), repo_id=None)


@pytest.mark.parametrize("base_model", ["/home/me/model", "../model", "out/letters/model", "letters/", "exists"])
def test_a_base_model_that_is_a_path_is_left_out(
    base_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exists").mkdir()
    assert card_of(CardFacts(base_model=base_model)) == card_of(CardFacts())


@pytest.mark.parametrize(
    ("command", "fence"), [("a", "```"), ("a `b`", "```"), ("a\n```\nb", "````"), ("`````", "``````")]
)
def test_a_command_ends_where_its_block_ends(command: str, fence: str) -> None:
    assert f"\n{fence}bash\n{command}\n{fence}\n" in card_of(CardFacts(command=command))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0"), (0.44, "0.4"), (9, "9.0"), (10, "10"), (1234.5, "1,234")]
)
def test_times_under_ten_seconds_have_a_decimal(seconds: float, text: str) -> None:
    assert f"3 updates in {text} s, evaluations" in card_of(CardFacts(updates=3, seconds=seconds))


def test_each_paragraph_of_a_card_stands_alone() -> None:
    versions = {"torch": "2.8.0"}
    one_fact = (CardFacts(hardware="x"), CardFacts(versions=versions), CardFacts(command="x"), CardFacts(updates=1))
    for facts in (FULL, CardFacts(), *one_fact):
        body = card_of(facts).split("\n---\n", 1)[1]
        lines = body.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("## "):
                assert lines[number - 1] == lines[number + 1] == ""
            if line.startswith("|") and not lines[number - 1].startswith("|"):
                assert lines[number - 1] == ""
        assert "\n\n\n" not in body.strip("\n")


@pytest.mark.parametrize("row", PAPER_ROWS)
def test_a_model_of_the_paper_is_named(row: str) -> None:
    config = Seq2SeqTransformerConfig.from_paper(row, vocab_size=100, bos_token_id=3)
    assert nearest_paper_model(config) == (row, {})
    if row != "A-h1":
        return
    assert "It is the paper's model of Table 3, row A-h1." in card_of(CardFacts(), config)


def test_what_differs_from_the_paper_is_named() -> None:
    config = Seq2SeqTransformerConfig.from_paper("big", norm_position="pre", dropout=0.2, vocab_size=100)
    differences = {"norm_position": ("pre", "post"), "dropout": (0.2, 0.3)}
    assert nearest_paper_model(config) == ("big", differences)
    card = card_of(CardFacts(), config)
    assert "It differs from the paper's big model" in card
    assert "| `norm_position` | pre | post |\n| `dropout` | 0.2 | 0.3 |" in card


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "50 tokens, shared by both sides, all embeddings tied."),
        ({"vocab_size": 32000}, "32,000 tokens, shared by both sides, all embeddings tied."),
        (
            {"decoder_vocab_size": 40, "share_encoder_decoder_embeddings": False},
            "50 tokens of the source and 40 of the target.",
        ),
        ({"tie_word_embeddings": False}, "50 tokens, shared by both sides."),
    ],
)
def test_parameters_and_vocabularies_are_the_config_s(fields: dict[str, Any], text: str) -> None:
    config = tiny_config(**fields)
    number = sum(weight.numel() for weight in Seq2SeqTransformerForConditionalGeneration(config).parameters())
    card = " ".join(card_of(CardFacts(), config).split())
    assert f"{number:,} parameters. {text}" in card or f" {number / 1e6:.1f} M parameters. {text}" in card


def test_facts_come_back_from_the_file_they_are_written_to(tmp_path: Path) -> None:
    path = tmp_path / "model_card.yaml"
    path.write_text(FULL.to_yaml(), encoding="utf-8")
    assert read_facts(path) == FULL
    path.write_text(CardFacts().to_yaml(), encoding="utf-8")
    assert read_facts(path) == CardFacts()
    path.write_text("", encoding="utf-8")
    assert read_facts(path) == CardFacts()


def test_a_command_of_several_lines_can_be_read_in_the_file() -> None:
    assert CardFacts(command="a \\\n  b").to_yaml() == "command: |-\n  a \\\n    b\n"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"licence": "mit"}, r"`licence` in here must be a fact of a card, but is none\. Nearest: license"),
        ({"license": 3}, r"`license` in here must be a text, but is 3 instead"),
        ({"task": None}, r"`task` in here must be a text, but is None instead"),
        ({"source_languages": "en"}, r"`source_languages` in here must be a list of texts, but is 'en' instead"),
        ({"datasets": [1]}, r"`datasets` in here must be a list of texts, but is \[1\] instead"),
        ({"versions": {"torch": 2.8}}, r"`versions` in here must be a mapping of names to texts, but is {'torch': 2"),
        ({"hyperparameters": "x"}, r"`hyperparameters` in here must be a mapping of names to values, but is 'x' inst"),
        ({"scores": {"bleu": 1.0}}, r"`scores` in here must be a list of mappings, but is {'bleu': 1.0} instead"),
        (
            {"examples": [["a", "b", 3]]},
            r"`examples` in here must be a list of lists of texts, but is \[\['a', 'b', 3",
        ),
        ({"scores": [{"bleu": 1.0}]}, r"Each of `scores` in here must have a `test_set`.* but one has bleu instead"),
        ({"scores": [{"test_set": "x"}]}, r"at least one of bleu, chrf, .*, exact_match, but one has test_set"),
        ({"examples": [["a", "b"]]}, r"Each of `examples` in here must be a source, .* but one has 2 texts instead"),
    ],
)
def test_what_is_wrong_with_facts_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_facts(values, "here")


@pytest.mark.parametrize("name", ["num_pairs", "num_target_tokens", "updates"])
@pytest.mark.parametrize("value", ["-3", "many", "true", "3.0", ".inf", ".nan"])
def test_a_fact_that_counts_is_a_whole_number(name: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(f"{name}: {value}")
    with pytest.raises(
        ValueError, match=rf"`{name}` in `.*` must be a whole number of at least 0, but is \S+ instead"
    ):
        read_facts(tmp_path / "facts.yaml")


@pytest.mark.parametrize("name", ["epochs", "seconds", "target_tokens_per_second"])
@pytest.mark.parametrize("value", ["-0.1", "long", "true", ".inf", ".nan"])
def test_a_fact_that_measures_is_a_finite_number(name: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(f"{name}: {value}")
    with pytest.raises(ValueError, match=rf"`{name}` in `.*` must be a finite number of at least 0, but is \S+ inst"):
        read_facts(tmp_path / "facts.yaml")


NUMBER, COUNT, TEXT = "a finite number of at least 0", "a whole number of at least 0", "a text"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *((name, value, NUMBER) for name in METRICS for value in ("abc", None, float("nan"), float("inf"), True, -1)),
        *(("num_sentences", value, COUNT) for value in ("12", 1.5, None, True, -1)),
        *((name, 3, TEXT) for name in ("note", "dataset", "split", "bleu_signature", "chrf_signature")),
        ("note", None, TEXT),
    ],
)
def test_what_is_wrong_with_a_score_is_named(name: str, value: object, rule: str) -> None:
    scores = {"test_set": "x", "ter": 1.0, name: value}
    with pytest.raises(
        ValueError, match=rf"^`{name}` of `scores` in here must be {rule}, but is {value!r} instead\.$"
    ):
        make_facts({"scores": [scores]}, "here")


def test_numbers_that_are_zero_whole_or_unknown_are_facts() -> None:
    values = {"updates": 0, "epochs": 2, "seconds": 0.0, "num_pairs": None}
    assert make_facts(values, "here") == CardFacts(updates=0, epochs=2, seconds=0.0)
    scores = {"test_set": "x", "ter": 130.5, "bleu": 0, "num_sentences": 0, "comparison": {}}
    assert make_facts({"scores": [scores]}, "here").scores == [scores]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r"`.*facts.yaml` must be valid YAML, but is not"),
        ("- a", r"must be a mapping of facts, but is a list"),
    ],
)
def test_a_file_of_facts_that_is_none_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_facts(tmp_path / "facts.yaml")


@pytest.mark.parametrize(
    "path", sorted({path.with_suffix("") for path in FOLDER.glob("*.[my]*")}), ids=lambda path: path.name
)
def test_the_cards_of_this_repository_are_made_by_the_same_code(path: Path) -> None:
    """Run scripts/render_model_cards.py after a change."""
    assert path.with_suffix(".md").read_text(encoding="utf-8") == render(path.with_suffix(".yaml"))
