"""Cut texts into sentences, and join what was made of them."""

from collections.abc import Sequence

from .hypothesis import Hypothesis


def split_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text, without the white space around them; those of a blank text are itself.

    Args:
        text: A text of one line.
        language: Code of its language; rules for others are used where the library has none for it.

    Raises:
        ImportError: If the library is not installed.
    """
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError(
            "`split_language` needs the library sentencex, which is not installed: pip install 'hf-seq2seq[split]'"
        ) from error
    sentences = [sentence.strip() for sentence in segment(language, text)]
    return [sentence for sentence in sentences if sentence] or [text]


def join_hypotheses(parts: Sequence[Hypothesis]) -> Hypothesis:
    """Returns the translations of a text's sentences as one, joined with spaces."""
    has_scores = all(part.token_log_probs is not None for part in parts)
    return Hypothesis(
        " ".join(part.text for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(number for part in parts for number in part.token_ids),
        tuple(number for part in parts for number in part.token_log_probs or ()) if has_scores else None,
    )
