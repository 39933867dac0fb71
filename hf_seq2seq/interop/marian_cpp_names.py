"""What Marian C++ calls the weights of a Transformer, in the two layouts that it has.

The layout `transformer` is the one that everybody trains. `transformer-new` is the same network, written anew in
Marian 1.12; only it translates with learned positions.

Both store a projection's weight as (inputs, outputs), which is ours transposed.
"""

from collections.abc import Iterator

from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig


CLASSIC, NEW = "transformer", "transformer-new"  # Marian's `type`

_LETTERS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}


def weight_names(config: Seq2SeqTransformerConfig, layout: str) -> dict[str, str]:
    """Returns Marian's name of each of our weights, but for embeddings, sinusoids and the output projection.

    Args:
        config: The config of the model.
        layout: `CLASSIC` or `NEW`.
    """
    make_names = _classic_names if layout == CLASSIC else _new_names
    names: dict[str, str] = {}
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        names |= dict(make_names(stack, depth, config))
    return names


def position_name(stack: str) -> str:
    """Returns the name of a stack's learned positions, which only the layout `NEW` has."""
    return f"{_root(stack)}->positionEmbedding->embeddings"


def _parts(stack: str) -> list[tuple[str, str]]:
    """Returns the attention modules of a layer, and the norm that belongs to each."""
    parts = [("self_attn", "self_attn_layer_norm")]
    return [*parts, ("encoder_attn", "encoder_attn_layer_norm")] if stack == "decoder" else parts


def _classic_names(stack: str, depth: int, config: Seq2SeqTransformerConfig) -> Iterator[tuple[str, str]]:
    is_pre = config.norm_position == "pre"
    norm_fields = {"weight": "ln_scale", "bias": "ln_bias"}
    for layer in range(depth):
        ours, theirs = f"model.{stack}.layers.{layer}", f"{stack}_l{layer + 1}"
        blocks = []
        for part, norm in _parts(stack):
            block = f"{theirs}_{'self' if part == 'self_attn' else 'context'}"
            blocks.append((norm, f"{block}_Wo"))
            for projection, letter in _LETTERS.items():
                yield f"{ours}.{part}.{projection}.weight", f"{block}_W{letter}"
                yield f"{ours}.{part}.{projection}.bias", f"{block}_b{letter}"
        for number in (1, 2):
            yield f"{ours}.fc{number}.weight", f"{theirs}_ffn_W{number}"
            yield f"{ours}.fc{number}.bias", f"{theirs}_ffn_b{number}"
        for norm, block in (*blocks, ("final_layer_norm", f"{theirs}_ffn_ffn")):
            for field, name in norm_fields.items():
                yield f"{ours}.{norm}.{field}", f"{block}_{name}{'_pre' if is_pre else ''}"
    if is_pre:
        for field, name in norm_fields.items():
            yield f"model.{stack}.layer_norm.{field}", f"{stack}_top_{name}"


def _new_names(stack: str, depth: int, config: Seq2SeqTransformerConfig) -> Iterator[tuple[str, str]]:
    is_pre = config.norm_position == "pre"
    norm_place = "preprocessor" if is_pre else "postprocessor"
    layer_class = "TransformerEncoderLayer" if stack == "encoder" else "TransformerDecoderLayerWithCrossAttention"
    self_block = "selfAttentionBlock" if stack == "encoder" else "autoRegressiveBlock"
    # Any activation but ReLU is a layer of its own, and so is the dropout after it.
    feed_forward = (
        {"fc1": (0, "LinearReluDropout"), "fc2": (1, "Linear")}
        if config.activation_function == "relu"
        else {"fc1": (0, "Linear"), "fc2": (3, "Linear")}
    )
    for layer in range(depth):
        ours = f"model.{stack}.layers.{layer}"
        theirs = f"{_root(stack)}->layers->at({layer})->as<marian::nn::{layer_class}>()"
        blocks = {"final_layer_norm": f"{theirs}->filterBlock"}
        modules = {
            f"{ours}.{name}": f"{theirs}->filterBlock->layers->at({place})->as<marian::nn::{kind}>()"
            for name, (place, kind) in feed_forward.items()
        }
        for part, norm in _parts(stack):
            is_self = part == "self_attn"
            blocks[norm] = f"{theirs}->{self_block if is_self else 'crossAttentionBlock'}"
            attention = f"{blocks[norm]}->{'selfAttention' if is_self else 'crossAttention'}"
            modules |= {f"{ours}.{part}.{name}": f"{attention}->{letter}Proj" for name, letter in _LETTERS.items()}
        modules |= {f"{ours}.{norm}": f"{block}->{norm_place}->norm" for norm, block in blocks.items()}
        yield from _with_fields(modules)
    if is_pre:
        yield from _with_fields({f"model.{stack}.layer_norm": f"{_root(stack)}->postprocessor->norm"})


def _with_fields(modules: dict[str, str]) -> Iterator[tuple[str, str]]:
    for ours, theirs in modules.items():
        for field in ("weight", "bias"):
            yield f"{ours}.{field}", f"{theirs}->{field}"


def _root(stack: str) -> str:
    return f"TransformerBatch{stack.capitalize()}->{stack}"
