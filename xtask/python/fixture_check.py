"""Recomputes existing fixture folders with the reference of this directory and compares every stored tensor.

    python fixture_check.py DIR [DIR ...] [--limit 1e-9]

This is the test of the generator itself: on folders made by somebody else it must find their numbers again.
float64 tensors must agree to `--limit` times max(1, largest entry), tensors stored in float32 to one rounding
(1.2e-7 relative), integers exactly. `*_f32_run` tensors are float32 results of another machine and are skipped.
Exit status 0 when every folder agrees, 1 otherwise.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from fixture_reference import deberta_tensors, exact_attention_scale, peft_tensors
from fixture_train import train

KINDS = ("deberta_sequence_classification", "peft_lora_deberta", "peft_adalora_deberta", "train_lora", "train_adalora")


def recompute(folder, kind, expected, inputs):
    """The float64 tensors of `folder`, by its kind."""
    if kind == "deberta_sequence_classification":
        names = {n.removeprefix("grad.") for n in expected if n.startswith("grad.")}
        return deberta_tensors(folder, inputs, torch.float64, names)
    if kind.startswith("peft_"):
        return peft_tensors(folder, inputs, torch.float64)[0]
    h = json.loads((folder / "expected.json").read_text())["hyperparameters"]
    return train(folder, inputs, h, torch.float64, kind == "train_adalora")[0]


def check(folder, limit):
    """True if the stored tensors of `folder` are found again; prints one line."""
    description = json.loads((folder / "expected.json").read_text())
    kind = description["kind"]
    if kind not in KINDS:
        print(f"{folder}: kind `{kind}` is not supported")
        return False
    expected = load_file(folder / "expected.safetensors")
    inputs = load_file(folder / "inputs.safetensors")
    ours = recompute(folder, kind, expected, inputs)
    worst64, worst32, bad = 0.0, 0.0, []
    compared = 0
    for name, want in expected.items():
        if name.endswith("_f32_run"):
            continue
        if name not in ours or ours[name].shape != want.shape:
            bad.append(f"{name}: missing or another shape")
            continue
        got = ours[name]
        compared += 1
        if not want.is_floating_point():
            if not torch.equal(got.to(want.dtype), want):
                bad.append(f"{name}: integers differ")
            continue
        if name.startswith("hidden_states."):
            keep = inputs["attention_mask"].bool()
            got, want = got[keep], want[keep]
        size = max(1.0, float(want.abs().max())) if want.numel() else 1.0
        gap = float((got.double() - want.double()).abs().max()) / size if want.numel() else 0.0
        if want.dtype == torch.float32:
            worst32 = max(worst32, gap)
            bad += [f"{name}: {gap:.2e}"] if gap > 1.2e-7 else []
        else:
            worst64 = max(worst64, gap)
            bad += [f"{name}: {gap:.2e}"] if not gap <= limit else []
    verdict = "agrees" if not bad else "DIFFERS"
    print(f"{folder.name:44s} {kind:32s} {compared:4d} tensors, largest difference {worst64:.2e} (f64), "
          f"{worst32:.2e} (stored in f32): {verdict}")
    for line in bad[:8]:
        print(f"    {line}")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--limit", type=float, default=1e-9, help="largest relative difference in float64")
    args = parser.parse_args()
    torch.set_num_threads(1)
    exact_attention_scale()
    sys.exit(0 if all([check(f, args.limit) for f in args.folders]) else 1)


if __name__ == "__main__":
    main()
