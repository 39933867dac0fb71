"""The comparison of learning runs its trials once, goes on where it stopped, and draws the weights that it names."""

import csv
import math
import random
import subprocess
from pathlib import Path

import pytest
import torch

from scripts.benchmarks import compare_learning
from scripts.benchmarks.compare_learning import Trial, main, make_model
from scripts.benchmarks.first_weights import SCHEMES


SMALL = "d_model: 16, heads: 2, layers: 1, vocab_size: 300"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command line of three small trials; 60 pairs in several batches an epoch."""
    monkeypatch.setattr(compare_learning, "TOKENS_PER_UPDATE", 400)
    lines = "".join(f"{'word ' * (n % 3)}number {n}\n" for n in range(60))
    (tmp_path / "side").write_text(lines)
    (tmp_path / "trials.yaml").write_text(
        f"one: {{{SMALL}, weights: small_init, epochs: 1}}\n"
        f"cut: {{{SMALL}, batches_per_update: 4, epochs: 1}}\n"
        f"marian: {{{SMALL}, model: MarianMT, epochs: 1}}\n"
    )
    files = [str(tmp_path / "side")] * 2
    options = ["--trials", str(tmp_path / "trials.yaml"), "--table", str(tmp_path / "table.csv")]
    return ["--train", *files, "--validation", *files, "--output", str(tmp_path / "out"), *options]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_trials_run_once_and_go_on(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*command, "--picture", str(tmp_path / "curves.png")])
    rows = rows_of(tmp_path)
    assert [row["trial"] for row in rows] == ["one", "cut", "marian"]
    assert rows[1]["changes"].startswith("batches_per_update=4 ")
    # An update of four batches of 100 tokens is about one of a batch of 400.
    assert abs(int(rows[0]["updates"]) - int(rows[1]["updates"])) <= 2
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert "| one | weights=small_init" in capsys.readouterr().out

    main(command)
    assert rows_of(tmp_path) == rows  # minutes too: nothing was trained

    trials = tmp_path / "trials.yaml"
    trials.write_text(trials.read_text().replace("epochs: 1", "epochs: 2", 1))
    main(command)
    again = rows_of(tmp_path)
    assert again[1:] == rows[1:]
    assert again[0]["bleu"].split()[:1] == rows[0]["bleu"].split()
    assert len(again[0]["bleu"].split()) == 2


def test_a_trial_ends_at_its_score(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trials.yaml").write_text(f"short: {{{SMALL}, until: 0, epochs: 2}}\n")
    for _ in range(2):
        main([*command, "--score", "0"])
        (row,) = rows_of(tmp_path)
        assert len(row["bleu"].split()) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"| {row['minutes']} |")


@pytest.mark.peer
def test_marian_cpp_goes_on_an_epoch_at_a_time(command: list[str], tmp_path: Path) -> None:
    python = subprocess.run(["scripts/install_peer.sh", "pymarian"], stdout=subprocess.PIPE, check=True, text=True)
    words = ["".join(random.Random(n).choices("abcdefgh", k=5)) for n in range(400)]
    (tmp_path / "side").write_text("".join(f"{' '.join(words[n : n + 9])}\n" for n in range(391)))
    updates = []
    for epochs in (1, 2):
        settings = f"{SMALL}, model: Marian C++, epochs: {epochs}, warmup_steps: 10"
        (tmp_path / "trials.yaml").write_text(f"marian_cpp: {{{settings}}}\n")
        main([*command, "--marian", python.stdout.strip()])
        (row,) = rows_of(tmp_path)
        updates.append(row["updates"])
    assert updates[1].startswith(f"{updates[0]} ")
    assert int(updates[1].split()[1]) == 2 * int(updates[0])


def test_a_trial_that_changed_is_not_gone_on_with(command: list[str], tmp_path: Path) -> None:
    main([*command, "--only", "one"])
    trials = tmp_path / "trials.yaml"
    trials.write_text(trials.read_text().replace("small_init, epochs: 1", "normal, epochs: 2"))
    with pytest.raises(ValueError, match="`weights` must be 'small_init' as in the run"):
        main([*command, "--only", "one"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {weights: glorott}", "`weights` of trial a must be default or one of glorot"),
        ("a: {size: 3}", "`size` of"),
    ],
)
def test_trials_that_there_are_not_are_errors(command: list[str], tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "trials.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        main(command)


# Of a layer's queries, attention output, and feed-forward up and down, d 256 and 1024: LEARNING of other systems.
@pytest.mark.parametrize(
    ("scheme", "deviations"),
    [
        ("glorot", (0.0625, 0.0625, 0.0395, 0.0395)),
        ("glorot_fused", (0.0442, 0.0625, 0.0395, 0.0395)),
        ("fairseq", (0.0442, 0.0625, 0.0361, 0.0180)),
        ("small_init", (0.0395, 0.0395, 0.0395, 0.0395)),
        ("normal", (0.02, 0.02, 0.02, 0.02)),
        ("depth_scaled", (0.0442, 0.0442, 0.0280, 0.0280)),
        ("deepnorm", (0.0625, 0.0625 * 0.7005, 0.0395 * 0.7005, 0.0395 * 0.7005)),  # 0.87 (2^5)^(-1/16)
        ("t_fixup", (0.0625, 0.0625 * 0.5634, 0.0395 * 0.5634, 0.0395 * 0.5634)),  # 0.67 2^(-1/4)
    ],
)
def test_weights_have_the_deviation_of_their_scheme(scheme: str, deviations: tuple[float, ...]) -> None:
    model = make_model(Trial("a", weights=scheme, layers=2, vocab_size=500, embedding_std=0.1))
    layer = model.model.encoder.layers[1]
    found = [m.weight.std().item() for m in (layer.self_attn.q_proj, layer.self_attn.out_proj, layer.fc1, layer.fc2)]
    assert found == pytest.approx(deviations, rel=0.02)
    assert model.lm_head.weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_every_scheme_is_compared_and_seeded() -> None:
    assert len(SCHEMES) == 8
    first, second = (make_model(Trial("a", weights="t_fixup", layers=1, vocab_size=300)) for _ in range(2))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    assert math.isclose(first.get_input_embeddings().weight.std().item(), 1 / 16, rel_tol=0.02)
