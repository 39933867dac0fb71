#!/usr/bin/env bash
# Trains on all GPUs of this machine. The arguments are options of `hf-seq2seq train`. Start it in an environment with
# hf_seq2seq, such as after `. .venv/bin/activate`.
#
#   scripts/launch/torchrun_single_node.sh --train_source a.txt --train_target b.txt --output_dir model --bf16
#   PROCESSES=2 scripts/launch/torchrun_single_node.sh ...   a number of processes: on GPUs or, without any, on CPUs
#
# Only this starts several processes on CPUs: `accelerate launch --cpu --num_processes 2` starts one.
# Started again, the same command goes on from the last checkpoint.
set -euo pipefail

exec torchrun --standalone --nproc-per-node "${PROCESSES:-gpu}" -m hf_seq2seq train "$@"
