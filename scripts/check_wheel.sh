#!/usr/bin/env bash
# Builds the wheel, installs it in an empty environment, and trains, saves, loads and uses a tiny model there.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install.sh dev
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

.venv/bin/python -m build --wheel --outdir "$folder" .
.venv/bin/python -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --constraint scripts/constraints.txt "$folder"/*.whl

# From here on, neither the checkout nor the network is used.
cd "$folder"
export HF_HUB_OFFLINE=1 PATH=$folder/env/bin:$PATH
seq 1 300 | sed 's/^/the number /' > train.en
seq 1 300 | sed 's/^/die Zahl /' > train.de
hf-seq2seq train --train_source train.en --train_target train.de --output_dir model --max_steps 3 --vocab_size 300 \
  --d_model 16 --encoder_layers 1 --decoder_layers 1 --encoder_ffn_dim 32 --decoder_ffn_dim 32
head -n 5 train.en | hf-seq2seq translate model > translated.de
test "$(wc -l < translated.de)" -eq 5
python - <<'EOF'
from importlib.metadata import distribution
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import hf_seq2seq

package = Path(hf_seq2seq.__file__).parent
assert "site-packages" in package.parts, package
assert (package / "py.typed").is_file()
assert not [file for file in distribution("hf-seq2seq").files if file.parts[0] in ("scripts", "tests")]

model, tokenizer = (auto.from_pretrained("model") for auto in (AutoModelForSeq2SeqLM, AutoTokenizer))
assert isinstance(model, hf_seq2seq.Seq2SeqTransformerForConditionalGeneration)
output = model.generate(**tokenizer(["the number 7"], return_tensors="pt"), max_length=20)
assert output[0, 0] == model.config.decoder_start_token_id
print(f"The wheel of hf-seq2seq {hf_seq2seq.__version__} trains, saves, loads and generates.")
EOF
