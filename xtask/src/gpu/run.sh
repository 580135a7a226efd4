#!/usr/bin/env bash
# Measures the GPU of a machine that has neither cargo nor a network, with what is beside this script.
#
#     run.sh OUT [--device NAME] [--minutes N] [--python PROGRAM] [--resume] [--tiny]
#
# --device   cuda, cuda:N, wgpu, wgpu:N or cpu; by default the kind that the program was built for
# --minutes  no stage starts or continues after N minutes; by default 8
# --python   a Python with torch, transformers and peft, by default python3; packages may also be in `python` beside this script
# --resume   leaves out the stages that are done in OUT
# --tiny     tiny models and few steps: a rehearsal, whose numbers are no results
#
# A stage of stages.txt is a process with a time limit. OUT/results.jsonl gets its start, each line that it prints and its end,
# as they come; OUT/log.txt gets what it says besides. Exit status: 0, all stages are done or skipped; 1, one failed or had no time,
# or there is no device; 2, invalid arguments. On the machine with the sources, `cargo xtask gpu-bench page OUT` makes the page.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
device=$(cat "$here/device")
minutes=8 python=python3 resume=false tiny=false out=

usage() {
    echo "error: $1; see the head of $0" >&2
    exit 2
}

while (($#)); do
    case $1 in
        --device | --minutes | --python)
            (($# > 1)) || usage "\`$1\` needs a value"
            printf -v "${1#--}" %s "$2"
            shift
            ;;
        --resume | --tiny) printf -v "${1#--}" true ;;
        -*) usage "\`$1\` is unknown" ;;
        *)
            [[ -z $out ]] || usage "\`$1\` is a second folder"
            out=$1
            ;;
    esac
    shift
done
[[ -n $out ]] || usage "no folder OUT"
[[ $minutes =~ ^[1-9][0-9]*$ ]] || usage "\`--minutes $minutes\`: expected a number from 1"
mkdir -p "$out" || usage "\`$out\` cannot be made"
results=$out/results.jsonl
said=$out/stage.log
[[ $resume == true || ! -e $results ]] || usage "\`$out\` has results; \`--resume\` adds to them"
deadline=$((SECONDS + minutes * 60))
warmup=10 steps=20 sizes=(--batch 8 --length 128)
[[ $tiny == false ]] || warmup=1 steps=3 sizes=(--batch 2 --length 16)
card=0
[[ $device != *:* ]] || card=${device#*:}
memory=(nvidia-smi --id="$card" --query-gpu=memory.used --format=csv,noheader,nounits)
sampler=
trap '[[ -z $sampler ]] || kill "$sampler" 2>/dev/null' EXIT

# The text of standard input inside a JSON string.
text() {
    tr '\n\t' '; ' | tr -cd '\040-\176' | cut -c 1-400 | sed 's/;$//; s/\\/\\\\/g; s/"/\\"/g'
}

# end STATUS NOTE [FIELDS]: closes the stage `name`.
end() {
    printf '{"stage":"%s","status":"%s","note":"%s"%s}\n' "$name" "$1" "$(text <<<"$2")" "${3-}" >>"$results"
    printf '%4d s  %-26s %s%s\n' "$SECONDS" "$name" "$1" "${2:+: $2}"
}

export PYTHONPATH="$here/python${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1
peer=$("$python" -c 'import torch, transformers, peft
print("cuda" if torch.cuda.is_available() else "cpu", "torch", torch.__version__, "CUDA", torch.version.cuda)' 2>&1 | tail -n 1)
case $peer in
    cuda\ *) peer_device=cuda:$card no_peer= ;;
    cpu\ *) peer_device=cpu no_peer="PyTorch sees no GPU" ;;
    *) peer_device='' no_peer="\`$python\` has no torch, transformers and peft: ${peer##*: }" ;;
esac
# A rehearsal takes what there is.
[[ $tiny == false || -z $peer_device ]] || no_peer=

gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>/dev/null | text)
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1 | text)
printf '{"stage":"machine","device":"%s","tiny":%s,"warmup":%d,"steps":%d,"texts":%d,"tokens":%d,"date":"%s","revision":"%s","gpu":"%s","processor":"%s","system":"%s"}\n' \
    "$device" "$tiny" "$warmup" "$steps" "${sizes[1]}" "${sizes[3]}" "$(date +%F)" "$(cat "$here/revision")" \
    "${gpu:=no nvidia-smi}" "$processor" "$(uname -srm | text)" >>"$results"

failed=0 first=true
while read -r name limit program arguments <&3; do
    [[ -n $name && $name != \#* ]] || continue
    if [[ $resume == true ]] && grep -q "^{\"stage\":\"$name\",\"status\":\"done\"" "$results"; then
        first=false
        continue
    fi
    left=$((deadline - SECONDS))
    if ((left < 5)); then
        end "not started" "no time is left"
        failed=1
        continue
    fi
    ((limit < left)) || limit=$left
    if [[ $tiny == true ]]; then
        arguments=${arguments//--config base/--config tiny}
        arguments=${arguments//--config llama-1b/--config tiny-llama}
    fi
    read -ra arguments <<<"$arguments"
    command=(env LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/step")
    case $program in
        pytorch)
            if [[ -n $no_peer ]]; then
                end skipped "$no_peer"
                continue
            fi
            command=("$python" "$here/torch_step.py" "${arguments[@]}" --device "$peer_device" --threads "$(nproc)")
            ;;
        *) command+=("${arguments[@]}" --device "$device") ;;
    esac
    command+=("${sizes[@]}")
    [[ $program == ours ]] || command+=(--warmup "$warmup" --steps "$steps")
    printf '{"stage":"%s","started":"%s"}\n' "$name" "$(date +%T)" >>"$results"
    started=$SECONDS
    before=$("${memory[@]}" 2>/dev/null)
    "${memory[@]}" --loop-ms=100 >"$out/memory" 2>/dev/null &
    sampler=$!
    timeout -k 5 "$limit" "${command[@]}" 2>"$said" 3<&- | sed -u -n "s/^{/{\"stage\":\"$name\",/p" >>"$results"
    status=${PIPESTATUS[0]}
    kill "$sampler" 2>/dev/null
    wait "$sampler" 2>/dev/null
    sampler=
    fields=",\"exit\":$status,\"seconds\":$((SECONDS - started))"
    peak=$(sort -n "$out/memory" | tail -n 1)
    [[ ! $before =~ ^[0-9]+$ || ! $peak =~ ^[0-9]+$ ]] || fields+=",\"card_mib\":$((peak - before))"
    { echo "== $name" && cat "$said"; } >>"$out/log.txt"
    last=$(grep -v -e '^note: ' -e '^ *$' "$said" | tail -n 1)
    case $status in
        0) end "done" "" "$fields" ;;
        124) end "timed out" "$limit s" "$fields" ;;
        137) end failed "killed, by a lack of memory or after its time limit${last:+; $last}" "$fields" ;;
        *) end failed "${last:-exit status $status}" "$fields" ;;
    esac
    if ((status != 0)); then
        failed=1
        if [[ $first == true ]]; then
            echo "error: \`$device\` cannot be used, and nothing else is tried; driver: $gpu" >&2
            break
        fi
    fi
    first=false
done 3<"$here/stages.txt"
rm -f "$said" "$out/memory"
exit "$failed"
