"""The verb `average`: one model from the last checkpoints of a run."""

from pathlib import Path
from typing import Annotated

import typer


DEFAULT_NUMBER = 5  # section 6.1 of the paper, for base models


def average(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="The output folder of a training run, or several checkpoints.", metavar="RUN_OR_CHECKPOINTS"
        ),
    ],
    output: Annotated[Path, typer.Option(help="A new or empty folder for the averaged model and its tokenizer.")],
    last: Annotated[
        int | None, typer.Option(min=1, help=f"How many checkpoints of a run; by default {DEFAULT_NUMBER}.")
    ] = None,
) -> None:
    """Average the weights of a run's last checkpoints, or of the checkpoints that are named.

    The average is often the better model: section 6.1 of the paper.
    """
    if len(folders) > 1 and last is not None:
        raise ValueError(
            f"`--last` must be given with one folder, that of a run, but {len(folders)} are named. Leave it out to "
            "average the folders that are named."
        )

    from hf_seq2seq.training.averaging import average_checkpoints
    from hf_seq2seq.training.checkpoints import last_checkpoints

    checkpoints = folders if len(folders) > 1 else last_checkpoints(folders[0], last or DEFAULT_NUMBER)
    average_checkpoints(checkpoints, output)
    typer.echo(_summary(checkpoints, output))


def _summary(checkpoints: list[Path], output: Path) -> str:
    lines = [
        f"{output}: the average of",
        *(f"  {checkpoint}" for checkpoint in checkpoints),
        "Whether it is better than the last of them is told by scoring both:",
        *(
            f"  hf-seq2seq evaluate {model} --source validation-source.txt --reference validation-target.txt"
            for model in (output, checkpoints[-1])
        ),
    ]
    return "\n".join(lines)
