"""ONNX files and sentence-transformers folders of `lrvd export` in ONNX Runtime and sentence-transformers.

    onnx_check.py --program LRVD [--base DIR …]        # what `cargo xtask onnx-check` calls

Trains classifiers on tiny random models of every family of encoders, and on the bases that are named, exports them, and compares
what the libraries answer with `lrvd predict` on texts of 1 to 128 tokens and a longer one, in batches of mixed lengths. Prints the
largest difference of each; exit status 1 if one is above the tolerance.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[2]
NANO = ROOT / "crates/lrvd-bench/assets/deberta-v3-nano"
TOLERANCE = 1e-5
# Of probabilities and numbers in 8 bits: the random models here have logits far from 0.
ROUNDED = 0.3
# Texts that torch rounds, too, and the share of them that must agree: where libraries differ by an ulp a value may be rounded to the
# neighbouring step, the more often the longer a text is.
SHORT = 24
AGREEING = 0.5
# Longest input, special tokens included.
LENGTH = 128
WORDS = [f"word{number}" for number in range(80)] + ["good", "bad", "fine", "dull"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
DEBERTA = {**SIZES, "relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
# Tiny random models: class of transformers, and its settings.
BASES = {
    "bert": ("Bert", {**SIZES, "max_position_embeddings": 140}),
    "roberta": ("Roberta", {**SIZES, "max_position_embeddings": 140, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", {**SIZES, "max_position_embeddings": 140, "type_vocab_size": 1}),
    "distilbert": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 140}),
    "mpnet": ("MPNet", {**SIZES, "max_position_embeddings": 140}),
    "modernbert": ("ModernBert", {**SIZES, "num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 16, "max_position_embeddings": 140, "bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}),
    "deberta-v3": ("DebertaV2", {**DEBERTA, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 16, "max_relative_positions": 64}),
    "deberta-v2": ("DebertaV2", {**DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu", "max_relative_positions": 24}),
}
# The norm of its head is no module of sentence-transformers.
ONNX_ONLY = ("modernbert", "first")
# Base, what the head reads, what is answered, pairs of texts.
CASES = [
    ("bert", "first", "classes", False),
    ("bert", "mean", "classes", True),
    ("bert", "mean", "labels", False),
    ("bert", "first", "number", True),
    ("roberta", "first", "classes", True),
    ("xlm-roberta", "mean", "number", False),
    ("distilbert", "first", "classes", False),
    ("distilbert", "mean", "labels", False),
    ("mpnet", "first", "labels", False),
    ("mpnet", "mean", "classes", False),
    ("modernbert", "first", "classes", False),
    ("modernbert", "mean", "labels", True),
    ("deberta-v3", "first", "classes", True),
    ("deberta-v3", "mean", "number", False),
    ("deberta-v2", "first", "labels", False),
    ("deberta-v2", "mean", "classes", False),
    (NANO, "first", "classes", False),
]


def tiny(name, folder):
    """A random model of a family, with a tokenizer of a few words."""
    family, settings = BASES[name]
    torch.manual_seed(len(name))
    config = getattr(transformers, f"{family}Config")(vocab_size=len(SPECIAL + WORDS), pad_token_id=1, initializer_range=0.3, **settings)
    getattr(transformers, f"{family}Model")(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.post_processor = template
    names = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
    # Only a BERT here has segments.
    names["model_input_names"] = ["input_ids", "attention_mask"] + ["token_type_ids"] * (name == "bert")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def text(generator, words):
    return " ".join(generator.choices(WORDS, k=words))


def rows(generator, number, answers, pairs):
    """Rows to train on. Numbers and sets of labels are random; classes tell long texts from short ones, since random ones are answered
    best by a temperature that makes all answers alike."""
    for _ in range(number):
        words = generator.randint(1, 40)
        row = {"text": text(generator, words)}
        if pairs:
            row["pair"] = text(generator, generator.randint(1, 40))
        labels = {
            "classes": ["bad", "fine", "good"][words // 14],
            "labels": generator.sample(["long", "new", "odd"], generator.randint(0, 3)),
            "number": round(generator.uniform(-2, 2), 3),
        }
        yield {**row, "label": labels[answers]}


def inputs(generator, pairs):
    """Texts of every length up to the longest that is read, and a longer one, in no order."""
    lengths = [*range(1, LENGTH - 1), 2 * LENGTH]
    generator.shuffle(lengths)
    for length in lengths:
        first = max(1, length // 2) if pairs else length
        row = {"text": text(generator, first)}
        yield {**row, "pair": text(generator, max(1, length - first - 1))} if pairs else row


def write(file, some):
    file.write_text("".join(json.dumps(row) + "\n" for row in some))


def run(*words):
    done = subprocess.run([str(word) for word in words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: exit code {done.returncode}"
    return done.stdout


def batches(items, generator):
    """One alone, one long with one short, the others in batches of mixed lengths."""
    order = sorted(range(len(items)), key=lambda at: len(items[at]["text"]))
    yield [order[0]]
    yield [order[0], order[-1]]
    generator.shuffle(order)
    while order:
        size = generator.choice([1, 2, 5, 8])
        yield order[:size]
        order = order[size:]


def linked(logits, facts):
    """The answer that belongs to logits, as `lrvd predict` prints it."""
    logits = torch.as_tensor(logits, dtype=torch.float64)
    if facts["function"] == "identity":
        return logits.numpy()
    logits = logits / facts["temperature"]
    return (torch.softmax(logits, -1) if facts["function"] == "softmax" else torch.sigmoid(logits)).numpy()


def check_onnx(folder, name, items, expected, generator):
    """The largest difference of the outputs from `expected`, and the answers to each text."""
    file = folder / "onnx" / name
    onnx.checker.check_model(str(file), full_check=True)
    facts = json.loads((folder / "config.json").read_text())["lrvd"]
    session = onnxruntime.InferenceSession(file)
    stored = session.get_modelmeta().custom_metadata_map
    assert {key: str(value) if isinstance(value, str) else json.loads(stored[f"lrvd.{key}"]) for key, value in facts.items()} == facts, stored
    tokenizer = AutoTokenizer.from_pretrained(folder)
    names = [one.name for one in session.get_inputs()]
    outputs = [one.name for one in session.get_outputs()]
    assert outputs == ["logits"] + ["probabilities"] * (facts["function"] != "identity"), outputs
    largest, answers = 0.0, np.zeros_like(expected)
    for batch in batches(items, generator):
        texts = [items[at]["text"] for at in batch]
        pairs = [items[at]["pair"] for at in batch] if "pair" in items[0] else None
        encoded = tokenizer(texts, pairs, padding=True, truncation=True, return_tensors="np")
        assert encoded["input_ids"].shape[1] <= LENGTH, encoded["input_ids"].shape
        found = session.run(None, {name: encoded[name].astype(np.int64) for name in names})
        for own in [found[-1], linked(found[0], facts)]:
            largest = max(largest, np.abs(own - expected[batch]).max())
        answers[batch] = found[-1]
    return largest, answers


def sentence_logits(model, items, batch_size):
    texts = [(row["text"], row["pair"]) if "pair" in row else row["text"] for row in items]
    return model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def check_sentences(folder, items, expected, facts):
    model = SentenceTransformer(str(folder), device="cpu")
    return np.abs(linked(sentence_logits(model, items, 8), facts) - expected).max()


def in_bytes(weight):
    """A matrix with 63 steps for the largest value of each row."""
    step = (weight.abs().amax(-1, keepdim=True) / 63).clamp_min(1e-30)
    return (weight / step).round() * step


class RoundedLinear(torch.nn.Module):
    """A layer whose weight is in bytes, and whose input is rounded to 255 steps from its least to its largest value."""

    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias = in_bytes(layer.weight.detach()), layer.bias

    def forward(self, x):
        low, high = x.min().clamp(max=0), x.max().clamp(min=0)
        step = (high - low) / 255
        zero = (-low / step).round().clamp(0, 255)
        x = (((x / step).round() + zero).clamp(0, 255) - zero) * step
        return torch.nn.functional.linear(x, self.weight, self.bias)


def round_layers(module):
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear):
            setattr(module, name, RoundedLinear(child))
        elif name in ["word_embeddings", "tok_embeddings"]:
            child.weight.data = in_bytes(child.weight.data)
        else:
            round_layers(child)


def check_rounding(folder, name, sentences, items):
    """Quantile of the differences of logits in ONNX Runtime and by the same rounding in torch, on short texts one by one."""
    model = SentenceTransformer(str(sentences), device="cpu")
    round_layers(model)
    items = sorted(items, key=lambda row: len(row["text"]))[:SHORT]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    session = onnxruntime.InferenceSession(folder / "onnx" / name)
    names = [one.name for one in session.get_inputs()]
    differences = []
    for row, expected in zip(items, sentence_logits(model, items, 1), strict=True):
        encoded = tokenizer([row["text"]], [row["pair"]] if "pair" in row else None, truncation=True, return_tensors="np")
        found, *_ = session.run(["logits"], {name: encoded[name].astype(np.int64) for name in names})
        differences.append(np.abs(found[0] - expected).max())
    return np.quantile(differences, AGREEING)


def check(lrvd, base, pooling, answers, pairs, has_sentences, folder):
    generator = random.Random(str((base, pooling, answers)))
    train, held_out, new = (folder / f"{name}.jsonl" for name in ["train", "held-out", "new"])
    write(train, rows(generator, 60, answers, pairs))
    write(held_out, rows(generator, 40, answers, pairs))
    items = list(inputs(generator, pairs))
    write(new, items)
    options = {"classes": [], "labels": ["--multi-label"], "number": ["--regression"]}[answers]
    options += ["--pair-column", "pair"] if pairs else []
    # A random model takes larger steps than a trained one, which would answer all texts alike.
    is_tiny = base == folder / "base"
    rate = "1e-2" if is_tiny else "1e-3"
    options += ["--steps", 12, "--rank", 3, "--batch-size", 8, "--learning-rate", rate, "--max-length", LENGTH, "--seed", 3]
    run(lrvd, "train", "--quiet", "--model", base, "--train", train, "--validation", held_out, "--set", f"pooling={pooling}", "--out", folder / "run", *options)
    lines = run(lrvd, "predict", "--quiet", folder / "run", "--input", new, "--draws", 0, "--format", "jsonl").splitlines()
    answered = [json.loads(line) for line in lines]
    expected = np.array([[row["predicted"]] if answers == "number" else row["probs"] for row in answered])
    # Answers that are all alike would agree with anything.
    assert expected.std(0).max() > 1e-3, expected.std(0)
    run(lrvd, "export", "--quiet", "--to", "onnx", folder / "run", "--out", folder / "onnx", "--verify")
    largest, _ = check_onnx(folder / "onnx", "model.onnx", items, expected, generator)
    yield "onnx", largest, TOLERANCE
    run(lrvd, "export", "--quiet", "--to", "onnx", "--int8", folder / "run", "--out", folder / "int8")
    quantised = "model_quantized.onnx"
    largest, rounded = check_onnx(folder / "int8", quantised, items, expected, generator)
    alike = "" if answers == "number" else f" {np.mean(rounded.argmax(-1) == expected.argmax(-1)):.1%} of the answers alike,"
    share = (folder / "int8/onnx" / quantised).stat().st_size / (folder / "onnx/onnx/model.onnx").stat().st_size
    yield f"onnx in 8 bits,{alike} {share:.2f} of the size", largest, ROUNDED
    if has_sentences:
        run(lrvd, "export", "--quiet", "--to", "sentence-transformers", folder / "run", "--out", folder / "sentences")
        facts = json.loads((folder / "onnx/config.json").read_text())["lrvd"]
        yield "sentence-transformers", check_sentences(folder / "sentences", items, expected, facts), TOLERANCE
        # Of the many values of a larger model some are always at the edge of two steps.
        if is_tiny:
            yield "onnx in 8 bits as torch rounds", check_rounding(folder / "int8", quantised, folder / "sentences", items), TOLERANCE


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask onnx-check")
    parser.add_argument("--program", metavar="LRVD", type=Path, required=True, help="a built `lrvd`")
    parser.add_argument("--base", metavar="DIR", type=Path, action="append", default=[], help="another base, with a head on its usual pooling and one on the mean")
    parser.add_argument("--only", metavar="WORDS", default="", help="only cases whose name contains these words")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    others = [(base.resolve(), pooling, "classes", False) for base in arguments.base for pooling in ["first", "mean"]]
    failed = False
    with tempfile.TemporaryDirectory() as work:
        for base, pooling, answers, pairs in CASES + others:
            name = f"{getattr(base, 'name', base)}, {pooling}, {answers}{', pairs' if pairs else ''}"
            if arguments.only not in name:
                continue
            folder = Path(work) / name.replace(", ", "-")
            folder.mkdir()
            has_sentences = (base, pooling) != ONNX_ONLY
            if base in BASES:
                tiny(base, folder / "base")
                base = folder / "base"
            for form, difference, most in check(arguments.program.resolve(), base, pooling, answers, pairs, has_sentences, folder):
                is_wrong = not difference <= most
                failed |= is_wrong
                print(f"{'FAILED' if is_wrong else 'ok':6} {name}, {form}: {difference:.1e}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
