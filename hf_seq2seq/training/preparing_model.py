"""The model that a run trains: a new one, or one that is trained further."""

from typing import Any, get_args

from transformers import PreTrainedTokenizerBase, set_seed

from hf_seq2seq.loading import load_model
from hf_seq2seq.model.configuration_seq2seq_transformer import Seq2SeqTransformerConfig
from hf_seq2seq.model.generation_seq2seq_transformer import PAPER_SEARCH
from hf_seq2seq.model.modeling_seq2seq_transformer import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.output_limits import banned_ids
from hf_seq2seq.token_lookup import Side, unknown_id, vocabulary

from .arguments import CHANGEABLE_FIELDS, ModelArguments
from .freezing import freeze
from .settings import Settings, check_positions


Model = Seq2SeqTransformerForConditionalGeneration


def prepare_model(settings: Settings, tokenizer: PreTrainedTokenizerBase) -> Model:
    """Returns the model that a run begins with, in float32.

    Its config fits the tokenizer, and its generation settings allow outputs of `max_length` tokens, none of which is
    the unknown one: a text would not show it. Those of a new model ask for the paper's search.

    Args:
        settings: The settings of the run.
        tokenizer: Its tokenizer.

    Raises:
        OSError: If the folder of a model is missing.
        ValueError: If tokenizer, `max_length` and model do not fit each other, or `freeze` does not fit the weights.
        huggingface_hub.errors.StrictDataclassError: If the config's fields contradict each other.
    """
    model_args, use_cache = settings.model, settings.training.use_cache
    if model_args.model_name_or_path is not None:
        given = {name: getattr(model_args, name) for name in CHANGEABLE_FIELDS}
        overrides = {name: value for name, value in given.items() if value is not None}
        # In a half type, small updates would be rounded away, and Adam's averages would underflow.
        model = load_model(model_args.model_name_or_path, dtype="float32", use_cache=use_cache, **overrides)
        _check_vocabulary(model, tokenizer, num_new=len(settings.extra_tokens))
        _add_rows(model, tokenizer, settings.training.seed)
    else:
        config = new_config(model_args, tokenizer, use_cache=use_cache)
        set_seed(settings.training.seed)
        model = Model(config)
        model.generation_config.update(**PAPER_SEARCH)
    _check_vocabulary(model, tokenizer)
    model.generation_config.max_length = _longest_output(model, settings.data.max_length)
    model.generation_config.suppress_tokens = banned_ids(model.generation_config, unknown_id(tokenizer, "target"))
    if model_args.freeze:
        freeze(model, model_args.freeze)
    return model


def new_config(
    model_args: ModelArguments, tokenizer: PreTrainedTokenizerBase, **fields: Any
) -> Seq2SeqTransformerConfig:
    """Returns the config of a new model: the preset's, with the tokenizer's vocabulary and special tokens.

    Args:
        model_args: The preset and the fields that were given in its place.
        tokenizer: The tokenizer. A vocabulary for each side makes a model with an embedding for each.
        **fields: Further fields.

    Raises:
        ValueError: If a special token was given that is not the tokenizer's.
        huggingface_hub.errors.StrictDataclassError: If fields contradict each other.
    """
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    values = model_args.config_values()
    for name, token_id in special.items():
        if values.get(name, token_id) != token_id:
            raise ValueError(
                f"`{name}` must be the tokenizer's ({token_id}), but is {values[name]} instead. Leave it out."
            )
    # A tokenizer without a start token, such as Marian's, leaves its padding to start from.
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    fields |= {"vocab_size": _num_tokens(tokenizer, "source"), "decoder_start_token_id": start} | special
    if vocabulary(tokenizer, "source") != vocabulary(tokenizer, "target"):
        num_targets = _num_tokens(tokenizer, "target")
        fields |= {"decoder_vocab_size": num_targets, "share_encoder_decoder_embeddings": False}
    return Seq2SeqTransformerConfig.from_paper(model_args.preset or "base", **(fields | values))


def _num_tokens(tokenizer: PreTrainedTokenizerBase, side: Side) -> int:
    return max(vocabulary(tokenizer, side).values()) + 1  # ids may have gaps


def _add_rows(model: Model, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
    """Gives the model a row for each token that it has none for, drawn around the mean of the other rows."""
    num_sources, num_targets = (_num_tokens(tokenizer, side) for side in get_args(Side))
    set_seed(seed)
    if num_sources > model.config.vocab_size:
        model.resize_token_embeddings(num_sources)
    if num_targets > (model.config.decoder_vocab_size or 0):  # still, where the sides have a table each
        model.resize_decoder_token_embeddings(num_targets)


def _check_vocabulary(model: Model, tokenizer: PreTrainedTokenizerBase, num_new: int = 0) -> None:
    """Checks that the model has a row for each token, but for as many as are new."""
    sides: dict[str, Side] = {"vocab_size": "source", "decoder_vocab_size": "target"}
    for name, side in sides.items():
        num_tokens, most = _num_tokens(tokenizer, side), getattr(model.config, name)
        if num_tokens > most + num_new:
            raise ValueError(
                f"The tokenizer must have at most as many tokens as the model's `{name}` ({most}), but has "
                f"{num_tokens} instead. Use the tokenizer that the model was trained with."
            )


def _longest_output(model: Model, max_length: int) -> int:
    """Returns the most tokens of an output, the start token among them."""
    check_positions(model.config, max_length)
    longest = max(model.generation_config.max_length or 0, max_length + 1)  # an imported model may have no limit
    if model.config.position_embedding_type != "learned":
        return longest
    # The last token of an output is never an input of the decoder, and so needs no position.
    return min(longest, model.config.max_position_embeddings + 1)
