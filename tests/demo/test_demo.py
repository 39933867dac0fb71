"""What the demo page shows are the numbers of the inspection functions, and wrong input becomes a message."""

import base64
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import yaml
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.demo import make_demo, views, write_space
from hf_seq2seq.demo.page import Contents
from hf_seq2seq.demo.views import (
    DemoTranslator,
    alignment_map,
    attention_map,
    check_beam_size,
    check_length_penalty,
    hypotheses_table,
    tree_picture,
)
from hf_seq2seq.inference import Hypothesis
from hf_seq2seq.inspection import attention_maps, beam_tree, soft_alignment, trace


Model = Seq2SeqTransformerForConditionalGeneration

SHORT: dict[str, Any] = {"position_embedding_type": "learned", "max_position_embeddings": 10}


@pytest.fixture
def model(letter_tokenizer: PreTrainedTokenizerFast) -> Model:
    """A model whose translations are at most 10 tokens long, which is as many positions as it has."""
    return tiny_model(vocab_size=len(letter_tokenizer), **SHORT)


@pytest.fixture
def translator(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> DemoTranslator:
    return DemoTranslator(model, letter_tokenizer)


@pytest.fixture
def contents(letter_tokenizer: PreTrainedTokenizerFast) -> Contents:
    """A page for a model whose stacks have unequal numbers of layers and heads."""
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 3, "decoder_attention_heads": 4}
    model = tiny_model(vocab_size=len(letter_tokenizer), **SHORT, **sizes)
    with gr.Blocks():
        return Contents(DemoTranslator(model, letter_tokenizer), "a b")


def test_a_translation_is_that_of_the_translator(translator: DemoTranslator, model: Model) -> None:
    found = translator.translate("a b\nc", 3, 1.5)
    (expected,) = Translator(model, translator.tokenizer).hypotheses(
        ["a b c"], attention=True, beam_size=3, length_penalty=1.5, n_best=3
    )
    assert found.text == "a b c"
    assert [hypothesis.text for hypothesis in found.hypotheses] == [hypothesis.text for hypothesis in expected]
    assert [hypothesis.score for hypothesis in found.hypotheses] == [hypothesis.score for hypothesis in expected]
    assert found.alignment.weights.equal(soft_alignment(translator.tokenizer, expected[0]).weights)
    assert found.trace.target_tokens == list(expected[0].tokens)
    (own,) = trace(model, translator.tokenizer, ["a b c"], expected[:1])
    for stack in ("encoder", "decoder", "cross"):
        assert found.trace.attention(stack).weights.equal(own.attention(stack).weights)


def test_settings_that_are_left_out_are_the_model_s_own(translator: DemoTranslator, model: Model) -> None:
    model.generation_config.num_beams, model.generation_config.length_penalty = 3, 0.25
    found = translator.translate("a b")
    assert (found.beam_size, found.length_penalty, len(found.hypotheses)) == (3, 0.25, 3)


def test_maps_show_the_numbers_and_tokens_of_the_views(translator: DemoTranslator, model: Model) -> None:
    found = translator.translate("a b c", 2)
    for stack in ("encoder", "decoder", "cross"):
        for head in (2, "mean"):
            maps = attention_maps(found.trace, stack, 1, head)
            figure = attention_map(maps)
            for shown, weights, allowed in zip(figure.data[0].z, maps.weights[0], maps.allowed, strict=True):
                expected = zip(weights.tolist(), allowed.tolist(), strict=True)
                assert list(shown) == [weight if may_look else None for weight, may_look in expected]
            escaped = [token.replace("<", "&lt;").replace(">", "&gt;") for token in maps.row_labels]
            assert list(figure.layout.yaxis.ticktext) == escaped  # Plotly reads <s> as a tag
            assert len(figure.layout.xaxis.ticktext) == len(maps.key_tokens)
    cells = attention_map(attention_maps(found.trace, "decoder", 1, 1)).data[0].z
    assert cells[0][1] is None  # what the causal mask forbids
    assert cells[1][0] is not None
    figure = alignment_map(found.alignment)
    assert [list(row) for row in figure.data[0].z] == found.alignment.weights.tolist()
    assert (figure.data[0].zmin, figure.data[0].zmax) == (0, 1)  # so that two pictures compare
    assert list(figure.data[1].x) == found.alignment.best


def test_the_table_has_the_scores_of_the_search(translator: DemoTranslator, model: Model) -> None:
    found = translator.translate("a b c d", 4, 0.7)
    tree = beam_tree(model, translator.tokenizer, "a b c d", beam_size=4, length_penalty=0.7)
    assert translator.tree(found) == tree
    table = hypotheses_table(found)
    ranked = sorted((node for node in tree.nodes if node.rank), key=lambda node: node.rank or 0)
    for node, hypothesis in zip(ranked, found.hypotheses, strict=True):
        numbers = (f"{number:.3f}".replace("-", "\N{MINUS SIGN}") for number in (node.sum_log_prob, node.score))
        assert "".join(f"<td>{cell}</td>" for cell in (node.rank, hypothesis.text, *numbers)) in table


def test_no_text_becomes_code(translator: DemoTranslator) -> None:
    found = translator.translate("a b", 2)
    marked = replace(found, hypotheses=[replace(found.hypotheses[0], text="<script>x</script>")])
    assert "&lt;script&gt;x" in hypotheses_table(marked)
    assert "<script" not in hypotheses_table(marked)
    tree = translator.tree(found)
    assert tree is not None
    picture = tree_picture(replace(tree, translation='"><script>'))
    assert picture.count("<") == 1
    assert b"</svg>" in base64.b64decode(picture.split("base64,")[1].split('"')[0])


def test_greedy_search_has_no_tree_and_the_page_says_why(contents: Contents) -> None:
    found = contents._translator.translate("a b", 1)
    assert contents._translator.tree(found) is None
    assert "since the beam size is 1" in contents.show_tree(found)[contents.tree]
    assert "Score" not in hypotheses_table(found)
    assert "<img" in contents.show_tree(contents._translator.translate("a b", 2))[contents.tree]


@pytest.mark.parametrize(
    ("text", "beam_size", "length_penalty", "message"),
    [
        ("", None, None, "`text` must be a text that is not blank, but is '' instead"),
        (" \n", None, None, "`text` must be a text that is not blank"),
        (None, None, None, "`text` must be a text that is not blank, but is None instead"),
        ("a \ud83d", None, None, "`text` must be valid Unicode, but 'a .ud83d' holds half of a surrogate pair"),
        ("a " * 100, None, None, "`text` must have at most 100 tokens, but has 101 instead. Maps and trees of longer"),
        ("a" * 2001, None, None, "`text` must have at most 2,000 characters, but has 2,001 instead"),
        ("a", 0, None, "`beam size` must be a whole number from 1 to 10, but is 0 instead"),
        ("a", 10_000, None, "`beam size` must be a whole number from 1 to 10, but is 10,000 instead"),
        ("a", 2.5, None, "`beam size` must be a whole number from 1 to 10, but is 2.5 instead"),
        ("a", 2, -5.5, "`length penalty` must be a number from -5 to 5, but is -5.5 instead"),
    ],
)
def test_wrong_input_is_a_message(
    text: Any,
    beam_size: float | None,
    length_penalty: float | None,
    message: str,
    letter_tokenizer: PreTrainedTokenizerFast,
) -> None:
    with gr.Blocks():
        contents = Contents(DemoTranslator(tiny_model(vocab_size=30), letter_tokenizer), "a b")
    with pytest.raises(ValueError, match=message):
        contents._translator.translate(text, beam_size, length_penalty)
    shown = contents.translate(text, beam_size, length_penalty)
    assert shown[contents.translation] is None
    assert shown[contents.message].visible
    assert shown[contents.message].value.startswith('<p class="message">`')
    assert not shown[contents.results].visible


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="`beam size` must be a whole number from 1 to 10, but is nan instead"):
        check_beam_size(float("nan"))
    with pytest.raises(ValueError, match="`length penalty` must be a number from -5 to 5, but is inf instead"):
        check_length_penalty(float("inf"))


def test_a_text_that_the_model_has_no_positions_for_is_refused(translator: DemoTranslator) -> None:
    assert translator.translate("a b c d e f g h i", 2).hypotheses
    with pytest.raises(ValueError, match="`text` must have at most 10 tokens, but has 11 instead"):
        translator.translate("a b c d e f g h i j")


def test_a_layer_or_head_that_the_model_has_not_is_a_message(contents: Contents) -> None:
    found = contents._translator.translate("a b", 2)
    for stack, layer, head, message in (
        ("encoder", 2, 1, "`layer` must be at least 1 and at most 1 for the encoder self-attention"),
        ("cross", 3, 5, "`head` must be at least 1 and at most 4 for the cross-attention"),
        ("both", 1, 1, "`stack` must be one of encoder, decoder, cross, but is &#x27;both&#x27; instead"),
    ):
        shown = contents.show_attention(found, stack, layer, head)  # type: ignore[arg-type]
        assert message in shown[contents.message].value
        assert contents.attention not in shown
    assert "`stack` must be" in contents.choose_stack(found, "both", 1, 1)[contents.message].value  # type: ignore[arg-type]


def test_a_stack_brings_its_own_layers_and_heads(contents: Contents) -> None:
    found = contents._translator.translate("a b", 2)
    shown = contents.choose_stack(found, "encoder", 3, 4)
    assert [value for _, value in shown[contents.layer].choices] == [1]
    assert shown[contents.layer].value == 1
    assert [value for _, value in shown[contents.head].choices] == ["mean", 1, 2]
    assert shown[contents.head].value == "mean"
    expected = attention_map(attention_maps(found.trace, "encoder", 1, "mean"))
    assert shown[contents.attention] == expected
    shown = contents.choose_stack(found, "decoder", 1, 2)
    assert [value for _, value in shown[contents.layer].choices] == [1, 2, 3]
    assert (shown[contents.layer].value, shown[contents.head].value) == (1, 2)


def test_nothing_is_shown_of_a_session_that_has_no_translation(contents: Contents) -> None:
    assert contents.attention not in contents.show_attention(None, "cross", 1, "mean")
    assert contents.tree not in contents.show_tree(None)


def test_users_at_the_same_time_get_each_their_own(translator: DemoTranslator) -> None:
    texts = ["a b c", "d e", "f g h i j", "k"]

    def use(text: str) -> tuple[Any, ...]:
        found = translator.translate(text, 2)
        return (
            found.hypotheses[0].text,
            found.trace.source_tokens,
            found.alignment.weights.tolist(),
            translator.tree(found),
        )

    alone = list(map(use, texts))
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(use, texts * 3))
    for expected, found in zip(alone * 3, together, strict=True):
        assert found[:2] == expected[:2]
        assert found[3].translation == expected[3].translation
        for row, expected_row in zip(found[2], expected[2], strict=True):
            assert row == pytest.approx(expected_row, abs=1e-6)


def test_the_model_serves_one_user_after_another(translator: DemoTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = 0, 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)  # lets others in, if they can come
            found = function(*arguments, **options)
            inside -= 1
            return found

        return call

    monkeypatch.setattr(translator._translator, "hypotheses", counted(translator._translator.hypotheses))
    monkeypatch.setattr(views, "trace", counted(trace))
    monkeypatch.setattr(views, "beam_tree", counted(beam_tree))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda text: translator.tree(translator.translate(text, 2)), ["a", "b", "c", "d", "e", "f"]))
    assert most == 1


def test_a_trace_follows_the_tokens_of_a_hypothesis(translator: DemoTranslator, model: Model) -> None:
    tokens = ["c", "</s>", "d"]
    ids: Any = translator.tokenizer.convert_tokens_to_ids(tokens)
    hypothesis = Hypothesis("", tuple(tokens), tuple(ids))
    (traced,) = trace(model, translator.tokenizer, ["a b"], [hypothesis])
    assert traced.target_tokens == tokens
    with pytest.raises(ValueError, match="`target` must be a text that is not blank"):
        trace(model, translator.tokenizer, ["a b"], [Hypothesis("")])


@pytest.mark.parametrize("library", ["gradio", "plotly.graph_objects", "matplotlib.figure"])
def test_a_library_that_is_missing_is_named(
    library: str, model: Model, letter_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    name = library.split(".")[0]
    with pytest.raises(ImportError, match=rf"needs the library {name}, .* pip install 'hf-seq2seq\[inspect\]'"):
        make_demo(model, letter_tokenizer)


def test_a_space_has_what_the_hub_needs(tmp_path: Path) -> None:
    folder = tmp_path / "space"
    assert write_space("me/en-de", folder, example='A "dog".') == ["README.md", "app.py", "requirements.txt"]
    _, header, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n")
    settings = yaml.safe_load(header)
    assert settings["sdk"] == "gradio"
    assert settings["sdk_version"] == gr.__version__
    assert settings["models"] == ["me/en-de"]
    assert (folder / settings["app_file"]).is_file()
    assert (folder / "requirements.txt").read_text() == "hf-seq2seq[inspect]\n"
    with pytest.raises(ValueError, match="must be a new or empty folder, but holds"):
        write_space("me/en-de", folder)


def test_the_app_of_a_space_serves_its_model(
    model: Model, letter_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, served = [], []

    def load(name: str) -> Translator:
        loaded.append(name)
        return Translator(model, letter_tokenizer)

    monkeypatch.setattr(Translator, "from_pretrained", load)
    monkeypatch.setattr(gr.Blocks, "launch", lambda page, **options: served.append((page, options)))
    write_space("me/en-de", tmp_path / "space", example='it\'s "a"')
    exec((tmp_path / "space" / "app.py").read_text(encoding="utf-8"), {})
    assert loaded == ["me/en-de"]
    ((page, options),) = served
    assert page.analytics_enabled is False
    assert options["share"] is False
    assert not options["theme"]._stylesheets  # fonts of other servers
    assert any(block.value == 'it\'s "a"' for block in page.blocks.values() if isinstance(block, gr.Textbox))


@pytest.mark.parametrize("name", ["en-de", "a/b/c", "me/..", "me/en de"])
def test_a_space_needs_a_name_on_the_hub(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`MODEL` must be OWNER/NAME on the Hub for a Space, but is"):
        write_space(name, tmp_path / "space")
    assert not (tmp_path / "space").exists()
    with pytest.raises(
        ValueError, match=r"must be a name on the Hub for a Space, but is the folder .*hf-seq2seq push"
    ):
        write_space(str(tmp_path), tmp_path / "space")
