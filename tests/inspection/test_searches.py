"""Greedy steps and beam trees tell of the searches that `generate` makes."""

from collections.abc import Sequence

import pytest
import torch
from reference.tiny_models import tiny_model
from transformers import PreTrainedTokenizerFast

from hf_seq2seq import Seq2SeqTransformerForConditionalGeneration, Translator
from hf_seq2seq.inspection import beam_tree, draw_beam_tree, draw_greedy_steps, greedy_steps
from hf_seq2seq.inspection.beams import BeamTree, Node


Model = Seq2SeqTransformerForConditionalGeneration

Path = tuple[str, ...]
Beams = dict[tuple[int, ...], float]


def probabilities(model: Model, source: list[int], outputs: Sequence[Sequence[int]]) -> torch.Tensor:
    """Those of the next token after each output, shape (B, V), from a whole forward pass."""
    with torch.no_grad():
        logits: torch.Tensor = model(
            input_ids=torch.tensor([source] * len(outputs)),
            decoder_input_ids=torch.tensor([[1, *ids] for ids in outputs]),
        ).logits
    return logits[:, -1].double().softmax(dim=-1)


def test_greedy_steps_are_those_of_a_plain_loop(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    decode = greedy_steps(model, letter_tokenizer, "a b c", 3)
    source, output = letter_tokenizer("a b c")["input_ids"], list[int]()
    for step in decode.steps:
        row = probabilities(model, source, [output])[0]
        best = row.topk(3)
        assert step.tokens == letter_tokenizer.convert_ids_to_tokens(best.indices.tolist())
        assert step.probabilities == pytest.approx(best.values.tolist(), abs=1e-6)
        allowed = row.clone()
        allowed[:2] = 0  # <pad> and <s> are banned
        output.append(int(allowed.argmax()))
        assert step.token == letter_tokenizer.convert_ids_to_tokens(output[-1])
        assert step.probability == pytest.approx(float(row[output[-1]]), abs=1e-6)
    assert output[-1] == 2 or len(output) == 4 + 50
    assert decode.translation == Translator(model, letter_tokenizer)("a b c", beam_size=1)
    axes = draw_greedy_steps(decode).axes[0]
    assert len(axes.texts) == 3 * len(decode.steps)
    assert axes.texts[0].get_text() == f"{decode.steps[0].tokens[0]}  {decode.steps[0].probabilities[0]:.3f}"


def paths(tree: BeamTree, nodes: Sequence[Node]) -> list[Path]:
    return [tuple(step.token for step in tree.path(node)[1:]) for node in nodes]


def ending_model(seed: int) -> Model:
    """A model whose hypotheses end here and there, as those of random weights hardly do."""
    model = tiny_model(seed, vocab_size=30, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] += 4
    return model


def plain_beam_search(model: Model, source: list[int], beam_size: int, num_steps: int) -> list[tuple[Beams, Beams]]:
    """What goes on after each step, and what finishes with it, with log-probabilities."""
    beams: Beams = {(): 0.0}
    steps = []
    for _ in range(num_steps):
        log_probs = probabilities(model, source, list(beams)).log()
        candidates = {
            (*ids, token): score + float(row[token])
            for (ids, score), row in zip(beams.items(), log_probs, strict=True)
            for token in range(2, log_probs.shape[1])  # <pad> and <s> are banned
        }
        best = sorted(candidates, key=lambda ids: -candidates[ids])[: 2 * beam_size]
        beams = {ids: candidates[ids] for ids in [ids for ids in best if ids[-1] != 2][:beam_size]}
        steps.append((beams, {ids: candidates[ids] for ids in best[:beam_size] if ids[-1] == 2}))
    return steps


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_the_tree_is_that_of_a_plain_beam_search(seed: int, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = ending_model(seed)
    tree = beam_tree(model, letter_tokenizer, "a b c", beam_size=3, length_penalty=1.5)
    last = tree.nodes[-1].step
    expected = plain_beam_search(model, letter_tokenizer("a b c")["input_ids"], 3, last)
    assert any(node.score is not None and node.rank is None for node in tree.nodes)  # finished, and then pushed out
    for step, (running, finished) in enumerate(expected, start=1):
        nodes = [node for node in tree.nodes if node.step == step]
        # The search does not go on from its last step.
        for beams, has_ended in ((running if step < last else {}, False), (finished, True)):
            named = {tuple(letter_tokenizer.convert_ids_to_tokens(list(ids))): score for ids, score in beams.items()}
            of_kind = [
                node for node in nodes if (node.token == "</s>") == has_ended and (has_ended or node.score is None)
            ]
            found = dict(zip(paths(tree, of_kind), (node.sum_log_prob for node in of_kind), strict=True))
            assert found == pytest.approx(named, abs=1e-4)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
def test_the_best_leaf_is_what_generate_returns_and_scores_add_up(
    length_penalty: float, letter_tokenizer: PreTrainedTokenizerFast
) -> None:
    model = ending_model(3)  # whose best hypothesis is another with the last penalty
    tree = beam_tree(model, letter_tokenizer, "a b c d", beam_size=4, length_penalty=length_penalty)
    ids = letter_tokenizer("a b c d", return_tensors="pt")
    expected = model.generate(
        input_ids=ids["input_ids"],
        attention_mask=ids["attention_mask"],
        num_beams=4,
        num_return_sequences=4,
        length_penalty=length_penalty,
        max_length=1 + 5 + 50,
        output_scores=True,
        return_dict_in_generate=True,
    )
    ranked = sorted((node for node in tree.nodes if node.rank is not None), key=lambda node: node.rank or 0)
    assert [node.score for node in ranked] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)
    for found, row in zip(paths(tree, ranked), expected.sequences[:, 1:].tolist(), strict=True):
        assert list(found) == letter_tokenizer.convert_ids_to_tokens(row[: len(found)])
    assert ranked[0] is tree.best
    assert tree.translation == Translator(model, letter_tokenizer)(
        "a b c d", beam_size=4, length_penalty=length_penalty
    )
    for node in tree.nodes[1:]:
        parent = tree.nodes[node.parent or 0]
        assert node.step == parent.step + 1
        assert node.sum_log_prob == pytest.approx(parent.sum_log_prob + node.log_prob)
        if node.score is not None:
            assert node.score == pytest.approx(node.sum_log_prob / node.step**length_penalty)


def test_a_tree_is_drawn_with_each_of_its_hypotheses(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    tree = beam_tree(model, letter_tokenizer, "a b", beam_size=2)
    axes = draw_beam_tree(tree).axes[0]
    assert len(axes.texts) == len(tree.nodes)
    assert len(axes.lines) == len(tree.nodes) - 1
    assert (
        f"#1: {tree.best.score:.2f}".replace("-", "\N{MINUS SIGN}")
        in axes.texts[tree.nodes.index(tree.best)].get_text()
    )


def test_more_beams_than_tokens_make_no_hypothesis_of_banned_ones() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "<s>", "</s>", "<unk>", "a"]
    backend = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")
    tree = beam_tree(tiny_model(vocab_size=5), tokenizer, "a a", beam_size=5)
    assert {node.token for node in tree.nodes[1:]} <= {"</s>", "<unk>", "a"}
    assert all(node.sum_log_prob > -1e6 for node in tree.nodes)


def test_the_model_stays_as_it_is(letter_tokenizer: PreTrainedTokenizerFast) -> None:
    model = tiny_model(vocab_size=len(letter_tokenizer), dropout=0.5).train()
    for search in (beam_tree, greedy_steps):
        assert search(model, letter_tokenizer, "a b") == search(model, letter_tokenizer, "a b")  # without dropout
        assert all(module.training for module in model.modules())


def test_wrong_options_are_named(model: Model, letter_tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="`beam_size` must be at least 2 for a tree, but is 1 instead"):
        beam_tree(model, letter_tokenizer, "a", beam_size=1)
    with pytest.raises(ValueError, match="`number` must be at least 1 and at most 30, but is 31 instead"):
        greedy_steps(model, letter_tokenizer, "a", 31)
    for search in (beam_tree, greedy_steps):
        with pytest.raises(ValueError, match="`text` must be a text that is not blank"):
            search(model, letter_tokenizer, "  ")
