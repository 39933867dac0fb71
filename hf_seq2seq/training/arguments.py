"""The three parts of the settings of a training run: what is trained, on what, and how.

The rules of a part are checked, and its defaults filled in, when its dataclass is made. What concerns several parts is
in settings.py.
"""

import math
import os
import sys
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from transformers import Seq2SeqTrainingArguments
from transformers.integrations.integration_utils import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)
from transformers.utils.import_utils import is_in_notebook

from hf_seq2seq.data.languages import check_languages
from hf_seq2seq.data.tables import MULTILINGUAL, plain_name
from hf_seq2seq.evaluation import DEFAULT_METRICS, METRICS, chosen_metrics
from hf_seq2seq.model.configuration_seq2seq_transformer import PAPER_ROWS, Seq2SeqTransformerConfig

from .config_fields import config_field_names, with_config_fields
from .generation_config import check_generation_config_file
from .memory import check_weights_fit
from .schedule import (
    DEFAULT_SCHEDULE,
    DEFAULT_WARMUP,
    FINE_TUNING_LEARNING_RATE,
    PAPER_WARMUP_STEPS,
    SCRATCH_LEARNING_RATE,
)


# Config fields that may change when training goes on from a model: no weight depends on them.
CHANGEABLE_FIELDS = ("dropout", "attention_dropout", "activation_dropout")

DEFAULT_VOCAB_SIZE = 8000

# Fields of `ModelArguments` that name tokenizers.
TOKENIZER_FIELDS = ("tokenizer", "source_tokenizer", "target_tokenizer")

# Fields of `DataArguments` that name files of pairs.
FILE_FIELDS = (
    *("train_source", "train_target", "train_file"),
    *("validation_source", "validation_target", "validation_file"),
)

# Training arguments that are numbers of things, of which there is at least one.
_COUNTS = """
tokens_per_batch tokens_per_update early_stopping_patience gradient_accumulation_steps per_device_train_batch_size
per_device_eval_batch_size eval_accumulation_steps generation_max_length generation_num_beams
""".split()  # noqa: SIM905
# Training arguments that are finite and not negative.
_MAGNITUDES = """
learning_rate weight_decay adam_epsilon max_grad_norm r_drop_alpha warmup_steps num_train_epochs
logging_steps eval_steps save_steps
""".split()  # noqa: SIM905

# Schedules that change the learning rate after evaluations, by `metric_for_best_model`.
_SCHEDULES_BY_EVALUATION = ("reduce_lr_on_plateau", "greedy")

# The package of each tracker that has another name than its package.
_TRACKER_PACKAGES = {"azure_ml": "azureml-sdk", "flyte": "flytekit"}


def _option(help_text: str, default: Any = None, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": help_text.replace("%", "%%"), **metadata})


def _check_at_least(args: Any, least: dict[str, int]) -> None:
    """Raises ValueError if a field of a dataclass is given and is below the least value that it may have."""
    for name, bound in least.items():
        value = getattr(args, name)
        if value is not None and value < bound:
            raise ValueError(f"`{name}` must be at least {bound}, but is {value} instead.")


def changed_fields(args: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that are not at their default."""
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(args)
    }
    return {name: getattr(args, name) for name, default in defaults.items() if getattr(args, name) != default}


@dataclass
@with_config_fields
class ModelArguments:
    """What is trained: a new model of a preset's shape with fields of its own, or a model that there is."""

    _argument_group_name: ClassVar[str] = "model"

    model_name_or_path: str | None = _option(
        "Folder or Hub repository of a model of this package to train further, with its tokenizer."
    )
    preset: str | None = _option(
        "Shape of a new model: base (the default), big, or a row of Table 3 of Vaswani et al. (2017).",
        choices=list(PAPER_ROWS),
    )
    tokenizer: str | None = _option(
        "Folder or Hub repository of the tokenizer, or a SentencePiece model (.model). By default one is trained on "
        "the training pairs; with decoder_vocab_size two are, one for each side."
    )
    source_tokenizer: str | None = _option("The source's tokenizer, where each side has one.")
    target_tokenizer: str | None = _option("The target's tokenizer, where each side has one.")
    tokenizer_kind: Literal["bpe", "unigram", "char", "word"] | None = _option(
        "Kind of the tokenizer that is trained: bpe (the default), unigram, char or word."
    )
    vocab_size: int | None = _option(
        f"Size of the vocabulary of the tokenizer that is trained, {DEFAULT_VOCAB_SIZE} by default, for both sides."
    )
    extra_token: list[str] | None = _option(
        "Tokens that are never cut, such as '>>de<<': of a new tokenizer, or added to that of `tokenizer` or "
        "`model_name_or_path`."
    )
    decoder_vocab_size: int | None = _option(
        "Size of the target's vocabulary: a tokenizer is then trained for each side, and vocab_size is the source's."
    )
    freeze: list[str] | None = _option(
        "Names of weights that are not trained, in which * stands for any characters, such as 'model.encoder.*'."
    )

    def config_values(self) -> dict[str, Any]:
        """Returns the config's fields that were given, without vocabulary sizes, which the tokenizer decides."""
        names = set(config_field_names()) - {"vocab_size", "decoder_vocab_size"}
        values = {name: getattr(self, name) for name in config_field_names() if name in names}
        return {name: value for name, value in values.items() if value is not None}

    def first_config(self) -> Seq2SeqTransformerConfig:
        """Returns the config of a new model as far as it is known before the vocabularies, whose sizes are made up."""
        return Seq2SeqTransformerConfig.from_paper(self.preset or "base", **self.config_values())

    def __post_init__(self) -> None:
        if self.model_name_or_path is not None:
            names = ["preset", *TOKENIZER_FIELDS, "tokenizer_kind", *config_field_names()]
            given = [name for name in names if name not in CHANGEABLE_FIELDS and getattr(self, name) is not None]
            if given:
                raise ValueError(
                    f"`{given[0]}` must not be given together with `model_name_or_path` "
                    f"({self.model_name_or_path!r}), which decides it, but is {getattr(self, given[0])!r} instead. "
                    f"Only {', '.join(CHANGEABLE_FIELDS)} may change; leave one of the two out."
                )
        _check_at_least(self, {"vocab_size": 1, "decoder_vocab_size": 1})
        if self.preset is not None and self.preset not in PAPER_ROWS:
            raise ValueError(f"`preset` must be one of {', '.join(PAPER_ROWS)}, but is {self.preset!r} instead.")
        check_weights_fit(self.first_config())  # an error should come before hours of reading


@dataclass
class DataArguments:
    """Where the pairs come from, and how long they may be."""

    _argument_group_name: ClassVar[str] = "data"

    train_source: list[str] | None = _option(
        "Text file (or .gz) with the source side of the training pairs, one a line; or several, of several corpora."
    )
    train_target: list[str] | None = _option("Text file (or .gz) with the target side, or as many as of the source.")
    validation_source: str | None = _option("Text file (or .gz) with the source side of the validation pairs.")
    validation_target: str | None = _option("Text file (or .gz) with the target side of the validation pairs.")
    train_file: list[str] | None = _option("TSV, CSV, JSON, Parquet, TMX or zip file with training pairs, or several.")
    validation_file: str | None = _option("TSV, CSV, JSON, Parquet, TMX or zip file with the validation pairs.")
    dataset_name: str | None = _option("Dataset with training pairs: a saved folder, or a name on the Hub.")
    dataset_config_name: str | None = _option("Configuration of that dataset, such as de-en.")
    train_split: str | None = _option("Split of that dataset with the training pairs: train by default.")
    validation_split: str | None = _option("Split of that dataset with the validation pairs: none by default.")
    source_column: str = _option("Column of a file or dataset with the source; translation.en is nested.", "source")
    target_column: str = _option("Column of a file or dataset with the target.", "target")
    source_language: str | None = _option(
        "Language of the source in a TMX file or a zip archive of two text files; en stands for en-GB and EN-US too."
    )
    target_language: str | None = _option("Language of the target there.")
    inline_tags: Literal["drop", "keep"] = _option(
        "What becomes of the codes inside segments of a TMX file: keep reads them as text.", "drop"
    )
    max_length: int = _option("The most tokens of a side, its </s> among them.", 256)
    over_long: Literal["drop", "truncate"] = _option("What happens to longer training pairs.", "drop")
    corpus_weights: list[float] | None = _option(
        "How often pairs are drawn from each training corpus, text files first, then tables, then the dataset; "
        "smaller corpora are repeated. By default each pair is there once."
    )
    corpus_tags: list[str] | None = _option(
        "What is put before each source of each training corpus, such as '>>de<<', as a token of its own; '' is none. "
        "The order is that of corpus_weights."
    )
    streaming: bool = _option(
        "Read the training pairs as they are needed, for data that does not fit on the disk; needs max_steps.", False
    )
    min_characters: int | None = _option("Drop training pairs of which a side has fewer characters.")
    max_characters: int | None = _option("Drop training pairs of which a side has more characters.")
    max_length_ratio: float | None = _option(
        "Drop training pairs of which one side has more than this many times the characters of the other."
    )
    drop_duplicates: bool = _option("Drop training pairs that occurred before.", False)
    drop_identical: bool = _option("Drop training pairs of which both sides are the same.", False)
    bpe_dropout: float = _option(
        "Probability of leaving out each merge of a BPE tokenizer in training (Provilkov et al. 2020).", 0.0
    )
    preprocessing_num_workers: int | None = _option(
        "Processes that tokenize; by default one, whose threads use all cores."
    )

    @property
    def has_validation(self) -> bool:
        """Whether validation pairs are named."""
        return any((self.validation_source, self.validation_file, self.validation_split))

    @property
    def filters(self) -> dict[str, Any]:
        """The arguments of `filter_pairs`."""
        names = ("min_characters", "max_characters", "max_length_ratio", "drop_duplicates", "drop_identical")
        return {name: getattr(self, name) for name in names}

    def __post_init__(self) -> None:
        _check_at_least(self, {"preprocessing_num_workers": 1})
        for name in ("train_source", "train_target", "train_file"):  # one file may be named as itself
            if isinstance(getattr(self, name), str):
                setattr(self, name, [getattr(self, name)])
        if self.max_length < 2:
            raise ValueError(f"`max_length` must be at least 2, one token and </s>, but is {self.max_length} instead.")
        if not 0 <= self.bpe_dropout < 1:
            raise ValueError(f"`bpe_dropout` must be at least 0 and below 1, but is {self.bpe_dropout} instead.")
        for part in ("train", "validation"):
            source, target = f"{part}_source", f"{part}_target"
            for given, missing in ((source, target), (target, source)):
                value = getattr(self, given)
                if value is not None and getattr(self, missing) is None:
                    names = value if isinstance(value, str) else ", ".join(value)
                    raise ValueError(
                        f"`{missing}` must name the other side of `{given}` ({names!r}), but is not "
                        "given. Give both, with the same number of lines."
                    )
        if not self._given("train_source", "train_file", "dataset_name"):
            raise ValueError(
                "The training pairs must come from `train_source` with `train_target`, `train_file`, or "
                "`dataset_name`, but none of them is given."
            )
        num_sources, num_targets = len(self.train_source or ()), len(self.train_target or ())
        if num_sources != num_targets:
            raise ValueError(
                f"`train_target` must name as many files as `train_source` ({num_sources}), but names {num_targets}."
            )
        num_corpora = num_sources + len(self.train_file or ()) + (self.dataset_name is not None)
        for name, what in (("corpus_weights", "weight"), ("corpus_tags", "tag")):
            values = getattr(self, name)
            if values is not None and len(values) != num_corpora:
                raise ValueError(
                    f"`{name}` must have one {what} for each of the {num_corpora} training corpora, but has "
                    f"{len(values)} instead."
                )
        validation = self._given("validation_source", "validation_file", "validation_split")
        if len(validation) > 1:
            raise ValueError(
                "The validation pairs must come from one of `validation_source` with `validation_target`, "
                f"`validation_file`, or `validation_split`, but given are {' and '.join(validation)} instead."
            )
        of_dataset = self._given("dataset_config_name", "train_split", "validation_split")
        if of_dataset and self.dataset_name is None:
            raise ValueError(f"{of_dataset[0]} must be given together with `dataset_name`, but that is not given.")
        self._check_languages()

    def _check_languages(self) -> None:
        """Raises ValueError if the languages of a TMX file or zip archive are not given, or those of no such file."""
        files = [*(self.train_file or ()), *([self.validation_file] if self.validation_file else ())]
        several = [file for file in files if plain_name(Path(file)).endswith(MULTILINGUAL)]
        if several:
            check_languages(self.source_language, self.target_language, several[0])
        elif given := self._given("source_language", "target_language"):
            raise ValueError(
                f"{given[0]} must be given together with a TMX or zip file (`train_file`, `validation_file`), but "
                "there is none."
            )

    def _given(self, *names: str) -> list[str]:
        return [f"`{name}`" for name in names if getattr(self, name) is not None]


@dataclass
class Seq2SeqTransformerTrainingArguments(Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with the optimizer of Vaswani et al. (2017) and defaults for training from scratch.

    A field whose default is None is filled in when the arguments are made, from the others. Where there is no
    accelerator, `use_cpu` is set. Options that only this class has:

    Args:
        tokens_per_batch: The most tokens, padding included, of the longer side of a batch on one device. `None` means
            batches of `per_device_train_batch_size` pairs or, with `tokens_per_update`, a batch of all its tokens,
            divided among the processes.
        tokens_per_update: About how many tokens, padding included, an update is made of, on all devices together
            (the paper: 25,000). It sets `gradient_accumulation_steps` to the nearest whole number of batches of
            `tokens_per_batch`.
        paper_schedule: Whether the learning rate is the paper's, section 5.3: `learning_rate` and `lr_scheduler_type`
            are not read, and `warmup_steps` is 4000 by default.
        r_drop_alpha: Weight of R-Drop (Liang et al. 2021): each pair is trained on twice in a batch, and where dropout
            makes the two predictions differ, their divergence is added to the loss. 0 is without.
        average_checkpoints: How many of the last checkpoints the final model is the average of (section 6.1). 0 is
            without. At least as many are kept.
        early_stopping_patience: After how many evaluations without a better `metric_for_best_model` (bleu by default)
            training ends. The best checkpoint becomes the final model.
        metrics: Names of the scores that evaluations compute, such as "bleu,chrf"; None is those of translation.
            `module:function` is one of your own.
        dry_run: Whether `run_training` says what it would do, and trains nothing.

    Attributes:
        given: The fields that were given another value than their default, without the token of the Hub.

    Raises:
        ValueError: If a value is out of its range, or contradicts another.
    """

    _argument_group_name: ClassVar[str] = "training"

    tokens_per_batch: int | None = _option(
        "The most tokens, padding included, of the longer side of a batch on one device, in place of "
        "per_device_train_batch_size."
    )
    tokens_per_update: int | None = _option(
        "About how many tokens, padding included, an update is made of on all devices, in batches of tokens_per_batch "
        "(by default one for each process); sets gradient_accumulation_steps."
    )
    paper_schedule: bool = _option(
        "Learning rate d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5), in place of learning_rate and "
        "lr_scheduler_type.",
        False,
    )
    r_drop_alpha: float = _option("Weight of R-Drop (Liang et al. 2021): 0 is without, 5 is the authors'.", 0.0)
    average_checkpoints: int = _option("Number of last checkpoints that the final model is the average of.", 0)
    early_stopping_patience: int | None = _option(
        "Evaluations without a better metric_for_best_model (bleu by default) after which training ends."
    )
    metrics: str | None = _option(
        f"Scores that evaluations compute, with commas between them, of {', '.join(METRICS)}, and functions of your "
        f"own as module:function; by default {','.join(DEFAULT_METRICS)}."
    )
    dry_run: bool = _option(
        "Say what would be trained on, how long and with how much memory, and train nothing.", False
    )
    learning_rate: float = _option(
        f"The highest learning rate. By default {SCRATCH_LEARNING_RATE}, with `model_name_or_path` "
        f"{FINE_TUNING_LEARNING_RATE}."
    )
    lr_scheduler_type: str = _option(f"How the learning rate falls after its warm-up; by default {DEFAULT_SCHEDULE}.")
    warmup_steps: float = _option(
        "Updates until the highest learning rate, or below 1 their share of all updates. By default "
        f"{DEFAULT_WARMUP}, with paper_schedule {PAPER_WARMUP_STEPS}."
    )
    eval_strategy: str = _option(
        "When the validation pairs are evaluated: no, steps or epoch. By default steps where there are some."
    )
    output_dir: str | None = _option(
        "Folder of the trained model and its checkpoints: new, empty, or of a run to resume."
    )
    max_steps: int = _option("Number of updates, in place of num_train_epochs; -1 is without.", -1)
    bf16: bool = _option("Compute in bfloat16, which is faster on GPUs that have it.", False)
    seed: int = _option("Seed of all random numbers: the same settings and seed give the same model.", 42)
    save_steps: float = _option("Updates between checkpoints, or below 1 their share of all updates.", 500)
    push_to_hub: bool = _option("Upload the model, and each checkpoint, to the Hub; `hf auth login` first.", False)
    num_train_epochs: float = _option("Number of passes over the training pairs, where max_steps is not given.", 10.0)
    per_device_train_batch_size: int = _option("Number of pairs in a batch on one device; by default 64.")
    gradient_accumulation_steps: int = _option("Number of batches that an update is made of; by default 1.")
    per_device_eval_batch_size: int = _option("Number of pairs in an evaluation batch on one device.", 64)
    adam_beta2: float = _option("Adam's decay of squared gradients.", 0.98)
    adam_epsilon: float = _option("Adam's epsilon.", 1e-9)
    label_smoothing_factor: float = _option("Share of the target distribution spread over the vocabulary.", 0.1)
    logging_steps: float = _option("Updates between log lines, or below 1 their share of all updates.", 50)
    eval_steps: float | None = _option("Updates between evaluations, or below 1 their share of all updates.", 500)
    save_total_limit: int | None = _option("The most checkpoints to keep.", 5)
    logging_nan_inf_filter: bool = _option("Whether the log hides losses that are not numbers.", False)
    ddp_find_unused_parameters: bool | None = _option(
        "Whether processes look for parameters without a gradient after each batch; the model has none.", False
    )
    disable_tqdm: bool | None = _option(
        "Whether no progress bar is shown. By default one is shown in a terminal or a notebook, not in a log file."
    )
    use_cache: bool = _option("The config's use_cache of the saved model; training needs no cache.", True)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is pickled, as a trainer does into training_args.bin: all but the token."""
        return vars(self) | {"hub_token": None}

    def __post_init__(self) -> None:
        self.given = {name: value for name, value in changed_fields(self).items() if name != "hub_token"}
        self._check_values()
        self._set_best_model()
        for name, value in self._fallbacks().items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if not torch.accelerator.is_available():
            self.use_cpu = True  # else ranks started by torchrun on a CPU would not find each other
        super().__post_init__()
        self._check_trackers()
        self._set_plateau_mode()
        self._set_batches()
        self._check_switches()
        if self.average_checkpoints and self.save_total_limit is not None:
            # One more, since a checkpoint that is saved at a signal is not averaged.
            self.save_total_limit = max(self.save_total_limit, self.average_checkpoints + 1)

    def with_values(self, **values: Any) -> Self:
        """Returns arguments with other values, which do not count as given."""
        if all(getattr(self, name) == value for name, value in values.items()):
            return self
        changed = replace(self, **values)
        changed.given = self.given
        return changed

    def _check_values(self) -> None:
        if self.output_dir is None:
            raise ValueError("`output_dir` must be given: the folder of the trained model.")
        chosen_metrics(self.metrics)
        _check_at_least(self, dict.fromkeys(_COUNTS, 1) | {"dataloader_num_workers": 0, "seed": 0, "data_seed": 0})
        for name in _MAGNITUDES:
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"`{name}` must be a number of at least 0, but is {value} instead.")
        if isinstance(self.generation_config, str | os.PathLike):
            check_generation_config_file(self.generation_config)
        for name in ("label_smoothing_factor", "adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1, but is {getattr(self, name)} instead.")
        if self.max_steps == 0 or self.max_steps < -1 or self.num_train_epochs == 0:
            name = "num_train_epochs" if self.num_train_epochs == 0 else "max_steps"
            raise ValueError(
                f"`{name}` must be above 0, but is {getattr(self, name)} instead. Leave it out, or raise it."
            )

    def _check_trackers(self) -> None:
        """Checks that each tracker is known and installed, as the trainer does only after the corpus is read."""
        get_reporting_integration_callbacks(self.report_to)
        available = get_available_reporting_integrations()
        for name in self.report_to or ():
            package = _TRACKER_PACKAGES.get(name, name)
            if name not in available and find_spec(package.partition("-")[0]) is None:
                raise ValueError(
                    f"`report_to` must name installed trackers, but names {name!r}, which is not installed. Run "
                    f"`pip install {package}`, or leave it out."
                )

    def _set_best_model(self) -> None:
        """Fills in what early stopping and a score as the measure of the best model need."""
        if self.early_stopping_patience is not None:
            self.load_best_model_at_end = True
            self.metric_for_best_model = self.metric_for_best_model or "bleu"
            self.restore_callback_states_from_checkpoint = True  # among them, how long nothing has become better
        metric = (self.metric_for_best_model or "").removeprefix("eval_")
        metrics = METRICS | chosen_metrics(self.metrics)
        if metric in metrics:
            self.predict_with_generate = True
            if self.greater_is_better is None:
                self.greater_is_better = metrics[metric].higher_is_better
        if self.average_checkpoints < 0 or (self.average_checkpoints and self.load_best_model_at_end):
            raise ValueError(
                "`average_checkpoints` must be a number of checkpoints, or 0 where the final model is the best one "
                f"(`load_best_model_at_end`, `early_stopping_patience`), but is {self.average_checkpoints} instead."
            )

    def _set_plateau_mode(self) -> None:
        """Lets a schedule that follows the evaluations take a rising score as better where it is."""
        if self.lr_scheduler_type not in _SCHEDULES_BY_EVALUATION:
            return
        mode = "max" if self.greater_is_better else "min"
        options: Any = self.lr_scheduler_kwargs or {}
        if options.get("mode", mode) != mode:
            raise ValueError(
                f"The mode in `lr_scheduler_kwargs` must be {mode!r}, since `greater_is_better` is "
                f"{self.greater_is_better} for {self.metric_for_best_model}, but is {options['mode']!r} instead. "
                "Leave it out."
            )
        self.lr_scheduler_kwargs = {**options, "mode": mode}

    def _check_switches(self) -> None:
        """Checks that no switch of accelerate would cut batches by tokens, or let processes wait for each other."""
        switches: Any = self.accelerator_config
        for name in ("split_batches", "dispatch_batches"):
            if self.tokens_per_batch is not None and getattr(switches, name):
                raise ValueError(
                    f"`{name}` in `accelerator_config` must be left out with batches by tokens, which each process "
                    "makes for itself, but is true instead."
                )
        if self.world_size > 1 and not switches.even_batches:
            raise ValueError(
                f"`even_batches` in `accelerator_config` must be true with several processes ({self.world_size}), "
                "which would wait for each other's batches for ever, but is false instead. Leave it out."
            )

    def _fallbacks(self) -> dict[str, Any]:
        """Returns the values of fields that are None, and so were not given."""
        needs_evaluation = self.load_best_model_at_end or self.lr_scheduler_type in _SCHEDULES_BY_EVALUATION
        # The best model is chosen among those that are both saved and evaluated.
        eval_strategy = "epoch" if self.save_strategy == "epoch" else "steps"
        return {
            "learning_rate": SCRATCH_LEARNING_RATE,
            "lr_scheduler_type": DEFAULT_SCHEDULE,
            "warmup_steps": PAPER_WARMUP_STEPS if self.paper_schedule else DEFAULT_WARMUP,
            "eval_strategy": eval_strategy if needs_evaluation else "no",
            "per_device_train_batch_size": 64,
            "gradient_accumulation_steps": 1,
            "disable_tqdm": not (sys.stderr.isatty() or is_in_notebook()),  # in a file, a bar is thousands of lines
        }

    def _set_batches(self) -> None:
        """Fills in the batches that an update of `tokens_per_update` is made of."""
        if self.tokens_per_update is None:
            return
        if self.tokens_per_batch is None:
            self.tokens_per_batch = default_tokens_per_batch(self.tokens_per_update, self.world_size)
        if self.tokens_per_update < self.tokens_per_batch:
            raise ValueError(
                f"`tokens_per_update` must be at least `tokens_per_batch` ({self.tokens_per_batch}), the tokens of "
                f"one batch on one device, but is {self.tokens_per_update} instead."
            )
        batches = self.tokens_per_update / (self.tokens_per_batch * self.world_size)
        self.gradient_accumulation_steps = max(1, round(batches))


def default_tokens_per_batch(tokens_per_update: int, world_size: int) -> int:
    """Returns the tokens of a batch on one device where only those of an update are given: one batch a process."""
    return max(1, tokens_per_update // world_size)
