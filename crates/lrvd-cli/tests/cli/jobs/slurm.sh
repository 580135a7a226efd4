# sbatch --parsable /mnt/grids/one/plan/job-0.sh
#!/bin/bash
#SBATCH --job-name=lrvd-glue
#SBATCH --array=0-2,9-11%20
#SBATCH --output=/mnt/grids/one/plan/logs/%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --time=04:00:00
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --account=lab

module load cuda/12.4
lrvd bench run --plan /mnt/grids/one --index "$SLURM_ARRAY_TASK_ID" &
worker=$!
# The signal comes 120 s before the time limit: the worker writes a checkpoint and exits with 75.
trap 'kill -USR1 "$worker"' USR1 TERM
wait "$worker"
status=$?
while [ "$status" -gt 128 ] && kill -0 "$worker" 2>/dev/null; do
    wait "$worker"
    status=$?
done
# 3: the hub, a disk or a file server is unavailable.
if [[ "$status" =~ ^(75|3)$ ]] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
fi
exit "$status"

# sbatch --parsable /mnt/grids/one/plan/job-1.sh
#!/bin/bash
#SBATCH --job-name=lrvd-glue
#SBATCH --array=3-8,12-17%20
#SBATCH --output=/mnt/grids/one/plan/logs/%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --time=04:00:00
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --account=lab

module load cuda/12.4
lrvd bench run --plan /mnt/grids/one --index "$SLURM_ARRAY_TASK_ID" &
worker=$!
# The signal comes 120 s before the time limit: the worker writes a checkpoint and exits with 75.
trap 'kill -USR1 "$worker"' USR1 TERM
wait "$worker"
status=$?
while [ "$status" -gt 128 ] && kill -0 "$worker" 2>/dev/null; do
    wait "$worker"
    status=$?
done
# 3: the hub, a disk or a file server is unavailable.
if [[ "$status" =~ ^(75|3)$ ]] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
fi
exit "$status"

