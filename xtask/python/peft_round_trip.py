"""Loads an exported adapter folder with peft itself and compares its logits with ours.

    python peft_round_trip.py BASE_DIR EXPORT_DIR INPUTS.safetensors OUR_LOGITS.safetensors [--atol X]

BASE_DIR      a transformers folder of a sequence classifier (config.json and weights); a classifier or pooler that is
              missing there must come from the export
EXPORT_DIR    adapter_config.json and adapter_model.safetensors
INPUTS        `input_ids`, `attention_mask` and, if present, `token_type_ids`, [B, L] integers
OUR_LOGITS    `logits` [B, C]

Checks, offline and on the CPU: every tensor of the export arrives in peft's model bit for bit and no adapter tensor of
the model is missing from the export; the logits agree with peft's in float64 and in float32. Without `--atol` the
bound is the rule of the golden fixtures, max(16 * |float32 - float64|, 5e-6 * largest logit), both of peft's own.
Prints the largest differences. Exit status 0 if all holds, 1 if not, 2 for unusable arguments.
"""

import argparse
import os
import sys
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
warnings.simplefilter("ignore")

import torch  # noqa: E402
from peft import PeftModel  # noqa: E402
from peft.utils import get_peft_model_state_dict  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForSequenceClassification  # noqa: E402
from transformers.utils import logging  # noqa: E402

from fixture_reference import exact_attention_scale  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()


def load(base, export, tensors, dtype):
    """The base model in `dtype` with the exported adapter on it."""
    classes = next((t.shape[0] for n, t in tensors.items() if n.endswith(("classifier.weight", "score.weight"))), None)
    extra = {} if classes is None else {"num_labels": classes}
    model, report = AutoModelForSequenceClassification.from_pretrained(
        str(base), dtype=torch.float32, local_files_only=True, output_loading_info=True,
        ignore_mismatched_sizes=True, **extra)
    replaced = {n.removeprefix("base_model.model.") for n in tensors}
    drawn = {*map(str, report["missing_keys"]), *(str(m[0]) for m in report.get("mismatched_keys", ()))}
    missing = sorted(n for n in drawn if n not in replaced)
    if missing:
        raise ValueError(f"neither the base nor the export has {missing}: the logits would be random")
    return PeftModel.from_pretrained(model, str(export)).to(dtype).eval()


def transfer_problems(model, tensors):
    """Differences between the file and what peft says this adapter consists of."""
    seen = get_peft_model_state_dict(model)
    problems = [f"peft ignores `{n}`" for n in sorted(tensors.keys() - seen.keys())]
    problems += [f"the export lacks `{n}`" for n in sorted(seen.keys() - tensors.keys())]
    for name in sorted(tensors.keys() & seen.keys()):
        if tensors[name].shape != seen[name].shape or not torch.equal(tensors[name].to(seen[name].dtype), seen[name]):
            problems.append(f"`{name}` arrives with other values")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("export", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("logits", type=Path)
    parser.add_argument("--atol", type=float, help="absolute bound on the difference of logits")
    args = parser.parse_args()
    for path in (args.base / "config.json", args.export / "adapter_config.json",
                 args.export / "adapter_model.safetensors", args.inputs, args.logits):
        if not path.is_file():
            parser.error(f"no such file: {path}")
    inputs, ours = load_file(args.inputs), load_file(args.logits)
    if "logits" not in ours or not {"input_ids", "attention_mask"} <= inputs.keys():
        parser.error("need `logits` in the last file and `input_ids`, `attention_mask` in the one before")
    batch = {n: inputs[n].long() for n in ("input_ids", "attention_mask", "token_type_ids") if n in inputs}
    ours = ours["logits"].double()

    exact_attention_scale()
    tensors = load_file(args.export / "adapter_model.safetensors")
    theirs = {}
    for dtype in (torch.float32, torch.float64):
        model = load(args.base, args.export, tensors, dtype)
        if dtype == torch.float32:
            problems = transfer_problems(model, tensors)
        with torch.no_grad():
            theirs[dtype] = model(**batch).logits.double()
    exact, single = theirs[torch.float64], theirs[torch.float32]
    for problem in problems:
        print(problem)
    if exact.shape != ours.shape:
        print(f"logits have shape {list(ours.shape)}, peft gives {list(exact.shape)}")
        sys.exit(1)
    scale = float(exact.abs().max())
    own = float((single - exact).abs().max())
    bound = args.atol if args.atol is not None else max(16 * own, 5e-6 * scale)
    gap64, gap32 = float((ours - exact).abs().max()), float((ours - single).abs().max())
    passed = not problems and gap64 <= bound and bool(torch.isfinite(ours).all())
    print(f"{len(tensors)} tensors, {ours.shape[0]} rows, {ours.shape[1]} outputs, largest logit {scale:.4g}; largest "
          f"difference {gap64:.3e} from peft in float64 and {gap32:.3e} in float32 (peft's own f32 error {own:.1e}); "
          f"bound {bound:.1e}: {'ok' if passed else 'FAIL'}")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
