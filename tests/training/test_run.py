"""One call trains, saves, scores and goes on where it stopped; what does not fit is refused by name."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from reference.tiny_models import tiny_model
from reference.tiny_runs import Settings, command_line, tiny_settings, write_pairs
from safetensors.torch import load_file
from tokenizers import processors
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.evaluation import METRICS
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training import preparing_pairs
from hf_seq2seq.training.arguments import DataArguments, ModelArguments, Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.command_line import parse_arguments, to_options
from hf_seq2seq.training.run import run_training
from hf_seq2seq.training.run_folder import RunFolder
from hf_seq2seq.training.trainer import Seq2SeqTransformerTrainer


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return tiny_settings(tmp_path_factory.mktemp("pairs"))


def run(settings: Settings, output_dir: Path, **overrides: Any) -> dict[str, Any]:
    """Runs with the settings, of which an override of None leaves one out."""
    return run_training(*parse_arguments(command_line(settings | overrides | {"output_dir": output_dir})))


@pytest.fixture(scope="module")
def finished(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output_dir = tmp_path_factory.mktemp("run") / "out"
    run(settings, output_dir, logging_steps=1)
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
    assert results["num_scored_pairs"] == results["num_validation_pairs"] == 12
    assert "version:" in results["chrf_signature"]
    written = json.loads((finished / "training_settings.json").read_text())
    assert (written["d_model"], written["max_length"], written["max_steps"], written["preset"]) == (16, 40, 6, None)


def test_the_results_tell_the_losses_of_the_last_update_and_of_the_validation_pairs(
    settings: Settings, finished: Path
) -> None:
    results = json.loads((finished / "training_results.json").read_text())
    history = json.loads((finished / "checkpoint-6" / "trainer_state.json").read_text())["log_history"]
    assert results["train_loss"] == [entry["loss"] for entry in history if "loss" in entry][-1]

    tokenizer, model = load_tokenizer(finished), load_model(finished)
    sources, targets = (Path(settings[f"validation_{side}"]).read_text().splitlines() for side in ("source", "target"))
    losses = []
    for source, target in zip(sources, targets, strict=True):
        labels = tokenizer(text_target=target)["input_ids"]
        decoder_input_ids = torch.tensor([[model.config.decoder_start_token_id, *labels[:-1]]])
        logits = model(**tokenizer(source, return_tensors="pt"), decoder_input_ids=decoder_input_ids).logits
        losses += (-logits[0].log_softmax(-1)[range(len(labels)), labels]).tolist()
    assert results["validation_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_the_same_command_again_finds_the_run_finished(
    settings: Settings, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hf_seq2seq")
    models = [*finished.rglob("model.safetensors"), *finished.rglob("trainer_state.json")]
    written = [file.stat().st_mtime_ns for file in models]
    again = run(settings, finished, logging_steps=7, run_name="again")  # which do not change what is learned
    assert again == json.loads((finished / "training_results.json").read_text())
    assert caplog.messages == [f"The run in {finished} is finished."]
    assert [file.stat().st_mtime_ns for file in models] == written


def test_a_run_from_python_is_the_run_of_the_command(settings: Settings, finished: Path, tmp_path: Path) -> None:
    """Neither is told the rate of fine-tuning, nor that validation pairs are evaluated."""
    further = {"model_name_or_path": str(finished), "max_steps": 1, "tokens_per_update": 250}
    files = {name: settings[name] for name in settings if name.startswith(("train_", "validation_"))}
    by_command = run(files, tmp_path / "command", **further)
    in_python = run_training(
        ModelArguments(model_name_or_path=str(finished)),
        DataArguments(**files),
        Seq2SeqTransformerTrainingArguments(output_dir=str(tmp_path / "Python"), max_steps=1, tokens_per_update=250),
    )
    assert in_python == by_command
    told = [json.loads((tmp_path / door / "training_settings.json").read_text()) for door in ("command", "Python")]
    assert {name: (told[0][name], told[1][name]) for name in told[0] if told[0][name] != told[1][name]} == {
        "output_dir": (str(tmp_path / "command"), str(tmp_path / "Python"))
    }
    assert (told[0]["learning_rate"], told[0]["eval_strategy"], told[0]["tokens_per_batch"]) == (1e-4, "steps", 250)


def test_a_finished_run_the_other_way_round_is_refused(settings: Settings, finished: Path) -> None:
    swapped = {f"{part}_source": settings[f"{part}_target"] for part in ("train", "validation")}
    swapped |= {f"{part}_target": settings[f"{part}_source"] for part in ("train", "validation")}
    with pytest.raises(ValueError, match=r"The train pairs must be those that the run in .* was begun with"):
        run(settings | swapped, finished)


def test_a_finished_run_notices_files_replaced_by_others_of_the_same_size_and_time(
    settings: Settings, finished: Path
) -> None:
    """https://github.com/LoicGrobol/zeldarose/issues/111."""
    file = Path(settings["train_target"])
    before, content = file.stat(), file.read_bytes()
    for replaced in (content.replace(b"eins", b"zwei"), content):
        file.write_bytes(replaced)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        if replaced != content:
            with pytest.raises(ValueError, match=r"The train pairs must be those that the run in .* was begun with"):
                run(settings, finished, logging_steps=1)
    assert run(settings, finished, logging_steps=1)["num_steps"] == 6


class PowerCutError(Exception):
    """A run breaks off after its fifth update."""


@pytest.fixture
def power_cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Returns a context in which a run is cut off."""
    compute_loss = Seq2SeqTransformerTrainer.compute_loss

    def compute_loss_until_a_power_cut(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 5:
            raise PowerCutError
        return compute_loss(self, *args, **kwargs)

    @contextmanager
    def cut() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(Seq2SeqTransformerTrainer, "compute_loss", compute_loss_until_a_power_cut)
            with pytest.raises(PowerCutError):
                yield

    return cut


def check_same_weights(folder: Path, other: Path) -> None:
    weights, others = load_model(folder).state_dict(), load_model(other).state_dict()
    for name, weight in weights.items():
        assert torch.equal(others[name], weight), name


def test_a_run_that_broke_off_goes_on_to_the_same_weights(
    settings: Settings, finished: Path, tmp_path: Path, power_cut: Callable[[], AbstractContextManager[None]]
) -> None:
    with power_cut():
        run(settings, tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert not (tmp_path / "out" / "model.safetensors").exists()
    assert run(settings, tmp_path / "out")["num_steps"] == 6
    check_same_weights(finished, tmp_path / "out")


def test_another_setting_in_the_same_folder_is_named_with_both_values(settings: Settings, finished: Path) -> None:
    message = r"^`d_model` must be 16 as in the run that '.*out' holds, but is 32 instead\. .* another `output_dir`"
    with pytest.raises(ValueError, match=message):
        run(settings, finished, d_model=32)
    with pytest.raises(ValueError, match=r"^`dropout` must be None as in the run that .*, but is 0.5 instead"):
        run(settings, finished, dropout=0.5)


def test_settings_that_never_led_to_a_checkpoint_may_be_mended(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`pad_token_id` must be the tokenizer's"):
        run(settings, tmp_path / "out", pad_token_id=5)
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


def test_tokens_are_added_to_a_model_that_there_is_and_its_run_goes_on_exactly(
    settings: Settings, finished: Path, tmp_path: Path, power_cut: Callable[[], AbstractContextManager[None]]
) -> None:
    tags: Settings = {**FINE_TUNING, "model_name_or_path": finished, "extra_token": ">>de<<", "warmup_steps": 0}
    run(settings, tmp_path / "still", **tags, learning_rate=0, max_steps=1)
    before, after = load_model(finished), load_model(tmp_path / "still")
    num_tokens = len(load_tokenizer(finished))
    assert (after.config.vocab_size, after.config.decoder_vocab_size) == (num_tokens + 1, num_tokens + 1)
    table, larger = before.lm_head.weight, after.lm_head.weight
    assert torch.equal(larger[:-1], table)
    assert torch.allclose(larger[-1], table.mean(0), atol=0.05)  # transformers draws it close to the mean
    translator = Translator.from_pretrained(tmp_path / "still")
    ids = translator.tokenizer(">>de<< one")["input_ids"]
    assert ids == [num_tokens, *load_tokenizer(finished)(" one")["input_ids"]]
    translator([">>de<< one"])

    run(settings, tmp_path / "straight", **tags)
    with power_cut():
        run(settings, tmp_path / "out", **tags)
    run(settings, tmp_path / "out", **tags)
    check_same_weights(tmp_path / "straight", tmp_path / "out")


def test_each_corpus_has_its_tag_which_is_one_token(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    loaded = preparing_pairs.load_pairs

    def load_pairs(*args: Any) -> Any:
        pairs = loaded(*args)
        seen.append(list(pairs["train"]["source"]))
        return pairs

    monkeypatch.setattr("hf_seq2seq.training.run.load_pairs", load_pairs)
    (tmp_path / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    options: Settings = {name: None for name in settings if name.startswith(("train_", "validation_"))}
    tags: Settings = {"train_file": [tmp_path / "pairs.tsv"] * 2, "corpus_tags": ["", ">>de<<"]}
    arguments = to_options(
        {name: value for name, value in (settings | options | tags).items() if value is not None}
        | {"output_dir": tmp_path / "out", "max_steps": 1, "max_characters": 4}
    )
    run_training(*parse_arguments(arguments))
    assert seen == [["one", "two", ">>de<< one", ">>de<< two"]]  # the filter has not counted the tag
    tokenizer = load_tokenizer(tmp_path / "out")
    assert tokenizer.tokenize(">>de<< one") == [">>de<<", " ", "o", "n", "e"]


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

    def keep(*texts: Any, **options: Any) -> dict[str, Any]:
        scored.append(texts)
        return {}

    monkeypatch.setattr("hf_seq2seq.training.final_evaluation.score", keep)
    validation = {"validation_source": tmp_path / "v.source", "validation_target": tmp_path / "v.target"}
    results = run(settings, tmp_path / "out", **validation, max_steps=1)
    assert results["num_scored_pairs"] == 3
    assert list(scored[0][1]) == ["eins Ω", "zwei " * 30, "fünf"]
    assert len(scored[0][0]) == 3


def test_only_the_first_pairs_are_translated_of_many(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_seq2seq.training.final_evaluation.MAX_SCORED_PAIRS", 5)
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


def test_tokens_that_a_user_added_to_the_tokenizer_are_whole_in_training(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/29564"""
    tokenizer: Any = AutoTokenizer.from_pretrained(finished, additional_special_tokens=["<2de>"])
    tokenizer.save_pretrained(tmp_path / "tagged")
    (tmp_path / "pairs.tsv").write_text("<2de> one\teins\n<2de> two\tzwei\n", encoding="utf-8")
    options: Settings = dict.fromkeys(("train_source", "train_target", "validation_source", "validation_target"))
    options |= {"train_file": tmp_path / "pairs.tsv", "tokenizer": tmp_path / "tagged", "tokenizer_kind": None}
    run(settings, tmp_path / "out", **options, vocab_size=None, max_steps=1, max_length=6, over_long="truncate")
    trained = Translator.from_pretrained(tmp_path / "out")
    assert trained.model.config.vocab_size == len(tokenizer) == len(load_tokenizer(finished)) + 1
    ids = trained.tokenizer(["<2de> one", "</s>"])["input_ids"]
    assert ids == [
        [len(tokenizer) - 1, *load_tokenizer(finished)(" one")["input_ids"]],
        tokenizer("</s>")["input_ids"],
    ]
    assert ids[1].count(2) == 1


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


def test_a_warm_up_longer_than_the_run_is_told_at_its_start_and_in_its_plan(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for dry_run in (True, False):
        run(settings, tmp_path / "out", max_steps=1, warmup_steps=4, dry_run=dry_run)
        told = [message for message in caplog.messages if "it ends at 25.0 % of the highest rate" in message]
        assert len(told) == 1
        caplog.clear()


def test_a_dry_run_counts_what_would_be_trained_and_writes_nothing(settings: Settings, tmp_path: Path) -> None:
    plan = run(settings, tmp_path / "out", dry_run=True, max_steps=None, num_train_epochs=4, save_steps=None)
    assert not (tmp_path / "out").exists()
    sources, targets = (Path(settings[f"train_{side}"]).read_text().splitlines() for side in ("source", "target"))
    assert plan["pairs"] == 60
    assert plan["source_tokens"] == sum(len(text) + 1 for text in sources)  # a character is a token; and </s>
    assert plan["target_tokens"] == sum(len(text) + 1 for text in targets)
    assert plan["longest"] == max(len(text) + 1 for text in (*sources, *targets))
    assert plan["updates"] == 4 * plan["batches"]
    assert plan["epochs"] == 4
    assert 0 < plan["padding"] < 0.5
    assert plan["parameters"] * 16 < plan["memory_gib"] * 2**30 < 100e6
    searching = run(settings, tmp_path / "out", dry_run=True, generation_num_beams=900)
    assert searching["memory_gib"] > 10 * plan["memory_gib"]  # that of the evaluation
    trained = run(settings, tmp_path / "out", max_steps=None, num_train_epochs=4, save_steps=None)
    assert trained["num_steps"] == plan["updates"]
    assert load_model(tmp_path / "out").num_parameters() == plan["parameters"]


@pytest.mark.parametrize("is_finished", [False, True])
def test_changed_training_pairs_are_refused_where_a_run_would_go_on_or_is_finished(
    is_finished: bool, settings: Settings, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "out")
    if not is_finished:
        (tmp_path / "out" / "training_results.json").unlink()
    text = Path(settings["train_source"]).read_text()
    changed = tmp_path / "train.source"
    changed.write_text(text.replace("one", "five", 1))
    data = json.loads((tmp_path / "out" / "training_data.json").read_text())
    message = rf"begun with \(60 pairs, checksum {data['train']['crc32']}\), but have changed \(60 pairs, checksum"
    with pytest.raises(ValueError, match=message):
        run(settings, tmp_path / "out", train_source=changed)


def test_the_final_model_can_be_the_average_of_the_last_checkpoints(settings: Settings, tmp_path: Path) -> None:
    """Vaswani et al. (2017), section 6.1."""
    run(settings, tmp_path / "out", save_steps=2, average_checkpoints=2)
    names = ("checkpoint-4", "checkpoint-6", ".")
    fourth, sixth, final = (load_file(tmp_path / "out" / name / "model.safetensors") for name in names)
    for name, weight in final.items():
        torch.testing.assert_close(weight, (fourth[name] + sixth[name]) / 2)
    assert any(not torch.equal(fourth[name], weight) for name, weight in sixth.items())


def test_fewer_checkpoints_than_are_to_be_averaged_are_averaged_with_a_warning(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(settings, tmp_path / "out", average_checkpoints=5, eval_strategy="no")
    assert "`average_checkpoints` is 5, but the run has only 2" in caplog.text


def test_training_ends_when_the_score_no_longer_rises_and_keeps_the_best_model(
    settings: Settings, tmp_path: Path
) -> None:
    scores = iter([0.3, 0.9, 0.5, 0.4, 0.95, 0.96])

    def metrics(*_: Any) -> Any:
        return lambda prediction: {"chrf": next(scores)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_seq2seq.training.run.generation_metrics", metrics)
        results = run(
            settings,
            tmp_path / "out",
            save_steps=1,
            eval_steps=1,
            early_stopping_patience=2,
            metric_for_best_model="chrf",
        )
    assert results["num_steps"] == 4
    best, final = (load_file(tmp_path / "out" / name / "model.safetensors") for name in ("checkpoint-2", "."))
    assert all(torch.equal(final[name], weight) for name, weight in best.items())


def test_corpora_are_mixed_and_filtered(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text(
        "one\teins\none\teins\ntwo\ttwo\nthree\t" + "drei " * 7 + "\n", encoding="utf-8"
    )
    mixed = {"train_file": tmp_path / "more.tsv", "drop_duplicates": True, "drop_identical": True}
    few = write_pairs(tmp_path, "few", 3, seed=5)
    sides = {"train_source": few["few_source"], "train_target": few["few_target"]}
    plan = run(settings, tmp_path / "out", **sides, **mixed, max_length_ratio=4, dry_run=True)
    pairs = set(
        zip(*(Path(few[f"few_{side}"]).read_text().splitlines() for side in ("source", "target")), strict=True)
    )
    assert plan["pairs"] == len(pairs | {("one", "eins")})


def test_pairs_that_weights_repeat_are_no_duplicates(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "few.tsv").write_text("six\tsechs\nsix\tsechs\n", encoding="utf-8")
    mixed = {"train_file": tmp_path / "few.tsv", "drop_duplicates": True, "corpus_weights": "1 1"}
    arguments = command_line(settings | mixed | {"output_dir": tmp_path / "out", "dry_run": True})
    weights = arguments.index("--corpus_weights=1 1")
    arguments[weights : weights + 1] = ["--corpus_weights", "1", "1"]
    plan = run_training(*parse_arguments(arguments))
    sides = (Path(settings[f"train_{side}"]).read_text().splitlines() for side in ("source", "target"))
    assert plan["pairs"] > 1.5 * len(set(zip(*sides, strict=True)))


def test_a_stream_is_trained_on_for_as_many_updates_as_are_asked_for(settings: Settings, tmp_path: Path) -> None:
    results = run(settings, tmp_path / "out", streaming=True, max_steps=30)
    assert results["num_steps"] == 30
    assert load_model(tmp_path / "out").config.vocab_size == len(load_tokenizer(tmp_path / "out"))


def test_bpe_dropout_cuts_words_in_more_pieces(settings: Settings, tmp_path: Path) -> None:
    fields = {"tokenizer_kind": "bpe", "vocab_size": 290, "max_steps": 2}
    run(settings, tmp_path / "out", **fields, bpe_dropout=0.5)
    with pytest.raises(ValueError, match="bpe_dropout"):
        run(settings, tmp_path / "none", bpe_dropout=0.5)


def test_the_same_pairs_may_come_from_files_of_another_name(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    for name in ("train_source", "validation_target"):
        shutil.copy(settings[name], tmp_path / name)
    moved = {name: tmp_path / name for name in ("train_source", "validation_target")}
    assert run(settings, finished, **moved) == json.loads((finished / "training_results.json").read_text())


def test_changed_validation_pairs_are_refused_too(settings: Settings, finished: Path, tmp_path: Path) -> None:
    (tmp_path / "v").write_text("one\n" * 12)
    with pytest.raises(ValueError, match=r"The validation pairs must be those that the run in .* was begun with"):
        run(settings, finished, validation_source=tmp_path / "v")


def test_a_run_killed_before_its_results_is_not_trained_further(settings: Settings, tmp_path: Path) -> None:
    """Its last update lies within an epoch, so that there would be batches left."""
    first = run(settings, tmp_path / "out", max_steps=5, save_steps=5, logging_steps=1)
    weights = load_file(tmp_path / "out" / "model.safetensors")
    for name in ("training_results.json", "model.safetensors"):
        (tmp_path / "out" / name).unlink()
    assert run(settings, tmp_path / "out", max_steps=5, save_steps=5, logging_steps=1) == first
    again = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())


def test_early_stopping_is_remembered_by_a_run_killed_before_its_results(settings: Settings, tmp_path: Path) -> None:
    def run_with(scores: list[float]) -> dict[str, Any]:
        remaining = iter(scores)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hf_seq2seq.training.run.generation_metrics", lambda *_: lambda _: {"chrf": next(remaining)})
            stopping = {"early_stopping_patience": 1, "metric_for_best_model": "chrf", "logging_steps": 1}
            return run(settings, tmp_path / "out", save_steps=1, eval_steps=1, **stopping)

    first = run_with([0.5, 0.9, 0.1])
    best = load_file(tmp_path / "out" / "checkpoint-2" / "model.safetensors")
    for name in ("training_results.json", "model.safetensors"):
        (tmp_path / "out" / name).unlink()
    assert run_with([]) == first
    final = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(final[name], weight) for name, weight in best.items())


def test_sorted_training_batches_leave_the_validation_pairs_in_order(settings: Settings, tmp_path: Path) -> None:
    options = {
        "tokens_per_batch": None,
        "per_device_train_batch_size": 8,
        "train_sampling_strategy": "group_by_length",
    }
    scored: list[Any] = []

    def keep(*texts: Any, **options: Any) -> dict[str, Any]:
        scored.append(texts)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_seq2seq.training.final_evaluation.score", keep)
        run(settings, tmp_path / "out", **options, max_steps=1)
    hypotheses, references = scored[0][:2]
    sources, targets = (Path(settings[f"validation_{side}"]).read_text().splitlines() for side in ("source", "target"))
    assert list(references) == targets
    translator = Translator.from_pretrained(tmp_path / "out", device="cpu")
    for text, hypothesis in zip(sources, hypotheses, strict=True):
        inputs = translator.tokenizer(text, return_tensors="pt")
        ids = translator.model.generate(**inputs, max_length=51 + inputs["input_ids"].shape[1])
        assert hypothesis == translator.tokenizer.decode(ids[0], skip_special_tokens=True)


def test_two_runs_at_once_in_a_folder_are_refused(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        FileLock(tmp_path / "out" / ".lock"),
        pytest.raises(ValueError, match="must hold no run that is going on, but another process trains in"),
    ):
        run(settings, tmp_path / "out")
    assert run(settings, tmp_path / "out", max_steps=1)["num_steps"] == 1


def test_what_a_kill_left_of_the_settings_does_not_lock_the_folder(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "training_settings.json.unfinished").write_text("{")
    assert run(settings, tmp_path / "out", max_steps=1)["num_steps"] == 1


def test_a_damaged_file_of_the_run_is_named(settings: Settings, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out" / "training_results.json").write_text("")
    with pytest.raises(
        ValueError, match=r"`.*training_results.json` must be what `hf-seq2seq train` wrote, but is da"
    ):
        run(settings, tmp_path / "out")


def test_a_dry_run_counts_in_a_finished_folder_too(settings: Settings, finished: Path) -> None:
    assert run(settings, finished, dry_run=True)["pairs"] == 60


def test_weights_alone_are_gone_on_from_with_a_warning(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(settings, tmp_path / "out", save_only_model=True, max_steps=6)
    (tmp_path / "out" / "training_results.json").unlink()
    shutil.rmtree(tmp_path / "out" / "checkpoint-6")
    run(settings, tmp_path / "out", save_only_model=True, max_steps=6)
    assert "checkpoint-3 holds only weights: the optimizer begins anew" in caplog.text


def test_a_model_in_a_half_type_is_trained_in_float32(settings: Settings, finished: Path, tmp_path: Path) -> None:
    """In float16 Adam's averages underflow: updates would be as large as the rate, or no number."""
    load_model(finished, dtype="float16").save_pretrained(tmp_path / "half")
    load_tokenizer(finished).save_pretrained(tmp_path / "half")
    results = run(settings, tmp_path / "out", **FINE_TUNING, model_name_or_path=tmp_path / "half")
    assert load_model(tmp_path / "out").dtype == torch.float32
    whole = run(settings, tmp_path / "whole", **FINE_TUNING, model_name_or_path=finished)
    assert results["validation_loss"] == pytest.approx(whole["validation_loss"], rel=1e-3)


def test_a_run_goes_on_though_the_tokenizer_in_its_folder_was_cut_short(settings: Settings, tmp_path: Path) -> None:
    run(settings, tmp_path / "out")
    (tmp_path / "out" / "training_results.json").unlink()
    shutil.rmtree(tmp_path / "out" / "checkpoint-6")
    whole = (tmp_path / "out" / "tokenizer.json").read_bytes()
    (tmp_path / "out" / "tokenizer.json").write_bytes(whole[:100])  # killed as the final model was saved
    assert run(settings, tmp_path / "out")["num_steps"] == 6
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == whole


def test_a_named_checkpoint_is_gone_on_from_and_kept(settings: Settings, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out" / "training_results.json").unlink()
    named = tmp_path / "out" / "checkpoint-3"
    (named / "saved_at_a_signal").touch()
    assert run(settings, tmp_path / "out", resume_from_checkpoint=named)["num_steps"] == 6
    assert named.exists()
    assert run(settings, tmp_path / "new", resume_from_checkpoint=named)["num_steps"] == 6
    assert (tmp_path / "new" / "tokenizer.json").exists()


@pytest.mark.parametrize("name", ["nosuch", "false", "."])
def test_a_named_checkpoint_that_is_none_is_refused(
    name: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"`resume_from_checkpoint` must be the folder of a whole checkp.*'{name}'"):
        run(settings, tmp_path / "out", resume_from_checkpoint=name)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_of_several_processes_needs_no_folder(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_seq2seq.training.arguments.Seq2SeqTransformerTrainingArguments.local_process_index", 1)
    assert run(settings, tmp_path / "out", dry_run=True)["pairs"] == 60
    assert not (tmp_path / "out").exists()


def test_a_finished_run_needs_no_checkpoint(settings: Settings, finished: Path) -> None:
    results = run(settings, finished)
    assert run(settings, finished, resume_from_checkpoint=finished / "checkpoint-99") == results


def test_a_checkpoint_without_a_tokenizer_is_gone_on_from(settings: Settings, finished: Path, tmp_path: Path) -> None:
    """A sharded one has none."""
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out" / "training_results.json").unlink()
    shutil.rmtree(tmp_path / "out" / "checkpoint-6")
    for file in (tmp_path / "out" / "checkpoint-3").glob("tokenizer*"):
        file.unlink()
    assert run(settings, tmp_path / "out")["num_steps"] == 6


def test_scores_within_the_run_are_those_of_evaluate(
    settings: Settings,
    tmp_path: Path,
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The references are the texts of the file, unknown words and all: https://github.com/OpenNMT/OpenNMT-py/issues/2309."""
    (tmp_path / "v.source").write_text("one two three\nfour five\ntwo\nfive one four\n", encoding="utf-8")
    long = "eins zwei " * 30
    (tmp_path / "v.target").write_text(f"eins Ω zwei drei\nvier ΩΩ\n{long}\nfünf eins vier\n", encoding="utf-8")
    validation = {f"validation_{side}": tmp_path / f"v.{side}" for side in ("source", "target")}
    own = "return [len(text) + len(line[0]) for text, line in zip(sources, references)]"
    (tmp_path / "run_scores.py").write_text(f"def lengths(hypotheses, references, sources):\n    {own}\n")
    monkeypatch.syspath_prepend(tmp_path)
    metrics = ",".join([*METRICS, "run_scores:lengths"])
    steps = {"max_steps": 2, "eval_steps": 2, "save_steps": 2}
    results = run(settings, tmp_path / "out", **validation, **steps, predict_with_generate=True, metrics=metrics)
    state = json.loads((tmp_path / "out" / "checkpoint-2" / "trainer_state.json").read_text())
    (in_training,) = [entry for entry in state["log_history"] if "eval_bleu" in entry]
    files = ("--source", tmp_path / "v.source", "--reference", tmp_path / "v.target")
    status, output, _ = command("evaluate", tmp_path / "out" / "checkpoint-2", *files, "--json", "--metrics", metrics)
    assert status == 0
    scores = json.loads(output)
    assert scores["ter"] > 0
    texts = [file.read_text(encoding="utf-8").splitlines() for file in validation.values()]
    assert scores["lengths"] == sum(len(text) for side in texts for text in side) / 4
    names = [*METRICS, "lengths"]
    assert {name: in_training[f"eval_{name}"] for name in names} == {name: scores[name] for name in names}
    assert {name: results[name] for name in names} == {name: scores[name] for name in names}


def test_settings_of_generation_in_a_file_are_refused_before_anything_is_read_or_followed(
    settings: Settings, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/25917."""
    file = tmp_path / "given" / "generation_config.json"
    file.parent.mkdir()
    file.write_text('{"num_beams": "4"}')
    for place in (file, file.parent):
        with pytest.raises(ValueError, match=r"`num_beams` in `.*` must be a whole number .*, but is '4' instead"):
            run(settings, tmp_path / "out", generation_config=place)
    assert not (tmp_path / "out").exists()
    file.write_text('{"num_beams": 1}')
    run(settings, tmp_path / "out", max_steps=1, generation_config=file.parent)
    translator = Translator.from_pretrained(tmp_path / "out")
    assert translator.model.generation_config.num_beams == 1
    assert translator("one two")


def test_a_model_of_weights_that_are_no_numbers_is_not_trained_further(
    settings: Settings, finished: Path, tmp_path: Path
) -> None:
    model = load_model(finished)
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight[0, 0] = torch.nan
    model.save_pretrained(tmp_path / "broken")
    load_tokenizer(finished).save_pretrained(tmp_path / "broken")
    with pytest.raises(ValueError, match=r"weights of `.*broken` must be finite numbers, but those of `model.decoder"):
        run(settings, tmp_path / "out", **FINE_TUNING, model_name_or_path=tmp_path / "broken")


def test_a_folder_deleted_while_a_run_goes_on_is_made_again_with_what_a_resume_needs(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute_loss = Seq2SeqTransformerTrainer.compute_loss

    def delete_the_folder(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 4:
            shutil.rmtree(tmp_path / "out")
        if self.state.global_step == 5:
            assert not list((tmp_path / "out").glob("checkpoint-*"))
            with pytest.raises(ValueError, match="another process trains in"):
                RunFolder(tmp_path / "out").open({})
        return compute_loss(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Seq2SeqTransformerTrainer, "compute_loss", delete_the_folder)
        run(settings, tmp_path / "out", logging_steps=1)
    assert "was deleted while the run went on" in caplog.text
    results = (tmp_path / "out" / "training_results.json").read_text()
    (tmp_path / "out" / "training_results.json").unlink()
    assert (tmp_path / "out" / "training_data.json").exists()
    assert run(settings, tmp_path / "out", logging_steps=1) == json.loads(results)
    with pytest.raises(ValueError, match="`d_model` must be 16"):
        run(settings, tmp_path / "out", d_model=32)


def test_a_model_that_ends_without_a_loss_that_is_a_number_is_an_error(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"loss of the validation pairs must be a finite .* `.*out` is of no"):
        run(settings, tmp_path / "out", learning_rate=1e30, warmup_steps=0, max_steps=1)
