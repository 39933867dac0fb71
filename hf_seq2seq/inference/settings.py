"""How outputs are searched for: the options of a user, and the settings that a search follows.

An option that is not given is the model's own (`generation_config`). What holds where that leaves the search open is
in search_defaults.py, and what a new model's says in `generation_defaults` of model/generation_seq2seq_transformer.py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, get_args

from transformers import GenerationConfig

from hf_seq2seq.model.generation_seq2seq_transformer import GnmtPenalty
from hf_seq2seq.output_limits import banned_ids, longest_output
from hf_seq2seq.search_defaults import default_search


if TYPE_CHECKING:
    from .terms import BannedWords, Glossary


OverLong = Literal["cut", "split", "skip"]
Utility = Literal["chrf", "bleu"]

# Beyond these a search runs out of memory, or scores out of the numbers that float32 holds.
_WHOLE_NUMBERS = {
    "beam_size": (1, 1000),
    "n_best": (1, 1000),
    "mbr_candidates": (1, 100_000),
    "min_new_tokens": (0, math.inf),
    "max_new_tokens": (1, math.inf),
    "top_k": (0, math.inf),
    "seed": (0, 2**63 - 1),
    "max_source_tokens": (2, math.inf),
    "batch_tokens": (1, math.inf),
    "window": (1, math.inf),
}
_NUMBERS = {"length_penalty": (-10, 10), "temperature": (1e-6, 1e6), "top_p": (0, 1), "diversity_rate": (0, 100)}


class SearchOptions(TypedDict, total=False):
    """How outputs are searched for; an option that is left out, or None, is the model's own (`generation_config`).

    Attributes:
        beam_size: Number of hypotheses kept at each step; 1 is greedy search.
        length_penalty: The log-probability of a hypothesis is divided by its length to this power: 0 prefers short
            outputs, larger values longer ones. Greedy search does not use it.
        gnmt_penalty: Whether the length penalty is ((5 + length) / 6) ** length_penalty, as in Wu et al. (2016) and
            the paper, in place of length ** length_penalty. By default False.
        n_best: Number of hypotheses returned for each text. Those of a search are at most `beam_size` and come with
            the best first, samples as they were drawn. By default 1.
        diversity_rate: Makes the hypotheses of a search differ more: the k-th best continuation of a hypothesis loses
            this much log-probability times k. They are ranked without this penalty (see `SiblingPenalty`).
        mbr: Chooses by minimum Bayes risk: the translation that is worth most on average if one of the candidates is
            right (see `expected_utilities`). Its score is that value, from 0 to 100. By default False.
        mbr_utility: What a translation is worth where another is right: "chrf" or "bleu" of the sentence. By default
            "chrf".
        mbr_candidates: Number of hypotheses of the search, or of samples, that `mbr` chooses from. By default
            `beam_size`, or 32 samples.
        terms: The translation that each of some terms must have where it appears in a text (see `Glossary`). A wider
            beam, such as 10, gives better outputs.
        bad_words: Words and phrases that no output has in it, after its prefix (see `BannedWords`).
        min_new_tokens: The fewest tokens of an output after its prefix, without the end token. By default 0.
        max_new_tokens: The most tokens of an output after its prefix, the end token included. By default an output
            with its prefix has at most 50 tokens more than its source, or what `min_new_tokens` asks for.
        do_sample: Whether tokens are drawn by their probability in place of a search, with random numbers of the
            backend (`torch.manual_seed`, or `ctranslate2.set_random_seed` before the first draw). By default False.
        seed: Draws with random numbers that depend on this number and the place of the text alone, so that a text has
            the same samples whatever is in its batch. The backend ctranslate2 does not have it.
        temperature: What log-probabilities are divided by before a token is drawn; below 1, likely tokens are drawn
            more often.
        top_k: Number of likeliest tokens among which one is drawn.
        top_p: The likeliest tokens that have this probability together are those among which one is drawn.
        split_language: Code of the source's language, such as "en": each text is cut into its sentences, which are
            translated one by one and joined with spaces. For paragraphs, where the model was trained on sentences. A
            prefix is then what each sentence begins with. A text may begin with tags, such as `>>fra<<` or special
            tokens that were added to the tokenizer: each of its sentences gets them.
        max_source_tokens: The most tokens of a text, its end token included, that are translated at once. By default
            1,024, since time and memory grow with the square of it.
        over_long: What becomes of a longer text: "cut" translates its first tokens, "split" all of it in parts, which
            end between sentences or words if they can, and "skip" makes its translation blank. By default "cut". The
            line is named in a warning. It holds for the end of learned positions too.
    """

    beam_size: int | None
    length_penalty: float | None
    gnmt_penalty: bool | None
    n_best: int | None
    diversity_rate: float | None
    mbr: bool | None
    mbr_utility: Utility | None
    mbr_candidates: int | None
    terms: Mapping[str, str] | None
    bad_words: Sequence[str] | None
    min_new_tokens: int | None
    max_new_tokens: int | None
    do_sample: bool | None
    seed: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    split_language: str | None
    max_source_tokens: int | None
    over_long: OverLong | None


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """Settings that both backends follow, made once from the options and the model's own settings.

    Attributes:
        beam_size: As in `SearchOptions`, as are all of the same names.
        length_penalty: The power of the length.
        gnmt_penalty: Whether it is that of Wu et al.
        n_best: Number of hypotheses.
        do_sample: Whether tokens are drawn.
        temperature: Divides the log-probabilities.
        top_k: Number of likeliest tokens.
        top_p: Probability of the likeliest tokens.
        early_stopping: When a beam search ends, as in transformers' `GenerationConfig`.
        diversity_rate: Penalty for continuations of one hypothesis.
        mbr: Whether to choose by minimum Bayes risk.
        mbr_utility: What a translation is worth where another is right.
        mbr_candidates: Number of translations that it is chosen from.
        terms: The translations of terms.
        bad_words: What no output has in it.
        min_new_tokens: The fewest tokens after the prefix.
        max_new_tokens: The most tokens after the prefix.
        seed: What random numbers depend on.
        split_language: The language by whose rules texts are cut into sentences.
        max_source_tokens: The most tokens of a text.
        over_long: What becomes of a longer one.
        banned_ids: The tokens that are never written.
        scores: Whether the log-probabilities of the tokens are wanted.
        attention: Whether the attention to the source is wanted.

    Raises:
        ValueError: If a value is out of range, or some contradict each other.
    """

    beam_size: int
    length_penalty: float
    gnmt_penalty: bool
    n_best: int
    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    early_stopping: bool | str
    diversity_rate: float | None = None
    mbr: bool = False
    mbr_utility: Utility = "chrf"
    mbr_candidates: int = 1
    terms: "Glossary | None" = None
    bad_words: "BannedWords | None" = None
    min_new_tokens: int | None = None
    max_new_tokens: int | None = None
    seed: int | None = None
    split_language: str | None = None
    max_source_tokens: int = 1024
    over_long: OverLong = "cut"
    banned_ids: tuple[int, ...] = ()
    scores: bool = False
    attention: bool = False

    @classmethod
    def resolve(
        cls,
        options: SearchOptions,
        generation_config: GenerationConfig,
        *,
        unknown_id: int | None = None,
        scores: bool = False,
        attention: bool = False,
    ) -> Self:
        """Returns options filled up with the model's own settings, and these as `default_search` fills them up.

        Args:
            options: What the user asks for.
            generation_config: The model's own settings.
            unknown_id: The target's unknown token, which no search writes: a text would not show it.
            scores: Whether the log-probabilities of the tokens are wanted.
            attention: Whether the attention to the source is wanted.

        Raises:
            TypeError: If there is no such option.
            ValueError: As the class does, **or** if an option of sampling is given without `do_sample`.
        """
        for name in options.keys() - SearchOptions.__annotations__.keys():
            known = ", ".join(SearchOptions.__annotations__)
            raise TypeError(f"`{name}` must be an option of the search ({known}), but is none of them.")
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        do_sample, n_best = given.get("do_sample", False), given.get("n_best", 1)
        for name in ("temperature", "top_k", "top_p", "seed"):
            if name in given and not do_sample:
                raise ValueError(f"`{name}` must be given together with `do_sample`, which is not set.")
        own: Any = generation_config
        usual = default_search(own)
        check_number("n_best", n_best)
        check_number("beam_size", usual["num_beams"])
        if "mbr_candidates" in given:
            check_number("mbr_candidates", given["mbr_candidates"])
        for name in ("mbr_candidates", "mbr_utility"):
            if name in given and not given.get("mbr"):
                raise ValueError(f"`{name}` must be given together with `mbr`, which is not set.")
        beam_size = 1 if do_sample else max(usual["num_beams"], n_best, given.get("mbr_candidates", 1))
        values = {
            "do_sample": do_sample,
            "n_best": n_best,
            "beam_size": beam_size,
            "mbr_candidates": max(32, n_best) if do_sample else given.get("beam_size", beam_size),
            "length_penalty": usual["length_penalty"],
            "gnmt_penalty": bool(getattr(own, "gnmt_penalty", False)),
            "early_stopping": usual["early_stopping"],
            "temperature": 1.0 if own.temperature is None else own.temperature,
            "top_k": 50 if own.top_k is None else own.top_k,
            "top_p": 1.0 if own.top_p is None else own.top_p,
        }
        return cls(
            **(values | given), banned_ids=tuple(banned_ids(own, unknown_id)), scores=scores, attention=attention
        )

    @property
    def length_exponent(self) -> float:
        """What `length ** exponent` is the length penalty with, in either form."""
        return GnmtPenalty(self.length_penalty) if self.gnmt_penalty else self.length_penalty

    @property
    def num_hypotheses(self) -> int:
        """Number of hypotheses that a search is to return, of which `n_best` may be chosen afterwards."""
        return self.mbr_candidates if self.mbr else self.n_best

    @property
    def needs_log_probs(self) -> bool:
        """Whether the log-probabilities of the tokens are wanted, or the choice among hypotheses depends on them."""
        chooses = self.diversity_rate is not None or (self.mbr and not self.do_sample)
        return self.scores or chooses

    def longest_output(self, num_source: int, num_prefix: int, num_positions: float = math.inf) -> int:
        """Returns the most tokens that an output may have, its prefix and its end token included.

        Args:
            num_source: Number of tokens of its source, the end token included.
            num_prefix: Number of tokens of its prefix.
            num_positions: The most tokens that the model has positions for.
        """
        limit = longest_output(num_source)
        if self.min_new_tokens is not None:
            limit = max(limit, num_prefix + self.min_new_tokens + 1)
        if self.max_new_tokens is not None:
            limit = num_prefix + self.max_new_tokens
        return int(min(limit, num_positions))

    def __post_init__(self) -> None:
        sampling = ("temperature", "top_k", "top_p") if self.do_sample else ()
        for name in ("beam_size", "n_best", "length_penalty", "max_source_tokens", *sampling):
            check_number(name, getattr(self, name))
        for name in ("min_new_tokens", "max_new_tokens", "seed", "diversity_rate"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        if self.max_new_tokens is not None and self.max_new_tokens <= (self.min_new_tokens or 0):
            raise ValueError(
                f"`max_new_tokens` must be more than `min_new_tokens` ({self.min_new_tokens or 0}), since it counts "
                f"the end token, but is {self.max_new_tokens} instead."
            )
        if self.seed is not None and self.beam_size > 1:
            raise ValueError(
                f"`beam_size` must be 1 with `seed`, but is {self.beam_size} instead. Leave it out, or call "
                "`torch.manual_seed`."
            )
        if self.over_long not in get_args(OverLong):
            raise ValueError(
                f"`over_long` must be one of {', '.join(get_args(OverLong))}, but is {self.over_long!r} instead."
            )
        if self.n_best > self.beam_size and not self.do_sample:
            raise ValueError(f"`n_best` must be at most `beam_size` ({self.beam_size}), but is {self.n_best} instead.")
        self._check_choice()
        for name, is_set in (("split_language", self.split_language), ("over_long", self.over_long == "split")):
            if is_set and (self.attention or self.n_best > 1):
                raise ValueError(
                    f"`{name}` must be left out with several hypotheses or `attention`, but is "
                    f"{getattr(self, name)!r}."
                )

    def _check_choice(self) -> None:
        """Raises ValueError if the settings of a choice among hypotheses contradict others."""
        if self.terms is not None and self.do_sample:
            raise ValueError(f"`terms` must be left out with `do_sample`, but are {self.terms} instead.")
        if self.diversity_rate is not None and self.do_sample:
            raise ValueError(
                f"`diversity_rate` must be left out with `do_sample`, but is {self.diversity_rate} instead: samples "
                "differ by themselves."
            )
        if self.mbr_utility not in get_args(Utility):
            raise ValueError(
                f"`mbr_utility` must be one of {', '.join(get_args(Utility))}, but is {self.mbr_utility!r} instead."
            )
        if not self.mbr:
            return
        if self.mbr_candidates > self.beam_size and not self.do_sample:
            raise ValueError(
                f"`mbr_candidates` must be at most `beam_size` ({self.beam_size}), but is {self.mbr_candidates} "
                "instead."
            )
        if self.n_best > self.mbr_candidates:
            raise ValueError(
                f"`n_best` must be at most `mbr_candidates` ({self.mbr_candidates}), but is {self.n_best} instead."
            )


def check_number(name: str, value: Any) -> None:
    """Checks the value of a setting.

    Raises:
        ValueError: If it is not a number of the setting's kind, or out of its range.
    """
    kind: Any
    kind, noun = (Integral, "whole number") if name in _WHOLE_NUMBERS else (Real, "number")
    least, most = (_WHOLE_NUMBERS | _NUMBERS)[name]
    if isinstance(value, kind) and not isinstance(value, bool) and least <= value <= most:
        return
    limits = f"of at least {least:,}" if most == math.inf else f"from {least:,} to {most:,}"
    raise ValueError(f"`{name}` must be a {noun} {limits}, but is {value!r} instead.")
