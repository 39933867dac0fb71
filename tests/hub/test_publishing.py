"""A folder that is saved for the Hub loads with and without the package; one that is only saved carries nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hub.fresh_process import run_python
from huggingface_hub import ModelCard
from reference.tiny_models import tiny_model
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Seq2SeqTransformerModel
from hf_seq2seq.hub import CardFacts, prepare_trainer, save_for_hub


KINDS = (
    "configuration",
    "dropout",
    "generation",
    "inputs",
    "loss",
    "modeling",
    "outputs",
    "packed",
    "publishing",
    "vocabulary",
)
CODE = {f"{kind}_seq2seq_transformer.py" for kind in KINDS}
PUBLISHED = CODE | {
    *("README.md", "config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json"),
}

# Loads the first folder, saves to the second what it loaded, loads that, and so on; writes a report beside each.
LOAD_AND_REPORT = """
import json, sys
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
settings, *folders = json.loads(sys.argv[1]), *sys.argv[2:]
for folder, next_folder in zip(folders, [*folders[1:], None]):
    tokenizer = AutoTokenizer.from_pretrained(folder, **settings)
    inputs = tokenizer(["a b c", "d"], padding=True, return_tensors="pt")
    found = [auto.from_pretrained(folder, **settings) for auto in (AutoConfig, AutoModel, AutoModelForSeq2SeqLM)]
    model = found[-1]
    torch.save({
        "ids": inputs["input_ids"],
        "classes": [type(one).__name__ for one in found],
        "modules": [type(one).__module__ for one in found],
        "weights": model.state_dict(),
        "generated": model.generate(**inputs, max_new_tokens=6),
        "settings": model.generation_config.max_length,
    }, folder + ".report")
    if next_folder:
        model.save_pretrained(next_folder)
        tokenizer.save_pretrained(next_folder)
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Any:
    return tiny_model(vocab_size=len(letter_tokenizer), position_embedding_type="learned")


@pytest.fixture
def published(model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    save_for_hub(model, letter_tokenizer, tmp_path / "published")
    return tmp_path / "published"


def assert_loaded(folder: Path, model: Any, tokenizer: PreTrainedTokenizerFast, module: str) -> None:
    found = torch.load(f"{folder}.report")
    inputs = tokenizer(["a b c", "d"], padding=True, return_tensors="pt")
    assert torch.equal(found["ids"], inputs["input_ids"])
    head = "Seq2SeqTransformerForConditionalGeneration"
    assert found["classes"] == ["Seq2SeqTransformerConfig", "Seq2SeqTransformerModel", head]
    assert all(name.startswith(module) for name in found["modules"])
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in found["weights"].items())
    assert torch.equal(found["generated"], model.generate(**inputs, max_new_tokens=6))
    assert found["settings"] == model.generation_config.max_length


def test_a_published_folder_holds_what_belongs_to_the_model_and_nothing_else(published: Path) -> None:
    assert names(published) == PUBLISHED


def test_a_published_folder_loads_where_the_package_is_not(
    published: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """https://github.com/huggingface/transformers/issues/29714; and what is saved there loads once more."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    again = tmp_path / "again"
    run_python(LOAD_AND_REPORT, '{"trust_remote_code": true}', published, again, package=False)
    for folder in (published, again):
        assert_loaded(folder, model, letter_tokenizer, "transformers_modules.")


def test_with_the_package_a_published_folder_loads_its_classes_and_asks_nothing(
    published: Path,
    model: Any,
    letter_tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["load", "{}", str(published)])
    exec(LOAD_AND_REPORT, {})
    assert_loaded(published, model, letter_tokenizer, "hf_seq2seq.")
    assert "custom code" not in "".join(capfd.readouterr())


def test_a_model_that_is_only_saved_carries_no_code(published: Path, model: Any, tmp_path: Path) -> None:
    """Not after it was published either, nor loaded from where it was."""
    for number, one in enumerate((model, AutoModelForSeq2SeqLM.from_pretrained(published))):
        folder = tmp_path / str(number)
        one.save_pretrained(folder)
        assert names(folder) == {"config.json", "generation_config.json", "model.safetensors"}
        assert "auto_map" not in config_of(folder)


def test_a_model_without_a_head_carries_its_code_too(
    letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = Seq2SeqTransformerModel(tiny_model(vocab_size=len(letter_tokenizer)).config)
    model.carries_code = True
    model.save_pretrained(tmp_path)
    assert names(tmp_path) >= CODE
    assert config_of(tmp_path)["auto_map"]["AutoModel"] == "modeling_seq2seq_transformer.Seq2SeqTransformerModel"


def test_one_line_makes_the_stock_trainer_carry_the_code(
    model: Any, published: Path, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    pairs = Dataset.from_list([{"input_ids": [4, 5, 2], "labels": [6, 2]}] * 2)
    args = Seq2SeqTrainingArguments(str(tmp_path / "out"), max_steps=1, report_to="none", use_cpu=True)
    collator = DataCollatorForSeq2Seq(letter_tokenizer, model=model)
    trainer = Seq2SeqTrainer(model, args, collator, pairs, processing_class=letter_tokenizer)
    prepare_trainer(trainer)
    trainer.train()
    trainer.save_model()
    for folder in (tmp_path / "out", tmp_path / "out" / "checkpoint-1"):
        assert config_of(folder)["auto_map"] == config_of(published)["auto_map"]
        assert all((folder / name).read_bytes() == (published / name).read_bytes() for name in CODE)
    trainer.hub_model_id = "me/letters"  # type: ignore[assignment]
    trainer.create_model_card()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "1 updates (1.00 epochs)" in card
    assert 'from_pretrained("me/letters", trust_remote_code=True)' in card
    trainer.create_model_card(
        "de", "mit", tags="letters", dataset_tags=["me/pairs"], dataset="Pairs", tasks="text2text-generation"
    )
    data = ModelCard.load(tmp_path / "out" / "README.md").data.to_dict()
    assert (data["language"], data["license"], data["pipeline_tag"]) == ("de", "mit", "text2text-generation")
    assert (data["datasets"], data["tags"][-1]) == (["me/pairs"], "letters")


def test_saving_takes_what_the_base_class_takes(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, True, None, False, "1KB")
    assert (tmp_path / "model.safetensors.index.json").exists()


def test_a_subclass_whose_code_is_elsewhere_does_not_carry_that_of_its_base(model: Any, tmp_path: Path) -> None:
    class Mine(Seq2SeqTransformerForConditionalGeneration):  # type: ignore[misc, unused-ignore]
        pass

    mine = Mine(model.config)
    mine.save_pretrained(tmp_path / "saved")
    mine.carries_code = True
    with pytest.raises(ValueError, match=r"but Mine is neither\. Call its `register_for_auto_class`"):
        mine.save_pretrained(tmp_path / "carried")


def test_a_foreign_model_is_refused(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    marian: Any = MarianMTModel(MarianConfig(vocab_size=30, pad_token_id=0, d_model=16, encoder_layers=1))
    with pytest.raises(
        TypeError, match=r"`model` must be a model of hf_seq2seq, but is a MarianMTModel instead\. Merge"
    ):
        save_for_hub(marian, letter_tokenizer, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_a_folder_that_holds_something_is_left_alone(
    model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"`.*` must be a new or empty folder, but holds 'thesis.tex'"):
        save_for_hub(model, letter_tokenizer, tmp_path)
    assert names(tmp_path) == {"thesis.tex"}
    assert not model.carries_code


def test_the_card_names_the_tokenizer_and_where_to_load_from(
    model: Any, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    save_for_hub(model, letter_tokenizer, tmp_path / "a", card=CardFacts(license="mit"), repo_id="me/letters")
    card = (tmp_path / "a" / "README.md").read_text()
    assert "30 tokens (WordLevel)" in card
    assert 'Translator.from_pretrained("me/letters")' in card
    assert "license: mit" in card
