#!/usr/bin/env bash
# Trains on the GPUs of one or more Slurm nodes. The arguments are options of `hf-seq2seq train`.
#
#   sbatch scripts/launch/slurm.sh --train_source a.txt --train_target b.txt --output_dir model --bf16
#
# Change the lines of SBATCH: the nodes, the GPUs and CPUs of each, the time limit, and what your cluster asks for
# (--partition, --account). Submit from an environment with hf_seq2seq, on a file system that all nodes see.
#
# Two minutes before the time limit, the training gets SIGTERM and saves a checkpoint. Then the job is queued again
# with the same options, and goes on from there. A job that fails or is cancelled is not queued again.
#SBATCH --job-name=hf-seq2seq
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -euo pipefail

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# Since Slurm 22.05 srun does not take over sbatch's --cpus-per-task by itself: https://slurm.schedmd.com/srun.html
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
# torchrun hands SIGTERM on to its processes, and kills them after this many seconds.
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100

# The time limit sends USR1, only to this script. A cancelled job gets TERM.
is_time_up=false
trap 'is_time_up=true; kill -TERM "$step"' USR1

srun torchrun \
    --nnodes "$SLURM_NNODES" \
    --nproc-per-node gpu \
    --rdzv-backend c10d \
    --rdzv-endpoint "${hosts[0]}:29500" \
    --rdzv-id "$SLURM_JOB_ID" \
    -m hf_seq2seq train "$@" &
step=$!

status=0
wait "$step" || status=$?
if $is_time_up; then
    wait "$step" || true # the first `wait` ended with the signal, not with the step
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
