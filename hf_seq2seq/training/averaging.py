"""The average of a run's last checkpoints, which translates better than the last one: section 6.1 of the paper."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hf_seq2seq.atomic_writing import PathLike, check_new_folder, new_folder
from hf_seq2seq.loading import load_model, load_tokenizer
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration

from .arguments import CHANGEABLE_FIELDS
from .checkpoints import last_regular_checkpoints


logger = logging.getLogger(__name__)

# Fields of a config in which checkpoints may differ, since no weight's meaning depends on them.
_FIELDS_WITHOUT_WEIGHT = (
    *CHANGEABLE_FIELDS,
    *("use_cache", "_name_or_path", "transformers_version", "architectures", "auto_map"),
)


def average_checkpoints(checkpoints: Sequence[PathLike], output_dir: PathLike) -> None:
    """Saves the average of checkpoints, as `average_weights` makes it, with the last one's tokenizer.

    Args:
        checkpoints: Folders of models that differ in nothing but their weights.
        output_dir: A new or empty folder.

    Raises:
        OSError: If a folder or a file of it is missing, or the average cannot be written.
        ValueError: As `average_weights` does, or if `output_dir` holds something.
    """
    check_new_folder(output_dir)
    model = average_weights(checkpoints)
    tokenizer = load_tokenizer(checkpoints[-1])
    with new_folder(output_dir) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)


def average_weights(checkpoints: Sequence[PathLike]) -> Seq2SeqTransformerForConditionalGeneration:
    """Returns the model whose every parameter is the mean of the checkpoints': Vaswani et al. (2017), section 6.1.

    The paper's base models are averages of the last 5 checkpoints, which were written at 10-minute intervals. The sum
    is float64, the mean has the type of the saved weights. Generation settings are the last one's.

    Args:
        checkpoints: Folders of models that differ in nothing but their weights.

    Raises:
        OSError: If a folder or a file of it is missing.
        ValueError: If there is no checkpoint, one is given twice, is damaged or has another config than the first.
    """
    if not checkpoints:
        raise ValueError("`checkpoints` must name at least one folder, but is empty.")
    _check_each_is_another(checkpoints)
    totals: dict[str, torch.Tensor] = {}
    first_fields: dict[str, Any] = {}
    for checkpoint in checkpoints:
        model = load_model(checkpoint)
        fields = {name: value for name, value in model.config.to_dict().items() if name not in _FIELDS_WITHOUT_WEIGHT}
        first_fields = first_fields or fields
        _check_same_fields(first_fields, fields, checkpoints[0], checkpoint)
        for name, parameter in model.named_parameters():  # a tied one has one name
            if name not in totals:
                totals[name] = torch.zeros_like(parameter, dtype=torch.float64, requires_grad=False)
            totals[name] += parameter.detach()
    for name, parameter in model.named_parameters():
        parameter.data.copy_(totals.pop(name) / len(checkpoints))
    return model


def take_average(model: Any, run_dir: PathLike, number: int) -> None:
    """Gives a model the average of the last regular checkpoints of its run.

    Args:
        model: What was trained in the run.
        run_dir: The folder of the run. Where it has fewer checkpoints, those are averaged, with a warning; where it
            has none, the model stays as it is.
        number: How many checkpoints are wanted.
    """
    checkpoints = last_regular_checkpoints(run_dir, number)
    if len(checkpoints) < number:
        logger.warning(
            "`average_checkpoints` is %d, but the run has only %d: their average is the final model. More "
            "frequent `save_steps` would leave more.",
            *(number, len(checkpoints)),
        )
    if checkpoints:
        model.load_state_dict(average_weights(checkpoints).state_dict())


def _check_each_is_another(checkpoints: Sequence[PathLike]) -> None:
    seen: set[Path] = set()
    for checkpoint in checkpoints:
        path = Path(checkpoint).resolve()
        if path in seen:
            raise ValueError(f"Each checkpoint must be named once, but `{checkpoint}` is named again. Leave it out.")
        seen.add(path)


def _check_same_fields(
    expected: dict[str, Any], fields: dict[str, Any], first: PathLike, checkpoint: PathLike
) -> None:
    for name in sorted(expected.keys() | fields.keys()):
        if fields.get(name) != expected.get(name):
            raise ValueError(
                f"`{name}` must be {expected.get(name)!r} in every config.json, as in `{first}`, but is "
                f"{fields.get(name)!r} in `{checkpoint}` instead. Average checkpoints of one run."
            )
