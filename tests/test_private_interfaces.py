"""The private interfaces of other libraries that the package relies on: an upgrade that changes one fails here."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate.hooks
import huggingface_hub.utils
import pytest
import torch
from ctranslate2.converters import Converter
from datasets import Dataset
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.ter import TER
from torch import nn
from transformers import (
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Trainer,
)


PACKAGE = Path(__file__).parent.parent / "hf_seq2seq"

# What is called or overridden, with the names of its parameters.
FUNCTIONS: dict[Any, dict[str, str]] = {
    PreTrainedModel: {
        "_get_resized_embeddings": "self, old_embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing",
        "_get_resized_lm_head": "self, old_lm_head, new_num_tokens, transposed, mean_resizing",
        "_init_weights": "self, module",
        "_resize_token_embeddings": "self, new_num_tokens, pad_to_multiple_of, mean_resizing",
        "_upload_modified_files": "self, working_dir, repo_id, files_timestamps, commit_message, token, create_pr, "
        "revision, commit_description",
    },
    GenerationMixin: {
        "_beam_search": "self, input_ids, logits_processor, stopping_criteria, generation_config, synced_gpus, "
        "**model_kwargs",
        "_check_early_stop_heuristic": "is_early_stop_heuristic_unsatisfied, running_beam_scores, beam_scores, "
        "is_sent_finished, cur_len, max_length, decoder_prompt_len, early_stopping, length_penalty",
        "_expand_inputs_for_generation": "self, expand_size, is_encoder_decoder, input_ids, **model_kwargs",
        "_get_running_beams_for_next_iteration": "self, topk_log_probs, topk_running_sequences, "
        "topk_running_beam_indices, next_token_hits_stopping_criteria, num_beams",
        "_get_top_k_continuations": "self, accumulated_log_probs, running_sequences, running_beam_indices, cur_len, "
        "decoder_prompt_len, do_sample, beams_to_keep, num_beams, batch_size, **kwargs",
        "_get_logits_processor": "self, generation_config, input_ids_seq_length, encoder_input_ids, "
        "prefix_allowed_tokens_fn, logits_processor, device, model_kwargs, negative_prompt_ids, "
        "negative_prompt_attention_mask",
        "_prefill": "self, input_ids, generation_config, model_kwargs, is_first_iteration",
        "_prepare_generation_config": "self, generation_config, **kwargs",
        "_sample": "self, input_ids, logits_processor, stopping_criteria, generation_config, synced_gpus, streamer, "
        "**model_kwargs",
    },
    Trainer: {
        "_finish_current_push": "self",
        "_get_grad_norm": "self, model, grad_norm",
        "_get_output_dir": "self, trial",
        "_load_from_checkpoint": "self, resume_from_checkpoint, model",
        "_load_rng_state": "self, checkpoint",
        "_prepare_inputs": "self, inputs",
        "_push_from_checkpoint": "self, checkpoint_folder",
        "_remove_unused_columns": "self, dataset, description",
        "_save_checkpoint": "self, model, trial",
        "_save_rng_state": "self, output_dir",
        "save_model": "self, output_dir, _internal_call",
    },
    Converter: {"_load": "self"},
    Metric: {
        "_aggregate_and_compute": "self, stats",
        "_compute_score_from_stats": "self, stats",
        "_extract_corpus_statistics": "self, hypotheses, references",
        "_extract_reference_info": "self, refs",
        "_preprocess_segment": "self, sent",
    },
    TER: {"_compute_segment_statistics": "self, hypothesis, ref_kwargs"},
    PreTrainedTokenizerBase: {
        "_add_tokens": "self, new_tokens, special_tokens",
        "_decode": "self, token_ids, skip_special_tokens, clean_up_tokenization_spaces, **kwargs",
        "_save_pretrained": "self, save_directory, file_names, legacy_format, filename_prefix",
    },
}
# What is read or set.
ATTRIBUTES: dict[Any, list[str]] = {
    PreTrainedConfig: ["_attn_implementation"],
    PreTrainedModel: [
        *("_can_compile_fullgraph", "_can_record_outputs", "_keys_to_ignore_on_save", "_no_split_modules"),
        *("_supports_flash_attn", "_supports_flex_attn", "_supports_sdpa", "_tied_weights_keys"),
        *("_ep_plan", "_fsdp_plan", "_pp_plan", "_tp_plan"),
    ],
    # The first is a method that a model may have, the others are set in the settings of a search.
    GenerationMixin: ["_reorder_cache", "_eos_token_tensor", "_is_user_defined", "_pad_token_tensor"],
    Seq2SeqTrainer: ["_gen_kwargs"],
    PreTrainedTokenizerBase: ["_extra_special_tokens", "_switch_to_input_mode", "_switch_to_target_mode"],
    Dataset: ["_fingerprint"],
    accelerate.hooks: ["_hf_hook"],
    huggingface_hub.utils: ["httpx"],  # the client that it was built on, httpx or httpx2
    GenerationConfig: ["_get_default_generation_params"],
    torch.autograd.function: ["_C"],
    torch._C: ["_are_functorch_transforms_active"],
    torch.ops.mkldnn: ["_linear_pointwise", "_reorder_linear_weight"],
    torch.Tensor: ["_version"],
    nn.Module: [
        "_parameters",
        *("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"),
        "_forward_pre_hooks_with_kwargs",
    ],
}


# Of Python's own library, in spite of their names.
DOCUMENTED = ("_asdict", "_exit", "_fields", "_make", "_replace")


def names_in(owner: Any) -> set[str]:
    """Returns the names that a class or module has, and those that its file reads or sets on `self` or a model."""
    file = Path(inspect.getfile(owner))
    text = file.read_text(encoding="utf-8") if file.suffix == ".py" else ""
    return {
        *dir(owner),
        *re.findall(r"\b(?:self|cls|model|module|generation_config|user_defined_cache)\.(_[a-zA-Z]\w*)", text),
    }


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, found in FUNCTIONS.items() for name in found])
def test_a_function_has_the_parameters_that_it_is_called_with(owner: Any, name: str) -> None:
    signature = inspect.signature(getattr(owner, name))
    names = [str(each.replace(annotation=each.empty, default=each.empty)) for each in signature.parameters.values()]
    assert ", ".join(names) == FUNCTIONS[owner][name]


@pytest.mark.parametrize("owner", ATTRIBUTES, ids=lambda owner: owner.__name__)
def test_attributes_are_still_there(owner: Any) -> None:
    names = names_in(owner)
    assert all(
        name in names or hasattr(owner, name) for name in ATTRIBUTES[owner]
    )  # torch.ops finds its own when asked


def test_the_lists_name_every_private_interface_and_no_other() -> None:
    listed = {name for names in ATTRIBUTES.values() for name in names}
    for functions in FUNCTIONS.values():
        listed |= {*functions, *(name for parameters in functions.values() for name in parameters.split(", "))}
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py")]
    own = {name for tree in trees for name in own_names(tree)}
    used = {name for tree in trees for name in used_names(tree)}
    foreign = {name for owner in {*FUNCTIONS, *ATTRIBUTES} for name in names_in(owner)}
    assert {name for name in listed if is_private(name)} == {
        name for name in (used - own) | (own & foreign) if is_private(name)
    }


def is_private(name: str) -> bool:
    return re.fullmatch(r"_[a-zA-Z]\w*", name) is not None and name not in DOCUMENTED


def own_names(tree: ast.Module) -> Iterator[str]:
    """Yields the members of the classes in a module, and what is set on `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for member in ast.walk(node):
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield member.name
                elif isinstance(member, ast.Name | ast.Attribute) and isinstance(member.ctx, ast.Store):
                    yield member.id if isinstance(member, ast.Name) else member.attr


def used_names(tree: ast.Module) -> Iterator[str]:
    """Yields the names by which a module reaches into objects and into the modules of others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            yield from (str(word.value) for word in node.args if isinstance(word, ast.Constant))
        elif isinstance(node, ast.ImportFrom) and not node.level and not (node.module or "").startswith("hf_seq2seq"):
            yield from (*(node.module or "").split("."), *(alias.name for alias in node.names))
