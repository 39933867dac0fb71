"""Makes one training set of several corpora."""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


logger = logging.getLogger(__name__)


def mix_corpora(
    corpora: "Sequence[Dataset | IterableDataset]", weights: Sequence[float] | None = None, *, seed: int = 0
) -> "Dataset | IterableDataset":
    """Joins corpora of pairs: each pair once, or by weights.

    With weights, a corpus is drawn at random for each pair of the mixture. A corpus gives its pairs in their order,
    and starts again when it has given all. The mixture ends when every corpus has given all of its pairs, whatever the
    weights are: a large corpus with a small weight makes the mixture long and repeats the other corpora many times.
    The same seed gives the same mixture, and a stream gives the same mixture in each pass.

    Args:
        corpora: The corpora, either all datasets or all streams, with the same columns.
        weights: The share of each corpus in the mixture, in any unit; None joins the corpora one after the other.
        seed: The seed of the random draws.

    Returns:
        The mixture: a dataset of datasets, a stream of streams. A single corpus is returned unchanged.

    Raises:
        ValueError: If there is no corpus, datasets and streams are mixed, or `weights` does not hold one positive
            number for each corpus.
    """
    import datasets

    if not corpora:
        raise ValueError("`corpora` must hold at least one corpus, but holds none.")
    num_streams = sum(isinstance(corpus, datasets.IterableDataset) for corpus in corpora)
    if num_streams not in (0, len(corpora)):
        raise ValueError(
            f"`corpora` must be all datasets or all streams, but {num_streams} of {len(corpora)} are streams. Load "
            "each with the same `streaming`."
        )
    if weights is not None:
        _check_weights(weights, len(corpora))
    if len(corpora) == 1:
        return corpora[0]
    if weights is None:
        return datasets.concatenate_datasets(list(corpora))
    shares = [weight / math.fsum(weights) for weight in weights]
    mixture = datasets.interleave_datasets(
        list(corpora), probabilities=shares, seed=seed, stopping_strategy="all_exhausted"
    )
    percentages = " / ".join(f"{100 * share:.1f}" for share in shares)
    if num_streams:
        logger.info("Mixing %d corpora, which give %s %% of the pairs.", len(corpora), percentages)
        return mixture
    passes = " / ".join(
        f"{share * len(mixture) / len(corpus):.1f}" for share, corpus in zip(shares, corpora, strict=True)
    )
    logger.info(
        "Mixed %d corpora to %d pairs, of which they give about %s %%; each corpus is passed through about %s times.",
        *(len(corpora), len(mixture), percentages, passes),
    )
    return mixture


def tag_sources(corpus: "Dataset | IterableDataset", tag: str) -> "Dataset | IterableDataset":
    """Returns the corpus with a tag, and a space, before each source; an empty tag leaves it as it is.

    Args:
        corpus: Pairs in the text columns "source" and "target".
        tag: What tells the model apart what kind of pairs these are, such as ">>de<<".
    """
    from datasets import IterableDataset

    from .filtering import STREAM_BATCH_SIZE

    if not tag:
        return corpus

    return corpus.map(
        _put_before_sources,
        batched=True,
        batch_size=STREAM_BATCH_SIZE if isinstance(corpus, IterableDataset) else 1000,
        fn_kwargs={"tag": tag},
        features=corpus.features,
    )


def _put_before_sources(batch: dict[str, list[str]], tag: str) -> dict[str, list[str]]:
    return {"source": [f"{tag} {text}" for text in batch["source"]]}


def _check_weights(weights: Sequence[float], num_corpora: int) -> None:
    if len(weights) != num_corpora:
        raise ValueError(
            f"`weights` must hold one weight for each of the {num_corpora} corpora, but holds {len(weights)} instead."
        )
    for weight in weights:
        if not 0 < weight < math.inf:
            raise ValueError(
                f"`weights` must be positive and finite, but one is {weight} instead. Leave out a corpus that is not "
                "wanted."
            )
