#!/usr/bin/env bash
# Trains on all GPUs of this machine; arguments are options of `hf-seq2seq train`. Start it where hf_seq2seq is
# installed, such as after `. .venv/bin/activate`.
#
#   scripts/launch/torchrun_single_node.sh --train_source a.txt --train_target b.txt --output_dir model --bf16
#   PROCESSES=2 scripts/launch/torchrun_single_node.sh ...   a number of processes: GPUs or, where there is none, CPUs
#
# Several processes on CPUs are started this way alone: `accelerate launch --cpu --num_processes 2` starts one.
# The same command again goes on from the last checkpoint.
set -euo pipefail

exec torchrun --standalone --nproc-per-node "${PROCESSES:-gpu}" -m hf_seq2seq train "$@"
