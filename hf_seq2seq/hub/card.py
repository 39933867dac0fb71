"""The model card: the facts it tells, and the text and metadata that are made of them.

What is not known is left out. Vaswani et al. (2017) is what an architecture is compared with.
"""

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import HFValidationError, StrictDataclassError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its list of exports

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.evaluation import METRICS
from hf_seq2seq.model.configuration_seq2seq_transformer import _PAPER_ROWS, Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


FACTS_FILE = "model_card.yaml"  # in a model's folder: what `hf-seq2seq train` knows of it, and whoever adds to it
TEMPLATE = Path(__file__).with_name("model_card_template.md.jinja")

_COUNT = "a whole number of at least 0"
_NUMBER = "a finite number of at least 0"

# What messages call the types of the facts.
_RULES = {
    str: "a text",
    str | None: "a text",
    list[str]: "a list of texts",
    dict[str, str]: "a mapping of names to texts",
    dict[str, Any]: "a mapping of names to values",
    int | None: _COUNT,
    float | int | None: _NUMBER,
    list[dict[str, Any]]: "a list of mappings",
    list[list[str]]: "a list of lists of texts",
}

# What tells nothing of an architecture: sizes of vocabularies, which a card names apart, ids of tokens, and decoding.
_NO_ARCHITECTURE = {
    *("vocab_size", "decoder_vocab_size", "use_cache", "is_encoder_decoder"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines, such as commands, as they are."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


@strict
@dataclass(kw_only=True)
class CardFacts:
    """What a model card tells beside the model's architecture. What is empty is left out of the card.

    Args:
        title: The heading; by default the repository's name.
        summary: What the model is, in a sentence or two of Markdown.
        source_languages: Codes of the languages it reads, such as "en".
        target_languages: Codes of the languages it writes.
        task: What it does, as the Hub calls it.
        license: The model's licence, as the Hub calls it, such as "cc-by-4.0".
        data: What it was trained on, in Markdown.
        datasets: Names of those data sets that are on the Hub.
        data_license: The licence of the data.
        base_model: Name on the Hub of the model that it was trained further from; a path is left out of the card.
        tokenizer: Number and kind of its tokens.
        command: The command or commands that make the model.
        hyperparameters: Settings of the training by name.
        hardware: What it was trained on.
        versions: Versions of the libraries it was trained with, by name, such as "torch".
        num_pairs: Number of training pairs.
        num_target_tokens: Number of tokens of their target sides.
        updates: Number of updates.
        epochs: How often each pair was seen.
        seconds: Time of the training, evaluations included.
        target_tokens_per_second: Real target tokens a second, in that time.
        scores: For each test set what `hf-seq2seq evaluate --json` prints, with `test_set` (its name) and, where there
            is more to tell, `note`, `dataset` (its name on the Hub) and `split`.
        examples: Triples of a source, the model's translation and a reference.
        intended_use: What the model is for, in Markdown.
        limits: What it cannot do, in Markdown.

    Raises:
        huggingface_hub.errors.StrictDataclassError: If a value has the wrong type.
    """

    title: str | None = None
    summary: str | None = None
    source_languages: list[str] = field(default_factory=list)
    target_languages: list[str] = field(default_factory=list)
    task: str = "translation"
    license: str | None = None
    data: str | None = None
    datasets: list[str] = field(default_factory=list)
    data_license: str | None = None
    base_model: str | None = None
    tokenizer: str | None = None
    command: str | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    hardware: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    num_pairs: int | None = None
    num_target_tokens: int | None = None
    updates: int | None = None
    epochs: float | int | None = None
    seconds: float | int | None = None
    target_tokens_per_second: float | int | None = None
    scores: list[dict[str, Any]] = field(default_factory=list)
    examples: list[list[str]] = field(default_factory=list)
    intended_use: str | None = None
    limits: str | None = None

    def to_yaml(self) -> str:
        """Returns the facts that are known as YAML."""
        default = CardFacts()
        known = {name: value for name, value in asdict(self).items() if value != getattr(default, name)}
        return yaml.dump(known, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def make_facts(values: Mapping[str, Any], place: str) -> CardFacts:
    """Returns facts from their names and values.

    Args:
        values: The facts.
        place: What holds them, as it is called in messages.

    Raises:
        ValueError: If a name or the type of a value is wrong, a number is negative or not finite, or a score or
            example is not as it must be.
    """
    types = {field.name: field.type for field in fields(CardFacts)}
    for name, value in values.items():
        if name not in types:
            near = difflib.get_close_matches(str(name), types, n=3) or types
            raise ValueError(f"`{name}` in {place} must be a fact of a card, but is none. Nearest: {', '.join(near)}.")
        rule = _RULES[types[name]]
        _check(_is_fact(name, value, rule), f"`{name}` in {place}", rule, value)
    facts = CardFacts(**values)
    for scores in facts.scores:
        if not isinstance(scores.get("test_set"), str) or not scores.keys() & METRICS.keys():
            raise ValueError(
                f"Each of `scores` in {place} must have a `test_set`, the name of what was translated, and at least "
                f"one of {', '.join(METRICS)}, but one has {', '.join(scores) or 'nothing'} instead."
            )
        for name, value in scores.items():
            _check_score(name, value, place)
    for example in facts.examples:
        if len(example) != 3:
            raise ValueError(
                f"Each of `examples` in {place} must be a source, a translation and a reference, but one has "
                f"{len(example)} texts instead."
            )
    return facts


def _is_fact(name: str, value: Any, rule: str) -> bool:
    try:
        CardFacts(**{name: value})
    except StrictDataclassError:
        return False
    return value is None or rule not in (_COUNT, _NUMBER) or _is_number(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _check_score(name: str, value: Any, place: str) -> None:
    what = f"`{name}` of `scores` in {place}"
    if name in METRICS:
        _check(_is_number(value), what, _NUMBER, value)
    elif name == "num_sentences":
        _check(type(value) is int and value >= 0, what, _COUNT, value)
    elif name in ("note", "dataset", "split", *(metric.signature_name for metric in METRICS.values())):
        _check(isinstance(value, str), what, "a text", value)


def _check(is_right: bool, what: str, rule: str, value: Any) -> None:
    if not is_right:
        raise ValueError(f"{what} must be {rule}, but is {value!r:.100} instead.")


def read_facts(path: PathLike) -> CardFacts:
    """Reads the facts of a YAML file.

    Raises:
        OSError: If it cannot be read, **or**
        ValueError: If it is no YAML, or as `make_facts` does.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"`{path}` must be valid YAML, but is not: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"`{path}` must be a mapping of facts, but is a {type(values).__name__} instead.")
    return make_facts(values, f"`{path}`")


def make_card(facts: CardFacts, config: Seq2SeqTransformerConfig, *, repo_id: str | None = None) -> ModelCard:
    """Returns the card of a model, with what the Hub reads of it in its metadata.

    Args:
        facts: What is known of it.
        config: Its config.
        repo_id: Where it is loaded from; a card without it does not tell how to use the model.
    """
    base_model = facts.base_model if _is_on_hub(facts.base_model) else None
    name = (repo_id or "").split("/")[-1]
    title = facts.title or name or "Seq2SeqTransformer"
    languages = list(dict.fromkeys(facts.source_languages + facts.target_languages))
    metrics = [metric.hub_name for name, metric in METRICS.items() if any(name in scores for scores in facts.scores)]
    card_data = ModelCardData(
        language=languages or None,
        license=facts.license,
        library_name="transformers",
        pipeline_tag=facts.task,
        tags=["hf_seq2seq", config.model_type],
        datasets=facts.datasets or None,
        base_model=base_model,
        metrics=list(dict.fromkeys(metrics)) or None,
        model_name=(name or title) if metrics else None,
        eval_results=_eval_results(facts) or None,
    )
    texts: Any = {
        "title": title,
        "facts": facts,
        "base_model": base_model,
        "repo_id": repo_id,
        "sample": json.dumps(facts.examples[0][0] if facts.examples else "A text.", ensure_ascii=False),
        "architecture": _architecture(config),
        "fence": _fence(facts.command or ""),
        "hyperparameters": [(name, _cell(value)) for name, value in facts.hyperparameters.items()],
        "progress": _progress(facts),
        "score_tables": [_score_table(scores) for scores in facts.scores],
        "examples": [[_cell(text) for text in example] for example in facts.examples],
    }
    card: ModelCard = ModelCard.from_template(card_data, template_path=str(TEMPLATE), **texts)
    return card


def nearest_paper_model(config: Seq2SeqTransformerConfig) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """Tells which model of the paper a config is like.

    Returns:
        A name that `from_paper` takes, and the differences, {field: (the config's, the paper's)}. A row of Table 3 is
        named where nothing differs; else base or big, whichever differs in fewer fields.
    """
    names = [name for name in Seq2SeqTransformerConfig.__annotations__ if name in config.__dataclass_fields__]
    compared = [name for name in names if name not in _NO_ARCHITECTURE]
    if config.position_embedding_type == "sinusoidal":
        compared.remove("max_position_embeddings")  # not read then
    differences = {}
    for row in _PAPER_ROWS:
        pairs = {name: (getattr(config, name), getattr(type(config).from_paper(row), name)) for name in compared}
        differences[row] = {name: (ours, papers) for name, (ours, papers) in pairs.items() if ours != papers}
    exact = [row for row, found in differences.items() if not found]
    row = exact[0] if exact else min(("base", "big"), key=lambda name: len(differences[name]))
    return row, differences[row]


def _architecture(config: Seq2SeqTransformerConfig) -> dict[str, Any]:
    row, differences = nearest_paper_model(config)
    with torch.device("meta"):
        num_parameters = Seq2SeqTransformerForConditionalGeneration(config).num_parameters()
    return {
        "paper_model": f"{row} model" if row in ("base", "big") else f"model of Table 3, row {row}",
        "differences": [(name, ours, papers) for name, (ours, papers) in differences.items()],
        "parameters": f"{num_parameters / 1e6:,.1f} M" if num_parameters >= 1e5 else f"{num_parameters:,}",
        "vocab_size": f"{config.vocab_size:,}",
        "decoder_vocab_size": f"{config.decoder_vocab_size:,}",
        "shares_embeddings": config.share_encoder_decoder_embeddings,
        "ties_embeddings": config.share_encoder_decoder_embeddings and config.tie_word_embeddings,
    }


def _eval_results(facts: CardFacts) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=facts.task,
            dataset_type=scores.get("dataset", "local"),
            dataset_name=scores["test_set"],
            # The Hub takes results that agree in all but the name of the dataset for those of one test set.
            dataset_split=scores.get("split", scores["test_set"]),
            metric_type=metric.hub_name,
            metric_name=metric.title,
            metric_value=round(scores[name], 2),
            metric_args={"signature": signature} if (signature := scores.get(metric.signature_name)) else None,
        )
        for scores in facts.scores
        for name, metric in METRICS.items()
        if name in scores
    ]


def _score_table(scores: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for name, metric in METRICS.items():
        if name in scores:
            signature = scores.get(metric.signature_name)
            rows.append((metric.title, metric.format(scores[name]), f"`{_cell(signature)}`" if signature else ""))
    number = scores.get("num_sentences")
    return {
        "test_set": scores["test_set"],
        "num_sentences": None if number is None else f"{number:,}",
        "note": scores.get("note"),
        "rows": rows,
    }


def _progress(facts: CardFacts) -> list[str]:
    """Returns sentences on how much was trained, of what is known."""
    sentences = []
    if facts.updates is not None:
        epochs = "" if facts.epochs is None else f" ({facts.epochs:.2f} epochs)"
        pairs = "" if facts.num_pairs is None else f" on {facts.num_pairs:,} pairs"
        decimals = 1 if (facts.seconds or 0) < 10 else 0
        seconds = "" if facts.seconds is None else f" in {facts.seconds:,.{decimals}f} s, evaluations included"
        sentences.append(f"{facts.updates:,} updates{epochs}{pairs}{seconds}.")
    if facts.num_target_tokens is not None:
        sentences.append(f"The training targets have {facts.num_target_tokens:,} tokens.")
    if facts.target_tokens_per_second is not None:
        sentences.append(f"That is {facts.target_tokens_per_second:,.0f} real target tokens a second.")
    return sentences


def _is_on_hub(base_model: str | None) -> bool:
    """Tells whether a model's name can be one on the Hub: a path is of one machine, and nobody else's business."""
    try:
        validate_repo_id(base_model)
    except HFValidationError:
        return False
    return not Path(str(base_model)).exists()


def _fence(text: str) -> str:
    """Returns the backticks that a text is put between as code: more than it has itself."""
    return "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)


def _cell(value: Any) -> str:
    """Returns a text as the cell of a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|")
