"""transformers' own common model and config tests, with this package's classes as their subject.

Not collected by `scripts/test.sh`: `scripts/conformance.sh` copies it beside the tests of transformers' source
distribution, which it imports, and runs it there with recorder.py.
"""

import sys
import types
import unittest
from typing import Any, ClassVar

from torch import Tensor
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device

import hf_seq2seq


class _NoTests:
    """Stands for a mixin that the source distribution leaves out: what inherits from it gets no tests from it."""


# The distribution has the files tests/test_*.py only. They import these names from its missing folders.
_STAND_INS: dict[str, dict[str, Any]] = {
    "tests.exporters.test_export": {"ExportTesterMixin": _NoTests},
    "tests.generation.test_utils": {"GenerationTesterMixin": _NoTests},
    # Values that every config must take and keep, unlike the defaults.
    "tests.utils.test_configuration_utils": {
        "config_common_kwargs": {
            "architectures": ["SomeModel"],
            "chunk_size_feed_forward": 5,
            "dtype": "float16",
            "id2label": {0: "no", 1: "yes"},
            "label2id": {"no": 0, "yes": 1},
            "output_hidden_states": True,
            "problem_type": "regression",
            "return_dict": False,
        }
    },
}
for module_name, contents in _STAND_INS.items():
    package_name = module_name.rpartition(".")[0]
    sys.modules.setdefault(package_name, types.ModuleType(package_name))
    sys.modules[module_name] = types.ModuleType(module_name)
    vars(sys.modules[module_name]).update(contents)

from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask  # noqa: E402


# The tests recognise a class by its name in these tables, which registering with the Auto classes leaves alone.
modeling_auto.MODEL_MAPPING_NAMES["seq2seq_transformer"] = "Seq2SeqTransformerModel"
modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["seq2seq_transformer"] = (
    "Seq2SeqTransformerForConditionalGeneration"
)


class ModelTester:
    """Builds the small config and the batch that every common test starts from; attribute names are theirs."""

    batch_size = 13
    seq_length = 7
    is_training = True
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 2

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def get_config(self) -> hf_seq2seq.Seq2SeqTransformerConfig:
        """Returns a config of under a million parameters, with encoder and decoder of equal size."""
        return hf_seq2seq.Seq2SeqTransformerConfig(
            vocab_size=99,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=50,
            **self.options,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[hf_seq2seq.Seq2SeqTransformerConfig, dict[str, Tensor]]:
        """Returns the config and a batch of random ids with random masks on both sides."""
        config = self.get_config()
        shape = [self.batch_size, self.seq_length]
        inputs = {
            "input_ids": ids_tensor(shape, config.vocab_size),
            "attention_mask": random_attention_mask(shape),
            "decoder_input_ids": ids_tensor(shape, config.vocab_size),
            "decoder_attention_mask": random_attention_mask(shape),
        }
        return config, {name: tensor.to(torch_device) for name, tensor in inputs.items()}


class PaperModelTest(ModelTesterMixin, _NoTests, unittest.TestCase):  # type: ignore[misc]
    """All of ModelTesterMixin, for both classes, and ConfigTester, with the paper's choices."""

    all_model_classes: ClassVar[tuple[type[Any], ...]] = (
        hf_seq2seq.Seq2SeqTransformerModel,
        hf_seq2seq.Seq2SeqTransformerForConditionalGeneration,
    )
    is_encoder_decoder = True
    options: ClassVar[dict[str, Any]] = {}

    def setUp(self) -> None:
        """Called by unittest before each test."""
        self.model_tester = ModelTester(self.options)

    def test_config(self) -> None:
        """Runs ConfigTester, which is no set of tests but one function."""
        ConfigTester(
            self, config_class=hf_seq2seq.Seq2SeqTransformerConfig, d_model=16, **self.options
        ).run_common_tests()


class OtherOptionsModelTest(PaperModelTest):
    """The same with the options away from the paper's choices; one table of embeddings is what these tests assume."""

    options: ClassVar[dict[str, Any]] = {
        "activation_function": "gelu",
        "attention_bias": True,
        "key_dim": 4,
        "lm_head_bias": True,
        "norm_position": "pre",
        "position_embedding_type": "learned",
        "scale_embedding": False,
        "tie_word_embeddings": False,
    }
