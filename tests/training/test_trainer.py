"""Our trainer and the stock one take the right steps with our model, and save and resume it whole."""

import json
import logging
import re
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from reference.tiny_models import random_sentences, tiny_model
from safetensors import safe_open
from torch import Tensor
from transformers import (
    DataCollatorForSeq2Seq,
    GenerationConfig,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from hf_seq2seq import PAPER_SEARCH, Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.data.collator import Seq2SeqCollator
from hf_seq2seq.evaluation import decode, generation_metrics
from hf_seq2seq.tokenization import train_tokenizer
from hf_seq2seq.training.arguments import Seq2SeqTransformerTrainingArguments
from hf_seq2seq.training.schedule import paper_learning_rate
from hf_seq2seq.training.trainer import Seq2SeqTransformerTrainer


Model = Seq2SeqTransformerForConditionalGeneration
Gradients = dict[str, Tensor]

SOURCES = random_sentences((3, 9, 5, 1, 7, 4, 8, 2), seed=1)
TARGETS = random_sentences((8, 2, 4, 6, 1, 9, 3, 5), seed=2)
TIED = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}

both_smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1], ids=["plain", "smoothed"])
both_trainers = pytest.mark.parametrize("stock", [False, True], ids=["our trainer", "the stock trainer"])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(iter(["abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRS"]), vocab_size=50, kind="char")


@pytest.fixture
def dataset() -> Dataset:
    pairs = zip(SOURCES, TARGETS, strict=True)
    return Dataset.from_list(
        [{"input_ids": s, "labels": [*t[:-1], 2], "length": max(len(s), len(t))} for s, t in pairs]
    )


def make_trainer(
    model: Model,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    *,
    stock: bool = False,
    trainer_options: dict[str, Any] | None = None,
    **overrides: Any,
) -> Seq2SeqTrainer:
    """A trainer that goes through the dataset in order, without updates unless a learning rate is given."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "learning_rate": 0.0,
        "max_grad_norm": 0.0,
        "num_train_epochs": 1,
        "train_sampling_strategy": "sequential",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "label_smoothing_factor": 0.0,
        "per_device_train_batch_size": 8,
    }
    arguments = Seq2SeqTrainingArguments if stock else Seq2SeqTransformerTrainingArguments
    collator = DataCollatorForSeq2Seq if stock else Seq2SeqCollator
    return (Seq2SeqTrainer if stock else Seq2SeqTransformerTrainer)(
        model=model,
        args=arguments(**(settings | overrides)),
        train_dataset=dataset,
        eval_dataset=dataset,
        data_collator=collator(tokenizer, model=model),
        processing_class=tokenizer,
        **(trainer_options or {}),
    )


class Recorder(TrainerCallback):
    """Keeps the gradients of each update."""

    def __init__(self) -> None:
        self.gradients: list[Gradients] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        parameters = kwargs["model"].named_parameters()
        self.gradients.append({name: parameter.grad.clone() for name, parameter in parameters})


def logged(trainer: Seq2SeqTrainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def hand_made_loss(model: Model, dataset: Dataset, smoothing: float) -> Tensor:
    """The mean over all target tokens of the loss of each pair by itself, without padding, from its logits."""
    total, count = torch.zeros(()), 0
    for pair in dataset:
        labels = torch.tensor([pair["labels"]])
        decoder_input_ids = torch.cat((torch.tensor([[1]]), labels[:, :-1]), dim=1)
        logits = model(input_ids=torch.tensor([pair["input_ids"]]), decoder_input_ids=decoder_input_ids).logits
        log_probabilities = logits.log_softmax(dim=-1)
        at_label = log_probabilities.gather(-1, labels[..., None]).squeeze(-1)
        total = total - ((1 - smoothing) * at_label + smoothing * log_probabilities.mean(dim=-1)).sum()
        count += labels.numel()
    return total / count


@both_trainers
@both_smoothings
@pytest.mark.parametrize(
    ("batch_size", "accumulated"), [(8, 1), (1, 8), (2, 4), (1, 3)], ids=["8", "8 x 1", "4 x 2", "3 x 1, last 2 x 1"]
)
def test_gradients_and_losses_do_not_depend_on_accumulation(
    batch_size: int,
    accumulated: int,
    smoothing: float,
    stock: bool,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    """https://github.com/huggingface/transformers/issues/46731, https://github.com/huggingface/transformers/issues/47688.

    https://github.com/huggingface/transformers/issues/10452: smoothing in the stock trainer takes the labels away.
    """
    model = tiny_model()
    recorder = Recorder()
    trainer = make_trainer(
        model,
        dataset,
        tokenizer,
        tmp_path,
        stock=stock,
        label_smoothing_factor=smoothing,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulated,
        trainer_options={"callbacks": [recorder]},
    )
    trainer.train()

    window = batch_size * accumulated
    windows = [dataset.select(range(start, min(start + window, 8))) for start in range(0, 8, window)]
    assert len(recorder.gradients) == len(windows)
    for update, pairs in enumerate(windows):
        model.zero_grad()
        loss = hand_made_loss(model.eval(), pairs, smoothing)
        loss.backward()
        assert logged(trainer, "loss")[update] == pytest.approx(loss.item(), abs=1e-5)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(recorder.gradients[update][name], parameter.grad, atol=1e-6, rtol=1e-5)


@both_trainers
@both_smoothings
def test_the_evaluation_loss_is_reported_and_ours_is_unsmoothed(
    smoothing: float, stock: bool, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model()
    trainer = make_trainer(model, dataset, tokenizer, tmp_path, stock=stock, label_smoothing_factor=smoothing)
    expected = hand_made_loss(model, dataset, smoothing if stock else 0.0).item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)


@both_trainers
def test_evaluation_by_generation_goes_beyond_20_tokens_and_leaves_the_defaults(
    stock: bool, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/16664, https://github.com/huggingface/transformers/issues/28793.

    Two evaluation batches: the stock trainer sets what is unset after the first.
    """
    model = tiny_model(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4  # no output ever ends by itself
    model.generation_config.update(**PAPER_SEARCH)
    before = model.generation_config.to_dict()
    trainer = make_trainer(
        model,
        dataset.select(range(4)),
        tokenizer,
        tmp_path,
        stock=stock,
        predict_with_generate=True,
        per_device_eval_batch_size=2,
        trainer_options={"compute_metrics": lambda prediction: {"width": prediction.predictions.shape[1]}},
    )
    assert trainer.evaluate(num_beams=1)["eval_width"] == model.generation_config.max_length == 256

    trainer.save_model(str(tmp_path / "saved"))
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert not {"max_length", "num_beams", "length_penalty", "early_stopping"} & config.keys()
    for name in ("max_length", "num_beams", "length_penalty", "early_stopping", "suppress_tokens"):
        assert saved[name] == before[name]
    assert Model.from_pretrained(tmp_path / "saved").generation_config.num_beams == 4


def test_a_model_without_a_longest_output_is_evaluated_by_generation(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """As one that was imported: outputs, with the start token, may be 51 tokens longer than the longest source."""
    model = tiny_model(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4
    model.generation_config.max_length = None
    trainer = make_trainer(
        model,
        dataset,
        tokenizer,
        tmp_path,
        predict_with_generate=True,
        trainer_options={"compute_metrics": lambda prediction: {"width": prediction.predictions.shape[1]}},
    )
    assert trainer.evaluate(num_beams=1)["eval_width"] == max(map(len, dataset["input_ids"])) + 51


def test_twins_of_r_drop_are_not_torn_apart_by_several_gpus(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seq2SeqTransformerTrainingArguments, "n_gpu", 2)
    with pytest.raises(ValueError, match=r"`r_drop_alpha` must be 0 where one process uses several GPUs \(2\)"):
        make_trainer(tiny_model(), dataset, tokenizer, tmp_path, r_drop_alpha=5.0)


def test_generation_max_length_limits_evaluation(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/24427."""
    model = tiny_model(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4
    trainer = make_trainer(
        model,
        dataset,
        tokenizer,
        tmp_path,
        predict_with_generate=True,
        generation_max_length=33,
        trainer_options={"compute_metrics": lambda p: {"length": int((p.predictions > 0).sum(axis=1).max())}},
    )
    assert trainer.evaluate()["eval_length"] == 33


@both_trainers
def test_resuming_finds_every_key_and_the_same_model(
    stock: bool, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/huggingface/transformers/issues/29128, https://github.com/huggingface/transformers/issues/27972."""
    options: dict[str, Any] = {"stock": stock, "max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trained = tiny_model()
    make_trainer(trained, dataset, tokenizer, tmp_path, learning_rate=0.1, **options).train()
    resumed = tiny_model(seed=1)
    trainer = make_trainer(resumed, dataset, tokenizer, tmp_path, learning_rate=0.1, **options)
    # transformers' loggers keep their records from the root logger, where caplog listens.
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        trainer.train(resume_from_checkpoint=True)
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)

    assert not [record.message for record in caplog.records if " keys" in record.message]
    inputs = {"input_ids": torch.tensor([SOURCES[0]]), "decoder_input_ids": torch.tensor([[1, 7]])}
    torch.testing.assert_close(resumed.eval()(**inputs).logits, trained.eval()(**inputs).logits, atol=0, rtol=0)
    weight = resumed.model.encoder.embed_tokens.weight
    assert resumed.model.decoder.embed_tokens.weight is weight
    assert resumed.lm_head.weight is weight


@both_trainers
def test_a_shared_matrix_is_stored_once(
    stock: bool, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/33807."""
    trainer = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, stock=stock, max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    trainer.accelerator.save_state(str(tmp_path / "state"))
    for folder in ("model", "state"):
        with safe_open(tmp_path / folder / "model.safetensors", framework="pt") as file:
            assert len(TIED & set(file.keys())) == 1


def test_the_saved_config_decodes_with_a_cache_as_the_user_had_it(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    for use_cache in (True, False):
        model = tiny_model(use_cache=use_cache)
        trainer = make_trainer(model, dataset, tokenizer, tmp_path, max_steps=1)
        trainer.train()
        trainer.save_model()
        assert json.loads((tmp_path / "config.json").read_text())["use_cache"] is use_cache


def test_paper_schedule_sets_the_paper_s_rate(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    trainer = make_trainer(
        tiny_model(), dataset, tokenizer, tmp_path, paper_schedule=True, warmup_steps=2, max_steps=4
    )
    trainer.train()
    assert logged(trainer, "learning_rate") == pytest.approx([paper_learning_rate(s, 16, 2) for s in (1, 2, 3, 4)])


def test_each_call_of_train_begins_the_paper_s_schedule_anew(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    trainer = make_trainer(
        tiny_model(), dataset, tokenizer, tmp_path, paper_schedule=True, warmup_steps=2, max_steps=3
    )
    trainer.train()
    rates = logged(trainer, "learning_rate")
    trainer.train()
    assert (
        logged(trainer, "learning_rate") == rates == pytest.approx([paper_learning_rate(s, 16, 2) for s in (1, 2, 3)])
    )


def test_the_evaluation_loss_is_that_of_all_tokens_whatever_the_batches(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model()
    expected = hand_made_loss(model, dataset, 0.0).item()
    for size in (1, 3, 8):
        trainer = make_trainer(
            model, dataset, tokenizer, tmp_path, per_device_eval_batch_size=size, dataloader_drop_last=True
        )
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)


def test_r_drop_adds_the_divergence_of_the_two_passes(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Liang et al. (2021), https://arxiv.org/abs/2106.14448; both passes are made again with the same dropout."""
    model = tiny_model(dropout=0.3)
    trainer = make_trainer(
        model, dataset, tokenizer, tmp_path, r_drop_alpha=3.0, label_smoothing_factor=0.1, max_steps=1
    )
    inputs: dict[str, Tensor] = {}
    forward = model.forward

    @wraps(forward)  # the trainer drops columns that it does not name
    def keep(**kwargs: Any) -> Any:
        if model.training:
            inputs.update(kwargs, state=torch.get_rng_state())
        return forward(**kwargs)

    model.forward = keep
    trainer.train()
    torch.set_rng_state(inputs.pop("state"))
    labels, num_items = inputs["labels"], inputs.pop("num_items_in_batch")
    options = {name: value for name, value in inputs.items() if name not in ("r_drop_alpha", "smoothing")}
    logits = forward(**options, return_logits=True).logits
    assert torch.equal(labels[0::2], labels[1::2])
    assert num_items == (labels != -100).sum()

    log_p = logits.log_softmax(-1)
    is_target = labels != -100
    at_label = log_p.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    cross_entropy = -(0.9 * at_label + 0.1 * log_p.mean(-1))[is_target].sum()
    first, second = log_p[0::2], log_p[1::2]
    divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1)[is_target[0::2]].sum() / 2
    assert divergence > 0.1
    expected = (cross_entropy + 3 * divergence) / is_target.sum()
    assert logged(trainer, "loss") == pytest.approx([expected.item()], abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_training_before_the_weights_change(
    bad: float, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model()
    trainer: Any = make_trainer(model, dataset, tokenizer, tmp_path, learning_rate=0.1, per_device_train_batch_size=2)
    compute_loss = trainer.compute_loss

    def break_the_third(*args: Any, **kwargs: Any) -> Any:
        loss = compute_loss(*args, **kwargs)
        weights.append(model.lm_head.weight.detach().clone())
        return loss * bad if len(weights) == 3 else loss

    weights: list[Tensor] = []
    trainer.compute_loss = break_the_third
    first = tokenizer.decode(dataset[4]["labels"], skip_special_tokens=True)
    message = rf"must be a finite number, but is {bad} in update 3 \(epoch 0.50\), in a batch of 2 pairs .*'{first}'"
    with pytest.raises(FloatingPointError, match=message):
        trainer.train()
    assert torch.equal(model.lm_head.weight, weights[-1])


def test_weights_that_are_no_numbers_are_not_saved(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    class Breaker(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                with torch.no_grad():
                    kwargs["model"].model.encoder.layers[1].fc2.bias[5] = torch.inf

    trainer = make_trainer(
        *(tiny_model(), dataset, tokenizer, tmp_path),
        max_steps=3,
        save_strategy="steps",
        save_steps=1,
        trainer_options={"callbacks": [Breaker()]},
    )
    message = (
        r"those of `model.encoder.layers.1.fc2.bias` are not after update 2\. .* in another `output_dir`, with a lower"
    )
    with pytest.raises(FloatingPointError, match=message):
        trainer.train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    with pytest.raises(FloatingPointError, match="They were not saved"):
        trainer.save_model(str(tmp_path / "model"))


def test_a_loss_of_one_s_own_that_needs_logits_is_told_how_to_get_them(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    options: dict[str, Any] = {}

    class OwnLoss(Seq2SeqTransformerTrainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = model(**inputs, **options)
            return torch.nn.functional.cross_entropy(outputs.logits.flatten(0, 1), inputs["labels"].flatten())

    made: Any = make_trainer(tiny_model(), dataset, tokenizer, tmp_path)
    trainer = OwnLoss(
        *(made.model, made.args, made.data_collator, dataset),
        processing_class=tokenizer,
    )
    with pytest.raises(AttributeError, match="Call the model with `return_logits=True`"):
        trainer.train()
    options["return_logits"] = True
    trainer.train()
    assert trainer.last_loss == pytest.approx(hand_made_loss(tiny_model(), dataset, 0.0).item(), abs=1e-5)


def test_settings_of_generation_that_are_given_are_completed_from_the_model_s(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/huggingface/transformers/issues/8218."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "generation_config.json").write_text('{"num_beams": 1}')
    own = tiny_model().generation_config
    given: list[dict[str, Any]] = [
        {"generation_config": GenerationConfig(max_new_tokens=10, num_beams=1), "predict_with_generate": True},
        {"generation_config": str(tmp_path / "given"), "predict_with_generate": True},
    ]
    for options in given:
        trainer = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, **options)
        predictions: Any = trainer.predict(dataset).predictions
        trainer.save_model(str(tmp_path / "saved"))
        saved = GenerationConfig.from_pretrained(tmp_path / "saved")
        for name in ("decoder_start_token_id", "pad_token_id", "bos_token_id", "eos_token_id", "suppress_tokens"):
            assert getattr(saved, name) == getattr(own, name), name
        assert saved.num_beams == 1
        assert saved.max_length == own.max_length
        assert (predictions > 0).sum(axis=1).max() <= 1 + (saved.max_new_tokens or 256)

    model = tiny_model()
    model.generation_config = GenerationConfig(max_new_tokens=10, num_beams=1)
    make_trainer(model, dataset, tokenizer, tmp_path)
    assert model.generation_config.decoder_start_token_id == own.decoder_start_token_id
    with pytest.raises(ValueError, match=r"`suppress_tokens` in `generation_config` must be .* but is \[50\]"):
        make_trainer(
            *(tiny_model(), dataset, tokenizer, tmp_path), generation_config=GenerationConfig(suppress_tokens=[50])
        )


def test_log_lines_tell_target_tokens_a_second_and_the_share_of_padding(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr("hf_seq2seq.training.trainer.time.perf_counter", lambda: float(next(seconds)))
    trainer = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, r_drop_alpha=1.0)
    trainer.train()
    real = [sum(map(len, dataset[side])) for side in ("input_ids", "labels")]
    padded = sum(8 * max(map(len, dataset[side])) for side in ("input_ids", "labels"))
    assert logged(trainer, "target_tokens_per_second") == [pytest.approx(real[1] / 10)]
    assert logged(trainer, "padding") == [pytest.approx(1 - sum(real) / padded)]


def test_the_progress_bar_shows_target_tokens_a_second(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trainer(tiny_model(), dataset, tokenizer, tmp_path, disable_tqdm=False).train()
    bar = capsys.readouterr().err
    assert re.search(r"1/1 \[\d\d:\d\d<\d\d:\d\d.*, [\d,]+ target tokens/s\]", bar), bar


def test_tensorboard_shows_loss_rate_speed_padding_and_scores(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra `track` is not installed"
    )
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "runs"))
    trainer = make_trainer(
        tiny_model(),
        dataset,
        tokenizer,
        tmp_path,
        report_to="tensorboard",
        eval_strategy="epoch",
        predict_with_generate=True,
        generation_num_beams=1,
    )
    trainer.compute_metrics = generation_metrics(tokenizer)
    trainer.train()
    events = event_accumulator.EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    names = {"loss", "learning_rate", "target_tokens_per_second", "padding"}
    assert {f"train/{name}" for name in names} | {"eval/bleu", "eval/loss"} <= set(events.Tags()["scalars"])


def test_evaluation_by_generation_logs_the_first_translations(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hf_seq2seq")
    trainer = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, predict_with_generate=True)
    predictions = decode(tokenizer, trainer.predict(dataset).predictions)
    assert len(caplog.messages) == 3
    for row, message in enumerate(caplog.messages):
        source, target = (
            tokenizer.decode(dataset[row][side], skip_special_tokens=True) for side in ("input_ids", "labels")
        )
        assert message == f"\n  source     {source}\n  model      {predictions[row]}\n  reference  {target}"


def test_the_first_translations_show_the_words_that_are_not_known(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hf_seq2seq")
    model = tiny_model(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[3] = 1e4  # <unk>
    ids = tokenizer("abΩ")["input_ids"]
    assert ids[2] == tokenizer.unk_token_id
    pairs = Dataset.from_list([{"input_ids": ids, "labels": ids}])
    trainer = make_trainer(model, pairs, tokenizer, tmp_path, predict_with_generate=True, generation_max_length=4)
    trainer.predict(pairs)
    assert caplog.messages == ["\n  source     ab<unk>\n  model      <unk><unk><unk>\n  reference  ab<unk>"]


def test_each_output_ends_at_the_limit_of_its_own_source(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny_model(lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4  # no output ever ends by itself
    trainer = make_trainer(model, dataset, tokenizer, tmp_path, predict_with_generate=True)
    for num_beams in (1, 2):
        predictions: Any = trainer.predict(dataset, num_beams=num_beams).predictions
        lengths = (predictions > 0).sum(axis=1) - 1  # without the start token
        assert lengths.tolist() == [len(source) + 50 for source in SOURCES]


def test_a_rising_score_keeps_the_rate_of_a_plateau(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """https://github.com/facebookresearch/fairseq/issues/2205: the third score is no better."""
    scores = iter([10.0, 20.0, 20.0, 30.0, 40.0])
    trainer = make_trainer(
        *(tiny_model(), dataset, tokenizer, tmp_path),
        learning_rate=0.1,
        max_steps=5,
        lr_scheduler_type="reduce_lr_on_plateau",
        lr_scheduler_kwargs={"patience": 0, "factor": 0.5},
        metric_for_best_model="bleu",
        eval_steps=1,
        generation_max_length=2,
        trainer_options={"compute_metrics": lambda prediction: {"bleu": next(scores)}},
    )
    trainer.train()
    assert logged(trainer, "learning_rate") == [0.1, 0.1, 0.1, 0.05, 0.05]


def test_translate_needs_no_setting_of_the_arguments_and_leaves_them(
    dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    trainer: Any = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, prediction_loss_only=True)
    trainer.compute_metrics = generation_metrics(tokenizer)
    before = vars(trainer.args).copy(), trainer.compute_metrics
    found = trainer.translate(dataset, metric_key_prefix="x")
    assert (vars(trainer.args), trainer.compute_metrics) == before
    assert found.metrics["x_loss"] == pytest.approx(trainer.evaluate()["eval_loss"])
    assert "x_bleu" not in found.metrics
    asked: Any = make_trainer(tiny_model(), dataset, tokenizer, tmp_path, predict_with_generate=True)
    greedy = decode(tokenizer, asked.predict(dataset).predictions)
    assert decode(tokenizer, found.predictions) != greedy  # the search that nobody has chosen is the paper's
    asked.model.generation_config.update(**PAPER_SEARCH)
    assert decode(tokenizer, found.predictions) == decode(tokenizer, asked.predict(dataset).predictions)


def test_bpe_dropout_is_for_training_alone(dataset: Dataset, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(iter(["abc abd abe"] * 9), vocab_size=280)
    model = tiny_model(vocab_size=280)
    trainer = make_trainer(model, dataset, tokenizer, tmp_path)
    trainer.data_collator = Seq2SeqCollator(tokenizer, model=model, bpe_dropout=0.5)
    collators: list[Any] = [trainer.get_train_dataloader().collate_fn, trainer.get_eval_dataloader().collate_fn]
    assert [collator.bpe_dropout for collator in collators] == [0.5, 0.0]


Batches = list[list[tuple[int, int]]]


@pytest.fixture
def many_pairs() -> Dataset:
    """A hundred pairs, no two with the same two lengths."""
    return Dataset.from_list(
        [{"input_ids": [5] * s, "labels": [6] * t, "length": max(s, t)} for s in range(1, 11) for t in range(1, 11)]
    )


def train_by_tokens(
    pairs: Dataset, tokenizer: PreTrainedTokenizerFast, folder: Path, *, resume: bool = False, **settings: Any
) -> Batches:
    """Trains, and returns the batches that were trained on, each pair by the lengths of its source and target."""
    trainer: Any = make_trainer(tiny_model(), pairs, tokenizer, folder, **settings)
    batches = []
    compute_loss = trainer.compute_loss

    def record(model: Model, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        lengths = inputs["attention_mask"].sum(dim=1), (inputs["labels"] != -100).sum(dim=1)
        batches.append(list(zip(*(side.tolist() for side in lengths), strict=True)))
        return compute_loss(model, inputs, *args, **kwargs)

    trainer.compute_loss = record
    trainer.train(resume_from_checkpoint=resume)
    return batches


def test_batches_by_tokens_hold_each_pair_once_an_epoch_within_the_budget(
    many_pairs: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    batches = train_by_tokens(many_pairs, tokenizer, tmp_path, tokens_per_batch=80, num_train_epochs=2)
    epoch = len(batches) // 2
    first, second = batches[:epoch], batches[epoch:]
    everything = sorted((s, t) for s in range(1, 11) for t in range(1, 11))
    assert sorted(pair for batch in first for pair in batch) == everything
    assert sorted(pair for batch in second for pair in batch) == everything
    assert sorted(map(sorted, first)) != sorted(map(sorted, second))
    assert all(len(batch) * max(max(pair) for pair in batch) <= 80 for batch in batches)


def test_resuming_within_an_epoch_goes_on_with_its_next_batch(
    many_pairs: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"tokens_per_batch": 80, "num_train_epochs": 2, "save_strategy": "steps"}
    straight = train_by_tokens(many_pairs, tokenizer, tmp_path / "straight", **settings, save_steps=1000)
    middle = len(straight) // 2 + 2  # in the second epoch
    parts = tmp_path / "parts"
    first = train_by_tokens(many_pairs, tokenizer, parts, **settings, save_steps=middle, max_steps=middle)
    second = train_by_tokens(many_pairs, tokenizer, parts, **settings, save_steps=1000, resume=True)
    assert first + second == straight


@pytest.mark.parametrize("generates", [False, True])
def test_evaluation_holds_no_more_tokens_than_a_batch_of_training_and_no_logits(
    generates: bool, dataset: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: Any
) -> None:
    """The logits of 64 long pairs took a gigabyte."""
    seen: list[tuple[int, int]] = []
    forward = Model.forward

    @wraps(forward)
    def note(self: Model, *args: Any, **inputs: Any) -> Any:
        output = forward(self, *args, **inputs)
        if inputs.get("labels") is not None:
            assert not isinstance(output.logits, Tensor)
            seen.append((len(inputs["labels"]), max(inputs["labels"].shape[1], inputs["input_ids"].shape[1])))
        return output

    model = tiny_model()
    trainer = make_trainer(
        *(model, dataset, tokenizer, tmp_path),
        train_sampling_strategy="random",
        tokens_per_batch=20,
        predict_with_generate=generates,
        generation_max_length=3,
    )
    monkeypatch.setattr(Model, "forward", note)
    evaluation = trainer.evaluate()
    assert sum(rows for rows, _ in seen) == len(dataset)
    assert all(rows * longest <= 20 for rows, longest in seen)
    monkeypatch.undo()
    assert evaluation["eval_loss"] == pytest.approx(hand_made_loss(model, dataset, 0.0).item(), rel=1e-5)
