"""Writes a golden fixture folder for a random tiny DeBERTa, in the format of the shared golden fixtures.

    python deberta_fixture.py --out DIR --seed 7 --kind train_adalora
    python deberta_fixture.py --out DIR --seed 7 --kind peft_lora_deberta --spec '{"adapter": {"use_rslora": true}}'
    python deberta_fixture.py --out DIR --seed 7 --kind train_adalora --corrupt rank_pattern

`--kind` is one of deberta_sequence_classification, peft_lora_deberta, peft_adalora_deberta, train_lora,
train_adalora. The seed draws sizes, lengths, ranks and schedules; `--spec` (JSON, or @FILE) overrides any of them, merged
key by key: `config` (arguments of transformers' DebertaV2Config), `num_labels`, `lengths`, `padded_length`, `batch`
(training), `adapter` (arguments of peft's LoraConfig or AdaLoraConfig), `reallocated` (AdaLoRA with reduced ranks),
`train` (hyperparameters), `optional`, `notes`. `--print-spec` shows the merged description and writes nothing.
A value of null removes the key. `--corrupt` writes a folder that a checker must reject: one logit moved by 1e-3, one
gradient tensor changed, or two ranks of one module exchanged in the mask of one masking step (its count unchanged).
All numbers come from transformers and peft in float64; see fixture_reference.py.
"""

import argparse
import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from fixture_cases import WRITERS, write_case
from fixture_reference import exact_attention_scale

TARGETS = ["query_proj", "key_proj", "value_proj", "attention.output.dense", "intermediate.dense", "output.dense"]


def draw_spec(kind, seed):
    """A case description with sizes that depend on the seed."""
    rng = random.Random(f"{kind}-{seed}")
    heads = rng.choice([2, 3, 4])
    hidden = heads * rng.choice([6, 8, 10])
    buckets = rng.choice([8, 12, 16, 32])
    longest = rng.randint(10, 36)
    spec = {
        "config": {
            "vocab_size": rng.randint(90, 220), "hidden_size": hidden, "num_attention_heads": heads,
            "num_hidden_layers": rng.randint(1, 3), "intermediate_size": rng.choice([40, 56, 72]),
            "max_position_embeddings": rng.choice([64, 96, 128]), "max_relative_positions": -1,
            "position_buckets": buckets, "relative_attention": True, "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "position_biased_input": False,
            "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu", "pooler_hidden_act": "gelu",
            "pooler_hidden_size": hidden, "pooler_dropout": 0, "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1, "pad_token_id": 0,
        },
        "num_labels": rng.choice([2, 2, 3]), "padded_length": longest,
    }
    if kind.startswith("train"):
        spec["config"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        spec["batch"] = rng.randint(4, 8)
        spec["train"] = {
            "adapter_lr": rng.choice([1e-3, 3e-3]), "head_lr": rng.choice([5e-3, 1e-2]), "head_weight_decay": 0.01,
            "betas": [0.9, 0.999], "eps": 1e-8, "clip": rng.choice([0.1, 0.5]), "steps": 30,
            "warmup_steps": rng.randint(1, 5),
        }
    else:
        spec["lengths"] = [longest, *sorted((rng.randint(1, longest) for _ in range(rng.randint(1, 3))), reverse=True)]
    dropout = 0.0 if kind.startswith("train") else 0.1
    if "adalora" in kind:
        rank = rng.randint(3, 6)
        spec["adapter"] = {
            "peft_type": "ADALORA", "init_r": rank, "target_r": rng.randint(1, rank - 1),
            "lora_alpha": rng.choice([4, 8, 12]), "tinit": rng.randint(0, 5), "tfinal": rng.randint(4, 10),
            "deltaT": rng.randint(1, 4), "total_step": 30, "orth_reg_weight": rng.choice([0.1, 0.3]), "beta1": 0.85,
            "beta2": 0.85, "lora_dropout": dropout, "target_modules": list(TARGETS),
        }
        if kind.startswith("peft"):
            spec["reallocated"] = rng.random() < 0.5
    elif "lora" in kind:
        spec["adapter"] = {
            "peft_type": "LORA", "r": rng.randint(2, 6), "lora_alpha": rng.choice([4, 8, 16]),
            "lora_dropout": dropout, "target_modules": list(TARGETS),
        }
    return spec


def merge(base, override):
    """`override` into `base`, key by key; null removes a key, any other value replaces it."""
    for key, value in override.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value
    return base


def corrupt(folder, how):
    """Damages expected.safetensors so that a comparison within the tolerances must fail."""
    path = str(folder / "expected.safetensors")
    tensors = load_file(path)
    if how == "logit":
        if "logits" not in tensors:
            raise ValueError("this kind stores no logits")
        tensors["logits"][0, 0] += 1e-3
        what = "logits[0,0] moved by 1e-3"
    elif how == "gradient":
        # The largest gradient, so that the change of one percent is far above its own tolerance.
        names = [n for n in tensors if n.startswith("grad.") and tensors[n].numel()]
        if not names:
            raise ValueError("this kind stores no gradients")
        name = max(names, key=lambda n: (float(tensors[n].abs().max()), n))
        tensors[name] *= 1.01
        what = f"{name} multiplied by 1.01"
    else:
        steps = json.loads((folder / "expected.json").read_text()).get("adalora", {}).get("masking_steps", [])
        mask = tensors.get("mask")
        places = [(t, m) for t in steps for m in range(mask.shape[1]) if 0 < int(mask[t, m].sum()) < mask.shape[2]]
        if not places:
            raise ValueError("this case never masks a part of a module")
        t, m = places[len(places) // 2]
        mask[t, m] = mask[t, m].roll(1) if not torch.equal(mask[t, m], mask[t, m].roll(1)) else mask[t, m].flip(0)
        what = f"mask[{t},{m}] exchanged"
    save_file(tensors, path, metadata={"format": "pt"})
    description = json.loads((folder / "expected.json").read_text())
    description["notes"] = [*description["notes"], f"deliberately corrupted: {what}"]
    (folder / "expected.json").write_text(json.dumps(description, indent=1) + "\n")
    return what


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder to write; must not exist")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--kind", choices=sorted(WRITERS), required=True)
    parser.add_argument("--spec", default="{}", help="JSON overrides, or @FILE")
    parser.add_argument("--corrupt", choices=["logit", "gradient", "rank_pattern"])
    parser.add_argument("--print-spec", action="store_true")
    args = parser.parse_args()
    text = Path(args.spec[1:]).read_text() if args.spec.startswith("@") else args.spec
    spec = merge(draw_spec(args.kind, args.seed), json.loads(text))
    if args.print_spec:
        print(json.dumps(spec, indent=1))
        return
    if args.out is None or args.out.exists():
        sys.exit(f"--out is needed and must not exist: {args.out}")
    torch.set_num_threads(1)
    exact_attention_scale()
    write_case(args.out, args.kind, spec, args.seed)
    damage = f" ({corrupt(args.out, args.corrupt)})" if args.corrupt else ""
    print(f"wrote {args.out}: {args.kind}{damage}")


if __name__ == "__main__":
    main()
