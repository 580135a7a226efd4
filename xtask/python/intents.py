"""Intents by PEFT's LoRA and by logistic regression: the other side of docs/results/intents.md.

    python intents.py peft MINILM train.csv test.csv --seed 1 --steps 846
    python intents.py logistic MINILM train.csv test.csv --out-of-scope oos.csv

MINILM is the published folder of sentence-transformers/all-MiniLM-L6-v2; the files have the columns `text` and `label`.

`peft` trains LoRA of rank 8 and alpha 16 on the six kinds of linear layers of every block, the pooler and a classifier by
the settings of lrvd's preset `default`: AdamW without weight decay on adapters, .01 on the head, rates 1e-3 and 1e-2 for the
classifier, warm-up over .06 of the steps and linear decay, gradient norm at most .1, batches of 32 whose quarters of like
lengths are run one after the other. `logistic` fits scikit-learn's LogisticRegression to the normalised mean of the last
hidden states; of C = 16, 64, 256, 1024 it takes the best by three-fold cross-validated log loss on the training file. Prints one
line of JSON; AUROC is of the largest probability, texts out of scope against test texts.
"""

import argparse
import csv
import json
import os
import resource
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer  # noqa: E402

TARGETS = ["query", "key", "value", "attention.output.dense", "intermediate.dense", "output.dense"]
BATCH, PARTS, MAX_LENGTH = 32, 4, 128


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


def batches(tokenizer, texts, size):
    """Indices and inputs in batches of like lengths."""
    ids = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    order = sorted(range(len(texts)), key=lambda i: len(ids[i]))
    for start in range(0, len(order), size):
        part = order[start : start + size]
        yield part, tokenizer.pad({"input_ids": [ids[i] for i in part]}, return_tensors="pt")


def answers(tokenizer, texts, answer):
    """A row for each text, of what `answer` makes of a batch of inputs."""
    found = [None] * len(texts)
    with torch.no_grad():
        for part, inputs in batches(tokenizer, texts, BATCH):
            for i, row in zip(part, answer(inputs)):
                found[i] = row.numpy()
    return np.stack(found)


def train_peft(arguments, tokenizer, rows, names):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(arguments.seed)
    base = AutoModelForSequenceClassification.from_pretrained(arguments.model, num_labels=len(names))
    config = LoraConfig(
        task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=TARGETS, modules_to_save=["classifier", "pooler"],
        exclude_modules=["bert.pooler.dense"],
    )
    model = get_peft_model(base, config)
    groups = {"head": [], "pooler": [], "adapter": []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups["adapter" if "lora_" in name else "pooler" if "pooler" in name else "head"].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups["adapter"], "lr": 1e-3, "weight_decay": 0.0},
            {"params": groups["pooler"], "lr": 1e-3, "weight_decay": 1e-2},
            {"params": groups["head"], "lr": 1e-2, "weight_decay": 1e-2},
        ]
    )
    warmup = max(1, round(0.06 * arguments.steps))
    rate = lambda step: min(1, (step + 1) / warmup) * min(1, (arguments.steps - step) / (arguments.steps - warmup))  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    order, step, random = [], 0, np.random.default_rng(arguments.seed)
    model.train()
    while step < arguments.steps:
        if not order:
            shuffled = random.permutation(len(rows)).tolist()
            order = [shuffled[i : i + BATCH] for i in range(0, len(shuffled), BATCH)]
        batch = order.pop(0)
        for part, inputs in batches(tokenizer, [rows[i][0] for i in batch], -(-len(batch) // PARTS)):
            labels = torch.tensor([names.index(rows[batch[i]][1]) for i in part])
            loss = torch.nn.functional.cross_entropy(model(**inputs).logits, labels, reduction="sum") / len(batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_([p for group in groups.values() for p in group], arguments.clip)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        step += 1
    model.eval()
    return lambda texts: answers(tokenizer, texts, lambda inputs: model(**inputs).logits.double().softmax(-1))


def fit_logistic(arguments, tokenizer, rows, names):
    encoder = AutoModel.from_pretrained(arguments.model).eval()

    def mean(inputs):
        mask = inputs["attention_mask"].unsqueeze(-1).float()
        total = (encoder(**inputs).last_hidden_state * mask).sum(1)
        return torch.nn.functional.normalize(total / mask.sum(1), dim=-1)

    embed = lambda texts: answers(tokenizer, texts, mean)  # noqa: E731
    search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": [16, 64, 256, 1024]}, scoring="neg_log_loss", cv=3)
    search.fit(embed([text for text, _ in rows]), [names.index(label) for _, label in rows])
    arguments.c = search.best_params_["C"]
    return lambda texts: search.predict_proba(embed(texts))


def expected_calibration_error(p, labels, bins=15):
    confidence, right = p.max(1), p.argmax(1) == labels
    which = np.minimum(np.ceil(confidence * bins).astype(int) - 1, bins - 1)
    return sum(abs((confidence[which == b] - right[which == b]).sum()) for b in range(bins)) / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=["peft", "logistic"])
    parser.add_argument("model")
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--out-of-scope")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=846)
    parser.add_argument("--clip", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows, test = read(arguments.train), read(arguments.test)
    names = sorted({label for _, label in rows})
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    start = time.perf_counter()
    predict = {"peft": train_peft, "logistic": fit_logistic}[arguments.method](arguments, tokenizer, rows, names)
    seconds = time.perf_counter() - start
    p, labels = predict([text for text, _ in test]), np.array([names.index(label) for _, label in test])
    result = {
        **vars(arguments),
        "accuracy": float((p.argmax(1) == labels).mean()),
        "nll": float(-np.log(p[np.arange(len(labels)), labels]).mean()),
        "ece": float(expected_calibration_error(p, labels)),
        "training_seconds": seconds,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if arguments.out_of_scope:
        out = predict([text for text, _ in read(arguments.out_of_scope)])
        scores = np.concatenate([p.max(1), out.max(1)])
        result["auroc"] = float(roc_auc_score(np.repeat([1, 0], [len(p), len(out)]), scores))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
