"""Records what a model computes in one forward pass.

Shapes: B pairs of a batch, S source length, T target length, H heads, K width of a head's queries and keys, V
vocabulary. A trace is of one pair of texts, so its tensors have no batch axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inference.padding import pad_rows
from hf_seq2seq.inference.segment import Ids, Segment
from hf_seq2seq.inference.settings import DecodingSettings
from hf_seq2seq.inference.torch_search import TorchSearch
from hf_seq2seq.model.modeling_seq2seq_transformer import (
    Seq2SeqTransformerAttention,
    Seq2SeqTransformerForConditionalGeneration,
)
from hf_seq2seq.model.private_copy import private_copy
from hf_seq2seq.token_lookup import encode_sources, encode_targets, unknown_id

from .tokens import check_texts, readable_ids


Model = Seq2SeqTransformerForConditionalGeneration
Stack = Literal["encoder", "decoder", "cross"]

STACK_NAMES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}


@dataclass(frozen=True)
class Attention:
    """What the attention of one layer computed for T queries and S keys.

    Attributes:
        query_tokens: The T tokens that attend.
        key_tokens: The S tokens that are attended to.
        queries: The queries, shape (H, T, K).
        keys: The keys, shape (H, S, K).
        allowed: True where a query may attend to a key, shape (T, S): the causal mask and the padding mask together.
        weights: The attention weights, shape (H, T, S). Each row sums to 1.
        scaling: The factor of Q K^T: 1 / sqrt(d_k).
    """

    query_tokens: list[str]
    key_tokens: list[str]
    queries: Tensor
    keys: Tensor
    allowed: Tensor
    weights: Tensor
    scaling: float


@dataclass(frozen=True)
class Trace:
    """What a model computed for a source and its target, layer by layer.

    Attributes:
        source_tokens: The S source tokens, with the end token and with padding, if there was any.
        input_tokens: The T tokens of the decoder's input: the start token, and the target without its last token.
        target_tokens: The T tokens of the target, which the decoder predicts from these.
        encoder: The self-attention of each encoder layer.
        decoder: The masked self-attention of each decoder layer.
        cross: The cross-attention of each decoder layer.
        logits: The logits, shape (T, V).
        source: The source text.
    """

    source_tokens: list[str]
    input_tokens: list[str]
    target_tokens: list[str]
    encoder: list[Attention]
    decoder: list[Attention]
    cross: list[Attention]
    logits: Tensor
    source: str

    def attention(self, stack: Stack, layer: int | None = None) -> Attention:
        """Returns the attention of a layer, counted from 1; by default that of the last layer.

        Raises:
            ValueError: If there is no such stack or layer.
        """
        if stack not in get_args(Stack):
            raise ValueError(f"`stack` must be one of {', '.join(get_args(Stack))}, but is {stack!r} instead.")
        layers: list[Attention] = getattr(self, stack)
        check_number("layer", len(layers) if layer is None else layer, len(layers), STACK_NAMES[stack])
        return layers[-1 if layer is None else layer - 1]


def trace(
    model: Model,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    targets: Sequence[str | Hypothesis] | None = None,
) -> list[Trace]:
    """Runs a batch of pairs through a model and returns what its attention computed.

    Texts of unequal length are padded and masked as in training: the source by its padding, the target by the causal
    mask alone, since a token sees only those before it, which are no padding.

    Args:
        model: The model. It is not changed, and other threads may use it at the same time.
        tokenizer: Its tokenizer.
        sources: The source texts.
        targets: The target of each source: a text, or a hypothesis of `translator.hypotheses`, whose tokens may differ
            from those that the tokenizer makes of its text. By default the translations that `Translator` finds.

    Returns:
        A trace for each pair, with tensors on the CPU.

    Raises:
        ValueError: If there is no text, a text is blank, the numbers of texts differ, or the tokenizer cannot encode
            targets.
    """
    _check_pairs(sources, targets)
    observed = private_copy(model).eval()
    source_ids = encode_sources(tokenizer, sources)
    if targets is None:
        settings = DecodingSettings.resolve({}, observed.generation_config, unknown_id=unknown_id(tokenizer, "target"))
        segments = [Segment(text, ids=ids) for text, ids in zip(sources, source_ids, strict=True)]
        target_ids = [found[0].ids for found in TorchSearch(observed).search(segments, settings)]
    else:
        target_ids = [_target_ids(tokenizer, target) for target in targets]
    input_ids, attention_mask = pad_rows(source_ids, model.config.pad_token_id, model.device)
    labels, _ = pad_rows(target_ids, model.config.pad_token_id, model.device)
    decoder_input_ids = observed.prepare_decoder_input_ids_from_labels(labels)
    recorders = _record_attention(observed)
    with torch.inference_mode():
        output = observed(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        )
    traces = []
    for row in range(len(sources)):
        of_source = readable_ids(tokenizer, input_ids[row].tolist(), "source")
        of_input, of_target = (
            readable_ids(tokenizer, ids[row].tolist(), "target") for ids in (decoder_input_ids, labels)
        )
        tokens = {"encoder": (of_source, of_source), "decoder": (of_input, of_input), "cross": (of_input, of_source)}
        layers = {
            stack: [recorder.attention(row, *tokens[stack]) for recorder in of_stack]
            for stack, of_stack in recorders.items()
        }
        logits = _copy_to_cpu(output.logits[row])
        traces.append(Trace(of_source, of_input, of_target, **layers, logits=logits, source=sources[row]))
    return traces


def _record_attention(model: Model) -> "dict[str, list[_Recorder]]":
    """Adds recorders to the attention modules of a private copy, and returns them by stack and layer."""
    model.set_attn_implementation("eager")  # the one that returns weights
    decoder_layers: Any = model.model.decoder.layers
    return {
        "encoder": [_Recorder(layer.self_attn) for layer in model.model.encoder.layers],
        "decoder": [_Recorder(layer.self_attn) for layer in decoder_layers],
        "cross": [_Recorder(layer.encoder_attn) for layer in decoder_layers],
    }


def check_number(name: str, number: int, highest: int, owner: str) -> None:
    """Checks the number of a layer or a head.

    Raises:
        ValueError: If it is not from 1 to `highest`.
    """
    if not 1 <= number <= highest:
        raise ValueError(
            f"`{name}` must be at least 1 and at most {highest} for the {owner} of this model, but is {number} "
            "instead. They are counted from 1."
        )


class _Recorder:
    """Records what an attention module computes in its next forward pass.

    Args:
        module: The module. It refers to the recorder by its hooks, and the recorder does not refer to it, so that both
            are freed as soon as the module is.
    """

    def __init__(self, module: Seq2SeqTransformerAttention) -> None:
        self.key_dim, self.scaling = module.key_dim, module.scaling
        module.q_proj.register_forward_hook(self._keep_queries)
        module.k_proj.register_forward_hook(self._keep_keys)
        module.register_forward_hook(self._keep_weights, with_kwargs=True)

    def _keep_queries(self, module: Any, args: Any, output: Tensor) -> None:
        self.queries = output.unflatten(-1, (-1, self.key_dim)).transpose(1, 2)  # (B, T, H K) -> (B, H, T, K)

    def _keep_keys(self, module: Any, args: Any, output: Tensor) -> None:
        self.keys = output.unflatten(-1, (-1, self.key_dim)).transpose(1, 2)

    def _keep_weights(self, module: Any, args: Any, kwargs: dict[str, Any], output: tuple[Tensor, Tensor]) -> None:
        self.weights = output[1]
        self.mask: Tensor | None = kwargs["attention_mask"]

    def attention(self, row: int, query_tokens: list[str], key_tokens: list[str]) -> Attention:
        """Returns what was recorded for one row of the batch."""
        allowed = torch.ones(self.weights.shape[2:], dtype=torch.bool)
        if self.mask is not None:  # (B, 1, T, S): True, or 0 as a number, where a query may attend
            mask = self.mask.expand(len(self.weights), -1, *allowed.shape)[row, 0].cpu()
            allowed = mask if mask.dtype == torch.bool else mask == 0
        queries, keys, weights = (_copy_to_cpu(kept[row]) for kept in (self.queries, self.keys, self.weights))
        return Attention(query_tokens, key_tokens, queries, keys, allowed, weights, self.scaling)


def _check_pairs(sources: Sequence[str], targets: Sequence[str | Hypothesis] | None) -> None:
    if not sources:
        raise ValueError("`text` must be given at least once, but is not.")
    check_texts("text", sources)
    if targets is None:
        return
    check_texts("target", [target for target in targets if not (isinstance(target, Hypothesis) and target.token_ids)])
    if len(targets) != len(sources):
        raise ValueError(
            f"`target` must be given once for each text ({len(sources)}), or not at all, but is {len(targets)} times."
        )


def _target_ids(tokenizer: PreTrainedTokenizerBase, target: str | Hypothesis) -> Ids:
    return list(target.token_ids) if isinstance(target, Hypothesis) else encode_targets(tokenizer, [target])[0]


def _copy_to_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().float().clone()
