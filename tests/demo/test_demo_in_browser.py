"""The demo page as a person sees it, in a real browser."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration
from hf_seq2seq.demo.views import DemoTranslator, Translation, alignment_map, attention_map
from hf_seq2seq.inspection import attention_maps, make_demo


CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs the browser: apt-get install chromium"),
]

TEXT = "a b c d"
DESKTOP, PHONE = ViewportSize(width=1200, height=900), ViewportSize(width=390, height=844)


@pytest.fixture(scope="module")
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Seq2SeqTransformerForConditionalGeneration:
    """A model of unequal stacks; random as it is, its translations are long, and differ."""
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 3, "decoder_attention_heads": 4}
    return tiny_model(vocab_size=len(letter_tokenizer), **sizes)


@pytest.fixture(scope="module")
def url(model: Seq2SeqTransformerForConditionalGeneration, letter_tokenizer: PreTrainedTokenizerFast) -> Iterator[str]:
    page = make_demo(model, letter_tokenizer, example=TEXT)
    yield page.launch(prevent_thread_lock=True, quiet=True)[1]
    page.close(verbose=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)  # milliseconds, for machines that are busy
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


class Watched:
    """A page in a context of its own, as another person's is; what goes wrong on it, and where it asks for files."""

    def __init__(self, browser: Browser, url: str, size: ViewportSize) -> None:
        is_phone = size is PHONE
        self.context = browser.new_context(viewport=size, is_mobile=is_phone, has_touch=is_phone)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def _note(self, problem: str) -> None:
        self.problems.append(problem)

    def translate(self, text: str) -> None:
        self.page.get_by_label("Text").fill(text)
        self.page.locator("#translate").click()

    def choose(self, name: str, label: str) -> None:
        self.page.locator(f"#{name}").get_by_label(label, exact=True).check()

    def set(self, name: str, value: str) -> None:
        self.page.locator(f"#{name} input").fill(value)

    def figure(self, name: str) -> dict[str, Any]:
        """The numbers and tokens of a heat map, as Plotly has drawn them."""
        shown: dict[str, Any] = self.page.evaluate(
            """name => {
                const figure = document.querySelector(`#${name} .js-plotly-plot`);
                return figure?.data && {
                    z: figure.data[0].z,
                    rows: figure.layout.yaxis.ticktext,
                    columns: figure.layout.xaxis.ticktext,
                };
            }""",
            name,
        )
        return shown

    def wait_for_figure(self, name: str, expected: Any) -> None:
        """Waits until a heat map shows what a figure made here has."""
        wanted = {
            "z": [list(row) for row in expected.data[0].z],
            "rows": list(expected.layout.yaxis.ticktext),
            "columns": list(expected.layout.xaxis.ticktext),
        }
        for _ in range(600):
            if self.figure(name) == wanted:
                return
            self.page.wait_for_timeout(100)
        assert self.figure(name) == wanted


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[Watched]:
    watched = Watched(browser, url, DESKTOP)
    yield watched
    watched.context.close()


@pytest.fixture
def expected(
    model: Seq2SeqTransformerForConditionalGeneration, letter_tokenizer: PreTrainedTokenizerFast
) -> Translation:
    return DemoTranslator(model, letter_tokenizer).translate(TEXT)


def test_a_text_is_translated_and_what_the_model_did_is_shown(
    watched: Watched, expected: Translation, url: str
) -> None:
    page = watched.page
    expect(page.locator("#best")).to_be_hidden()
    page.locator("#translate").click()  # of the example
    expect(page.locator("#best textarea")).to_have_value(expected.hypotheses[0].text)
    rows = page.locator("#hypotheses tbody tr")
    expect(rows).to_have_count(4)
    assert rows.first.inner_text().split("\t")[1] == expected.hypotheses[0].text
    watched.wait_for_figure("alignment", alignment_map(expected.alignment))
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "cross", None, "mean")))
    expect(page.locator("#tree img")).to_be_visible()
    assert page.locator("#tree img").evaluate("image => image.naturalWidth") > 300
    assert not watched.problems
    assert all(request.startswith((url, "data:", "blob:")) for request in watched.requests)


def test_layers_heads_and_stacks_can_be_switched(watched: Watched, expected: Translation) -> None:
    watched.translate(TEXT)
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "cross", 3, "mean")))
    watched.choose("head", "2")
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "cross", 3, 2)))
    watched.choose("layer", "1")
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "cross", 1, 2)))
    watched.choose("stack", "Decoder self-attention")
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "decoder", 1, 2)))
    watched.choose("layer", "3")
    watched.choose("head", "4")
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "decoder", 3, 4)))
    watched.choose("stack", "Encoder self-attention")  # which has neither that layer nor that head
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "encoder", 1, "mean")))
    expect(watched.page.locator("#layer input")).to_have_count(1)
    expect(watched.page.locator("#head input")).to_have_count(3)
    watched.choose("head", "1")
    watched.wait_for_figure("attention", attention_map(attention_maps(expected.trace, "encoder", 1, 1)))
    assert not watched.problems


def test_a_cell_that_is_pointed_at_tells_its_tokens_and_weight(watched: Watched, expected: Translation) -> None:
    watched.translate(TEXT)
    watched.wait_for_figure("alignment", alignment_map(expected.alignment))
    layer = watched.page.locator("#alignment .nsewdrag")
    layer.scroll_into_view_if_needed()
    layer.hover(position={"x": 5, "y": 5})  # the first cell
    label = watched.page.locator("#alignment .hovertext")
    expect(label).to_contain_text(f"source token looked at: {expected.alignment.source_tokens[0]}")
    expect(label).to_contain_text(f"token written: {expected.alignment.target_tokens[0]}")
    expect(label).to_contain_text(f"weight: {float(expected.alignment.weights[0, 0]):.4f}")


def test_wrong_input_gets_a_message_and_the_page_goes_on(watched: Watched, expected: Translation) -> None:
    page, message = watched.page, watched.page.locator("#message")
    watched.translate(TEXT)
    expect(page.locator("#best textarea")).to_have_value(expected.hypotheses[0].text)
    watched.translate("   ")
    expect(message).to_contain_text("`text` must be a text that is not blank, but is '   ' instead")
    expect(page.locator("#best")).to_be_hidden()
    watched.translate("a " * 100)
    expect(message).to_contain_text("must have at most 100 tokens, but has 101 instead. Maps and trees of longer ones")
    watched.translate("a" * 100_000)
    expect(message).to_contain_text("must have at most 2,000 characters, but has 100,000 instead")
    page.get_by_label("Text").evaluate(
        "box => { box.value = 'a \\ud83d'; box.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.locator("#translate").click()
    expect(message).to_contain_text("holds half of a surrogate pair")
    page.get_by_text("Settings of the search").click()
    for value, shown in (("0", "0"), ("10000", "10,000"), ("2.5", "2.5")):
        watched.set("beam-size", value)
        watched.translate(TEXT)
        expect(message).to_contain_text(f"`beam size` must be a whole number from 1 to 10, but is {shown} instead")
    watched.set("beam-size", "1")
    watched.set("length-penalty", "99")
    watched.translate(TEXT)
    expect(message).to_contain_text("`length penalty` must be a number from -5 to 5, but is 99 instead")
    watched.set("length-penalty", "1")
    watched.translate(TEXT)
    expect(page.locator("#tree")).to_contain_text("There is no tree, since the beam size is 1")
    expect(message).to_be_hidden()
    watched.set("beam-size", "")  # the model's own
    watched.set("length-penalty", "")
    watched.translate(TEXT)
    expect(page.locator("#hypotheses tbody tr")).to_have_count(4)
    expect(page.locator("#tree img")).to_be_visible()
    assert "Traceback" not in page.content()
    assert not watched.problems


def test_two_people_at_the_same_time_see_each_their_own(
    browser: Browser,
    url: str,
    model: Seq2SeqTransformerForConditionalGeneration,
    letter_tokenizer: PreTrainedTokenizerFast,
) -> None:
    texts = ["a b c d e f", "x y z"]
    translations = [DemoTranslator(model, letter_tokenizer).translate(text) for text in texts]
    people = [Watched(browser, url, DESKTOP) for _ in texts]
    for person, text in zip(people, texts, strict=True):
        person.translate(text)
    for person, translation in zip(people, translations, strict=True):
        expect(person.page.locator("#best textarea")).to_have_value(translation.hypotheses[0].text)
        person.wait_for_figure("alignment", alignment_map(translation.alignment))
        person.wait_for_figure("attention", attention_map(attention_maps(translation.trace, "cross", 3, "mean")))
    people[0].choose("stack", "Encoder self-attention")
    people[1].choose("head", "2")
    people[0].choose("head", "1")
    people[1].choose("layer", "2")
    for person, translation, chosen in zip(people, translations, [("encoder", 1, 1), ("cross", 2, 2)], strict=True):
        person.wait_for_figure("attention", attention_map(attention_maps(translation.trace, *chosen)))  # type: ignore[arg-type]
        assert not person.problems
        person.context.close()


def test_on_a_phone_the_page_is_as_wide_as_the_screen_and_can_be_read(browser: Browser, url: str) -> None:
    watched = Watched(browser, url, PHONE)
    watched.translate(" ".join("abcdefghijklmnopqrstuvwxyz" * 2))  # a map that is wider than the screen
    expect(watched.page.locator("#tree img")).to_be_visible()
    watched.page.get_by_text("Settings of the search").click()
    assert watched.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]") == [390, 390]
    for name in ("alignment", "attention", "tree"):  # which scroll in their own places
        place = watched.page.locator(f"#{name}")
        place.scroll_into_view_if_needed()
        assert place.evaluate("place => place.scrollWidth > place.clientWidth && place.clientWidth <= 390")
        assert place.evaluate("place => { place.scrollLeft = 100; return place.scrollLeft; }") == 100
    assert watched.page.locator("#tree img").evaluate("image => image.width >= image.naturalWidth")
    smallest = watched.page.evaluate(
        """() => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const sizes = [];
            while (walker.nextNode()) {
                const owner = walker.currentNode.parentElement;
                if (walker.currentNode.data.trim() && owner.checkVisibility() && owner.getBoundingClientRect().width)
                    sizes.push(parseFloat(getComputedStyle(owner).fontSize));
            }
            return Math.min(...sizes);
        }"""
    )
    assert smallest >= 12
    assert not watched.problems
    watched.context.close()
