"""Tolerances of a fixture from a float64 run, a float32 run and the size of the values.

The rules are those of the golden fixtures (all rounded up to one significant digit):
  atol_f32 = max(16 * f32_err, 5e-6 * scale),  atol_f64 = 1e-9 * scale,
with, for gradients, floors of 1e-6 and 1e-12 times the largest gradient entry of the case, and
atol_f64 = 1e-7 * scale for tensors that are stored in float32.
"""

import math

import torch

F32_FACTOR, F32_FLOOR, F64_FACTOR, STORED_F32_FACTOR = 16.0, 5e-6, 1e-9, 1e-7
GRADIENT_FLOOR_F32, GRADIENT_FLOOR_F64 = 1e-6, 1e-12
VANISHING = 1e-13


def round_up(value):
    """The smallest number with one significant digit that is not below `value`."""
    if value == 0:
        return 0.0
    exponent = math.floor(math.log10(value))
    digit = math.ceil(value / 10.0**exponent - 1e-9)
    return float(f"{digit}e{exponent}")


def three_digits(value):
    """`value` with three significant digits, as the fixtures write errors and scales."""
    return float(f"{value:.3g}")


def largest(tensor):
    """Largest absolute entry, 0 for an empty tensor."""
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def tolerance_tables(exact, single, compared, mask):
    """Per-tensor and per-group tolerances of the tensors named in `compared`.

    `mask` [B, L] selects the positions at which `hidden_states.*` are compared.
    """
    keep = mask.bool()

    def view(name, tensor):
        return tensor[keep] if name.startswith("hidden_states.") else tensor

    scales = {n: largest(view(n, exact[n])) for n in compared}
    gradient_scale = max([s for n, s in scales.items() if n.startswith("grad.")], default=0.0)
    table = {}
    for name in compared:
        scale = scales[name]
        error = largest(view(name, single[name]).double() - view(name, exact[name]).double())
        is_gradient = name.startswith("grad.")
        floor32 = max(F32_FLOOR * scale, GRADIENT_FLOOR_F32 * gradient_scale if is_gradient else 0.0)
        factor64 = STORED_F32_FACTOR if name.startswith("hidden_states.") else F64_FACTOR
        floor64 = GRADIENT_FLOOR_F64 * gradient_scale if is_gradient else 0.0
        table[name] = {
            "scale": three_digits(scale),
            "f32_err": three_digits(error),
            "atol_f32": round_up(max(F32_FACTOR * error, floor32)),
            "atol_f64": round_up(max(factor64 * scale, floor64)),
        }
        if is_gradient and scale <= VANISHING * gradient_scale:
            table[name]["exactly_zero_in_theory"] = True
    groups = {}
    for name, row in table.items():
        group = groups.setdefault(name.split(".")[0], {"f32_err": 0.0, "scale": 0.0, "atol_f32": 0.0})
        for field in group:
            group[field] = max(group[field], row[field])
    by_group = {
        name: {"f32_err": g["f32_err"], "rel_to_max": three_digits(g["f32_err"] / max(g["scale"], 1e-300)),
               "atol_f32": g["atol_f32"]}
        for name, g in groups.items()
    }
    return by_group, table


def train_tolerances(exact, single):
    """Tolerances of a training fixture; floors as in the golden ones."""
    parameters = {}
    for stage in sorted({n.split(".")[0] for n in exact if n.startswith("after_") or n.startswith("final.")},
                        key=lambda s: (s == "final", len(s), s)):
        names = [n for n in exact if n.startswith(stage + ".")]
        error = max(largest(single[n].double() - exact[n]) for n in names)
        parameters[stage] = {"f32_err": three_digits(error), "atol_f32": round_up(max(16 * error, 1e-6))}
    loss_error = largest(single["loss"].double() - exact["loss"])
    norm_error = float(((single["grad_norm"].double() - exact["grad_norm"]).abs() / exact["grad_norm"]).max())
    return {
        "loss": {"f32_err": three_digits(loss_error), "atol_f32": round_up(max(16 * loss_error, 1e-5)),
                 "atol_f64": 1e-8},
        "grad_norm": {"f32_rel_err": three_digits(norm_error), "rtol_f32": round_up(max(16 * norm_error, 2e-5)),
                      "rtol_f64": 1e-8},
        "parameters": parameters,
        "parameters_f64": {"atol_f64": 1e-7},
    }


def as_f32(tensors, prefixes):
    """Copies with the tensors whose names start with one of `prefixes` rounded to float32."""
    return {n: (t.to(torch.float32) if n.startswith(prefixes) else t).contiguous() for n, t in tensors.items()}
