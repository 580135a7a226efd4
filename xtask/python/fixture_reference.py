"""Reference computations shared by the fixture scripts: models, losses, regulariser, all in float64.

transformers' DebertaV2 has one float32 island that matters in float64: the attention scale
`sqrt(n * head_size)` is a float32 square root that is cast afterwards. `exact_attention_scale` replaces it by
the square root in the dtype of the queries. (The float32 logarithm of the position buckets stays: it only
feeds a `ceil`, and both precisions give the same integers.)
"""

import json
import math
import os
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.simplefilter("ignore")

import torch  # noqa: E402
from peft import PeftModel  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from transformers import DebertaV2ForSequenceClassification  # noqa: E402
from transformers.utils import logging as transformers_logging  # noqa: E402
from transformers.models.deberta_v2 import modeling_deberta_v2  # noqa: E402

transformers_logging.disable_progress_bar()
INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")


def exact_attention_scale():
    """Makes transformers compute the attention scale in the dtype of the model."""

    def scaled_size_sqrt(query_layer, scale_factor):
        return torch.tensor(math.sqrt(query_layer.size(-1) * scale_factor), dtype=query_layer.dtype)

    modeling_deberta_v2.scaled_size_sqrt = scaled_size_sqrt


def load_base(folder, dtype):
    """The sequence classifier of `folder` in `dtype`, evaluation mode. Refuses missing or unexpected tensors."""
    model, report = DebertaV2ForSequenceClassification.from_pretrained(
        str(folder), dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    problems = {k: sorted(map(str, report[k])) for k in report if k != "error_msgs" and report[k]}
    if problems or report.get("error_msgs"):
        raise ValueError(f"{folder}: {problems or report['error_msgs']}")
    return model.to(dtype).eval()


def load_adapted(base_folder, adapter_folder, dtype, trainable=True):
    """The base model with the adapter of `adapter_folder` put on by peft itself."""
    base = load_base(base_folder, torch.float32)
    model = PeftModel.from_pretrained(base, str(adapter_folder), is_trainable=trainable)
    return model.to(dtype).eval()


def parameter_key(name):
    """peft's parameter name as it stands in adapter_model.safetensors."""
    return name.replace(".modules_to_save.default", "").replace(".default", "")


def logits_of(model, inputs):
    """Logits [B, num_labels] of a plain or an adapted model."""
    return model(**{n: inputs[n] for n in INPUT_NAMES}).logits


def task_loss(logits, labels):
    """Mean cross-entropy for integer labels, mean squared error for real ones (one output)."""
    if labels.is_floating_point():
        return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))
    return F.cross_entropy(logits, labels)


def orthogonal_regularizer(model):
    """Mean over all A and B of ||A A^T - I||_F and ||B^T B - I||_F (not squared)."""
    norms = []
    for name, p in model.named_parameters():
        if ".lora_A." in name or ".lora_B." in name:
            gram = p @ p.T if ".lora_A." in name else p.T @ p
            norms.append(torch.linalg.norm(gram - torch.eye(gram.shape[0], dtype=p.dtype)))
    return torch.stack(norms).mean()


def deberta_tensors(folder, inputs, dtype, wanted_gradients=None):
    """Everything a `deberta_sequence_classification` folder stores, computed in `dtype`.

    `wanted_gradients` is a set of parameter names, or None for all of them.
    """
    model = load_base(folder, dtype)
    out = model(**{n: inputs[n] for n in INPUT_NAMES}, output_hidden_states=True)
    loss = task_loss(out.logits, inputs["labels"])
    loss.backward()
    tensors = {f"hidden_states.{i}": h.detach() for i, h in enumerate(out.hidden_states)}
    tensors["pooled"] = model.pooler(out.hidden_states[-1]).detach()
    tensors["logits"] = out.logits.detach()
    tensors["loss"] = loss.detach().reshape(1)
    for name, p in model.named_parameters():
        if wanted_gradients is None or name in wanted_gradients:
            tensors[f"grad.{name}"] = torch.zeros_like(p) if p.grad is None else p.grad
    return tensors


def peft_tensors(folder, inputs, dtype):
    """Everything a `peft_*_deberta` folder stores, computed in `dtype`, and the `modules` table."""
    adapter = Path(folder) / "adapter"
    config = json.loads((adapter / "adapter_config.json").read_text())
    is_adalora = config["peft_type"] == "ADALORA"
    model = load_adapted(Path(folder) / "base", adapter, dtype)
    logits = logits_of(model, inputs)
    loss = task_loss(logits, inputs["labels"])
    tensors = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    if gradient_target(config) == "total_loss":
        regularizer = orthogonal_regularizer(model)
        total = loss + config["orth_reg_weight"] * regularizer
        tensors["orthogonal_regularizer"] = regularizer.detach().reshape(1)
        tensors["total_loss"] = total.detach().reshape(1)
        loss = total
    loss.backward()
    stored = set(load_file(adapter / "adapter_model.safetensors"))
    for name, p in model.named_parameters():
        key = parameter_key(name)
        if key in stored and ".original_module." not in name:
            tensors[f"grad.{key}"] = torch.zeros_like(p) if p.grad is None else p.grad
    modules = {}
    for name, module in model.base_model.model.named_modules():
        if not hasattr(module, "lora_A") or not hasattr(module, "get_delta_weight"):
            continue
        delta = module.get_delta_weight("default").detach()
        tensors[f"merged.{name}.weight"] = module.get_base_layer().weight.detach() + delta
        modules[name] = {"r": module.r["default"], "lora_alpha": module.lora_alpha["default"],
                         "scaling": module.scaling["default"]}
        if is_adalora:
            ranknum = float(module.ranknum["default"])
            modules[name]["ranknum"] = ranknum
            modules[name]["effective_factor"] = module.scaling["default"] / (ranknum + 1e-5)
            modules[name]["nonzero_rank"] = int((module.lora_E["default"] != 0).sum())
    with torch.no_grad():
        tensors["base_logits"] = logits_of(load_base(Path(folder) / "base", dtype), inputs)
        merged = logits_of(model.merge_and_unload(), inputs)
    return tensors, modules, float((merged - tensors["logits"]).abs().max())


def gradient_target(adapter_config):
    """Which loss the stored gradients belong to: the regulariser counts before reallocation only."""
    fresh = adapter_config["peft_type"] == "ADALORA" and not adapter_config.get("rank_pattern")
    return "total_loss" if fresh else "loss"
