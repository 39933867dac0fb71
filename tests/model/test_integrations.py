"""The model does what transformers, PEFT, accelerate and torch's own tools expect of one of transformers' models."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.tiny_models import pad, random_sentences, tiny_config, tiny_model
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, DynamicCache, EncoderDecoderCache

from hf_seq2seq import PAPER_SEARCH, Seq2SeqTransformerForConditionalGeneration, Seq2SeqTransformerModel


Model = Seq2SeqTransformerForConditionalGeneration
both_norms = pytest.mark.parametrize("norm_position", ["post", "pre"])


def batch(seed: int = 0, source_lengths: Any = (7, 2, 5), target_lengths: Any = (4, 6, 3)) -> dict[str, Tensor]:
    input_ids, attention_mask = pad(random_sentences(source_lengths, vocab_size=40, seed=seed))
    decoder_input_ids, decoder_attention_mask = pad(random_sentences(target_lengths, vocab_size=40, seed=seed + 1))
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "decoder_input_ids": decoder_input_ids,
        "decoder_attention_mask": decoder_attention_mask,
    }


def training_batch() -> dict[str, Tensor]:
    inputs = batch()
    labels = inputs["decoder_input_ids"].masked_fill(inputs["decoder_attention_mask"] == 0, -100)
    return {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"], "labels": labels}


@torch.no_grad()
def logits(model: Callable[..., Any], inputs: dict[str, Any] | None = None) -> Tensor:
    return model(**(inputs or batch())).logits  # type: ignore[no-any-return]


def gradients(model: nn.Module, **settings: Any) -> dict[str, Tensor]:
    """Of the loss, with the same dropout each time."""
    model.zero_grad()
    torch.manual_seed(0)
    model(**training_batch(), **settings).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


# Gradient checkpointing


def counted_networks(model: nn.Module) -> list[str]:
    """Names each feed-forward network that runs from now on, in order."""
    ran: list[str] = []
    for name, module in model.named_modules():
        if name.endswith("fc1"):
            module.register_forward_hook(lambda *_, name=name: ran.append(name))
    return ran


@both_norms
@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_gradient_checkpointing_runs_each_layer_twice_and_gives_the_same_gradients(
    use_reentrant: bool, norm_position: str
) -> None:
    model = tiny_model(norm_position=norm_position, dropout=0.2).train()
    expected = gradients(model)
    model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    ran = counted_networks(model)
    assert_same(gradients(model), expected)
    assert len(ran) == 8
    assert len(set(ran)) == 4


def test_gradient_checkpointing_leaves_the_cache_out_where_there_are_no_labels() -> None:
    """Filled in the forward pass, it would be filled again where the backward pass runs a layer anew."""
    model = tiny_model().train()

    def gradient_of_the_source() -> Tensor:
        model.zero_grad()
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        model(**batch(), cache=cache).logits.square().sum().backward()
        return model.get_input_embeddings().weight.grad.clone()  # type: ignore[no-any-return]

    expected = gradient_of_the_source()
    model.activation_checkpointing_enable()
    torch.testing.assert_close(gradient_of_the_source(), expected, rtol=1e-4, atol=1e-3)


# PEFT


TARGETS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "attention": (["q_proj", "v_proj"], {}),
    "networks": (["fc1", "fc2"], {"norm_position": "pre"}),
    "head": (["lm_head"], {"tie_word_embeddings": False}),
    "attention and head": (
        ["q_proj", "lm_head"],
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    ),
}


def adapted(model: Model, target_modules: list[str]) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    settings = LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, init_lora_weights=False, target_modules=target_modules)
    return get_peft_model(model, settings)


def train_a_step(model: nn.Module) -> None:
    """One step; the chunked loss gives every adapter the gradient that all logits give."""
    model.train()
    expected = gradients(model, return_logits=True)
    assert_same(gradients(model), expected)
    assert all("lora" in name and gradient.abs().sum() > 0 for name, gradient in expected.items())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(expected) == len(trained)
    torch.optim.SGD(trained, lr=0.1).step()
    model.eval()


@pytest.mark.parametrize(("target_modules", "layout"), TARGETS.values(), ids=TARGETS)
def test_a_lora_adapter_trains_saves_merges_and_reloads(
    target_modules: list[str], layout: dict[str, Any], tmp_path: Path
) -> None:
    from peft import PeftModel

    model = adapted(tiny_model(**layout), target_modules)
    untrained = logits(model.eval())
    train_a_step(model)
    trained = logits(model)
    for other in (untrained, logits(tiny_model(**layout))):
        assert (trained - other).abs().max() > 0.01
    assert (
        model.generate(**{k: v for k, v in training_batch().items() if k != "labels"}, max_new_tokens=3).shape[0] == 3
    )

    model.save_pretrained(tmp_path / "adapter")
    reloaded = PeftModel.from_pretrained(tiny_model(**layout), str(tmp_path / "adapter")).eval()
    assert torch.equal(logits(reloaded), trained)
    merged = reloaded.merge_and_unload()
    assert_same(logits(merged), trained)
    merged.save_pretrained(tmp_path / "merged")
    assert_same(logits(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")), trained)


def with_prefix(model: Model) -> Any:
    """A model with PEFT's prefix tuning, whose prefixes are large enough to change outputs."""
    from peft import PrefixTuningConfig, get_peft_model

    torch.manual_seed(0)
    adapted_model = get_peft_model(model, PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4)).eval()
    for parameter in adapted_model.prompt_encoder.parameters():
        nn.init.normal_(parameter)
    return adapted_model


@pytest.mark.parametrize("options", [{}, {"use_cache": False}, PAPER_SEARCH], ids=["greedy", "uncached", "beams"])
@pytest.mark.filterwarnings("ignore:.*(past_key_values|is_gradient_checkpointing)")
def test_generate_begins_with_the_prefix_of_prefix_tuning(options: dict[str, Any]) -> None:
    """PEFT hands it over under the former name of a cache, and the prefix had no effect."""
    model = with_prefix(tiny_model())
    inputs = {name: value for name, value in batch().items() if not name.startswith("decoder")}
    kept: dict[str, Any] = {"max_new_tokens": 6, "output_scores": True, "return_dict_in_generate": True}
    found = model.generate(**inputs, **options, **kept)
    assert torch.equal(found.sequences, model.generate(**inputs, **options, max_new_tokens=6))
    expected = logits(model, inputs | {"decoder_input_ids": found.sequences[:, :-1]}).log_softmax(dim=-1)
    of_tokens = expected.gather(2, found.sequences[:, 1:, None]).squeeze(2)
    is_output = found.sequences[:, 1:] != 0
    if "num_beams" in options:
        sums = (of_tokens * is_output).sum(dim=1)
        assert_same(found.sequences_scores, sums / is_output.sum(dim=1) ** options["length_penalty"])
    else:
        banned = [0, 1]
        best = expected.index_fill(2, torch.tensor(banned), -torch.inf).argmax(dim=-1)
        assert torch.equal(best[is_output], found.sequences[:, 1:][is_output])
    assert not torch.equal(model.get_base_model().generate(**inputs, **options, max_new_tokens=6), found.sequences)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_a_prefix_needs_a_cache_that_grows() -> None:
    model = with_prefix(tiny_model())
    with pytest.raises(ValueError, match='`cache_implementation` must be "dynamic" with prefix tuning'):
        model.generate(input_ids=batch()["input_ids"], max_new_tokens=3, cache_implementation="static")


def test_an_adapter_on_a_tied_head_merges_into_a_head_that_was_untied(tmp_path: Path) -> None:
    """PEFT warns where the head is tied: merging into it would change the embeddings too."""
    from peft import PeftModel

    with pytest.warns(UserWarning, match="tie_word_embeddings=True"):
        model = adapted(tiny_model(), ["lm_head"])
    train_a_step(model)
    trained = logits(model)
    model.save_pretrained(tmp_path / "adapter")
    base = tiny_model()
    base.lm_head.weight = nn.Parameter(base.lm_head.weight.detach().clone())
    base.config.tie_word_embeddings = False
    merged = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).merge_and_unload()
    assert_same(logits(merged), trained)
    merged.save_pretrained(tmp_path / "merged")
    assert_same(logits(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")), trained)


def test_the_head_follows_the_config_where_its_tie_is_changed_later() -> None:
    """As transformers' own models do, and as PEFT relies on where it saves a head of its own."""
    model = tiny_model()
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    model.tie_weights()
    source, target = model.model.encoder.embed_tokens, model.model.decoder.embed_tokens
    assert model.lm_head.weight is not target.weight
    assert source.weight is target.weight
    model.config.tie_word_embeddings = True
    model.tie_weights()
    assert model.lm_head.weight is target.weight is source.weight


@pytest.mark.parametrize("use_reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_an_adapter_trains_under_gradient_checkpointing(use_reentrant: bool) -> None:
    model = adapted(tiny_model(), ["q_proj", "fc2"]).train()
    expected = gradients(model)
    model.base_model.model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    model.enable_input_require_grads()
    assert_same(gradients(model), expected)


# torch


def test_an_exported_forward_takes_batches_of_any_size() -> None:
    model = tiny_model(encoder_layers=1, decoder_layers=1)
    num_rows, source, target = (torch.export.Dim(name) for name in ("num_rows", "source", "target"))
    dynamic = {name: {0: num_rows, 1: target if "decoder" in name else source} for name in batch()}
    settings = {"use_cache": False}  # torch.export knows no cache of encoder and decoder
    program = torch.export.export(model, (), kwargs=batch() | settings, dynamic_shapes={**dynamic, "use_cache": None})
    for lengths in (((3, 9, 7, 1), (2, 7, 3, 5)), ((2,), (2,))):
        inputs = batch(5, *lengths)
        assert_same(logits(program.module(), inputs | settings), logits(model, inputs))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_compiled_model_computes_and_learns_the_same() -> None:
    model = tiny_model(encoder_layers=1, decoder_layers=1)
    assert_same(logits(torch.compile(model, fullgraph=True)), logits(model))
    expected = gradients(model.train())
    # Traced, but not made into machine code, which is none of this model's business and takes minutes.
    compiled: Any = torch.compile(model, backend="aot_eager")
    actual = gradients(compiled)
    assert_same({name.removeprefix("_orig_mod."): gradient for name, gradient in actual.items()}, expected)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_is_tied_like_its_original_but_not_to_it(copied: Callable[[Model], Model]) -> None:
    model = tiny_model()
    other = copied(model)
    source, target = other.model.encoder.embed_tokens, other.model.decoder.embed_tokens
    assert source.weight is target.weight is other.lm_head.weight
    assert torch.equal(logits(other), logits(model))
    with torch.no_grad():
        other.lm_head.weight.zero_()
    assert logits(other).abs().sum() == 0
    assert logits(model).abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_model_cast_to_another_number_type_stays_tied_and_computes_in_it(dtype: torch.dtype) -> None:
    model: Any = tiny_model()
    expected = logits(model)
    model.to(dtype)
    assert model.model.encoder.embed_tokens.weight is model.model.decoder.embed_tokens.weight is model.lm_head.weight
    actual = logits(model)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.float(), expected, rtol=0, atol=max(20 * torch.finfo(dtype).eps, 1e-5))


# accelerate


def test_weights_kept_on_the_host_give_the_same_logits_and_loss() -> None:
    from accelerate import cpu_offload

    model = tiny_model()
    expected, loss = logits(model), model.train()(**training_batch()).loss
    cpu_offload(model.eval(), execution_device=torch.device("cpu"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert torch.equal(logits(model), expected)
    assert_same(model.train()(**training_batch()).loss, loss)


@pytest.mark.parametrize(
    "layout", [{}, {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}], ids=["tied", "untied"]
)
def test_weights_kept_on_disk_give_the_same_logits_and_loss(layout: dict[str, Any], tmp_path: Path) -> None:
    """Where memory ends within the model: a device map of accelerate's, tied matrices together."""
    model = tiny_model(**layout)
    model.save_pretrained(tmp_path)
    half = sum(parameter.numel() for parameter in model.parameters()) * 4 // 2
    loaded = AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path, device_map="auto", max_memory={"cpu": half}, offload_folder=tmp_path / "offloaded"
    )
    assert set(loaded.hf_device_map.values()) == {"cpu", "disk"}
    assert torch.equal(logits(loaded), logits(model))
    assert torch.equal(
        loaded.generate(batch()["input_ids"], max_new_tokens=3), model.generate(batch()["input_ids"], max_new_tokens=3)
    )
    assert_same(loaded.train()(**training_batch()).loss, model.train()(**training_batch()).loss)


# What is declared about the model's parts


def test_layers_that_must_not_be_split_exist() -> None:
    model = tiny_model()
    assert {type(module).__name__ for module in model.modules()} >= set(model._no_split_modules)
    layers = [*model.get_encoder().layers, *model.get_decoder().layers]
    assert {type(layer).__name__ for layer in layers} == set(model._no_split_modules)


@pytest.mark.parametrize("stack", [Seq2SeqTransformerModel, Model], ids=["base model", "head model"])
def test_every_rule_for_sharding_names_parts_that_exist_and_every_layers_projection_has_one(stack: type[Any]) -> None:
    model = stack(tiny_config())
    # Layers are numbered in names and not in rules.
    names = {".".join("*" if part.isdigit() else part for part in n.split(".")): m for n, m in model.named_modules()}
    assert set(model.tp_plan) <= set(names)
    assert set(model.fsdp_plan) <= set(names)
    projections = {name for name, module in names.items() if isinstance(module, nn.Linear)}
    embeddings = {name for name, module in names.items() if isinstance(module, nn.Embedding)}
    assert set(model.tp_plan) == projections | embeddings
    inward = {name for name in projections if name.endswith(("out_proj", "fc2"))}
    assert {name for name, style in model.tp_plan.items() if style == "rowwise"} == inward
    assert {name for name, style in model.tp_plan.items() if style == "colwise"} == projections - inward - {"lm_head"}
    layers = {name for name, module in names.items() if type(module).__name__ in model._no_split_modules}
    assert set(model.fsdp_plan) == layers


SHARDED = """
import os, sys, torch
import hf_seq2seq
from transformers import AutoModelForSeq2SeqLM
from transformers.distributed import DistributedConfig
folder = sys.argv[1]
torch.distributed.init_process_group("gloo")
inputs = torch.load(folder + "/inputs.pt")
results = {}
for kind in ("tp_size", "fsdp_size"):
    config = DistributedConfig(**{kind: 2})
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, distributed_config=config)
    results[kind] = {"logits": model.eval()(**inputs["batch"]).logits.detach()}
    loss = model.train()(**inputs["training_batch"]).loss
    loss.backward()
    results[kind]["loss"] = loss.detach()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    results[kind]["gradients"] = {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in gradients.items()}
if os.environ["RANK"] == "0":
    torch.save(results, folder + "/results.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_that_share_the_weights_compute_and_learn_the_same(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path)
    torch.save({"batch": batch(), "training_batch": training_batch()}, tmp_path / "inputs.pt")
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    finished = subprocess.run([*command, str(script), str(tmp_path)], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    expected_logits = logits(model)
    expected_loss = model.train()(**training_batch()).loss.detach()
    expected_gradients = gradients(model)
    for kind, result in torch.load(tmp_path / "results.pt").items():
        assert_same(result["logits"], expected_logits)
        assert_same(result["loss"], expected_loss)
        assert result["gradients"].keys() == expected_gradients.keys(), kind
        for name, gradient in result["gradients"].items():
            assert_same(gradient, expected_gradients[name])


# Other ways to give the model its inputs


def half_way_cache(model: Model) -> EncoderDecoderCache:
    """After the first three target tokens of each row."""
    inputs = batch(target_lengths=(6, 6, 6))
    first = {"decoder_input_ids": inputs["decoder_input_ids"][:, :3]}
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], **first, cache=cache)
    return cache


@pytest.mark.parametrize("part", ["", "model", "model.decoder"], ids=["head model", "base model", "decoder"])
def test_a_cache_under_its_old_name_is_used_with_a_warning(part: str) -> None:
    """A forward that does not know the name would give silently wrong text."""
    model = tiny_model()
    inputs = batch(target_lengths=(6, 6, 6))
    mask, target = inputs["attention_mask"], inputs["decoder_input_ids"]
    whole = model(**inputs, output_hidden_states=True)
    if part == "model.decoder":
        states = whole.encoder_last_hidden_state
        rest = {"encoder_hidden_states": states, "encoder_attention_mask": mask, "input_ids": target[:, 3:]}
    else:
        rest = {"input_ids": inputs["input_ids"], "attention_mask": mask, "decoder_input_ids": target[:, 3:]}
    cache = half_way_cache(model)
    with pytest.warns(FutureWarning, match="`past_key_values` is deprecated"):
        outputs = model.get_submodule(part)(**rest, past_key_values=cache)
    expected = whole.decoder_hidden_states[-1] if part else whole.logits
    assert_same(outputs[0], expected[:, 3:])


@pytest.mark.parametrize("scale_embedding", [True, False])
def test_embeddings_in_place_of_ids_give_the_same_logits(scale_embedding: bool) -> None:
    model = tiny_model(scale_embedding=scale_embedding, share_encoder_decoder_embeddings=False)
    inputs = batch()
    expected = logits(model, inputs)
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    assert torch.equal(logits(model, inputs), expected)
    inputs["decoder_inputs_embeds"] = model.get_decoder_input_embeddings()(inputs.pop("decoder_input_ids"))
    assert torch.equal(logits(model, inputs), expected)


def test_a_source_encoded_earlier_gives_the_same_logits() -> None:
    model, inputs = tiny_model(), batch()
    expected = logits(model, inputs)
    encoded = model.get_encoder()(inputs.pop("input_ids"), inputs["attention_mask"])
    for encoder_outputs in (encoded, encoded.to_tuple()):
        assert torch.equal(model(**inputs, encoder_outputs=encoder_outputs).logits, expected)


def test_outputs_come_as_a_tuple_where_that_is_asked_for() -> None:
    model = tiny_model()
    outputs = model(**batch(), return_dict=False)
    assert torch.equal(outputs[0], logits(model))


# Inputs that cannot be


@pytest.mark.parametrize("both", [True, False], ids=["both are", "neither is"])
@pytest.mark.parametrize(
    ("part", "name"), [("Encoder", "input"), ("Decoder", "decoder_input")], ids=["source", "target"]
)
def test_either_ids_or_embeddings_must_be_given(part: str, name: str, both: bool) -> None:
    model, inputs = tiny_model(), batch()
    if both:
        inputs[f"{name}s_embeds"] = model.get_input_embeddings()(inputs[f"{name}_ids"])
    else:
        del inputs[f"{name}_ids"]
    given = "both are" if both else "neither is"
    with pytest.raises(
        ValueError, match=rf"^Exactly one .* the Seq2SeqTransformer{part}, but {given}\. Pass `input_ids`"
    ):
        model(**inputs)


@pytest.mark.parametrize("bad", [50, 44, -1])
@pytest.mark.parametrize(("part", "name"), [("Encoder", "input_ids"), ("Decoder", "decoder_input_ids")])
def test_an_id_outside_the_vocabulary_is_an_error_that_names_it(part: str, name: str, bad: int) -> None:
    model = tiny_model(share_encoder_decoder_embeddings=False, decoder_vocab_size=44)
    size = 50 if part == "Encoder" else 44
    inputs = batch()
    inputs[name][1, 1] = bad
    if 0 <= bad < size:
        assert logits(model, inputs).isfinite().all()
        return
    lowest, highest = inputs[name].min(), inputs[name].max()
    with pytest.raises(
        ValueError,
        match=rf"^Token ids of the Seq2SeqTransformer{part} must be at least 0 and below the vocabulary's size "
        rf"\({size}\), but range from {lowest} to {highest} instead\. Use the tokenizer ",
    ):
        model(**inputs)


def test_a_decoder_without_a_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="`encoder_hidden_states` must be given to the decoder, but is None instead"):
        tiny_model().get_decoder()(batch()["decoder_input_ids"])


def with_long_source_positions(model: Model) -> None:
    model(**batch(), position_ids=torch.arange(2, 9)[None])


def with_long_target_positions(model: Model) -> None:
    model(**batch(), decoder_position_ids=torch.arange(3, 9)[None])


def generating(model: Model, **settings: Any) -> None:
    """Always to the very end."""
    with torch.no_grad():
        model.lm_head.bias[2] = -1e4
    model.generate(batch()["input_ids"], num_beams=1, max_new_tokens=20, **settings)


def generating_with_a_static_cache(model: Model) -> None:
    generating(model, cache_implementation="static")


def generating_after_a_prefix(model: Model) -> None:
    inputs = batch()
    prefix = {name: value for name, value in inputs.items() if name.startswith("decoder")}
    generating(model, **prefix)


@pytest.mark.parametrize(
    "use",
    [
        with_long_source_positions,
        with_long_target_positions,
        generating,
        generating_with_a_static_cache,
        generating_after_a_prefix,
    ],
)
def test_a_position_beyond_the_table_is_an_error_that_names_both_numbers(use: Callable[[Model], None]) -> None:
    """https://github.com/huggingface/transformers/issues/11958."""
    model = tiny_model(position_embedding_type="learned", max_position_embeddings=8, lm_head_bias=True)
    with pytest.raises(ValueError, match=r"`max_position_embeddings` \(8\) .*, but is 9 instead"):
        use(model)
