"""What `import hf_seq2seq` does, and which names the package and its rooms have."""

import subprocess
import sys
from importlib import import_module

import pytest


ROOMS = ("data", "demo", "evaluation", "hub", "inference", "inspection", "interop", "model", "training")

# The public names of commit 589811b, which programs may import from where they were then.
FORMER_NAMES = {
    "hf_seq2seq.inspection": ("make_demo", "write_space"),
    "hf_seq2seq.training": ("generation_metrics", "parse_arguments", "score"),
}

KNOWS_OUR_CLASSES = """
config = transformers.AutoConfig.for_model("seq2seq_transformer", d_model=8, encoder_attention_heads=2, \
decoder_attention_heads=2, vocab_size=9)
for auto in (transformers.AutoModel, transformers.AutoModelForSeq2SeqLM):
    assert type(auto.from_config(config)).__module__.startswith("hf_seq2seq.")
"""


def run(code: str) -> None:
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param("import hf_seq2seq, transformers", marks=pytest.mark.slow),  # as nearly all tests do
        pytest.param(
            "import transformers; from transformers import AutoModel; import hf_seq2seq", marks=pytest.mark.slow
        ),
        "import hf_seq2seq.model.configuration_seq2seq_transformer, transformers",
    ],
)
def test_the_auto_classes_know_ours_whatever_is_imported_first(imports: str) -> None:
    run(f"{imports}\n{KNOWS_OUR_CLASSES}")


def test_importing_the_package_and_its_rooms_imports_neither_transformers_nor_torch() -> None:
    rooms = ", ".join(f"hf_seq2seq.{room}" for room in ("data", "hub", "inspection", "interop", "training"))
    run(f"import sys, hf_seq2seq, {rooms}; assert not {{'transformers', 'torch'}} & sys.modules.keys()")


@pytest.mark.parametrize("package", ["hf_seq2seq", *(f"hf_seq2seq.{room}" for room in ROOMS)])
def test_every_public_name_is_listed_and_found(package: str) -> None:
    module = import_module(package)
    assert set(FORMER_NAMES.get(package, ())) <= set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        getattr(module, name)


def test_a_function_is_found_though_the_file_of_its_name_was_imported_first() -> None:
    import_module("hf_seq2seq.inspection.trace")
    from hf_seq2seq.inspection import trace

    assert callable(trace)
