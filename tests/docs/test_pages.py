"""Every command and code block of the README and of docs/ runs as it stands, but for those of one list, `NOT_RUN`.

The blocks of a page run in order, in a folder with small files of the names that pages use: pairs of numerals, and the
tiny model `out` that was trained on them. A Hub on this machine has the repositories that pages name. A `yaml` block
is a file, which its first line names, and so is a `python` block whose first line names one.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands.test_import import write_fsmt, write_marian
from docs.warm_commands import warm_commands
from hub.conftest import client_environment
from hub.server import TOKEN, Account, LocalHub
from reference.numpy_marian import random_marian, save_marian


ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

IN_CI = "takes minutes; .ci/run runs it"
NEEDS_NETWORK = "asks the package index"
MULTI30K = "needs the files of Multi30k, and takes hours"
SERVES = "serves until Ctrl-C; while the blocks of its page run, `hf-seq2seq serve out/` does"
ARGOS = "needs Argos Translate; tests/interop/test_argos.py installs it, and the package, with the marker `peer`"
CORPUS = "needs the files of a corpus, and takes up to two hours"
NOT_RUN = {
    "scripts/quickstart.sh": IN_CI,
    "scripts/test.sh": IN_CI,
    "pip install '.[inspect]'": NEEDS_NETWORK,
    "hf auth login": "asks for a token at the terminal",
    'hf-seq2seq demo out/ --example "A dog runs."': "serves until Ctrl-C; tests/demo opens the page in a browser",
    "hf-seq2seq serve out/": SERVES,
    "hf-seq2seq serve en-de=out/ zh-en=other/": "serves until Ctrl-C; tests/serving has several models",
    "pip install '.[serve]'": NEEDS_NETWORK,
    "npm install --ignore-scripts @huggingface/transformers": NEEDS_NETWORK,
    "hf-seq2seq export web out/ page/ --library node_modules": "needs the former; tests/interop/test_web.py runs it",
    "argospm install package/translate-en_de-1_0.argosmodel": ARGOS,
    'argos-translate --from en --to de "A dog runs."': ARGOS,
    "OMP_NUM_THREADS=1 scripts/reproduce/reproduce.sh --recipe multi30k_small --direction en-de --data raw/"
    " --output small-en-de": MULTI30K,
    "scripts/reproduce/reproduce.sh --recipe tatoeba --direction zh-en --data tatoeba/ --output zh-en-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe tatoeba --direction en-zh --data tatoeba/ --output en-zh-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe cmudict --data cmudict/ --output g2p-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe cmudict_stress --data cmudict/ --output g2p-stress-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe scan_simple --data scan/simple --output simple-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe scan_jump --data scan/addprim_jump --output jump-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe scan_length --data scan/length --output length-run": CORPUS,
    "scripts/reproduce/reproduce.sh --recipe scitldr --data scitldr/ --output tldr-run": CORPUS,
    "python scripts/benchmarks/compare_learning.py --train train.en train.de --validation val.en val.de --output runs/"
    " --score 33": MULTI30K,
    "python scripts/benchmarks/benchmark_serving.py MODEL --source test.en": "takes minutes; tests/scripts runs it",
    "python scripts/benchmarks/benchmark_training.py --source train.en --target train.de": MULTI30K,
    "python scripts/benchmarks/benchmark_inference.py MODEL --source test.en --reference test.de --threads 1"
    " --output results/": MULTI30K,
    "python scripts/benchmarks/benchmark_latency.py --sizes small base --output results/": "takes minutes; "
    "tests/scripts runs it",
}

# What the small files say: pairs of numerals, and what the examples translate.
NUMERALS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
SENTENCES = {"A dog runs.": "Ein Hund rennt.", "Two dogs run in the snow.": "Zwei Hunde rennen im Schnee."}
PAIRS = {f"{a} and {b}": f"{NUMERALS[a]} und {NUMERALS[b]}" for a in NUMERALS for b in NUMERALS} | SENTENCES
MARIAN_TOKENS = ("</s>", "<unk>", *"abcdefghi")
CHINESE = [f"{a}和{b}" for a in "一二三四五六" for b in "一二三四五六"] + ["一只狗在跑。", "两只狗在雪中跑。"]
# Pairs of the other tasks that have a page, by the names of source and target.
TASKS = {
    ("word", "phon"): [("c a t", "K AE T"), ("r e a d", "R IY D"), ("s i t", "S IH T")],
    ("command", "action"): [("jump twice", "I_JUMP I_JUMP"), ("walk", "I_WALK"), ("jump", "I_JUMP")],
    ("abstract", "tldr"): [("Dogs run. They run in the snow, and cats do not.", "Dogs run in the snow.")],
}
TRAIN = (
    *("train", "--train_source", "train.en", "--train_target", "train.de", "--output_dir", "out"),
    *("--validation_source", "val.en", "--validation_target", "val.de", "--vocab_size", "500", "--d_model", "16"),
    *("--encoder_layers", "2", "--decoder_layers", "2", "--encoder_ffn_dim", "32", "--decoder_ffn_dim", "32"),
    *("--max_steps", "8", "--save_steps", "4", "--logging_steps", "2"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block: what it is written in, and what it says."""

    language: str
    code: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```([a-z]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands_of(block: Block) -> list[str]:
    """The commands of a bash block, each on one line, without comments."""
    lines = re.sub(r"\\\n\s*", "", block.code).splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)#.*", "", line))]


@dataclass(frozen=True)
class Workplace:
    """Where pages run: what every page finds in its folder, and the environment of its commands."""

    files: Path
    environment: dict[str, str]

    def run(self, folder: Path, *command: str) -> None:
        ended = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, encoding="utf-8", check=False
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """Lets the server of docs/serving.md run."""
        command = [sys.executable, "-m", "hf_seq2seq", "serve", "en-de=out/"]
        with subprocess.Popen(command, cwd=folder, env=self.environment, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("Serving at http://127.0.0.1:5000")
            try:
                yield
            finally:
                server.terminate()


def write_texts(folder: Path) -> None:
    for name, repeats in {"train": 2, "val": 1, "test": 1, "more": 1, "new": 1}.items():
        for language, lines in (("en", PAIRS), ("de", PAIRS.values()), ("zh", CHINESE)):
            content = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{language}").write_text(content * repeats, encoding="utf-8")
    (folder / "new.en.gz").write_bytes(gzip.compress((folder / "new.en").read_bytes()))
    for sides, pairs in TASKS.items():
        for number, side in enumerate(sides):
            content = "".join(f"{pair[number]}\n" for pair in pairs)
            for name in ("train", "val", "test"):
                (folder / f"{name}.{side}").write_text(content, encoding="utf-8")
    rows = "".join(f"{source}\t{target}\n" for source, target in PAIRS.items())
    save_marian(folder / "opus-mt-folder", *random_marian())
    (folder / "opus-mt-folder/vocab.yml").write_text(
        "".join(f"{token}: {n}\n" for n, token in enumerate(MARIAN_TOKENS))
    )
    (folder / "pairs.tsv").write_text(f"en\tde\n{rows}", encoding="utf-8")
    (folder / "words.refs.tsv").write_text("K AE T\tK AA T\nR IY D\nS IH T\n", encoding="utf-8")
    shutil.copyfile(folder / "test.de", folder / "test.refs.tsv")
    write_other_formats(folder)


def write_other_formats(folder: Path) -> None:
    """Writes the pairs as the page of files in and out names them, a translation memory among them."""
    rows = "".join(f"{number}\t{source}\n" for number, source in enumerate(PAIRS))
    (folder / "no-header.tsv").write_text(rows, encoding="utf-8")
    objects = "".join(f'{{"translation": {{"en": "{en}", "de": "{de}"}}}}\n' for en, de in PAIRS.items())
    (folder / "pairs.jsonl").write_text(objects, encoding="utf-8")
    variant = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = "".join(f"<tu>{variant.format('en-GB', en)}{variant.format('de', de)}</tu>\n" for en, de in PAIRS.items())
    without = "<tu><tuv xml:lang='en'><seg>one and six</seg></tuv></tu>"
    memory = f"<tmx version='1.4'><header srclang='en'/><body>{units}{without}</body></tmx>"
    (folder / "memory.tmx").write_text(memory, encoding="utf-8")
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w") as archive:
        for language in ("de", "en"):
            archive.write(folder / f"train.{language}", f"corpus.de-en.{language}")


def fill_hub(hub: LocalHub, folder: Path) -> None:
    """Gives the Hub the repositories of others that pages name."""
    write_marian(folder / "marian", separate=False)
    write_fsmt(folder / "fsmt")
    for name, kind in (("Helsinki-NLP/opus-mt-en-de", "marian"), ("facebook/wmt19-en-de", "fsmt")):
        hub.add_repository(name, {path.name: path.read_bytes() for path in (folder / kind).iterdir()})
    rows = "".join(f'{{"translation": {{"en": "{en}", "de": "{de}"}}}}\n' for en, de in PAIRS.items())
    hub.add_repository("YOU/my-pairs", {"train.jsonl": rows.encode()}, repo_type="dataset")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    programs, files = tmp_path_factory.mktemp("programs"), tmp_path_factory.mktemp("files")
    write_texts(files)
    with LocalHub() as hub:
        hub.accounts[TOKEN] = Account("YOU")
        fill_hub(hub, tmp_path_factory.mktemp("foreign"))
        environment = client_environment(hub, tmp_path_factory.mktemp("hf_home")) | {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "PYTHONUTF8": "1",
            "MPLBACKEND": "Agg",
        }
        with warm_commands(programs, environment):
            workplace = Workplace(files, environment)
            workplace.run(files, "hf-seq2seq", *TRAIN)
            workplace.run(files, "hf-seq2seq", "push", "out", "YOU/my-model", "--private")
            for other in ("other", "quickstart-en-de/model"):
                shutil.copytree(files / "out", files / other)
            yield workplace
    assert hub.unknown == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page == README else pytest.mark.slow, id=name_of(page))
        for page in PAGES
        if blocks_of(page)
    ],
)
def test_the_blocks_of_a_page_run_as_they_stand(page: Path, workplace: Workplace, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    trains = "--output_dir out/" in page.read_text(encoding="utf-8")
    shutil.copytree(workplace.files, folder, ignore=shutil.ignore_patterns("out") if trains else None)
    with workplace.serving(folder) if page.name == "serving.md" else nullcontext():
        for number, block in enumerate(blocks_of(page)):
            match block.language:
                case "bash":
                    commands = "\n".join(command for command in commands_of(block) if command not in NOT_RUN)
                    workplace.run(folder, "bash", "-euo", "pipefail", "-c", commands)
                case "python" if re.match(r"# \w+\.py\n", block.code):
                    (folder / block.code.split()[1]).write_text(block.code, encoding="utf-8")
                case "python":
                    (folder / f"block_{number}.py").write_text(block.code, encoding="utf-8")
                    workplace.run(folder, "python-file", f"block_{number}.py")
                case "yaml":
                    (folder / block.code.split()[1]).write_text(block.code, encoding="utf-8")
                case _:
                    assert block.language == "text"


def test_what_is_not_run_stands_on_a_page() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    commands = {command for block in blocks if block.language == "bash" for command in commands_of(block)}
    assert NOT_RUN.keys() <= commands


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    paths = re.findall(r"`((?:hf_seq2seq|scripts|tests|model_cards|notebooks)/[^` ]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_tree_in_the_readme_names_what_is_there() -> None:
    (tree,) = (block.code for block in blocks_of(README) if block.code.startswith("hf_seq2seq/\n"))
    named = set(re.findall(r"^  (\S+)", tree, re.MULTILINE))
    entries = [path for path in (ROOT / "hf_seq2seq").glob("[!_]*") if path.is_dir() or path.suffix == ".py"]
    assert named == {f"{path.name}/" if path.is_dir() else path.name for path in entries}
    assert [path for path in re.findall(r"^(\S+)", tree, re.MULTILINE) if not (ROOT / path).exists()] == []
