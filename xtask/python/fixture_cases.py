"""Writes the five kinds of DeBERTa fixture folders from a case description ("spec")."""

import json
import random
from pathlib import Path

import numpy
import peft
import safetensors
import torch
import transformers
from peft import AdaLoraConfig, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

from fixture_reference import deberta_tensors, gradient_target, load_base, peft_tensors
from fixture_tolerances import as_f32, largest, three_digits, tolerance_tables, train_tolerances
from fixture_train import train

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
            "safetensors": safetensors.__version__, "numpy": numpy.__version__}
CLS, SEP, PAD, FIRST_WORD = 1, 2, 0, 3
COMPARE = ("hidden_states.* only where attention_mask is 1 (values at padding are not part of the contract); "
           "everything else in full")


def write_base(folder, spec, seed):
    """A random model with activations of size one, so that every part of it matters to the logits."""
    generator = torch.Generator().manual_seed(seed)
    model = DebertaV2ForSequenceClassification(DebertaV2Config(**spec["config"], num_labels=spec["num_labels"]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "LayerNorm.weight" in name:
                p.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                p.copy_(0.15 * noise)
            elif "embeddings.weight" in name:
                p.copy_(noise)
            else:
                p.copy_(noise / p[0].numel() ** 0.5)
        model.deberta.embeddings.word_embeddings.weight[PAD] = 0
    model.save_pretrained(str(folder))
    for extra in Path(folder).glob("*generation_config.json"):
        extra.unlink()


def draw_batch(lengths, padded, vocab, num_labels, generator):
    """One batch: [CLS] first [SEP] second [SEP], right-padded, segments 0 and 1, labels per row."""
    rows = {n: torch.zeros(len(lengths), padded, dtype=torch.long)
            for n in ("input_ids", "attention_mask", "token_type_ids")}
    for i, n in enumerate(lengths):
        ids = torch.randint(FIRST_WORD, vocab, (n,), generator=generator)
        ids[0] = CLS
        if n > 1:
            ids[-1] = SEP
        if n > 4:
            cut = int(torch.randint(2, n - 2, (1,), generator=generator))
            ids[cut] = SEP
            rows["token_type_ids"][i, cut + 1 : n] = 1
        rows["input_ids"][i, :n], rows["attention_mask"][i, :n] = ids, 1
    rows["labels"] = (torch.randn(len(lengths), generator=generator) if num_labels == 1
                      else torch.randint(0, num_labels, (len(lengths),), generator=generator))
    return rows


def write_inputs(folder, spec, seed):
    """inputs.safetensors; training kinds get one batch per step along a new first dimension."""
    generator = torch.Generator().manual_seed(seed + 1)
    vocab, labels = spec["config"]["vocab_size"], spec["num_labels"]
    if "train" in spec:
        rng, longest = random.Random(seed + 2), spec["padded_length"]
        batches = []
        for _ in range(spec["train"]["steps"]):
            lengths = [rng.randint(min(5, longest), longest) for _ in range(spec["batch"])]
            batches.append(draw_batch(lengths, longest, vocab, labels, generator))
        inputs = {n: torch.stack([b[n] for b in batches]) for n in batches[0]}
    else:
        inputs = draw_batch(spec["lengths"], spec["padded_length"], vocab, labels, generator)
    save_file(inputs, str(folder / "inputs.safetensors"), metadata={"format": "pt"})
    return inputs


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def save_adapter(model, folder):
    """peft's own files, sorted keys in the configuration, `base` as the name of the base model."""
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "base"
    for field in ("target_modules", "modules_to_save"):
        if isinstance(config.get(field), list):
            config[field] = sorted(config[field])
    write_json(folder / "adapter_config.json", dict(sorted(config.items())))


def random_adapter(model, seed):
    """Fills adapters and saved modules with values that move the logits by order one."""
    generator = torch.Generator().manual_seed(seed + 3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if ".lora_A." in name:
                p.copy_(noise / p.shape[1] ** 0.5)
            elif ".lora_B." in name:
                p.copy_(0.15 * noise)
            elif ".lora_E." in name:
                p.copy_(noise)
            elif ".modules_to_save." in name:
                p.add_(0.3 * noise)


def random_ranks(model, seed):
    """A rank pattern as AdaLoRA leaves it: booleans per initial rank; some modules lose every rank."""
    rng = random.Random(seed + 4)
    pattern = {}
    for i, (name, module) in enumerate(model.base_model.model.named_modules()):
        if hasattr(module, "lora_E") and hasattr(module, "get_delta_weight"):
            keep = [rng.random() < 0.5 for _ in range(module.r["default"])]
            if rng.random() < 0.25:
                keep = [False] * len(keep)
            pattern[f"{name}.lora_E"] = keep
    return pattern


def adapter_model(folder, spec, seed):
    """The base of `folder` with a fresh adapter from the spec's peft arguments."""
    arguments = dict(spec["adapter"])
    kind = AdaLoraConfig if arguments.pop("peft_type") == "ADALORA" else LoraConfig
    torch.manual_seed(seed + 5)
    return get_peft_model(load_base(folder / "base", torch.float32), kind(task_type="SEQ_CLS", **arguments))


def write_deberta(folder, spec, seed, kind):
    """Kind `deberta_sequence_classification`."""
    write_base(folder, spec, seed)
    inputs = write_inputs(folder, spec, seed)
    exact = deberta_tensors(folder, inputs, torch.float64)
    single = deberta_tensors(folder, inputs, torch.float32)
    groups, table = tolerance_tables(exact, single, list(exact), inputs["attention_mask"])
    save_file(as_f32(exact, ("hidden_states.",)), str(folder / "expected.safetensors"), metadata={"format": "pt"})
    return {
        "computed_in": "float64 (weights are the f32 values cast up)",
        "stored": "hidden_states.* are stored in f32 (rounded from the f64 run); every other float tensor in "
                  "expected.safetensors is f64",
        "num_labels": spec["num_labels"], "lengths": spec["lengths"], "padded_length": spec["padded_length"],
        "scalars": {"loss": exact["loss"].item(), "logits": exact["logits"].tolist()},
        "loss": loss_words(spec), "compare": COMPARE, "tolerance_by_group": groups, "tolerances": table,
    }


def write_peft(folder, spec, seed, kind):
    """Kinds `peft_lora_deberta` and `peft_adalora_deberta`."""
    write_base(folder / "base", spec, seed)
    inputs = write_inputs(folder, spec, seed)
    model = adapter_model(folder, spec, seed)
    random_adapter(model, seed)
    if spec.get("reallocated"):
        model.peft_config["default"].rank_pattern = random_ranks(model, seed)
    save_adapter(model, folder / "adapter")
    exact, modules, merge_gap = peft_tensors(folder, inputs, torch.float64)
    single = peft_tensors(folder, inputs, torch.float32)[0]
    compared = [n for n in exact if not n.startswith(("merged.", "base_logits"))]
    groups, table = tolerance_tables(exact, single, compared, inputs["attention_mask"])
    save_file(as_f32(exact, ("merged.",)), str(folder / "expected.safetensors"), metadata={"format": "pt"})
    config = json.loads((folder / "adapter/adapter_config.json").read_text())
    target = gradient_target(config)
    words = "loss" if target == "loss" else "total_loss = loss + orth_reg_weight * orthogonal_regularizer"
    return {
        "computed_in": "float64 (weights are the f32 values cast up)",
        "stored": "merged.* in f32 (rounded); every other float tensor f64",
        "loss": loss_words(spec),
        "scalars": {n: exact[n].item() for n in ("loss", "orthogonal_regularizer", "total_loss") if n in exact},
        "compare": "everything in full",
        "gradients": f"of {words}; grad.<key> uses the key of adapter_model.safetensors; adapters and modules_to_save "
                     "only",
        "modules": modules,
        "adapter_changes_logits_by": three_digits(largest(exact["logits"] - exact["base_logits"])),
        "merged_versus_unmerged_logits_f64": three_digits(merge_gap),
        "tolerance_by_group": groups, "tolerances": table, "merged_tolerance": "4e-6 absolute",
    }


def write_train(folder, spec, seed, kind):
    """Kinds `train_lora` and `train_adalora`. Refuses a case whose f32 and f64 runs choose other ranks."""
    adalora = kind == "train_adalora"
    h = spec["train"]
    write_base(folder / "base", spec, seed)
    inputs = write_inputs(folder, spec, seed)
    save_adapter(adapter_model(folder, spec, seed), folder / "adapter_init")
    exact, model, recorder = train(folder, inputs, h, torch.float64, adalora)
    single, _, recorder32 = train(folder, inputs, h, torch.float32, adalora)
    start = {f"final.{n}": t for n, t in load_file(folder / "adapter_init/adapter_model.safetensors").items()}
    moved = max(largest(exact[n] - t.double()) for n, t in start.items())
    stored = exact | {f"{n}_f32_run": single[n] for n in ("loss", "grad_norm")}
    save_file({n: t.contiguous() for n, t in stored.items()}, str(folder / "expected.safetensors"),
              metadata={"format": "pt"})
    save_adapter(model.float(), folder / "adapter_final")
    arguments = spec["adapter"]
    names = (["init_r", "target_r", "lora_alpha", "tinit", "tfinal", "deltaT", "total_step", "orth_reg_weight",
              "beta1", "beta2"] if adalora else ["r", "lora_alpha"])
    description = {
        "computed_in": "float64 from the f32 initial values",
        "stored": "f64; *_f32_run from the same program in f32; masks u8",
        "hyperparameters": h | {n: arguments[n] for n in names} | {"target_modules": arguments["target_modules"],
                                                                  "dropout": 0.0},
        **TRAIN_WORDS,
        "differentiated": "total_loss" if adalora else "loss",
        "scalars": {"first_loss": exact["loss"][0].item(), "last_loss": exact["loss"][-1].item(),
                    "largest_parameter_change": three_digits(moved)},
        "tolerances": train_tolerances(exact, single),
    }
    if adalora:
        description["adalora"] = allocation_words(exact, single, recorder, recorder32)
    return description


def allocation_words(exact, single, recorder, recorder32):
    """The `adalora` section; refuses a case in which float32 would choose other ranks."""
    same = torch.equal(exact["mask"], single["mask"]) and recorder.masking_steps == recorder32.masking_steps
    margin = min(recorder.margins, default=None)
    if not same or (margin is not None and margin < 1e-4):
        raise ValueError(f"ranks are not decided clearly (smallest margin {margin}); take another seed")
    errors = [float(((single[n].double() - exact[n]).abs() / exact[n].abs().clamp_min(1e-300)).max())
              for n in exact if n.startswith("score.")]
    return {
        "modules": [f"{n}.lora_E" for n in recorder.modules],
        "f32_and_f64_rank_patterns_equal": same,
        "smallest_relative_score_margin_at_the_threshold": None if margin is None else three_digits(margin),
        "masking_steps": recorder.masking_steps,
        "final_ranks": {f"{n}.lora_E": int(r) for n, r in zip(recorder.modules, exact["rank"][-1])},
        "total_rank_at_each_step": exact["rank"].sum(1).tolist(),
        "first_global_step": 0,
        **ALLOCATION_WORDS,
        "score_tolerance_relative_f32": three_digits(16 * max(errors, default=0.0)),
    }


def loss_words(spec):
    return "mean squared error over logits[:,0]" if spec["num_labels"] == 1 else "mean cross-entropy"


TRAIN_WORDS = {
    "parameter_groups": [
        "lora_*: lr adapter_lr, weight decay 0", "classifier.weight: lr head_lr, weight decay head_weight_decay",
        "classifier.bias: lr head_lr, weight decay 0", "everything else frozen (also the pooler)",
    ],
    "optimizer": "AdamW, decoupled: p -= lr*wd*p; m = b1*m+(1-b1)*g; v = b2*v+(1-b2)*g^2; "
                 "p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps); t counts from 1",
    "schedule": "factor at 0-based step t: t/warmup for t < warmup, else max(0, (steps-t)/(steps-warmup)); so step 0 "
                "has lr 0 (the moments are updated, the weights are not)",
    "clipping": "total L2 norm over all trainable tensors; gradients times min(1, clip/(norm+1e-6)); grad_norm is the "
                "norm before clipping",
    "tensors": "loss etc. [steps]; after_{n}.<key> = parameters after n optimizer steps; final.<key> after the last; "
               "<key> as in adapter_model.safetensors",
}
ALLOCATION_WORDS = {
    "update_order": "forward, backward, clip, optimizer step, scheduler step, update_and_allocate(global_step), zero "
                    "grad; sensitivities use the parameter after the step and the clipped gradient",
    "sensitivity": "s = |p*g|; S = beta1*S + (1-beta1)*s; U = beta2*U + (1-beta2)*|s - S| with the new S; for every "
                   "entry of lora_A, lora_E, lora_B; only while global_step < total_step - tfinal",
    "budget": "global_step <= tinit: the initial total, no masking; global_step > total_step - tfinal: target_r * "
              "modules, the last mask again at every step; between: int((initial - target) * (1 - (global_step - tinit)/"
              "(total_step - tfinal - tinit))^3 + target), masking where global_step % deltaT == 0 and at global_step == "
              "total_step - tfinal, there with the sensitivities of the step before",
    "score": "per rank: S*U of E + mean over columns of S*U of A + mean over rows of S*U of B",
    "threshold": "the k-th smallest score, k = initial total - budget; scores <= threshold are masked: their lora_E is "
                 "set to 0 and may grow again until the next masking step",
}
WRITERS = {
    "deberta_sequence_classification": write_deberta, "peft_lora_deberta": write_peft,
    "peft_adalora_deberta": write_peft, "train_lora": write_train, "train_adalora": write_train,
}


def write_case(folder, kind, spec, seed):
    """Writes the whole folder; `spec` comes from `deberta_fixture.draw_spec`."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    description = WRITERS[kind](folder, spec, seed, kind)
    head = {"case": f"{kind}/{folder.name}", "kind": kind, "optional": spec.get("optional", False)}
    tail = {"notes": spec.get("notes", []), "versions": VERSIONS}
    write_json(folder / "expected.json", head | description | tail)
