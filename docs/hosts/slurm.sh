#!/bin/bash
#SBATCH --job-name=hmx
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

# One task per GPU. A job that starts again resumes from the last checkpoint.
name=walk
stopped=
trap 'stopped=yes' TERM # of scancel and of preemption; before its time limit a job gets TERM in its tasks only

if compgen -G "runs/$name/checkpoints/[1-9]*" > /dev/null; then
    srun hmx resume "$name" --distributed
else
    srun hmx train --name "$name" --force --num-envs 2048 --distributed
fi
code=$?

# The tasks have saved the run because of the time limit: wait in the queue for the next turn.
if [ "$code" = 143 ] && [ -z "$stopped" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
