"""Nothing is lost on the way from the token ids of a trainer's evaluation to the scores of their texts."""

import numpy as np
import pytest
from transformers import EvalPrediction, PreTrainedTokenizerFast

from hf_seq2seq.evaluation import generation_metrics, score
from hf_seq2seq.tokenization import train_tokenizer


HYPOTHESES = ["the cat sat on the mat", "a dog, it barked", ""]
REFERENCES = ["the cat sat on a mat", "a dog, it barked", "nothing"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(iter(REFERENCES), vocab_size=100, kind="char")


def test_padding_of_minus_100_is_no_token_and_drops_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    """https://github.com/huggingface/transformers/issues/22634.

    Rows of unequal length, as the trainer joins them over batches: -100 at the end of predictions and of labels; after
    their end, predictions repeat `</s>`.
    """
    predictions = np.full((3, 40), -100)
    labels = np.full((3, 30), -100)
    for row, (hypothesis, reference) in enumerate(zip(HYPOTHESES, REFERENCES, strict=True)):
        ids = [1, *tokenizer(hypothesis)["input_ids"], *[2] * row]
        predictions[row, : len(ids)] = ids
        ids = tokenizer(reference)["input_ids"]
        labels[row, : len(ids)] = ids
    before = predictions.copy()

    metrics = generation_metrics(tokenizer)(EvalPrediction(predictions=predictions, label_ids=labels))

    expected = score(HYPOTHESES, REFERENCES)
    assert metrics == {name: expected[name] for name in ("bleu", "chrf", "ter", "exact_match")}
    assert all(isinstance(value, float) for value in metrics.values())
    assert (predictions == before).all()
    chosen = generation_metrics(tokenizer, metrics="exact_match")(
        EvalPrediction(predictions=predictions, label_ids=labels)
    )
    assert chosen == {"exact_match": expected["exact_match"]}
