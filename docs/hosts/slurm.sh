#!/bin/bash
#SBATCH --job-name=hmx
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --open-mode=append

# One task per GPU. A job that is submitted again resumes from the last checkpoint.
name=walk

if compgen -G "runs/$name/checkpoints/[1-9]*" > /dev/null; then
    exec srun hmx resume "$name" --distributed
else
    exec srun hmx train --name "$name" --force --num-envs 2048 --distributed
fi
