"""Writes a varied set of fixture folders: sizes, options and schedules the shared golden fixtures do not have.

    python fixture_set.py --out DIR [--only NAME ...]

Folders named `bad_*` are damaged on purpose: a checker must reject them. Folders whose `expected.json` has
`"optional": true` may be refused as unsupported, but must not pass with other numbers.
"""

import argparse
from pathlib import Path

import torch

from deberta_fixture import corrupt, draw_spec, merge
from fixture_cases import write_case
from fixture_reference import exact_attention_scale

DEBERTA, LORA, ADALORA = "deberta_sequence_classification", "peft_lora_deberta", "peft_adalora_deberta"
TRAIN_LORA, TRAIN_ADALORA = "train_lora", "train_adalora"
CONV = {"conv_kernel_size": 5, "conv_act": "tanh"}


def size(hidden, heads, layers, buckets, positions=96):
    """The part of a configuration that the cases below vary most."""
    return {"hidden_size": hidden, "pooler_hidden_size": hidden, "num_attention_heads": heads,
            "num_hidden_layers": layers, "position_buckets": buckets, "max_position_embeddings": positions}


def schedule(init_r, target_r, tinit, tfinal, delta, total=30):
    """The AdaLoRA arguments of a schedule."""
    return {"init_r": init_r, "target_r": target_r, "tinit": tinit, "tfinal": tfinal, "deltaT": delta,
            "total_step": total}


CASES = {
    # name: (kind, seed, overrides)
    "deberta_5_heads_3_labels": (DEBERTA, 101, {
        "config": size(60, 5, 4, 24), "num_labels": 3, "padded_length": 50, "lengths": [50, 33, 12, 1]}),
    "deberta_regression_beyond_buckets": (DEBERTA, 102, {
        "config": size(36, 3, 2, 8, 48), "num_labels": 1, "padded_length": 47, "lengths": [47, 30, 9]}),
    "deberta_beyond_max_position": (DEBERTA, 103, {
        "config": size(28, 2, 2, 10, 40), "num_labels": 2, "padded_length": 75, "lengths": [75, 41, 40]}),
    "deberta_one_head_one_row": (DEBERTA, 104, {
        "config": size(22, 1, 1, 6, 32), "num_labels": 2, "padded_length": 3, "lengths": [3]}),
    "deberta_padded_beyond_longest": (DEBERTA, 105, {
        "config": size(40, 4, 3, 32, 128), "num_labels": 2, "padded_length": 44, "lengths": [29, 18, 2]}),
    "deberta_conv_tanh_kernel_5": (DEBERTA, 106, {
        "config": size(32, 4, 3, 12) | CONV, "num_labels": 3, "padded_length": 31, "lengths": [31, 14, 3],
        "optional": True}),
    "deberta_no_share_att_key": (DEBERTA, 107, {
        "config": size(42, 3, 2, 14) | {"share_att_key": False}, "num_labels": 3, "padded_length": 38,
        "lengths": [38, 20, 7], "optional": True}),
    "deberta_c2p_only_token_types": (DEBERTA, 108, {
        "config": size(32, 2, 2, 16) | {"pos_att_type": ["c2p"], "type_vocab_size": 2}, "num_labels": 2,
        "padded_length": 26, "lengths": [26, 11], "optional": True}),
    "lora_patterns_pooler": (LORA, 201, {
        "config": size(30, 3, 3, 16), "num_labels": 3,
        "adapter": {"r": 3, "lora_alpha": 7, "modules_to_save": ["pooler"],
                    "rank_pattern": {"layer.2.output.dense": 5, "value_proj": 1,
                                     "deberta.encoder.layer.0.attention.output.dense": 4},
                    "alpha_pattern": {"intermediate.dense": 2, "layer.1.attention.self.key_proj": 9}}}),
    "lora_regex_rslora_regression": (LORA, 202, {
        "config": size(32, 2, 3, 12), "num_labels": 1,
        "adapter": {"r": 5, "lora_alpha": 6, "use_rslora": True,
                    "target_modules": r".*layer\.(0|2)\.(attention\.(self\.(key|value)_proj|output\.dense)|output\.dense)",
                    "rank_pattern": {r"layer\.2\..*": 2}, "alpha_pattern": {r"self\.(key|query)_proj": 11}}}),
    "lora_queries_one_layer": (LORA, 203, {
        "config": size(40, 4, 2, 8), "padded_length": 34, "lengths": [34, 34, 5],
        "adapter": {"r": 8, "lora_alpha": 1, "target_modules": ["query_proj"], "layers_to_transform": [1]},
        "optional": True}),
    "adalora_target_equals_initial": (ADALORA, 301, {
        "config": size(36, 4, 2, 12), "num_labels": 3, "adapter": schedule(5, 5, 0, 5, 2), "reallocated": False}),
    "adalora_reallocated_pooler": (ADALORA, 302, {
        "config": size(32, 2, 3, 16), "num_labels": 2, "reallocated": True,
        "adapter": schedule(6, 2, 2, 5, 1) | {"modules_to_save": ["pooler"], "lora_alpha": 5}}),
    "train_lora_3_labels": (TRAIN_LORA, 401, {
        "config": size(36, 3, 2, 12), "num_labels": 3,
        "train": {"steps": 24, "warmup_steps": 5, "clip": 0.5, "betas": [0.8, 0.99], "head_weight_decay": 0.1},
        "adapter": {"r": 6, "lora_alpha": 4, "target_modules": ["query_proj", "value_proj", "output.dense"]}}),
    "train_adalora_tinit0_tfinal5_delta1": (TRAIN_ADALORA, 501, {
        "config": size(28, 2, 2, 8), "adapter": schedule(4, 2, 0, 5, 1)}),
    "train_adalora_tinit2_tfinal10_delta2": (TRAIN_ADALORA, 502, {
        "config": size(36, 3, 2, 16), "num_labels": 3, "adapter": schedule(5, 2, 2, 10, 2) | {"orth_reg_weight": 0.3}}),
    "train_adalora_tinit5_tfinal7_delta4": (TRAIN_ADALORA, 503, {
        "config": size(32, 4, 1, 12), "num_labels": 2, "adapter": schedule(6, 1, 5, 7, 4) | {"beta1": 0.7, "beta2": 0.9}}),
    "train_adalora_stops_before_final": (TRAIN_ADALORA, 504, {
        "config": size(30, 3, 2, 8), "train": {"steps": 20}, "adapter": schedule(4, 3, 2, 5, 3, 50)}),
    "train_adalora_target_equals_initial": (TRAIN_ADALORA, 505, {
        "config": size(24, 2, 2, 8), "train": {"steps": 16}, "adapter": schedule(3, 3, 0, 5, 100, 40),
        "notes": ["target_r = init_r: peft 0.21 fails at a masking step there (0-th smallest score), so this run has none"]}),
    "bad_logit": (DEBERTA, 111, {"config": size(36, 3, 2, 16)}),
    "bad_gradient": (LORA, 211, {"config": size(30, 3, 2, 12)}),
    "bad_rank_pattern": (TRAIN_ADALORA, 511, {"config": size(24, 2, 2, 8), "adapter": schedule(4, 2, 2, 6, 3)}),
}
DAMAGE = {"bad_logit": "logit", "bad_gradient": "gradient", "bad_rank_pattern": "rank_pattern"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets one folder per case")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), help="only these cases")
    args = parser.parse_args()
    torch.set_num_threads(1)
    exact_attention_scale()
    for name, (kind, seed, overrides) in CASES.items():
        if args.only and name not in args.only:
            continue
        folder = args.out / name
        write_case(folder, kind, merge(draw_spec(kind, seed), overrides), seed)
        damage = corrupt(folder, DAMAGE[name]) if name in DAMAGE else ""
        print(f"{name}: {kind} {damage}", flush=True)


if __name__ == "__main__":
    main()
