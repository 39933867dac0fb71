"""Search for outputs, and score given ones, with a model that was exported to CTranslate2."""

import ctypes
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from hf_seq2seq.generation_settings import check_generation_settings, read_generation_settings
from hf_seq2seq.loading import check_stays_inside

from .segment import Ids, Output, Segment
from .settings import DecodingSettings


# CTranslate2 ends a search as soon as this many times `beam_size` hypotheses are finished. 1 is what `generate` does
# with `early_stopping=True`; with 2 hardly an output differs from those of `early_stopping=False`.
_PATIENCE: dict[bool | str, float] = {True: 1.0, False: 2.0, "never": 2.0}


class CTranslate2Search:
    """Does with CTranslate2 what `TorchSearch` does with PyTorch.

    Its log-probabilities are those of the tokens that may be written: banned ones, such as the padding, have none. In
    another process, which it was pickled or forked to, it loads the model again.

    Args:
        folder: What `hf-seq2seq export ctranslate2` wrote.
        device: "cpu", "cuda" or "cuda:1"; by default a GPU where CTranslate2 finds one.
        dtype: The type to compute in, such as "float32" or "int8"; by default the one the weights are stored in.

    Raises:
        FileNotFoundError: If the folder holds no such model, **or**
        ValueError: If it is damaged, was written by another program, or there is no such device or type.
        ImportError: If ctranslate2 is not installed.
    """

    name = "ctranslate2"
    # Settings that the backend does not have.
    lacks: Sequence[str] = ("gnmt_penalty", "diversity_rate", "terms", "bad_words", "seed")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> None:
        if not (Path(folder) / "model.bin").is_file():
            raise FileNotFoundError(
                f"`{folder}` must be a folder with the model.bin of CTranslate2, but has none. Make one with "
                "`hf-seq2seq export ctranslate2`."
            )
        check_stays_inside(folder)
        self._folder, self._device, self._weight_dtype = Path(folder).resolve(), device, dtype
        self._engine, self._process = self._load_engine(), os.getpid()
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
        settings_file = Path(folder) / "generation_config.json"
        values = read_generation_settings(settings_file)
        check_generation_settings(values, len(vocabularies[-1]), f"`{settings_file}`")
        self.generation_config: Any = GenerationConfig.from_pretrained(folder)
        self.num_positions = float(config["max_position_embeddings"])
        self._end = str(config["eos_token"])
        self._has_unknown = config.get("unk_token", self._end) != self._end  # the exporter names some token
        self._source_tokens, self._target_tokens = vocabularies[0], vocabularies[-1]  # or both the shared one
        self._target_ids = {token: index for index, token in enumerate(self._target_tokens)}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), device=self._device, dtype=self._weight_dtype), (self._folder,)

    def _load_engine(self) -> Any:
        try:
            import ctranslate2
        except ImportError as error:
            raise ImportError(
                "The backend ctranslate2 is not installed. Run `pip install 'hf-seq2seq[export]'`."
            ) from error
        name, _, index = str(self._device or "auto").partition(":")
        try:
            return ctranslate2.Translator(
                str(self._folder),
                device=name,
                device_index=int(index or 0),
                compute_type="default"
                if self._weight_dtype is None
                else str(self._weight_dtype).removeprefix("torch."),
                intra_threads=torch.get_num_threads(),
            )
        except RuntimeError as error:  # of a damaged file, and of a device that is not there
            raise ValueError(f"CTranslate2 cannot load `{self._folder}` on device {name!r} ({error}).") from error

    @property
    def model(self) -> Any:
        """CTranslate2's translator. A forked process gets one of its own, since threads do not survive a fork."""
        if self._process != os.getpid():
            # The one of the parent is never freed, since it would wait for its threads.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))
            self._engine, self._process = self._load_engine(), os.getpid()
        return self._engine

    @property
    def vocab_size(self) -> int:
        """The size of the source's vocabulary."""
        return len(self._source_tokens)

    def search(self, segments: Sequence[Segment], settings: DecodingSettings) -> list[list[Output]]:
        """Returns for each segment its outputs, as `TorchSearch.search` does, with their scores.

        A score is made of the log-probabilities that the search has, which are those of tokens that may be written.
        """
        limits = [
            settings.longest_output(len(segment.ids), len(segment.prefix_ids), self.num_positions)
            for segment in segments
        ]
        if settings.min_new_tokens and len({len(segment.prefix_ids) for segment in segments}) > 1:
            # CTranslate2 counts the prefix in the least length, which is one for the whole batch.
            return [self.search([segment], settings)[0] for segment in segments]
        outputs = self._search(segments, settings, max(limits))
        for row, limit in enumerate(limits):
            # CTranslate2 has one limit for the whole batch.
            if any(len(output.ids) > limit for output in outputs[row]):
                (outputs[row],) = self._search([segments[row]], settings, limit)
        return outputs

    def _search(self, segments: Sequence[Segment], settings: DecodingSettings, limit: int) -> list[list[Output]]:
        results = self.model.translate_batch(
            [[self._source_tokens[token] for token in segment.ids] for segment in segments],
            target_prefix=[[self._target_tokens[token] for token in segment.prefix_ids] for segment in segments],
            max_input_length=0,
            max_decoding_length=limit,
            return_end_token=True,
            return_scores=True,
            **self._translate_arguments(settings, len(segments[0].prefix_ids)),
        )
        return [
            [
                Output([self._target_ids[token] for token in tokens], score=score)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _translate_arguments(self, settings: DecodingSettings, num_prefix: int) -> dict[str, Any]:
        """Returns settings, and those of the model that no option changes, as arguments of `translate_batch`."""
        own = self.generation_config
        least = max((own.min_length or 0) - 1, 0)  # without the start token
        if settings.min_new_tokens:
            least = max(least, num_prefix + settings.min_new_tokens)
        arguments: dict[str, Any] = {
            "beam_size": settings.beam_size,
            "num_hypotheses": settings.num_hypotheses,
            "disable_unk": self._has_unknown,
            "repetition_penalty": own.repetition_penalty or 1.0,
            "no_repeat_ngram_size": own.no_repeat_ngram_size or 0,
            "min_decoding_length": least,
        }
        if settings.do_sample:
            return arguments | {
                "sampling_topk": min(settings.top_k, len(self._target_tokens)),
                "sampling_topp": settings.top_p,
                "sampling_temperature": settings.temperature,
            }
        patience = _PATIENCE.get(settings.early_stopping, 1.0) if settings.beam_size > 1 else 1.0
        return arguments | {"length_penalty": settings.length_penalty, "patience": patience}

    def score(self, sources: Sequence[Ids], outputs: Sequence[Ids], *, with_attention: bool) -> list[Output]:
        """Returns outputs with the log-probabilities of their tokens, as `TorchSearch.score` does.

        Raises:
            ValueError: If attention is asked for, which CTranslate2 does not return with scores.
        """
        if with_attention:
            raise ValueError("`attention` must be False with the backend ctranslate2, but is True. Take torch for it.")
        targets = [[self._target_tokens[token] for token in ids] for ids in outputs]
        results = self.model.score_batch(
            [[self._source_tokens[token] for token in ids] for ids in sources],
            [tokens[:-1] if tokens[-1:] == [self._end] else tokens for tokens in targets],  # it adds the end itself
            max_input_length=0,
        )
        return [Output(ids, list(result.log_probs[: len(ids)])) for result, ids in zip(results, outputs, strict=True)]
