"""The training loop of the `train_lora` and `train_adalora` fixtures, run with torch and peft."""

from pathlib import Path

import torch

from fixture_reference import INPUT_NAMES, load_adapted, logits_of, orthogonal_regularizer, parameter_key, task_loss

SNAPSHOTS = (1, 2, 3, 10)


def learning_rate_factor(step, steps, warmup):
    """Linear warm-up from 0, then linear decay to 0 at `steps`; `step` counts from 0."""
    return step / warmup if step < warmup else max(0.0, (steps - step) / (steps - warmup))


def parameter_groups(model, h):
    """The adapter without decay, the classifier weight with decay, its bias without. Freezes the rest."""
    adapter, weight, bias = [], [], []
    for name, p in model.named_parameters():
        p.requires_grad = ".lora_" in name or ".modules_to_save." in name
        p.requires_grad &= "ranknum" not in name
        if p.requires_grad:
            (adapter if ".lora_" in name else bias if name.endswith(".bias") else weight).append(p)
    return [
        {"params": adapter, "role": "adapter_lr", "lr": 0.0, "weight_decay": 0.0},
        {"params": weight, "role": "head_lr", "lr": 0.0, "weight_decay": h["head_weight_decay"]},
        {"params": bias, "role": "head_lr", "lr": 0.0, "weight_decay": 0.0},
    ]


class AllocationRecorder:
    """Watches peft's rank allocator: masks, scores at masking steps, margins at the threshold."""

    def __init__(self, model):
        self.model = model.base_model
        self.allocator = model.base_model.rankallocator
        inner = model.base_model.model
        self.modules = [n for n, m in inner.named_modules() if hasattr(m, "lora_E") and hasattr(m, "get_delta_weight")]
        self.layers = [inner.get_submodule(n) for n in self.modules]
        rank = self.layers[0].lora_E["default"].shape[0]
        self.mask = torch.ones(len(self.modules), rank, dtype=torch.uint8)
        self.rows = {"budget": [], "mask": [], "masked_now": [], "nonzero_E": [], "rank": []}
        self.scores, self.margins, self.masking_steps = {}, [], []
        self._step, self._masked = -1, False
        choose, apply_again = self.allocator.mask_to_budget, self.allocator.mask_using_rank_pattern

        def watched(inner_model, budget):
            self._before_masking(budget)
            pattern = choose(inner_model, budget)
            self.mask = torch.tensor([pattern[f"{n}.lora_E.default"] for n in self.modules], dtype=torch.uint8)
            return pattern

        def watched_again(*args):
            self._masked = True
            apply_again(*args)

        self.allocator.mask_to_budget, self.allocator.mask_using_rank_pattern = watched, watched_again

    def _before_masking(self, budget):
        self._masked = True
        ema, unc = self.allocator.exp_avg_ipt, self.allocator.exp_avg_unc

        def product(module, part):
            key = f"{module}.{part}.default"
            return ema[key] * unc[key]

        score = torch.stack([
            product(n, "lora_E").view(-1) + product(n, "lora_A").mean(1) + product(n, "lora_B").mean(0)
            for n in self.modules
        ])
        self.scores[self._step] = score
        ordered = score.view(-1).sort().values
        k = self.allocator.init_bgt - budget
        if k < len(ordered):
            self.margins.append(float((ordered[k] - ordered[k - 1]) / ordered[k - 1]))
        self.masking_steps.append(self._step)

    def step(self, global_step):
        """Runs peft's allocation for `global_step` and records what it did."""
        self._step, self._masked = global_step, False
        self.model.update_and_allocate(global_step)
        nonzero = torch.stack([layer.lora_E["default"].detach().view(-1) != 0 for layer in self.layers])
        self.rows["budget"].append(self.allocator.budget_schedule(global_step)[0])
        self.rows["mask"].append(self.mask.clone())
        self.rows["masked_now"].append(int(self._masked))
        self.rows["nonzero_E"].append(nonzero.to(torch.uint8))
        self.rows["rank"].append(self.mask.sum(1).to(torch.int64))

    def tensors(self):
        """Everything the fixture stores about the allocation."""
        out = {"budget": torch.tensor(self.rows["budget"], dtype=torch.int64),
               "masked_now": torch.tensor(self.rows["masked_now"], dtype=torch.uint8)}
        out.update({k: torch.stack(self.rows[k]) for k in ("mask", "nonzero_E", "rank")})
        out.update({f"score.{t}": s for t, s in self.scores.items()})
        return out


def train(folder, inputs, h, dtype, adalora):
    """Trains `adapter_init` on the batches of `inputs` and returns (tensors, model, recorder).

    Order of a step: forward, backward, clip, optimiser, scheduler, allocation, zero grad.
    """
    model = load_adapted(Path(folder) / "base", Path(folder) / "adapter_init", dtype)
    groups = parameter_groups(model, h)
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(groups, betas=tuple(h["betas"]), eps=h["eps"], foreach=False)
    recorder = AllocationRecorder(model) if adalora else None
    weight = model.peft_config["default"].orth_reg_weight if adalora else 0.0
    rows = {n: [] for n in ("loss", "grad_norm", "clip_coefficient", "lr_adapter", "lr_head", "total_loss")}
    if adalora:
        rows["orthogonal_regularizer"] = []
    tensors = {}
    for step in range(h["steps"]):
        factor = learning_rate_factor(step, h["steps"], h["warmup_steps"])
        for group in optimizer.param_groups:
            group["lr"] = h[group["role"]] * factor
        batch = {n: inputs[n][step] for n in INPUT_NAMES}
        loss = task_loss(logits_of(model, batch), inputs["labels"][step])
        total = loss
        if adalora:
            regularizer = orthogonal_regularizer(model)
            total = loss + weight * regularizer
            rows["orthogonal_regularizer"].append(regularizer.item())
        total.backward()
        for p in trainable.values():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        norm = torch.sqrt(sum((p.grad**2).sum() for p in trainable.values()))
        coefficient = torch.clamp(h["clip"] / (norm + 1e-6), max=1.0)
        for p in trainable.values():
            p.grad.mul_(coefficient)
        optimizer.step()
        if recorder:
            recorder.step(step)
        optimizer.zero_grad()
        rows["loss"].append(loss.item())
        rows["total_loss"].append(total.item())
        rows["grad_norm"].append(norm.item())
        rows["clip_coefficient"].append(coefficient.item())
        rows["lr_adapter"].append(h["adapter_lr"] * factor)
        rows["lr_head"].append(h["head_lr"] * factor)
        for stage, due in [(f"after_{n}", n == step + 1) for n in SNAPSHOTS] + [("final", step + 1 == h["steps"])]:
            if due:
                tensors |= {f"{stage}.{parameter_key(n)}": p.detach().clone() for n, p in trainable.items()}
    tensors |= {n: torch.tensor(v, dtype=torch.float64) for n, v in rows.items()}
    if recorder:
        tensors |= recorder.tensors()
    return tensors, model, recorder
