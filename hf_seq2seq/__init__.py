"""The original encoder-decoder Transformer (Vaswani et al. 2017) as a part of the Hugging Face ecosystem.

After `import hf_seq2seq`, transformers' AutoConfig, AutoModel and AutoModelForSeq2SeqLM know the classes of this
package. The public names are in `__init__.pyi`; each is imported when it is first asked for.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

import lazy_loader
from wrapt import when_imported


__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


@when_imported("transformers")
def _register_models(transformers: ModuleType) -> None:
    """Registers the models as soon as transformers is imported, which is at once if it is already.

    Importing transformers and PyTorch here would cost seconds, also where nothing needs them, as in
    `hf-seq2seq --help`.
    """
    import_module("hf_seq2seq.model")


@when_imported("transformers.models.auto.tokenization_auto")
def _register_tokenizer(auto: ModuleType) -> None:
    """Registers the tokenizers' classes as soon as AutoTokenizer is imported, which finds them by their names."""
    config_class = import_module("hf_seq2seq.model").Seq2SeqTransformerConfig
    tokenizer_class = import_module("hf_seq2seq.tokenization").Seq2SeqTransformerTokenizer
    pair_class = import_module("hf_seq2seq.tokenizer_pair").Seq2SeqTransformerTokenizerPair
    for each in (pair_class, tokenizer_class):
        auto.AutoTokenizer.register(config_class, fast_tokenizer_class=each, exist_ok=True)


@when_imported("hf_seq2seq.model.modeling_seq2seq_transformer")
def _add_cards(modeling: ModuleType) -> None:
    """Gives the model class its `make_card`; the modeling file travels without this package, so it has none."""

    def make_card(model: Any, repo_id: str, tags: list[str]) -> str:
        from .hub.card import CardFacts, make_card

        card = make_card(CardFacts(), model.config, repo_id=repo_id)
        card.data["tags"] = list(dict.fromkeys([*card.data["tags"], *tags]))
        return str(card)

    modeling.Seq2SeqTransformerPreTrainedModel.make_card = make_card
