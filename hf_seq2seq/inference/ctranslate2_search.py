"""Search for outputs, and score given ones, with a model that was exported to CTranslate2."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from hf_seq2seq.output_limits import longest_output

from .hypothesis import Scores, SearchOptions
from .torch_search import Ids, check_search_options


# CTranslate2 ends a search once so many times the beam's hypotheses are finished. With 1 that is `early_stopping=True`
# of `generate`; with 2 hardly an output differs from those of `early_stopping=False`.
_PATIENCE = {True: 1.0, False: 2.0, "never": 2.0}

# What `generate` takes where neither an option nor the model's settings say it.
_SAMPLING: dict[str, float] = {"top_k": 50, "top_p": 1.0, "temperature": 1.0}


class CTranslate2Search:
    """Does with CTranslate2 what `TorchSearch` does with PyTorch.

    Its log-probabilities are those after the banned tokens, such as the padding, are left out.

    Args:
        folder: What `hf-seq2seq export ctranslate2` wrote.
        device: "cpu", "cuda" or "cuda:1"; by default a GPU where CTranslate2 finds one.
        dtype: The type to compute in, such as "float32" or "int8"; by default the one the weights are stored in.

    Raises:
        FileNotFoundError: If the folder holds no such model, **or**
        ValueError: If it is damaged, was written by another program, or there is no such device or type.
        ImportError: If ctranslate2 is not installed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> None:
        try:
            import ctranslate2
        except ImportError as error:
            raise ImportError(
                "The backend ctranslate2 is not installed. Run `pip install 'hf-seq2seq[export]'`."
            ) from error
        if not (Path(folder) / "model.bin").is_file():
            raise FileNotFoundError(
                f"`{folder}` must be a folder with the model.bin of CTranslate2, but has none. Make one with "
                "`hf-seq2seq export ctranslate2`."
            )
        name, _, index = str(device or "auto").partition(":")
        try:
            self.model: Any = ctranslate2.Translator(
                str(folder),
                device=name,
                device_index=int(index or 0),
                compute_type="default" if dtype is None else str(dtype).removeprefix("torch."),
                intra_threads=torch.get_num_threads(),
            )
        except RuntimeError as error:  # of a damaged file, and of a device that is not there
            raise ValueError(f"CTranslate2 cannot load `{folder}` on device {name!r} ({error}).") from error
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        vocabularies = [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*_vocabulary.json"))
        ]
        is_ours = "max_position_embeddings" in config and (Path(folder) / "generation_config.json").exists()
        if not is_ours or not vocabularies:
            raise ValueError(
                f"`{folder}` must be written by `hf-seq2seq export ctranslate2`, but was by another program, or is "
                "not whole. Export the model again."
            )
        self._generation_config: Any = GenerationConfig.from_pretrained(folder)
        self.position_limit = float(config["max_position_embeddings"])
        self._end = str(config["eos_token"])
        self._source_tokens, self._target_tokens = vocabularies[0], vocabularies[-1]  # or both the shared one
        self._target_ids = {token: index for index, token in enumerate(self._target_tokens)}

    @property
    def vocab_size(self) -> int:
        """The size of the source's vocabulary."""
        return len(self._source_tokens)

    def settings(self, options: SearchOptions) -> dict[str, Any]:
        """Checks options and puts them in terms of `translate_batch`; see `TorchSearch.settings`."""
        defaults = self._generation_config
        do_sample = options.get("do_sample", False)
        n_best = options.get("n_best", 1)
        beam_size = options.get("beam_size", 1 if do_sample else max(defaults.num_beams or 1, n_best))
        check_search_options(options, beam_size, n_best)
        settings: dict[str, Any] = {
            "beam_size": beam_size,
            "num_hypotheses": n_best,
            "num_return_sequences": n_best,
            "repetition_penalty": defaults.repetition_penalty or 1.0,
            "no_repeat_ngram_size": defaults.no_repeat_ngram_size or 0,
            "min_decoding_length": max((defaults.min_length or 0) - 1, 0),  # without the start token
        }
        if do_sample:
            sampling: dict[str, Any] = {
                name: options.get(name, _or(getattr(defaults, name), usual)) for name, usual in _SAMPLING.items()
            }
            return settings | {
                "sampling_topk": min(sampling["top_k"], len(self._target_tokens)),
                "sampling_topp": sampling["top_p"],
                "sampling_temperature": sampling["temperature"],
            }
        penalty = _or(defaults.length_penalty, 1.0)
        patience = _PATIENCE.get(defaults.early_stopping or False, 1.0) if beam_size > 1 else 1.0
        return settings | {"length_penalty": options.get("length_penalty", penalty), "patience": patience}

    def search(self, sources: Sequence[Ids], prefixes: Sequence[Ids], settings: dict[str, Any]) -> list[list[Ids]]:
        """Returns for each source its outputs, the best first; see `TorchSearch.search`."""
        limits = [longest_output(len(ids), self.position_limit - 1) for ids in sources]
        outputs = self._search(sources, prefixes, settings, max(limits))
        for row, limit in enumerate(limits):
            if any(len(ids) > limit for ids in outputs[row]):  # CTranslate2 has one limit for all
                (outputs[row],) = self._search([sources[row]], [prefixes[row]], settings, limit)
        return outputs

    def _search(
        self, sources: Sequence[Ids], prefixes: Sequence[Ids], settings: dict[str, Any], limit: int
    ) -> list[list[Ids]]:
        results = self.model.translate_batch(
            [[self._source_tokens[token] for token in ids] for ids in sources],
            target_prefix=[[self._target_tokens[token] for token in prefix] for prefix in prefixes],
            max_input_length=0,
            max_decoding_length=limit,
            return_end_token=True,
            **{name: value for name, value in settings.items() if name != "num_return_sequences"},
        )
        return [[[self._target_ids[token] for token in tokens] for tokens in result.hypotheses] for result in results]

    def score(self, sources: Sequence[Ids], outputs: Sequence[Ids], *, with_attention: bool) -> list[Scores]:
        """Returns for each output the log-probabilities of its tokens; see `TorchSearch.score`.

        Raises:
            ValueError: If attention is asked for, which CTranslate2 does not return with scores.
        """
        if with_attention:
            raise ValueError("`attention` must be False with the backend ctranslate2, but is True. Take torch for it.")
        targets = [[self._target_tokens[token] for token in ids] for ids in outputs]
        whole = [tokens[-1:] == [self._end] for tokens in targets]
        scored = self.model.score_batch(
            [[self._source_tokens[token] for token in ids] for ids in sources],
            # It adds the end token itself.
            [tokens[:-1] if has_end else tokens for tokens, has_end in zip(targets, whole, strict=True)],
            max_input_length=0,
        )
        return [Scores(list(result.log_probs[: len(ids)]), None) for result, ids in zip(scored, outputs, strict=True)]


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
