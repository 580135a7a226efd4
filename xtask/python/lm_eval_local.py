"""lm-eval's `local-completions` against a language model of a running `lrvd serve`, on a task of local rows.

    lm_eval_local.py URL --tokenizer DIR [--hf DIR [--peft DIR]]

The task has two choices a row. Each choice's log-likelihood of lm-eval is compared with the difference of two sums: of the log-probabilities
of all tokens, and of those of the context, from requests of this script. With `--hf` (packages `torch`, `transformers` and `peft`) it is
also compared with lm-eval's own model `hf` on these weights. Prints one JSON object; the exit status is 1 where a number differs by more
than 1e-3. `DIR` of `--tokenizer` is the base model's folder. Packages: `lm_eval[api]`, `transformers`.
"""

import argparse
import json
import os
import sys
import tempfile
import urllib.request

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY=os.environ.get("OPENAI_API_KEY", "none"))

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

LIMIT = 1e-3
ROWS = [
    ("Once upon a", ["time there was a girl", "the of and car"], 0),
    ("Lily went to the", ["park to play", "park blue happy"], 0),
    ("Tim had a red", ["car and a ball", "was said it"], 0),
    ("The dog was very", ["girl the a", "happy to see her"], 1),
    ("She was sad", ["because she lost her toy", "and the the"], 0),
    ("They wanted to", ["play outside", "blue day"], 0),
]
TASK = """\
task: lrvd_local
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
target_delimiter: " "
metric_list:
  - metric: acc
"""


def evaluate(model, arguments, folder):
    manager = TaskManager(include_path=folder, include_defaults=False)
    found = simple_evaluate(
        model=model, model_args=arguments, tasks=["lrvd_local"], task_manager=manager, batch_size=1, log_samples=True, bootstrap_iters=0
    )
    samples = sorted(found["samples"]["lrvd_local"], key=lambda sample: sample["doc_id"])
    values = [[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples]
    return found["results"]["lrvd_local"]["acc,none"], values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--hf")
    parser.add_argument("--peft")
    options = parser.parse_args()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    listed = urllib.request.Request(f"{options.url}/v1/models", headers=headers)
    name = json.load(urllib.request.urlopen(listed))["data"][0]["id"]
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)

    def total(ids):
        body = {"model": name, "prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
        request = urllib.request.Request(f"{options.url}/v1/completions", json.dumps(body).encode(), headers)
        found = json.load(urllib.request.urlopen(request))["choices"][0]["logprobs"]["token_logprobs"]
        return sum(found[1:])

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.jsonl")
        with open(file, "w") as rows:
            for context, choices, label in ROWS:
                print(json.dumps({"context": context, "choices": choices, "label": label}), file=rows)
        with open(os.path.join(folder, "lrvd_local.yaml"), "w") as task:
            task.write(TASK.format(file=file))
        own = {
            "model": name,
            "base_url": f"{options.url}/v1/completions",
            "tokenizer": options.tokenizer,
            "tokenizer_backend": "huggingface",
            "tokenized_requests": True,
            # The default of `hf`, and not of `local-completions`.
            "add_bos_token": True,
            "num_concurrent": 1,
            "max_length": 512,
        }
        accuracy, found = evaluate("local-completions", own, folder)
        expected = [
            [total(tokenizer.encode(f"{context} {choice}")) - total(tokenizer.encode(context)) for choice in choices]
            for context, choices, _ in ROWS
        ]
        result = {"rows": len(ROWS), "accuracy": accuracy, "log_likelihoods": found}
        worst = lambda other: max(abs(a - b) for own, row in zip(found, other) for a, b in zip(own, row))
        result["largest_difference"] = worst(expected)
        if options.hf:
            arguments = {"pretrained": options.hf, "tokenizer": options.tokenizer, "dtype": "float32", "device": "cpu"}
            if options.peft:
                arguments["peft"] = options.peft
            result["hf_accuracy"], other = evaluate("hf", arguments, folder)
            result["largest_difference_to_hf"] = worst(other)
    print(json.dumps(result, indent=1))
    return int(max(value for key, value in result.items() if key.startswith("largest")) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
