#!/bin/bash
# The bench on two nodes under Slurm: sbatch slurm.sh. Adapt what is marked. Not run on a real cluster: a test
# of labkit only checks that bash reads it and that torchrun and the bench know its options.
#SBATCH --job-name=labkit-bench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1      # one torchrun a node; it starts a rank for each GPU
#SBATCH --gpus-per-node=8        # adapt
#SBATCH --cpus-per-task=32       # adapt
#SBATCH --exclusive
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
set -euo pipefail

# The sockets' interface is --interface below; which RDMA devices carry the data is a setting of its own.
# Leave it out and NCCL takes all that it finds; the bench prints what was chosen.
#export NCCL_IB_HCA=mlx5         # adapt: see ibv_devices

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

srun --kill-on-bad-exit=1 \
    torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 8 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "${nodes[0]}:29500" \
    -m labkit.evidence.bench all_reduce all_gather reduce_scatter all_to_all \
    --sizes 1KiB:8GiB --interface ib0 --output "bench-$SLURM_JOB_ID.txt" # adapt: ip link lists the names
