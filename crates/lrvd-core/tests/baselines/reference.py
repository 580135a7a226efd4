"""Writes reference.json: the uncertainty baselines evaluated by PyTorch in float64.

Nothing here is shared with the crate: divergences come from torch.distributions, gradients from
autograd, precisions are dense matrices, the evidence is climbed by torch.optim.Adam, logits are
integrated by Gauss-Hermite quadrature.

    python reference.py > reference.json
"""

import json
import math

import numpy as np
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal, kl_divergence

torch.set_default_dtype(torch.float64)
torch.manual_seed(20250822)
TOKENS, RANK, D_IN, D_OUT, HIDDEN, SCALING = 3, 2, 5, 4, 6, 1.75


def draw(*shape, scale=1.0):
    """Normal numbers with four decimals, so that the file holds them exactly."""
    return torch.round(scale * torch.randn(*shape), decimals=4)


def signs(*shape):
    return torch.randint(0, 2, shape).double() * 2 - 1


def sigma(kind, rho):
    return torch.nn.functional.softplus(rho) if kind == "softplus" else rho**2


def leaf(t):
    return t.clone().requires_grad_(True)


def flat(t):
    return t.detach().reshape(-1).tolist()


def element():
    mean, eps = draw(6, scale=0.3), draw(6)
    rho = torch.tensor([-3.0, 0.4, -0.9, 1.3, -0.2, 0.05])
    case = {"mean": flat(mean), "rho": flat(rho), "eps": flat(eps), "prior_std_dev": 0.2,
            "mixture": [0.25, 1.0, 0.05]}
    weight, first, second = case["mixture"]
    prior = MixtureSameFamily(Categorical(torch.tensor([weight, 1 - weight])),
                              Normal(torch.zeros(2), torch.tensor([first, second])))
    for kind in ("softplus", "square"):
        m, r = leaf(mean), leaf(rho)
        q = Normal(m, sigma(kind, r))
        kl = kl_divergence(q, Normal(0.0, case["prior_std_dev"])).sum()
        by_mean, by_rho = torch.autograd.grad(kl, (m, r))
        m2, r2 = leaf(mean), leaf(rho)
        q = Normal(m2, sigma(kind, r2))
        w = m2 + sigma(kind, r2) * eps
        sampled = (q.log_prob(w) - prior.log_prob(w)).sum()
        s_mean, s_rho = torch.autograd.grad(sampled, (m2, r2))
        case[kind] = {"kl": kl.item(), "kl_by_mean": flat(by_mean), "kl_by_rho": flat(by_rho),
                      "sampled": sampled.item(), "sampled_by_mean": flat(s_mean),
                      "sampled_by_rho": flat(s_rho)}
    return case


def flipout():
    t = {"x": draw(TOKENS, D_IN), "a_mean": draw(RANK, D_IN), "a_rho": draw(RANK, D_IN),
         "b": draw(RANK, D_OUT), "eps": draw(RANK, D_IN), "input_sign": signs(TOKENS, D_IN),
         "rank_sign": signs(TOKENS, RANK), "grad_output": draw(TOKENS, D_OUT)}
    case = {k: flat(v) for k, v in t.items()}
    for kind in ("softplus", "square"):
        names = ("x", "a_mean", "a_rho", "b")
        x, a_mean, a_rho, b = (leaf(t[n]) for n in names)
        noise = sigma(kind, a_rho) * t["eps"]
        h = x @ a_mean.T + ((x * t["input_sign"]) @ noise.T) * t["rank_sign"]
        out = SCALING * h @ b
        grads = torch.autograd.grad((out * t["grad_output"]).sum(), (x, a_mean, a_rho, b))
        case[kind] = {"output": flat(out), **{"grad_" + n: flat(g) for n, g in zip(names, grads)}}
    return case


def scala_bl():
    t = {"x": draw(TOKENS, D_IN), "v_h": draw(RANK, D_IN), "log_mean": draw(RANK, scale=0.5),
         "log_std_dev": draw(RANK, scale=0.5) - 1, "b": draw(RANK, D_OUT), "eps": draw(RANK),
         "grad_output": draw(TOKENS, D_OUT)}
    case = {k: flat(v) for k, v in t.items()}
    names = ("x", "v_h", "log_mean", "log_std_dev", "b")
    x, v_h, log_mean, log_std_dev, b = (leaf(t[n]) for n in names)
    scale = Normal(log_mean.exp(), log_std_dev.exp())
    s = log_mean.exp() + log_std_dev.exp() * t["eps"]
    out = SCALING * x @ (b.T @ torch.diag(s) @ v_h).T
    grads = torch.autograd.grad((out * t["grad_output"]).sum(), (x, v_h, log_mean, log_std_dev, b))
    case.update({"output": flat(out), **{"grad_" + n: flat(g) for n, g in zip(names, grads)}})
    prior = Normal(torch.zeros(RANK), torch.ones(RANK))
    for name, pair in (("posterior-from-prior", (scale, prior)), ("prior-from-posterior", (prior, scale))):
        kl = kl_divergence(*pair)
        by_mean, by_std = torch.autograd.grad(kl.sum(), (log_mean, log_std_dev), retain_graph=True)
        case[name] = {"per_rank": flat(kl), "by_log_mean": flat(by_mean), "by_log_std_dev": flat(by_std)}
    a = draw(3, 7, scale=0.4)
    _, values, v_h = torch.linalg.svd(a, full_matrices=False)
    case["basis"] = {"a": flat(a), "log_mean": flat(values.log()), "v_h": flat(v_h)}
    return case


def c_lora():
    t = {"x": draw(TOKENS, D_IN), "a": draw(RANK, D_IN), "b": draw(RANK, D_OUT),
         "w1": draw(HIDDEN, RANK), "b1": draw(HIDDEN), "w2": draw(2 * RANK**2, HIDDEN),
         "b2": draw(2 * RANK**2), "eps": draw(TOKENS, RANK, RANK), "input_sign": signs(TOKENS, RANK),
         "output_sign": signs(TOKENS, RANK), "grad_output": draw(TOKENS, D_OUT)}
    kl_weight = torch.tensor([0.5, 0.125, 0.0625])
    case = {k: flat(v) for k, v in t.items()}
    case.update({"kl_weight": flat(kl_weight), "prior_std_dev": 0.2})
    names = ("x", "a", "b", "w1", "b1", "w2", "b2")
    x, a, b, w1, b1, w2, b2 = (leaf(t[n]) for n in names)
    z = x @ a.T
    raw = torch.relu(z @ w1.T + b1) @ w2.T + b2
    mean = raw[:, :RANK**2].reshape(TOKENS, RANK, RANK)
    std = torch.sigmoid(raw[:, RANK**2:]).reshape(TOKENS, RANK, RANK) ** 2
    u = (mean @ z.unsqueeze(-1)).squeeze(-1)
    noise = ((std * t["eps"]) @ (z * t["input_sign"]).unsqueeze(-1)).squeeze(-1) * t["output_sign"]
    out = SCALING * (u + noise) @ b
    kl = kl_divergence(Normal(mean, std), Normal(0.0, 0.2)).sum((1, 2))
    loss = (out * t["grad_output"]).sum() + (kl * kl_weight).sum()
    grads = torch.autograd.grad(loss, (x, a, b, w1, b1, w2, b2))
    case.update({"mean": flat(mean), "std_dev": flat(std), "output": flat(out),
                 "mean_output": flat(SCALING * u @ b), "kl": flat(kl),
                 **{"grad_" + n: flat(g) for n, g in zip(names, grads)}})
    return case


def psd(size, rank):
    root = draw(size, rank, scale=0.7)
    return root @ root.T


def dense(precision, gradients):
    g = gradients.reshape(gradients.shape[0], -1)
    return {"log_det": torch.linalg.slogdet(precision)[1].item(),
            "covariance": flat(g @ torch.linalg.solve(precision, g.T))}


def laplace():
    delta = 0.7
    s, a, g = psd(4, 6), psd(9, 11), draw(3, 4, 9)
    full = {"output_factor": flat(s), "input_factor": flat(a), "gradients": flat(g),
            **dense(torch.kron(s, a) + delta * torch.eye(36), g)}
    vectors, small = draw(4, 12), psd(3, 5)
    wide = vectors.T @ vectors
    g_in, g_out = draw(3, 3, 12), draw(3, 12, 3)
    low = {"vectors": flat(vectors), "small_factor": flat(small),
           "gradients_input": flat(g_in), "gradients_output": flat(g_out),
           "input": dense(torch.kron(small, wide) + delta * torch.eye(36), g_in),
           "output": dense(torch.kron(wide, small) + delta * torch.eye(36), g_out)}
    # Evidence of both together, and torch's own Adam on ln delta.
    precisions = [torch.kron(s, a), torch.kron(small, wide)]
    squared_norm, log_likelihood = 5.25, -12.5

    def log_evidence(log_delta):
        d = log_delta.exp()
        dets = sum(torch.linalg.slogdet(p + d * torch.eye(36))[1] for p in precisions)
        return log_likelihood - 0.5 * (d * squared_norm + dets - 72 * log_delta)

    curve = []
    for value in (0.05, 1.0, 30.0):
        log_delta = torch.tensor(math.log(value), requires_grad=True)
        z = log_evidence(log_delta)
        curve.append([value, z.item(), torch.autograd.grad(z, log_delta)[0].item()])
    log_delta = torch.tensor(0.0, requires_grad=True)
    adam = torch.optim.Adam([log_delta], lr=0.1)
    for _ in range(100):
        adam.zero_grad()
        (-log_evidence(log_delta)).backward()
        adam.step()
    evidence = {"squared_norm": squared_norm, "log_likelihood": log_likelihood, "curve": curve,
                "adam_100": log_delta.exp().item()}
    return {"prior_precision": delta, "full": full, "low_rank": low, "evidence": evidence}


def predictive():
    logits, root = draw(3), draw(3, 4)
    covariance = root @ root.T
    normals = draw(5, 3)
    jittered = torch.linalg.cholesky(covariance + 1e-6 * torch.eye(3))
    few = torch.softmax(logits + normals @ jittered.T, -1).mean(0)
    probit = torch.softmax(logits / torch.sqrt(1 + math.pi / 8 * covariance.diagonal()), -1)
    # Laplace bridge with the zero-sum correction, vectors and matrices written out.
    ones = torch.ones(3)
    total = ones @ covariance @ ones
    f = logits - covariance @ ones * (ones @ logits) / total
    c = covariance - torch.outer(covariance @ ones, covariance @ ones) / total
    alpha = (1 - 2 / 3 + f.exp() / 9 * torch.exp(-f).sum()) / c.diagonal()
    # The integral itself, on a grid of 60 points per dimension.
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = torch.tensor(np.stack(np.meshgrid(nodes, nodes, nodes), -1).reshape(-1, 3))
    w = torch.tensor(np.einsum("i,j,k->ijk", *3 * [weights / weights.sum()]).reshape(-1))
    exact = (w[:, None] * torch.softmax(logits + grid @ jittered.T, -1)).sum(0)
    return {"logits": flat(logits), "covariance": flat(covariance), "normals": flat(normals),
            "monte_carlo": flat(few), "probit": flat(probit), "bridge": flat(alpha / alpha.sum()),
            "integral": flat(exact)}


def temperature():
    n, classes = 40, 4
    logits = draw(n, classes, scale=3.0)
    labels = torch.distributions.Categorical(logits=logits / 2.5).sample()

    def nll(log_t):
        return torch.nn.functional.cross_entropy(logits / log_t.exp(), labels)

    log_t = torch.tensor(0.0, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_t], max_iter=500, tolerance_grad=1e-15, tolerance_change=1e-16,
                                  line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nll(log_t)
        loss.backward()
        return loss

    optimizer.step(closure)
    return {"logits": flat(logits), "labels": labels.tolist(), "temperature": log_t.exp().item(),
            "nll": nll(log_t).item(), "nll_before": nll(torch.tensor(0.0)).item()}


if __name__ == "__main__":
    shape = {"tokens": TOKENS, "rank": RANK, "d_input": D_IN, "d_output": D_OUT, "hidden": HIDDEN,
             "scaling": SCALING}
    document = {"generator": f"tests/baselines/reference.py, torch {torch.__version__}, numpy "
                             f"{np.__version__}, float64, seed 20250822", "shape": shape}
    for case in (element, flipout, scala_bl, c_lora, laplace, predictive, temperature):
        document[case.__name__] = case()
    print("{")
    print(",\n".join(f'"{k}": ' + (json.dumps(v) if not isinstance(v, dict) else
          "{\n" + ",\n".join(f'  "{n}": {json.dumps(w)}' for n, w in v.items()) + "\n}")
          for k, v in document.items()))
    print("}")
