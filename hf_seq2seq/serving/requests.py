"""What clients ask for: the schemas of LibreTranslate and of Hugging Face, and what both become."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request


MOST_HYPOTHESES = 16  # a stranger's search takes time and memory by the number of its hypotheses


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


_Text = Annotated[str, StringConstraints(strict=True), AfterValidator(_check_unicode)]
_Code = Annotated[str, StringConstraints(max_length=40)]


class RefusedError(Exception):
    """A request that is answered with an error.

    Args:
        status: The HTTP status.
        message: What the client is told.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class LibreTranslateRequest(BaseModel):
    """A request as clients of LibreTranslate make it, as JSON or as a form."""

    model_config = ConfigDict(title="Request as to LibreTranslate")

    q: _Text | list[_Text] = Field(description="The text, or the texts.")
    source: _Code | None = Field(default=None, description="Code of its language; auto for the only model's.")
    target: _Code | None = Field(default=None, description="Code of the language to translate to.")
    format: Literal["text"] = Field(default="text", description="HTML is not translated.")
    alternatives: int = Field(
        default=0, ge=0, lt=MOST_HYPOTHESES, description="How many other translations are wanted."
    )
    api_key: str | None = Field(default=None, description="The server's key, if it has one.")
    scores: bool = Field(default=False, description="Whether what ranks the translations is wanted.")
    alignments: bool = Field(default=False, description="Whether the pairs of aligned words are wanted.")


class GenerateParameters(BaseModel):
    """How to search, in transformers' words."""

    model_config = ConfigDict(extra="forbid")

    num_beams: int | None = Field(default=None, ge=1, le=MOST_HYPOTHESES)
    length_penalty: float | None = Field(default=None, ge=-10, le=10)
    do_sample: bool | None = None
    temperature: float | None = Field(default=None, ge=1e-6, le=1e6)
    top_k: int | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)


class TranslationParameters(BaseModel):
    """The languages, and how to search."""

    model_config = ConfigDict(extra="forbid")

    src_lang: _Code | None = None
    tgt_lang: _Code | None = None
    generate_parameters: GenerateParameters | None = None


class HuggingFaceRequest(BaseModel):
    """A request as clients of Hugging Face make it for the task translation."""

    model_config = ConfigDict(title="Request as to Hugging Face")

    inputs: _Text | list[_Text] = Field(description="The text, or the texts.")
    parameters: TranslationParameters | None = None


@dataclass(frozen=True)
class Asked:
    """What a request asks for, whichever schema it has.

    Attributes:
        texts: The texts.
        is_list: Whether they came as a list, so that the answer is one too.
        source: Code of their language.
        target: Code of the language to translate to.
        key: The key that came with the request.
        is_hugging_face: Whether the answer has Hugging Face's schema.
        options: Names and values of `SearchOptions`.
        scores: Whether scores are wanted.
        alignments: Whether alignments are wanted.
    """

    texts: list[str]
    is_list: bool
    source: str | None
    target: str | None
    key: str | None
    is_hugging_face: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    scores: bool = False
    alignments: bool = False

    @property
    def num_hypotheses(self) -> int:
        """How many translations of each text are wanted."""
        return int(self.options.get("n_best", 1))


async def read(request: Request) -> Asked:
    """Returns what a request asks for.

    Raises:
        RefusedError: If it is not a request of either schema.
    """
    fields = await _fields(request)
    try:
        if "inputs" in fields:
            return _of_hugging_face(HuggingFaceRequest.model_validate(fields), request.headers)
        return _of_libretranslate(LibreTranslateRequest.model_validate(fields), request.headers)
    except ValidationError as error:
        raise RefusedError(400, _explain(error)) from error


async def _fields(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        try:
            form = await request.form(max_files=0)
        except HTTPException as error:
            raise RefusedError(400, f"The form cannot be read: {error.detail}") from error
        several = form.getlist("q")
        return {**form, "q": several} if len(several) > 1 else dict(form)
    try:
        fields = json.loads(await request.body())
    except (ValueError, RecursionError) as error:  # ValueError of what is no JSON, or no Unicode
        raise RefusedError(400, "The body must be a JSON object or a form, but cannot be read.") from error
    if not isinstance(fields, dict):
        raise RefusedError(400, "The body must be a JSON object with `q` or `inputs`, but is none.")
    return fields


def _of_libretranslate(found: LibreTranslateRequest, headers: Headers) -> Asked:
    options: dict[str, Any] = {"n_best": 1 + found.alternatives} if found.alternatives else {}
    is_list = isinstance(found.q, list)
    return Asked(
        texts=found.q if isinstance(found.q, list) else [found.q],
        is_list=is_list,
        source=found.source,
        target=found.target,
        key=found.api_key or _bearer(headers),
        options=options,
        scores=found.scores,
        alignments=found.alignments,
    )


def _of_hugging_face(found: HuggingFaceRequest, headers: Headers) -> Asked:
    parameters = found.parameters or TranslationParameters()
    search = parameters.generate_parameters or GenerateParameters()
    options = search.model_dump(exclude_none=True)
    if "num_beams" in options:
        options["beam_size"] = options.pop("num_beams")
    return Asked(
        texts=found.inputs if isinstance(found.inputs, list) else [found.inputs],
        is_list=isinstance(found.inputs, list),
        source=parameters.src_lang,
        target=parameters.tgt_lang,
        key=_bearer(headers),
        is_hugging_face=True,
        options=options,
    )


def _bearer(headers: Headers) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _explain(error: ValidationError) -> str:
    """Returns the first thing that is wrong with a request, in one sentence."""
    found, *others = error.errors(include_url=False)
    if isinstance(found["input"], list) and others and others[0]["loc"][0] == found["loc"][0]:
        found = others[0]  # where a text or a list of them may stand, what is wrong with the list
    name = ".".join(str(part) for part in found["loc"] if "[" not in str(part) and part != "constrained-str")
    if found["type"] == "missing":
        return f"`{name}` is missing."
    rule = found["msg"].removeprefix("Value error, ")
    return f"`{name}`: {rule}, but is {_short(found['input'])} instead."


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
