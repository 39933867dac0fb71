"""A tiny model and its tokenizer, of which each letter is a token."""

import pytest
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Seq2SeqTransformerForConditionalGeneration:
    return tiny_model(vocab_size=len(letter_tokenizer))
