"""The page that translates in a browser: what it holds, what is refused, and a real browser that opens it."""

import functools
import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from interop.test_argos import TEXTS, model_for
from playwright.sync_api import expect, sync_playwright
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import train_tokenizer
from hf_seq2seq.interop import to_web


Command = Callable[..., tuple[int, str, str]]

CHROMIUM = shutil.which("chromium")
LIBRARY_FILES = ("ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with the files that the page takes, all empty."""
    folder = tmp_path / "node_modules"
    for package, names in {
        "onnxruntime-web": LIBRARY_FILES,
        "@huggingface/tokenizers": ["tokenizers.min.mjs"],
    }.items():
        (folder / package / "dist").mkdir(parents=True)
        for name in names:
            (folder / package / "dist" / name).touch()
        (folder / package / "package.json").write_text(
            json.dumps({"name": package, "version": "1.2.3", "license": "MIT"})
        )
    (folder / "@huggingface/tokenizers/LICENSE").write_text("Apache License")
    return folder


class Graphs:
    """The two graphs of the page in onnxruntime, and greedy search over them."""

    def __init__(self, folder: Path) -> None:
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder")
        )
        self.settings = json.loads((folder / "settings.json").read_text())

    def run(self, source: list[int], target: list[int]) -> tuple[Any, Any]:
        """The log-probabilities (T, V) after each token of a target, one step at a time, and its attention (T, S)."""
        mask = np.ones((1, len(source)), np.int64)
        feeds = dict(
            zip(
                _names(self.encoder),
                self.encoder.run(None, {"input_ids": np.array([source]), "attention_mask": mask}),
                strict=True,
            )
        )
        for layer in range(self.settings["num_layers"]):
            for part in ("key", "value"):
                shape = (1, self.settings["num_heads"], 0, self.settings[f"{part}_width"])
                feeds[f"past_key_values.{layer}.decoder.{part}"] = np.zeros(shape, np.float32)
        rows = []
        for token in target:
            inputs = {"input_ids": np.array([[token]]), "encoder_attention_mask": mask, **feeds}
            outputs = dict(zip(_names(self.decoder), self.decoder.run(None, inputs), strict=True))
            feeds |= {
                name.replace("present", "past_key_values"): value
                for name, value in outputs.items()
                if "present" in name
            }
            rows.append((outputs["log_probs"][0, 0], outputs["attention"][0, 0]))
        return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    def greedy(self, source: list[int]) -> list[int]:
        ids = [self.settings["start_id"]]
        while ids[-1] not in self.settings["end_ids"] and len(ids) <= len(source) + 50:
            row = self.run(source, ids)[0][-1]
            row[self.settings["banned_ids"]] = -np.inf
            ids.append(int(row.argmax()))
        return ids[1:]


def _names(session: Any) -> list[str]:
    return [output.name for output in session.get_outputs()]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"norm_position": "pre", "key_dim": 3, "decoder_layers": 3}], ids=str)
def test_the_graphs_compute_the_model_in_8_bits(
    options: dict[str, Any], letter_tokenizer: PreTrainedTokenizerFast, library: Path, tmp_path: Path
) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer), attention="eager", **options)
    to_web(model, letter_tokenizer, tmp_path / "page", library)
    source, target = [5, 9, 7, 12, 2], [1, 12, 5, 29]
    log_probs, attention = Graphs(tmp_path / "page").run(source, target)
    with torch.no_grad():
        outputs = model(torch.tensor([source]), decoder_input_ids=torch.tensor([target]), output_attentions=True)
    expected = outputs.logits[0].log_softmax(-1)
    assert (torch.from_numpy(log_probs) - expected).abs().mean() < 0.1  # of 8 bits
    assert np.corrcoef(log_probs.flatten(), expected.flatten())[0, 1] > 0.99
    mean_attention = torch.stack(outputs.cross_attentions).mean((0, 2))[0]
    np.testing.assert_allclose(attention, mean_attention, rtol=0, atol=0.05)


@pytest.mark.slow
def test_the_page_holds_all_that_it_loads(
    letter_tokenizer: PreTrainedTokenizerFast, library: Path, command: Command, tmp_path: Path
) -> None:
    for part in (tiny_model(vocab_size=len(letter_tokenizer)), letter_tokenizer):
        part.save_pretrained(tmp_path / "model")
    status, out, err = command("export", "web", tmp_path / "model", tmp_path / "page", "--library", library)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1].startswith(f"See it with `python -m http.server --directory {tmp_path / 'page'}`")
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        *("decoder.onnx", "encoder.onnx", "index.html", "library", "search.mjs", "settings.json"),
        *("tokenizer.json", "tokenizer_config.json"),
    ]
    assert sorted(path.name for path in (tmp_path / "page/library").iterdir()) == [
        *("LICENSE-onnxruntime-web", "LICENSE-tokenizers"),
        *LIBRARY_FILES,
        "tokenizers.min.mjs",
    ]
    assert "tokenizers 1.2.3, licence MIT" in (tmp_path / "page/library/LICENSE-tokenizers").read_text()
    for name in ("index.html", "search.mjs"):
        assert "//" not in (tmp_path / "page" / name).read_text().replace("// ", "").replace("/** ", "")  # no address


def test_a_folder_without_the_library_is_refused(letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"must be the folder node_modules .* but has no @huggingface/tokenizers"
    ):
        to_web(tiny_model(), letter_tokenizer, tmp_path / "page", tmp_path)
    assert not (tmp_path / "page").exists()


def test_the_verb_wants_the_library(
    letter_tokenizer: PreTrainedTokenizerFast, command: Command, tmp_path: Path
) -> None:
    for part in (tiny_model(vocab_size=len(letter_tokenizer)), letter_tokenizer):
        part.save_pretrained(tmp_path / "model")
    status, _, err = command("export", "web", tmp_path / "model", tmp_path / "page")
    assert status == 1
    assert err.startswith("Error: `--library` must be given for web: the folder node_modules that `npm install")


def test_a_tokenizer_in_python_is_refused(library: Path, tmp_path: Path) -> None:
    class Slow:
        is_fast = False

        def get_vocab(self) -> dict[str, int]:
            return {"a": 0}

    slow: Any = Slow()
    with pytest.raises(ValueError, match=r"must be one of the tokenizers library .* but is a Slow"):
        to_web(tiny_model(), slow, tmp_path / "page", library)


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small trained model, with the real library."""
    modules = subprocess.run(
        ["scripts/install_peer.sh", "transformers.js"], stdout=subprocess.PIPE, check=True, text=True
    )
    tokenizer = train_tokenizer(iter(TEXTS), vocab_size=300)
    folder = tmp_path_factory.mktemp("web") / "page"
    to_web(model_for(tokenizer, num_steps=150), tokenizer, folder, modules.stdout.strip())
    tokenizer.save_pretrained(folder.parent / "tokenizer")
    return folder


@pytest.fixture
def address(page_folder: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(page_folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.peer
@pytest.mark.skipif(CHROMIUM is None, reason="needs the browser: apt-get install chromium")
def test_a_browser_translates_as_the_8_bit_model_in_python(page_folder: Path, address: str) -> None:
    graphs = Graphs(page_folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(page_folder.parent / "tokenizer")
    texts = [*TEXTS, "cat hat zoo", "the </s> mat", "the", "sat sat", "a dog", "the zoo", "the hen sat", "on the mat"]
    assert len(texts) == 20
    expected = [
        tokenizer.decode(graphs.greedy(tokenizer(text)["input_ids"]), skip_special_tokens=True) for text in texts
    ]
    assert len(set(expected)) > 8
    problems: list[str] = []
    requests: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        expect(page.get_by_role("status")).to_have_text("Ready.", timeout=120_000)
        found = [
            page.evaluate("async (text) => (await translator.translate(text, 1))[0].text", text) for text in texts
        ]
        assert found == expected
        page.get_by_label("Text").fill(texts[0])
        page.get_by_label("Beam").select_option("4")
        page.get_by_role("button").click()
        page.wait_for_function("document.querySelectorAll('#hypotheses li').length === 4")
        scores = [float(text.rsplit(" ", 1)[1]) for text in page.locator("#hypotheses li").all_inner_texts()]
        assert scores == sorted(scores, reverse=True)
        assert page.locator("#attention tr").count() > 3
        browser.close()
    assert problems == []
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)
