"""One call trains, saves, scores and goes on where it stopped; what does not fit is refused by name."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from reference.tiny_models import tiny_model
from tokenizers import processors
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training.arguments import parse_arguments
from hf_seq2seq.training.run import run_training
from hf_seq2seq.training.trainer import Seq2SeqTransformerTrainer


Settings = dict[str, Any]
SOURCE_WORDS = ["one", "two", "three", "four", "five"]
TARGET_WORDS = ["eins", "zwei", "drei", "vier", "fünf"]


def write_pairs(folder: Path, name: str, num_pairs: int, seed: int) -> Settings:
    """Writes numerals in two languages and returns the two settings that name them."""
    generator = random.Random(seed)
    rows = [generator.choices(range(5), k=generator.randint(1, 4)) for _ in range(num_pairs)]
    for side, words in (("source", SOURCE_WORDS), ("target", TARGET_WORDS)):
        text = "".join(" ".join(words[i] for i in row) + "\n" for row in rows)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    return {f"{name}_{side}": str(folder / f"{name}.{side}") for side in ("source", "target")}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A run of a few seconds that learns little."""
    folder = tmp_path_factory.mktemp("pairs")
    return {
        **write_pairs(folder, "train", 60, seed=1),
        **write_pairs(folder, "validation", 12, seed=2),
        "tokenizer_kind": "char",
        "vocab_size": 50,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "max_length": 40,
        "tokens_per_batch": 250,
        "max_steps": 6,
        "save_steps": 3,
        "learning_rate": 0.01,
        "seed": 7,
    }


def run(settings: Settings, output_dir: Path, **overrides: Any) -> dict[str, Any]:
    """Runs with the settings, of which an override of None leaves one out."""
    chosen = settings | overrides | {"output_dir": output_dir}
    arguments = [f"--{name}={value}" for name, value in chosen.items() if value is not None]
    return run_training(*parse_arguments(arguments))


@pytest.fixture(scope="module")
def finished(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("run") / "out"
    run(settings, output_dir)
    return output_dir


# Settings of a new model, left out.
FINE_TUNING: Settings = {"tokenizer_kind": None, "vocab_size": None, "d_model": None}
for stack in ("encoder", "decoder"):
    FINE_TUNING |= {f"{stack}_{part}": None for part in ("layers", "attention_heads", "ffn_dim")}


def test_a_run_leaves_a_model_that_the_auto_classes_load_and_its_results(finished: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(finished)
    model = AutoModelForSeq2SeqLM.from_pretrained(finished)
    assert type(model) is Seq2SeqTransformerForConditionalGeneration
    assert model.config.vocab_size == len(tokenizer) <= 50
    assert (model.config.d_model, model.config.dropout, model.config.use_cache) == (16, 0.1, True)
    assert (model.generation_config.num_beams, model.generation_config.max_length) == (4, 256)
    assert tokenizer.model_max_length == 40
    assert tokenizer.decode(tokenizer("fünf two")["input_ids"], skip_special_tokens=True) == "fünf two"
    model.generate(**tokenizer(["one two"], return_tensors="pt"), max_length=5)

    results = json.loads((finished / "training_results.json").read_text())
    assert results["num_steps"] == 6
    assert 0 < results["train_loss"] < 20
    assert 0 < results["validation_loss"] < 20
    assert results["num_scored_pairs"] == results["num_validation_pairs"] == 12
    assert 0 <= results["bleu"] <= 100
    assert "version:" in results["chrf_signature"]
    written = json.loads((finished / "training_settings.json").read_text())
    assert (written["d_model"], written["max_length"], written["max_steps"], written["preset"]) == (16, 40, 6, None)


def test_the_same_command_again_finds_the_run_finished(
    settings: Settings, finished: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(Seq2SeqTransformerTrainer, "__init__")  # which a finished run does not need
    caplog.set_level("INFO", "hf_seq2seq")
    again = run(settings, finished, logging_steps=1, run_name="again")  # which do not change what is learned
    assert again == json.loads((finished / "training_results.json").read_text())
    assert f"The run in {finished} is finished." in caplog.messages


def test_a_run_that_broke_off_goes_on_to_the_same_weights(
    settings: Settings, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(Exception):
        pass

    compute_loss = Seq2SeqTransformerTrainer.compute_loss

    def compute_loss_until_a_power_cut(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 5:
            raise PowerCutError
        return compute_loss(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Seq2SeqTransformerTrainer, "compute_loss", compute_loss_until_a_power_cut)
        with pytest.raises(PowerCutError):
            run(settings, tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert run(settings, tmp_path / "out")["num_steps"] == 6
    straight, resumed = load_model(finished).state_dict(), load_model(tmp_path / "out").state_dict()
    for name, weight in straight.items():
        assert torch.equal(resumed[name], weight), name


def test_another_setting_in_the_same_folder_is_named_with_both_values(settings: Settings, finished: Path) -> None:
    message = r"^`d_model` must be 16 as in the run that '.*out' holds, but is 32 instead\. .* another `output_dir`"
    with pytest.raises(ValueError, match=message):
        run(settings, finished, d_model=32)
    with pytest.raises(ValueError, match=r"^`dropout` must be None as in the run that .*, but is 0.5 instead"):
        run(settings, finished, dropout=0.5)


def test_settings_that_never_led_to_a_checkpoint_may_be_mended(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(StrictDataclassError, match="`decoder_vocab_size` must equal `vocab_size`"):
        run(settings, tmp_path / "out", decoder_vocab_size=7)
    assert run(settings, tmp_path / "out", max_steps=1)["num_steps"] == 1


def test_a_folder_with_something_else_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"`output_dir` must be a new or empty folder, .* holds 'thesis.tex' and no"):
        run(settings, tmp_path)
    with pytest.raises(NotADirectoryError, match=r"`output_dir` must be a folder, but '.*thesis.tex' is a file"):
        run(settings, tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_fine_tuning_takes_weights_and_tokenizer_of_the_model(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    run(settings, tmp_path / "out", **FINE_TUNING, model_name_or_path=finished, learning_rate=0, dropout=0.4)
    tuned = load_model(tmp_path / "out")
    for name, weight in load_model(finished).state_dict().items():
        assert torch.equal(tuned.state_dict()[name], weight), name
    assert tuned.config.dropout == 0.4
    assert load_tokenizer(tmp_path / "out").get_vocab() == load_tokenizer(finished).get_vocab()


def test_a_table_of_pairs_and_a_ready_tokenizer_without_validation(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    no_text_files = dict.fromkeys(("train_source", "train_target", "validation_source", "validation_target"))
    results = run(
        settings,
        tmp_path / "out",
        **no_text_files,
        train_file=tmp_path / "pairs.tsv",
        tokenizer=finished,
        vocab_size=None,
        tokenizer_kind=None,
        max_length=300,
        tokens_per_batch=None,
        max_steps=1,
        use_cache=False,
    )
    assert results.keys() == {"num_steps", "train_loss"}
    tokenizer, model = load_tokenizer(tmp_path / "out"), load_model(tmp_path / "out")
    assert tokenizer.get_vocab() == load_tokenizer(finished).get_vocab()
    assert tokenizer.model_max_length == 300
    assert model.generation_config.max_length == 301  # 300 tokens after the start token
    assert model.config.use_cache is False


def test_scores_are_those_of_the_whole_text_of_all_validation_pairs(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over-long pairs and characters that the tokenizer does not know count too."""
    (tmp_path / "v.source").write_text("one\n" + "two " * 30 + "\nfive\n", encoding="utf-8")
    (tmp_path / "v.target").write_text("eins Ω\n" + "zwei " * 30 + "\nfünf\n", encoding="utf-8")
    scored: list[Any] = []

    def keep(*texts: Any) -> dict[str, Any]:
        scored.append(texts)
        return {}

    monkeypatch.setattr("hf_seq2seq.training.run.score", keep)
    validation = {"validation_source": tmp_path / "v.source", "validation_target": tmp_path / "v.target"}
    results = run(settings, tmp_path / "out", **validation, max_steps=1)
    assert results["num_scored_pairs"] == 3
    assert list(scored[0][1]) == ["eins Ω", "zwei " * 30, "fünf"]
    assert len(scored[0][0]) == 3


def test_only_the_first_pairs_are_translated_of_many(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_seq2seq.training.run.MAX_SCORED_PAIRS", 5)
    results = run(settings, tmp_path / "out", max_steps=1)
    assert (results["num_scored_pairs"], results["num_validation_pairs"]) == (5, 12)


def test_evaluation_by_generation_within_the_run_logs_scores(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out", max_steps=1, predict_with_generate=True, eval_steps=1, generation_num_beams=1)
    state = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())
    (evaluation,) = [entry for entry in state["log_history"] if "eval_bleu" in entry]
    assert 0 <= evaluation["eval_chrf"] <= 100
    assert evaluation["eval_loss"] > 0


def test_a_tokenizer_larger_than_the_vocabulary_is_named_with_both_sizes(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    model = tiny_model(vocab_size=9)
    model.save_pretrained(tmp_path / "small")
    tokenizer = load_tokenizer(finished)
    tokenizer.save_pretrained(tmp_path / "small")
    message = rf"at most as many tokens as the model's `vocab_size` \(9\), but has {len(tokenizer)} instead"
    with pytest.raises(ValueError, match=message):
        run(settings, tmp_path / "out", **FINE_TUNING, model_name_or_path=tmp_path / "small")


def test_a_tokenizer_that_ends_no_text_is_refused(settings: Settings, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(iter(["one two"]), vocab_size=50, kind="char")
    tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"tokenizer of `.*` must end each text with its `eos_token` \('</s>'\)"):
        run(settings, tmp_path / "out", tokenizer=tmp_path / "tokenizer", vocab_size=None, tokenizer_kind=None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"pad_token_id": 5}, r"`pad_token_id` must be the tokenizer's \(0\), but is 5 instead"),
        (
            {"position_embedding_type": "learned", "max_position_embeddings": 39},
            r"`max_length` must be at most `max_position_embeddings` \(39\) with learned positions, but is 40 instead",
        ),
        (
            {"model_name_or_path": "no-such-folder", **FINE_TUNING},
            "`no-such-folder` must be the folder of a tokenizer",
        ),
        ({"train_source": "no-such-file"}, "`no-such-file` must be a file, but does not exist"),
        ({"tokens_per_batch": 3}, "`tokens_per_batch` must be at least the length of the longest pair, but is 3"),
    ],
)
def test_what_does_not_fit_is_named(overrides: Settings, message: str, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        run(settings, tmp_path / "out", **overrides)
