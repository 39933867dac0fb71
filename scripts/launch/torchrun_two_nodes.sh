#!/usr/bin/env bash
# Trains on all GPUs of two machines: run the same command on both, within some minutes of each other. The arguments
# are options of `hf-seq2seq train`.
#
#   MAIN_HOST=node1 scripts/launch/torchrun_two_nodes.sh --train_source a.txt --train_target b.txt --output_dir model
#
# MAIN_HOST   name of one of the two machines, as both know it
# MAIN_PORT   a port that is free there and that no firewall closes (29500)
# NODES       number of machines (2)
# PROCESSES   processes on each machine (one a GPU); necessary without GPUs
#
# Both machines must see the data and --output_dir under the same path. Started again on both, the same command goes on
# from the last checkpoint.
set -euo pipefail

exec torchrun \
    --nnodes "${NODES:-2}" \
    --nproc-per-node "${PROCESSES:-gpu}" \
    --rdzv-backend c10d \
    --rdzv-endpoint "${MAIN_HOST:?must be the name of one of the machines}:${MAIN_PORT:-29500}" \
    --rdzv-id hf_seq2seq \
    -m hf_seq2seq train "$@"
