#!/usr/bin/env bash
# A sweep on a real Slurm: controller, one node and munge on the loopback interface, in a temporary folder.
#
#     slurm-test.sh LRVD        # what `cargo xtask slurm-test` calls
#
# The workers are those of the script in `docs/guides/clusters.md`. One is killed and requeued, another is warned before its
# time limit, writes a checkpoint and requeues itself; the report must be that of one process, times aside.
set -euo pipefail

lrvd=$1
guide=$(dirname "$0")/../docs/guides/clusters.md
# The grid, with dependencies: LoRA and AdaLoRA are given the ranks of BayesLoRA.
grid=(bench glue --quiet --tasks cola --seeds 1,2 --steps 60
    --set evaluate_every=15 --set validation_rows=100 --set max_length=32)
# Indices of the run whose worker is killed and of the one whose worker reaches its time limit: two that need no other.
killed=0
limited=1
# After so many seconds something is wrong.
patience=600

for program in munged slurmctld slurmd sbatch scontrol; do
    command -v "$program" >/dev/null || {
        echo "error: \`$program\` is not installed (Debian: apt-get install slurm-wlm munge)" >&2
        exit 1
    }
done

folder=$(mktemp -d)
one=$folder/one
many=$folder/many
export SLURM_CONF=$folder/slurm.conf
daemons=()

finish() {
    local status=$? i
    scancel --user=root --signal=KILL --full 2>/dev/null || true
    # The node first, munge last.
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        kill "${daemons[i]}" 2>/dev/null || true
        wait "${daemons[i]}" 2>/dev/null || true
    done
    ((status == 0)) || tail -n 25 "$folder"/{slurmctld,slurmd,munged}.log >&2 || true
    rm -rf "$folder"
    exit "$status"
}
trap finish EXIT

say() {
    printf '%4d s  %s\n' "$SECONDS" "$*" >&2
}

fail() {
    echo "error: $*" >&2
    exit 1
}

# Repeats a command until it succeeds.
wait_for() {
    until "$@"; do
        ((SECONDS < patience)) || fail "nothing happens any more; the queue: $(squeue --array)"
        sleep 0.05
    done
}

daemon() {
    local log=$1
    shift
    "$@" </dev/null >"$log" 2>&1 &
    daemons+=($!)
}

free_port() {
    local port
    while port=$((RANDOM % 20000 + 20000)) && (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

job() {
    scontrol show job "$1"
}

is_idle() {
    scontrol show node node 2>/dev/null | grep -q State=IDLE
}

has_failed() {
    job "$1" | grep -q JobState=FAILED
}

was_restarted() {
    job "$1" | grep -q 'Restarts=[1-9]'
}

# Sets `process` and `task` to the worker of a run and its task of the array, once there is a checkpoint after its first step.
has_checkpoint() {
    local line id run claim job
    line=$(sed -n "$(($1 + 1))p" "$many/plan/runs.jsonl")
    id=$(sed -E 's/.*"id":"([^"]*)".*/\1/' <<<"$line")
    run=$(sed -E 's/.*"folder":"([^"]*)".*/\1/' <<<"$line")
    compgen -G "$many/$run/checkpoints/step-*[1-9]*" >/dev/null || return
    claim=$(sed -nE 's/.*"process":([0-9]+),"job":\["([0-9]+)".*/\1 \2/p' "$many/plan/claims/$id.0" 2>/dev/null)
    process=${claim% *} job=${claim#* }
    # The number of one of the tasks is that of the whole array, which alone would name them all.
    task=$(scontrol --oneliner show job | sed -nE "s/^JobId=$job ArrayJobId=([0-9]+) ArrayTaskId=([0-9]+) .*/\1_\2/p")
    [[ -n $claim && -n $task ]]
}

# Whether SIGUSR1, number 10, waits for a process.
is_warned() {
    local mask
    [[ -e /proc/$1 ]] || fail "process $1 ended before Slurm warned it"
    mask=$(sed -nE 's/^ShdPnd:\s*//p' "/proc/$1/status")
    (((0x$mask >> 9) & 1))
}

all_finished() {
    local states
    states=$("$lrvd" bench status --format json "$many" | grep -oE '"state": *"[a-z]+"')
    ! grep -qv finished <<<"$states"
}

# `results.json` without times, memory, and the folder's name.
results() {
    sed -E -e "s#$1#OUT#g" -e '/_seconds": \{\}/d' -e '/_seconds": \{/,/\}/d' \
        -e '/"([a-z_]+_at|[a-z_]+_seconds|[a-z]+_memory_bytes|command)":/d' "$1/results.json"
}

head -c 64 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
daemon "$folder/munged.log" munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed"
wait_for test -S "$folder/munge.socket"
mkdir "$folder/state" "$folder/spool"
# A requeued job waits until its old credential has expired. The node has as many processors as the test needs, whatever
# the machine has.
cat >"$SLURM_CONF" <<END
ClusterName=lrvd
SlurmctldHost=$(cat /proc/sys/kernel/hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
SlurmdParameters=config_overrides
NodeName=node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP
END
daemon "$folder/slurmctld.out" slurmctld -D -i -f "$SLURM_CONF"
daemon "$folder/slurmd.out" slurmd -D -N node -f "$SLURM_CONF"
wait_for is_idle
say "Slurm answers"

"$lrvd" "${grid[@]}" --plan "$many"
# Without what this node does not have.
sed -n '/^```bash$/,/^```$/{/^```/d;p}' "$guide" | sed -E -e '/^#SBATCH --(time|partition|gpus|mem)=/d' \
    -e 's/(--array)=.*/\1=1-2/' -e 's/(--cpus-per-task)=.*/\1=1/' -e "s#/shared/glue#$many#" -e "s#^lrvd #$lrvd #" >"$folder/worker.sh"
sbatch "$folder/worker.sh" >&2

wait_for has_checkpoint "$limited"
slow=$process limited_task=$task
# It does nothing until Slurm has sent its warning, for which it looks every half a minute.
kill -s STOP "$slow"
wait_for has_checkpoint "$killed"
killed_task=$task
kill -s KILL "$process"
say "killed a worker"
scontrol update "JobId=$limited_task" TimeLimit=1
say "set a time limit of one minute"
wait_for has_failed "$killed_task"
scontrol requeue "$killed_task"
say "requeued the killed worker"
wait_for is_warned "$slow"
kill -s CONT "$slow"
say "Slurm warned the other worker before its time limit"

# Meanwhile, the same in one process.
"$lrvd" "${grid[@]}" --out "$one" >/dev/null
say "made the same grid in one process"
wait_for all_finished
say "every run is finished"
wait_for was_restarted "$killed_task"
wait_for was_restarted "$limited_task"
grep -q "interrupted after a checkpoint" "$many"/plan/worker-*.log || fail "no worker wrote a checkpoint before its limit"
"$lrvd" bench collect --quiet "$many" >/dev/null
results "$one" >"$folder/expected"
results "$many" >"$folder/found"
diff "$folder/expected" "$folder/found" >&2 || fail "results.json differs from that of one process"
say "results.json is that of one process, times aside"
echo "slurm-test: 1 passed, 0 failed"
