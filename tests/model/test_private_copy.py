"""A private copy shares the weights of its model, and nothing that can be set."""

import torch
from reference.tiny_models import tiny_model

from hf_seq2seq.model.private_copy import private_copy


def test_a_copy_has_the_weights_themselves() -> None:
    model = tiny_model()
    copied = private_copy(model)
    assert [id(weight) for weight in copied.parameters()] == [id(weight) for weight in model.parameters()]
    with torch.no_grad():
        model.lm_head.weight.fill_(0.5)
    assert (copied.get_input_embeddings().weight == 0.5).all()


def test_what_is_set_on_a_copy_its_model_does_not_see() -> None:
    model = tiny_model()
    copied = private_copy(model).train()
    copied.set_attn_implementation("eager")
    copied.generation_config.num_beams = 7
    copied.model.encoder.register_forward_hook(lambda *_: None)
    assert not any(module.training for module in model.modules())
    assert model.config._attn_implementation == "sdpa"
    assert model.generation_config.num_beams != 7
    assert not model.model.encoder._forward_hooks
