"""A decision model of this workspace behind `lrvd serve`, for programs that are not ours."""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The language model of the repository.
TINY = ROOT / "crates/lrvd-bench/assets/stories260K"
DATA = ROOT / "crates/lrvd-cli/tests/cli/data"
# Typed questions to train on, and others to validate on.
TRAIN, VALIDATION = DATA / "decisions.jsonl", DATA / "decided.jsonl"
# Draws of the posterior that a temperature is fitted for, beside its mean.
DRAWS = 10
KEY = "a-key-of-this-test"
KEY_VARIABLE = "LRVD_XTASK_KEY"


def run(*words):
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def train(lrvd, model, out):
    """Trains the language model in `model` on typed questions, with a posterior and a temperature, into `out`."""
    # As long as the model's context: long questions are no reason to fail.
    length = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    options = ["--method", "bayeslora+ts", "--set", f"draws=[{DRAWS}]", "--set", "holdout=0.5", "--steps", 20, "--batch-size", 4, "--rank", 3]
    options += ["--learning-rate", "3e-3", "--max-length", length, "--train", TRAIN, "--validation", VALIDATION]
    run(lrvd, "train", "--quiet", *options, "--model", model, "--out", out)


def fit_threshold(lrvd, trained):
    """Fits a confidence below which no answer is given, for answers at the mean: one that tiny models reach.

    Its rows are the validation rows, six times with another text each: 40 of each type are needed, and none that the run has
    seen.
    """
    rows = [json.loads(line) for line in VALIDATION.read_text().splitlines()]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for number in range(6):
            for row in rows:
                print(json.dumps({**row, "state": {"number": number, "text": row["state"]}}), file=file)
        file.flush()
        run(lrvd, "abstain", "fit", "--draws", 0, "--risk", 0.9, "--delta", 0.5, "--data", file.name, trained)


@contextlib.contextmanager
def serve(lrvd, *options, key=None):
    """The address of a server at a free port, with a key if there is one; it ends with the block."""
    # Nothing here tests how long an answer takes.
    words = [lrvd, "serve", "--quiet", "--format", "json", "--address", "127.0.0.1:0", "--timeout", 3600, *options]
    environment = dict(os.environ)
    if key:
        words += ["--api-key-env", KEY_VARIABLE]
        environment[KEY_VARIABLE] = key
    words = [str(word) for word in words]
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.kill()
