"""Arguments and options that several verbs have."""

from enum import StrEnum
from typing import Annotated

import typer


class Backend(StrEnum):
    """What computes."""

    torch = "torch"
    ctranslate2 = "ctranslate2"


ModelArgument = Annotated[str, typer.Argument(help="The model's folder, or its name on the Hub.", metavar="MODEL")]
EnsembleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODEL",
        help="Another model of the same vocabulary, whose probabilities are averaged with MODEL's; may be given "
        "several times.",
    ),
]
BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept at each step; 1 is greedy search. By default the model's own."),
]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(help="Above the model's own for longer outputs, below it for shorter ones.")
]
GnmtPenaltyOption = Annotated[
    bool | None,
    typer.Option(
        help="Divide log-probabilities by ((5 + length) / 6) ** penalty, as the paper did, or by length ** penalty; "
        "by default as the model's settings say."
    ),
]
BatchTokensOption = Annotated[
    int, typer.Option(min=1, help="The most source tokens, with padding, that are translated at once.")
]
DeviceOption = Annotated[
    str | None, typer.Option(help='Such as "cpu" or "cuda:1". By default an accelerator where there is one.')
]
DtypeOption = Annotated[
    str | None, typer.Option(help='Type of the weights, such as "bfloat16". By default the one they were saved in.')
]
BackendOption = Annotated[
    Backend, typer.Option(help="ctranslate2 for a folder that `hf-seq2seq export ctranslate2` wrote.")
]
RevisionOption = Annotated[
    str | None, typer.Option(help="Branch, tag or commit of MODEL on the Hub; by default main.")
]


def check_revision(revision: str | None, backend: Backend) -> None:
    """Raises ValueError if a revision is given for the backend ctranslate2, whose models are folders."""
    if revision is not None and backend is Backend.ctranslate2:
        raise ValueError(
            "`--revision` must be left out with `--backend ctranslate2`, which reads a folder, but is "
            f"{revision!r} instead."
        )
