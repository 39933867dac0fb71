"""The server's paths, asked over HTTP: both schemas, what is refused, and that nothing is lost or mixed up."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from huggingface_hub import InferenceClient, constants
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from inference.test_translator import letters_model, random_texts
from libretranslatepy import LibreTranslateAPI
from serving.local_server import LocalServer, serving, varied_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Translator
from hf_seq2seq.serving import Limits, Loading, ModelSpec


TEXTS = random_texts(3, 8, 1, 5)


@pytest.fixture(scope="module")
def translator(letter_tokenizer: PreTrainedTokenizerFast) -> Translator:
    return Translator(varied_model(), letter_tokenizer)


@pytest.fixture(scope="module")
def server(translator: Translator) -> Iterator[LocalServer]:
    with serving([translator]) as running:
        yield running


def ask(server: LocalServer, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    response = httpx.post(f"{server.url}/translate", json=fields, headers=headers, timeout=60)
    return response.status_code, response.json()


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_text_and_a_list_are_answered_in_their_shape(server: LocalServer, translator: Translator) -> None:
    assert ask(server, q=TEXTS[0]) == (200, {"translatedText": translator(TEXTS[0])})
    assert ask(server, q=TEXTS, source="en", target="de") == (200, {"translatedText": translator(TEXTS)})
    assert ask(server, q=[]) == (200, {"translatedText": []})
    assert ask(server, q=["", TEXTS[0]], source="auto") == (200, {"translatedText": ["", translator(TEXTS[0])]})


@pytest.mark.parametrize("kind", ["data", "files"])
def test_forms_are_read(kind: str, server: LocalServer, translator: Translator) -> None:
    fields = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": "1"}
    form: dict[str, Any] = {
        kind: fields if kind == "data" else {name: (None, value) for name, value in fields.items()}
    }
    first, second = translator.hypotheses(TEXTS[:1], n_best=2)[0]
    response = httpx.post(f"{server.url}/translate", **form, timeout=60)
    assert response.json() == {"translatedText": first.text, "alternatives": [second.text]}


def test_alternatives_scores_and_alignments_are_those_of_the_translator(
    server: LocalServer, translator: Translator
) -> None:
    status, found = ask(server, q=TEXTS, alternatives=2, scores=True, alignments=True)
    expected = translator.hypotheses(TEXTS, n_best=3, attention=True)
    assert status == 200
    assert found["translatedText"] == [several[0].text for several in expected]
    assert found["alternatives"] == [[each.text for each in several[1:]] for several in expected]
    assert found["alignments"] == [[list(map(list, each.alignment or ())) for each in several] for several in expected]
    for scores, several in zip(found["scores"], expected, strict=True):
        assert scores == pytest.approx([each.score for each in several], abs=1e-3)


def test_lines_of_a_text_are_kept_and_their_words_counted_on(server: LocalServer, translator: Translator) -> None:
    first, second = (several[0] for several in translator.hypotheses(TEXTS[:2], attention=True))
    _, found = ask(server, q=f"{TEXTS[0]}\r\n\n{TEXTS[1]}\n", scores=True, alignments=True)
    assert found["translatedText"] == f"{first.text}\r\n\n{second.text}\n"
    assert found["scores"] == [pytest.approx((first.score or 0) + (second.score or 0), abs=1e-3)]
    words, more = len(TEXTS[0].split()), len(first.text.split())
    moved = [[words + source, more + target] for source, target in second.alignment or ()]
    assert found["alignments"] == [[*map(list, first.alignment or ()), *moved]]


def test_hugging_face_s_client_is_answered(
    server: LocalServer, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    client = InferenceClient(model=f"{server.url}/translate")
    assert client.translation(TEXTS[0]).translation_text == translator(TEXTS[0])
    found = client.translation(TEXTS[1], src_lang="en", tgt_lang="de", generate_parameters={"num_beams": 1})
    assert found.translation_text == translator(TEXTS[1], beam_size=1)


def test_hugging_face_s_schema_takes_a_list(server: LocalServer, translator: Translator) -> None:
    parameters = {"generate_parameters": {"do_sample": True, "top_k": 1}}
    expected = [{"translation_text": text} for text in translator(TEXTS, beam_size=1)]
    assert ask(server, inputs=TEXTS, parameters=parameters) == (200, expected)


def test_libretranslate_s_client_is_answered(server: LocalServer, translator: Translator) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate(TEXTS[0], "en", "de") == translator(TEXTS[0])
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["de"]}]


@pytest.mark.parametrize("field", ["q", "inputs"])
def test_texts_are_answered_as_they_come_where_that_is_asked_for(
    field: str, server: LocalServer, translator: Translator
) -> None:
    name = {"q": "translatedText", "inputs": "translation_text"}[field]
    headers = {"Accept": "application/x-ndjson"}
    with httpx.stream("POST", f"{server.url}/translate", json={field: TEXTS}, headers=headers, timeout=60) as response:
        rows = [json.loads(line) for line in response.iter_lines()]
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert {row["index"]: row[name] for row in rows} == dict(enumerate(translator(TEXTS)))


def test_a_first_answer_comes_while_a_later_text_waits(translator: Translator) -> None:
    with serving([translator], loading=Loading(batch_tokens=1)) as server:
        server.worker.hold()
        server.worker.go_on(1)
        fields, headers = {"q": ["a a b b", "b b b"]}, {"Accept": "application/x-ndjson"}
        with httpx.stream("POST", f"{server.url}/translate", json=fields, headers=headers, timeout=60) as response:
            lines = response.iter_lines()
            assert json.loads(next(lines))["index"] == 1  # the shortest comes first
            server.worker.go_on(1)
            assert json.loads(next(lines))["index"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": "a", "source": "fr"}, "`source` must be en, but is 'fr' instead."),
        ({"q": "a", "source": "en", "target": "fr"}, "`target` must be de, but is 'fr' instead."),
        ({"q": "a", "format": "html"}, "`format`: Input should be 'text', but is 'html' instead."),
        ({"q": "a", "alternatives": 16}, "`alternatives`: Input should be less than 16, but is 16 instead."),
        ({"q": 3}, "`q"),
        ({"source": "en"}, "`q` is missing."),
        ({"q": ["a", 5]}, "`q.1`: Input should be a valid string, but is 5 instead."),
        ({"q": "a \ud800"}, "`q`"),
        ({"inputs": "a", "parameters": {"max_length": 3}}, "`parameters.max_length`: Extra inputs are not permitted"),
        (
            {"inputs": "a", "parameters": {"generate_parameters": {"num_beams": 1000}}},
            "`parameters.generate_parameters.num_beams`: Input should be less than or equal to 16",
        ),
        (
            {"inputs": "a", "parameters": {"generate_parameters": {"top_k": 3}}},
            "`top_k` must be given together with `do_sample`, which is not set.",
        ),
    ],
)
def test_what_cannot_be_done_is_told(fields: dict[str, Any], message: str, server: LocalServer) -> None:
    body = json.dumps(fields).encode()
    response = httpx.post(f"{server.url}/translate", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused(body: bytes, server: LocalServer) -> None:
    response = httpx.post(f"{server.url}/translate", content=body)
    assert (response.status_code, response.json()["error"][:28]) == (400, "The body must be a JSON obje")


def test_files_are_refused_and_no_other_path_takes_anything(server: LocalServer) -> None:
    files = {"q": ("secret.txt", b"x" * 1000)}
    assert httpx.post(f"{server.url}/translate", files=files).status_code == 400
    for path in ("upload", "translate_file", "static-offline-docs/x", ""):
        response = httpx.post(f"{server.url}/{path}", files=files)
        assert response.status_code in (404, 405)
        assert "error" in response.json()


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://127.0.0.1", "http://localhost:1"])
def test_scripts_of_other_pages_are_refused(origin: str, server: LocalServer) -> None:
    refusal = (403, {"error": "This server answers no requests of other sites' pages."})
    assert ask(server, {"Origin": origin}, q="a") == refusal
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert httpx.request("OPTIONS", f"{server.url}/translate", headers=preflight).status_code == 403
    assert httpx.get(f"{server.url}/languages", headers={"Origin": origin}).status_code == 403


def test_pages_of_the_server_itself_and_allowed_ones_may_ask(server: LocalServer, translator: Translator) -> None:
    assert ask(server, {"Origin": server.url}, q="a")[0] == 200
    with serving([translator], limits=Limits(origins=["https://example.org"])) as other:
        headers = {"Origin": "https://example.org"}
        response = httpx.post(f"{other.url}/translate", json={"q": "a"}, headers=headers, timeout=60)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://example.org"
        assert ask(other, {"Origin": "https://example.com"}, q="a")[0] == 403


def test_limits_and_the_key_are_kept(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([translator], limits=Limits(characters=5, texts=2, queue=3, api_key="sesame")) as server:
        assert ask(server, q="a")[0] == 403
        assert ask(server, q="a", api_key="Sesame")[0] == 403
        assert ask(server, {"Authorization": "Bearer sesam"}, inputs="a")[0] == 403
        assert ask(server, q="a", api_key="sesame")[0] == 200
        assert LibreTranslateAPI(server.url, "sesame").translate("a", "en", "de") == translator("a")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        client = InferenceClient(model=f"{server.url}/translate", token="sesame")
        assert client.translation("a").translation_text == translator("a")
        for q, message in (
            ("a b c d", "The texts of a request must have at most 5 characters, but have 7 instead."),
            (["a", "b", "c"], "A request must have at most 2 texts, but has 3 instead."),
            (["a\nb", "c\n"], None),
            (["a\nb", "\n"], None),
            ("x" * 70_000, "This server takes at most 65,628 bytes, and wants to know their number."),
        ):
            status, answer = ask(server, q=q, api_key="sesame")
            assert (status, answer.get("error")) == (200 if message is None else 413, message)
        unnumbered = httpx.post(f"{server.url}/translate", content=iter([b"{}"]))
        assert unnumbered.status_code == 413


def test_a_full_queue_is_429_and_what_was_taken_is_answered(translator: Translator) -> None:
    with serving([translator], limits=Limits(queue=2)) as server, ThreadPoolExecutor(3) as threads:
        server.worker.hold()
        first = threads.submit(ask, server, q="a")
        wait_until(lambda: server.worker.batches)
        second = threads.submit(ask, server, q=["b", "c"])
        wait_until(lambda: "hf_seq2seq_lines_waiting 2.0" in httpx.get(f"{server.url}/metrics").text)
        response = httpx.post(f"{server.url}/translate", json={"q": "d"})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "1"
        assert response.json() == {"error": "Too many texts wait for their translation. Try again later."}
        assert ask(server, q="a\nb\nc")[0] == 413  # never room for it
        server.worker.go_on()
        assert first.result() == (200, {"translatedText": translator("a")})
        assert second.result() == (200, {"translatedText": translator(["b", "c"])})


def test_requests_share_batches_and_a_long_one_does_not_hold_up_others(translator: Translator) -> None:
    with serving([translator], loading=Loading(batch_tokens=2)) as server, ThreadPoolExecutor(4) as threads:
        server.worker.hold()
        answers = [threads.submit(ask, server, q="x")]
        wait_until(lambda: server.worker.batches)
        long = ["a b"] * 20
        for number, q in enumerate((long, "c d", "e f"), start=1):
            answers.append(threads.submit(ask, server, q=q))
            waiting = len(long) + number - 1
            wait_until(lambda n=waiting: f"waiting {n}.0" in httpx.get(f"{server.url}/metrics").text)
        server.worker.go_on()
        found = [answer.result()[1]["translatedText"] for answer in answers]
    assert found == [translator("x"), translator(long), translator("c d"), translator("e f")]
    assert server.worker.batches[1] == ["a b", "c d", "e f"]


def test_lines_of_another_search_are_batches_of_their_own(translator: Translator) -> None:
    with serving([translator]) as server, ThreadPoolExecutor(3) as threads:
        server.worker.hold()
        answers = [threads.submit(ask, server, q="x")]
        wait_until(lambda: server.worker.batches)
        answers += [threads.submit(ask, server, q="a", alternatives=n) for n in (1, 2)]
        wait_until(lambda: "waiting 2.0" in httpx.get(f"{server.url}/metrics").text)
        server.worker.go_on()
        assert [len(answer.result()[1].get("alternatives", ())) for answer in answers] == [0, 1, 2]
    assert server.worker.batches == [["x"], ["a"], ["a"]]


def test_what_nobody_waits_for_any_more_is_not_translated(translator: Translator) -> None:
    with serving([translator]) as server, ThreadPoolExecutor(1) as threads:
        server.worker.hold()
        first = threads.submit(ask, server, q="x")
        wait_until(lambda: server.worker.batches)
        for headers in ({}, {"Accept": "application/x-ndjson"}):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{server.url}/translate", json={"q": ["a", "b"]}, headers=headers, timeout=0.3)
        wait_until(lambda: "waiting 0.0" in httpx.get(f"{server.url}/metrics").text)
        server.worker.go_on()
        assert first.result()[0] == 200
    assert server.worker.batches == [["x"]]


def test_a_worker_that_dies_is_told_and_started_anew(server: LocalServer, translator: Translator) -> None:
    starts, server.worker.dies = server.worker.starts, True
    assert ask(server, q="a") == (
        500,
        {"error": "The text could not be translated: the process that did so ended. Try again."},
    )
    assert ask(server, q="a") == (200, {"translatedText": translator("a")})
    assert server.worker.starts == starts + 1


def test_a_text_that_fails_takes_no_other_with_it_and_tells_nothing_of_the_machine(
    server: LocalServer, translator: Translator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    translate_lines = translator.translate_lines

    def fail(lines: Any, settings: Any) -> Any:
        if any(line.text == "f" for line in lines):
            raise RuntimeError("/home/somebody/model")
        return translate_lines(lines, settings)

    monkeypatch.setattr(translator, "translate_lines", fail)
    headers = {"Accept": "application/x-ndjson"}
    rows = map(
        json.loads, httpx.post(f"{server.url}/translate", json={"q": ["a", "f"]}, headers=headers).text.split("\n")[:2]
    )
    assert sorted(rows, key=lambda row: row["index"]) == [
        {"index": 0, "translatedText": translator("a")},
        {"index": 1, "error": "The text could not be translated. The server's log tells why."},
    ]
    assert ask(server, q=["a", "f"])[0] == 500
    assert "/home/somebody/model" in capfd.readouterr().err


def test_a_line_that_would_be_cut_is_refused_where_it_cannot_be_split(server: LocalServer) -> None:
    line = "a " * 1024
    assert ask(server, q=[line, "b"], alternatives=1) == (
        413,
        {
            "error": "A line must have at most 1,024 tokens where `alternatives` or `alignments` are asked for, but "
            "has 1,025 instead."
        },
    )


def test_a_long_line_is_translated_in_parts(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = letters_model(end_bias=-5.0, position_embedding_type="learned", max_position_embeddings=6)
    translator = Translator(model, letter_tokenizer)
    whole, cut = (translator(TEXTS[1], over_long=over_long) for over_long in ("split", "cut"))
    assert whole != cut
    with serving([translator]) as server:
        assert ask(server, q=TEXTS[1])[1] == {"translatedText": whole}
        assert ask(server, q=TEXTS[1], alignments=True)[0] == 413


def test_models_are_found_by_their_languages(
    translator: Translator, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    other = Translator(letters_model(end_bias=2.5, seed=6), letter_tokenizer)
    models = [ModelSpec(str(tmp_path), (("en", "de"), ("fr", "de"))), ModelSpec("me/two", (("en", "zh"),))]
    with serving([translator, other], models) as server:
        assert ask(server, q="a b", source="en", target="de")[1] == {"translatedText": translator("a b")}
        assert ask(server, q="a b", source="en", target="zh")[1] == {"translatedText": other("a b")}
        languages: dict[str, Any]
        for languages, message in (
            ({}, "`source` must be one of en, fr: it is not found out from the text."),
            ({"source": "auto", "target": "zh"}, "`source` must be one of en, fr: it is not found out from the text."),
            ({"source": "en"}, "`target` must be one of de, zh, but is missing."),
            ({"source": "fr", "target": "zh"}, "`target` must be de, but is 'zh' instead."),
        ):
            assert ask(server, None, q="a", **languages) == (400, {"error": message})
        assert httpx.get(f"{server.url}/languages").json() == [
            {"code": "en", "name": "English", "targets": ["de", "zh"]},
            {"code": "fr", "name": "French", "targets": ["de"]},
        ]
        listed = httpx.get(f"{server.url}/v1/models").json()
    assert [model["id"] for model in listed["data"]] == [tmp_path.name, "me/two"]


def test_a_default_beam_is_used_where_a_request_has_none(translator: Translator) -> None:
    with serving([translator], loading=Loading(beam_size=1)) as server:
        assert ask(server, q=TEXTS)[1] == {"translatedText": translator(TEXTS, beam_size=1)}
        assert ask(server, q=TEXTS, alternatives=1)[1]["translatedText"] == [
            found[0].text for found in translator.hypotheses(TEXTS, beam_size=2, n_best=2)
        ]


def test_metrics_count_what_was_asked(translator: Translator) -> None:
    with serving([translator]) as server:
        ask(server, q=["a", "b"])
        ask(server, q="a", source="fr")
        httpx.get(f"{server.url}/invented")
        found = httpx.get(f"{server.url}/metrics").text
    for line in (
        'hf_seq2seq_requests_total{path="/translate",status="200"} 1.0',
        'hf_seq2seq_requests_total{path="/translate",status="400"} 1.0',
        'hf_seq2seq_requests_total{path="other",status="404"} 1.0',
        'hf_seq2seq_request_seconds_count{path="/translate"} 2.0',
        'hf_seq2seq_lines_total{model="out"} 2.0',
        "hf_seq2seq_batch_lines_count 1.0",
        "hf_seq2seq_lines_waiting 0.0",
    ):
        assert f"\n{line}\n" in found


def test_the_description_is_whole_and_its_page_asks_no_other_server(server: LocalServer) -> None:
    description = httpx.get(f"{server.url}/openapi.json").json()
    assert set(description["paths"]) == {"/translate", "/languages", "/health", "/v1/models", "/metrics"}
    schemas = description["components"]["schemas"]
    text = json.dumps(description)
    references = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert {"LibreTranslateRequest", "HuggingFaceRequest", "GenerateParameters"} <= references <= set(schemas)
    page = httpx.get(f"{server.url}/docs").text
    assert "https://" not in page
    assert "//cdn" not in page
    with urlopen(Request(f"{server.url}/static-offline-docs/swagger-ui-bundle.js")) as script:
        assert script.status == 200


def test_requests_that_were_taken_are_answered_before_the_server_ends(translator: Translator) -> None:
    with serving([translator]) as server, ThreadPoolExecutor(1) as threads:
        server.worker.hold()
        answer = threads.submit(ask, server, q=TEXTS)
        wait_until(lambda: server.worker.batches)
        server.server.should_exit = True
        time.sleep(0.2)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/health")
        server.worker.go_on()
        assert answer.result() == (200, {"translatedText": translator(TEXTS)})
