"""Time one training step of ours against PyTorch + PEFT, in turn, on the same configuration.

Builds nothing: first `cargo build --release -p lrvd-perf --bin step`. Both sides use random weights,
batch 8, length 128, rank 8 on the six targets, no dropout, and the same number of threads. The two are
run in turn, A B A B, so that a drift of the machine's speed meets both; the ratio is of the medians.

    python xtask/python/compare_speed.py --config nano --rounds 3
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def ours(args, method):
    binary = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "step"
    command = [str(binary), "--config", args.config, "--method", method, "--steps", str(args.steps)]
    environment = dict(os.environ, RAYON_NUM_THREADS=str(args.threads))
    return json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


def torch(args):
    command = [sys.executable, str(HERE / "torch_step.py"), "--config", args.config,
               "--steps", str(args.steps), "--warmup", "1", "--threads", str(args.threads)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=["nano", "base"], default="nano")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each run")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    methods = ["lora", "bayeslora", "moment-matched"]
    seconds = {name: [] for name in ["torch", *methods]}
    memory = {}
    for _ in range(args.rounds):
        run = torch(args)
        seconds["torch"] += run["step_seconds"]
        memory["torch"] = run["peak_rss_bytes"]
        for method in methods:
            run = ours(args, method)
            seconds[method] += run["step_seconds"]
            memory[method] = run["peak_rss_bytes"]
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{args.config}: batch 8, length 128, rank 8, {args.threads} threads, "
          f"{args.rounds} rounds of {args.steps} steps, load {os.getloadavg()[0]:.1f}")
    print(f"{'':16}{'median s':>10}{'fastest s':>11}{'/ torch':>9}{'/ our LoRA':>12}{'peak MiB':>10}")
    for name, value in median.items():
        print(f"{name:16}{value:10.3f}{min(seconds[name]):11.3f}{value / median['torch']:9.2f}"
              f"{value / median['lora']:12.2f}{memory[name] / 2**20:10.0f}")


if __name__ == "__main__":
    main()
