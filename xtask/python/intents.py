"""Intents by PEFT's LoRA, by logistic regression and by SetFit: the other side of docs/results/intents.md.

    python intents.py peft MINILM train.csv test.csv --seed 1 --steps 762 --held-out RUN/predictions-last.jsonl
    python intents.py logistic MINILM train.csv test.csv --held-out RUN/predictions-last.jsonl --out-of-scope oos.csv
    python intents.py sample DRAW train.csv test.csv --rows 8 --classes 12 --seed 1
    python intents.py setfit MINILM DRAW/train.csv DRAW/test.csv --seed 1

MINILM is the published folder of sentence-transformers/all-MiniLM-L6-v2; the files have the columns `text` and `label`.
RUN is the output of `lrvd train` on the same file: its validation rows do not train here either, and they fit a temperature as
there (`shrunk_temperature` of lrvd-core). Without `--held-out` all rows train, and there is none.

`peft` trains LoRA of rank 8 and alpha 16 on the six kinds of linear layers of every block, the pooler and a classifier by
the settings of lrvd's preset `default`: AdamW with weight decay .01 on the matrices of pooler and classifier only, rates 1e-3 and
1e-2 for the classifier, warm-up from 0 over .06 of the steps and linear decay, gradient norm at most .1, batches of 32 whose
quarters of like lengths are run one after the other. `logistic` fits scikit-learn's LogisticRegression to the normalised mean of
the last hidden states; of C = 16, 64, 256, 1024 it takes the best by three-fold cross-validated log loss on the rows that train.
`sample` draws classes that have the rows, and so many rows of each, and writes them and the test rows of these classes to the
folder DRAW. `setfit` is SetFit as published: of each row 20 pairs of its class and 20 others, batches of 16, one epoch, then
scikit-learn's regression.
Prints one line of JSON, with the metrics without and, under `tempered`, with the temperature; AUROC is of the largest probability,
texts out of scope against test texts. `--out` gets the probabilities of the test rows, with the temperature, as `lrvd eval --out`
writes them.
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
    groups = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = 0.0 if "lora_" in name or parameter.dim() < 2 else 1e-2
            groups.setdefault((1e-2 if "classifier" in name else 1e-3, decay), []).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": group, "lr": rate, "weight_decay": decay} for (rate, decay), group in groups.items()]
    )
    warmup = int(0.06 * arguments.steps)
    rate = lambda step: step / warmup if step < warmup else (arguments.steps - step) / (arguments.steps - warmup)  # noqa: E731
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
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

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


def fit_setfit(arguments, _, rows, names):
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(arguments.model)
    settings = TrainingArguments(
        output_dir=arguments.scratch, seed=arguments.seed, num_iterations=20, save_strategy="no", report_to="none"
    )
    Trainer(model=model, args=settings, train_dataset=Dataset.from_list([{"text": t, "label": l} for t, l in rows])).train()
    columns = [list(model.model_head.classes_).index(name) for name in names]
    return lambda texts: model.predict_proba(texts).numpy()[:, columns]


def sample(arguments, rows, test):
    random, counts = np.random.default_rng(arguments.seed), {}
    for _, label in rows:
        counts[label] = counts.get(label, 0) + 1
    rich = sorted(label for label, count in counts.items() if count >= arguments.rows)
    classes = sorted(random.choice(rich, arguments.classes or len(rich), replace=False).tolist())
    drawn = [
        rows[i]
        for label in classes
        for i in random.choice([i for i, row in enumerate(rows) if row[1] == label], arguments.rows, replace=False)
    ]
    os.makedirs(arguments.model, exist_ok=True)
    for name, kept in [("train", drawn), ("test", [row for row in test if row[1] in classes])]:
        with open(os.path.join(arguments.model, f"{name}.csv"), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *kept])


def fit_temperature(p, labels):
    """Minimum of n NLL(1/T) + w (ln T)^2 / 2 with w = 4 + 16 NLL''(1), the one next to T = 1."""
    z, n = np.log(p) - np.log(p).max(1, keepdims=True), len(labels)
    target = z[np.arange(n), labels]

    def moments(inverse):
        q = np.exp(inverse * z)
        q /= q.sum(1, keepdims=True)
        mean = (q * z).sum(1)
        return (mean - target).mean(), ((q * z * z).sum(1) - mean**2).mean()

    weight = 4 + 16 * moments(1)[1]
    slope = lambda u: n * np.exp(u) * moments(np.exp(u))[0] + weight * u  # noqa: E731
    side, near, far = -np.sign(slope(0)), 0.0, 1.0
    while slope(side * far) * side < 0:
        near, far = far, 2 * far
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if slope(side * middle) * side < 0 else (near, middle)
    return float(np.exp(-side * near))


def tempered(p, temperature):
    z = np.log(p) / temperature
    q = np.exp(z - z.max(1, keepdims=True))
    return q / q.sum(1, keepdims=True)


def expected_calibration_error(p, labels, bins=15):
    confidence, right = p.max(1), p.argmax(1) == labels
    which = np.minimum(np.ceil(confidence * bins).astype(int) - 1, bins - 1)
    return sum(abs((confidence[which == b] - right[which == b]).sum()) for b in range(bins)) / len(labels)


def area(inside, outside):
    """Probability that a text inside has the larger score, ties counted half."""
    outside = np.sort(outside)
    below, upto = (np.searchsorted(outside, inside, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(outside)))


def measure(p, labels, out):
    found = {
        "accuracy": float((p.argmax(1) == labels).mean()),
        "nll": float(-np.log(p[np.arange(len(labels)), labels]).mean()),
        "ece": float(expected_calibration_error(p, labels)),
    }
    return found if out is None else {**found, "auroc": area(p.max(1), out.max(1))}


FITS = {"peft": train_peft, "logistic": fit_logistic, "setfit": fit_setfit}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=["peft", "logistic", "setfit", "sample"])
    parser.add_argument("model")
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--out-of-scope")
    parser.add_argument("--held-out")
    parser.add_argument("--out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=762)
    parser.add_argument("--clip", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--classes", type=int)
    parser.add_argument("--scratch", default="scratch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows, test = read(arguments.train), read(arguments.test)
    if arguments.method == "sample":
        return sample(arguments, rows, test)
    names = sorted({label for _, label in rows})
    split = lambda rows: ([text for text, _ in rows], np.array([names.index(label) for _, label in rows]))  # noqa: E731
    held = set()
    if arguments.held_out:
        with open(arguments.held_out, encoding="utf-8") as file:
            held = {int(json.loads(line)["id"]) for line in file}
    trained = [row for i, row in enumerate(rows) if i not in held]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    start = time.perf_counter()
    predict = FITS[arguments.method](arguments, tokenizer, trained, names)
    seconds = time.perf_counter() - start
    (texts, labels), out, temperature = split(test), None, 1.0
    p = predict(texts)
    if arguments.out_of_scope:
        out = predict([text for text, _ in read(arguments.out_of_scope)])
    result = {**vars(arguments), "rows": len(trained), **measure(p, labels, out)}
    if held:
        held_texts, held_labels = split([rows[i] for i in sorted(held)])
        temperature = fit_temperature(predict(held_texts), held_labels)
        p, out = tempered(p, temperature), None if out is None else tempered(out, temperature)
        result["tempered"] = {"temperature": temperature, "held_out": len(held), **measure(p, labels, out)}
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            for i, (row, label) in enumerate(zip(p.tolist(), labels.tolist())):
                file.write(json.dumps({"id": str(i), "label": label, "probs": {"0": row}}) + "\n")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**result, "training_seconds": seconds, "peak_rss_bytes": memory}))


if __name__ == "__main__":
    main()
