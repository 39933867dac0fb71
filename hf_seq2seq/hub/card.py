"""The model card: the facts it tells, and the text and metadata that are made of them.

A fact that is not known is left out. The architecture is compared with the models of Vaswani et al. (2017).

A new fact is a field of `CardFacts` and, to be read on the card, a line of `_MODEL_LINES` or `_TRAINING_LINES`. A
field of a type that no other field has also needs the type's words in `_RULES`. A fact that is more than a line of a
list needs its place in the template.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import HFValidationError, StrictDataclassError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its list of exports

from hf_seq2seq.atomic_writing import PathLike
from hf_seq2seq.evaluation import METRICS, metrics_in
from hf_seq2seq.model.configuration_seq2seq_transformer import PAPER_ROWS, Seq2SeqTransformerConfig
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration


FACTS_FILE = "model_card.yaml"  # in a model's folder: `hf-seq2seq train` writes it, and its user may add to it
TEMPLATE = Path(__file__).with_name("model_card_template.md.jinja")

_COUNT = "a whole number of at least 0"
_NUMBER = "a finite number of at least 0"

# How messages describe the type of a fact.
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

# Fields of the config that are not compared with the paper: sizes of vocabularies, which the card names by themselves,
# ids of tokens, and decoding.
_NOT_COMPARED = {
    *("vocab_size", "decoder_vocab_size", "use_cache", "is_encoder_decoder"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
}


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines, such as a command, as a block that can be read."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


@strict
@dataclass(kw_only=True)
class CardFacts:
    """What a model card tells beside the model's architecture. An empty fact is left out of the card.

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

    def unknown(self) -> list[str]:
        """Returns what a reader looks for on a card and these facts do not tell, in words."""
        wanted = {
            "languages": self.source_languages and self.target_languages,
            "licence": self.license,
            "data": self.data,
            "the data's licence": self.data_license,
            "hardware": self.hardware,
            "intended use": self.intended_use,
            "scores on a test set": [scores for scores in self.scores if scores.get("split") != "validation"],
        }
        return [words for words, value in wanted.items() if not value]


def make_facts(values: Mapping[str, Any], place: str) -> CardFacts:
    """Returns facts, after a check of their names and values.

    Args:
        values: The value of each fact by its name.
        place: Where they come from, such as a file, as messages call it.

    Raises:
        ValueError: If a name is unknown, a value has the wrong type, a number is negative or not finite, or a score or
            an example is incomplete.
    """
    types = {field.name: field.type for field in fields(CardFacts)}
    for name, value in values.items():
        if name not in types:
            near = difflib.get_close_matches(str(name), types, n=3) or types
            raise ValueError(f"`{name}` in {place} must be a fact of a card, but is none. Nearest: {', '.join(near)}.")
        rule = _RULES[types[name]]
        _check_rule(_is_fact(name, value, rule), f"`{name}` in {place}", rule, value)
    facts = CardFacts(**values)
    for scores in facts.scores:
        if not isinstance(scores.get("test_set"), str) or not metrics_in(scores):
            raise ValueError(
                f"Each of `scores` in {place} must have a `test_set`, the name of what was translated, and at least "
                f"one of {', '.join(METRICS)}, but one has {', '.join(scores) or 'nothing'} instead."
            )
        own = metrics_in(scores).keys() - METRICS.keys()
        for name, value in scores.items():
            if name in own:
                is_finite = type(value) in (int, float) and math.isfinite(value)
                _check_rule(is_finite, f"`{name}` of `scores` in {place}", "a finite number", value)
            else:
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
        _check_rule(_is_number(value), what, _NUMBER, value)
    elif name == "num_sentences":
        _check_rule(type(value) is int and value >= 0, what, _COUNT, value)
    elif name in ("note", "dataset", "split", *(metric.signature_name for metric in METRICS.values())):
        _check_rule(isinstance(value, str), what, "a text", value)


def _check_rule(is_right: bool, what: str, rule: str, value: Any) -> None:
    if not is_right:
        raise ValueError(f"{what} must be {rule}, but is {value!r:.100} instead.")


def read_facts(path: PathLike) -> CardFacts:
    """Reads the facts of a YAML file.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file is not YAML, or holds something that `make_facts` refuses.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"`{path}` must be valid YAML, but is not: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ValueError(f"`{path}` must be a mapping of facts, but is a {type(values).__name__} instead.")
    return make_facts(values, f"`{path}`")


def make_card(
    facts: CardFacts,
    config: Seq2SeqTransformerConfig,
    *,
    repo_id: str | None = None,
    needs_package: bool = False,
) -> ModelCard:
    """Returns the card of a model: its text, and the metadata that the Hub reads.

    Args:
        facts: What is known of the model.
        config: The model's config.
        repo_id: The name on the Hub that the card's examples load; without it the card has no examples of use.
        needs_package: Whether the model's tokenizer takes this package, so that transformers alone does not do.
    """
    facts = replace(facts, base_model=facts.base_model if _is_on_hub(facts.base_model) else None)
    name = (repo_id or "").split("/")[-1]
    title = facts.title or name or "Seq2SeqTransformer"
    languages = list(dict.fromkeys(facts.source_languages + facts.target_languages))
    metrics = metrics_in({name: value for scores in facts.scores for name, value in scores.items()})
    card_data = ModelCardData(
        language=languages or None,
        license=facts.license,
        library_name="transformers",
        pipeline_tag=facts.task,
        tags=["hf_seq2seq", config.model_type],
        datasets=facts.datasets or None,
        base_model=facts.base_model,
        metrics=list(dict.fromkeys(metric.hub_name for metric in metrics.values())) or None,
        model_name=(name or title) if metrics else None,
        eval_results=_eval_results(facts) or None,
    )
    texts: Any = {
        "title": title,
        "facts": facts,
        "model_lines": _known_lines(_MODEL_LINES, facts),
        "repo_id": repo_id,
        "needs_package": needs_package,
        "sample": json.dumps(facts.examples[0][0] if facts.examples else "A text.", ensure_ascii=False),
        "architecture": _architecture(config),
        "fence": _fence(facts.command or ""),
        "hyperparameters": [(name, _cell(value)) for name, value in facts.hyperparameters.items()],
        "training_lines": _known_lines(_TRAINING_LINES, facts),
        "score_tables": [_score_table(scores) for scores in facts.scores],
        "examples": [[_cell(text) for text in example] for example in facts.examples],
    }
    card: ModelCard = ModelCard.from_template(card_data, template_path=str(TEMPLATE), **texts)
    return card


def nearest_paper_model(config: Seq2SeqTransformerConfig) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """Returns the name of the paper's model that a config is nearest to, and how it differs from that.

    Returns:
        A name that `from_paper` takes, and {field: (the config's value, the paper's)} for each field that differs. If
        a row of Table 3 has no difference, it is that row; else base or big, whichever differs in fewer fields.
    """
    names = [name for name in Seq2SeqTransformerConfig.__annotations__ if name in config.__dataclass_fields__]
    compared = [name for name in names if name not in _NOT_COMPARED]
    if config.position_embedding_type == "sinusoidal":
        compared.remove("max_position_embeddings")  # not read then
    differences = {}
    for row in PAPER_ROWS:
        paper_model = type(config).from_paper(row)
        pairs = {name: (getattr(config, name), getattr(paper_model, name)) for name in compared}
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
        for name, metric in metrics_in(scores).items()
    ]


def _score_table(scores: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for name, metric in metrics_in(scores).items():
        signature = scores.get(metric.signature_name)
        rows.append((metric.title, metric.format(scores[name]), f"`{_cell(signature)}`" if signature else ""))
    number = scores.get("num_sentences")
    return {
        "test_set": scores["test_set"],
        "num_sentences": None if number is None else f"{number:,}",
        "note": scores.get("note"),
        "rows": rows,
    }


def _known_lines(lines: Mapping[str, Callable[[CardFacts], str | None]], facts: CardFacts) -> list[tuple[str, str]]:
    """Returns the title and the text of each line whose facts are known."""
    return [(title, text) for title, write in lines.items() if (text := write(facts))]


def _languages(facts: CardFacts) -> str | None:
    if not (facts.source_languages and facts.target_languages):
        return None
    return f"from {', '.join(facts.source_languages)} to {', '.join(facts.target_languages)}"


def _link_to_base_model(facts: CardFacts) -> str | None:
    return facts.base_model and f"[{facts.base_model}](https://huggingface.co/{facts.base_model})"


def _versions(facts: CardFacts) -> str:
    return ", ".join(f"{name} {version}" for name, version in facts.versions.items())


def _progress(facts: CardFacts) -> str:
    """Returns lines that tell how much was trained, as far as it is known."""
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
    return "\n".join(sentences)


# The lines of a card: the title of each, and a function that writes its text, which is empty if the fact is not known.
_MODEL_LINES: dict[str, Callable[[CardFacts], str | None]] = {
    "Languages": _languages,
    "Licence": lambda facts: facts.license,
    "Data": lambda facts: facts.data,
    "Licence of the data": lambda facts: facts.data_license,
    "Trained further from": _link_to_base_model,
}
_TRAINING_LINES: dict[str, Callable[[CardFacts], str | None]] = {
    "Machine": lambda facts: facts.hardware,
    "Training": _progress,
    "Versions": _versions,
}


def _is_on_hub(base_model: str | None) -> bool:
    """Returns True if the name can be that of a model on the Hub: a path on this machine does not belong on a card."""
    try:
        validate_repo_id(base_model)
    except HFValidationError:
        return False
    return not Path(str(base_model)).exists()


def _fence(text: str) -> str:
    """Returns the backticks that open and close a block of code: more in a row than the text itself has."""
    return "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)


def _cell(value: Any) -> str:
    """Returns a value as the text of a cell in a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|")
