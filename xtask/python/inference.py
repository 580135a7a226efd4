"""Answers to texts by one classifier, timed: the sides of the group `inference` of `cargo xtask bench`.

    inference.py --side lrvd --config minilm --program LRVD --folder DIR [--inputs DIR]

A step answers the texts of a window of `lrvd predict`, which are 32 batches, in batches of like length: `lrvd` by `lrvd predict`, which
reads lines and prints JSON; `onnxruntime` on the file of `lrvd export --to onnx`; `sentence-transformers` on the folder of
`lrvd export --to sentence-transformers`, which is PyTorch. All start from texts, so tokens are a part of the time, and loading is
not. `--int8` has both of them multiply in eight bits. Every side must give the probabilities of `lrvd predict` to 1e-5, or .02
in eight bits. Prints one line of JSON: `seconds` of each step,
`texts_per_step` and `peak_rss_bytes`.
"""

import argparse
import json
import os
import subprocess
import time

from exported import BATCH, Exported, arguments, peak, versions

# Batches of a window of `lrvd predict`.
WINDOW = 32


def by_lrvd(exported, options):
    """Seconds and probabilities of each step, and the peak. The windows of a process double up to the largest: those are for warm-up."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(options.threads)}
    with subprocess.Popen(exported.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process:

        def step(texts):
            lines = "".join(f"{text}\n" for text in exported.cycled(texts))
            start = time.perf_counter()
            process.stdin.write(lines)
            process.stdin.flush()
            answers = [process.stdout.readline() for _ in range(texts)]
            return time.perf_counter() - start, [json.loads(answer)["probs"] for answer in answers]

        sizes = [options.batch << place for place in range(WINDOW.bit_length() - 1)]
        sizes += [WINDOW * options.batch] * (options.warmup - 1)
        for size in sizes:
            step(size)
        steps = [step(WINDOW * options.batch) for _ in range(options.steps)]
        most = peak(process)
        process.stdin.close()
    return [seconds for seconds, _ in steps], steps[-1][1], most


def timed(exported, options, answer):
    texts = exported.cycled(WINDOW * options.batch)
    seconds = []
    for _ in range(options.warmup + options.steps):
        start = time.perf_counter()
        answers = answer(texts)
        seconds.append(time.perf_counter() - start)
    return seconds[options.warmup:], answers, peak()


def by_onnxruntime(exported, options):
    answer = exported.onnx_answers(options.threads)
    return timed(exported, options, lambda texts: answer(texts, options.batch))


def by_sentence_transformers(exported, options):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(options.threads)
    model = SentenceTransformer(str(exported.sentences), device="cpu")
    encode = lambda texts: model.encode(texts, batch_size=options.batch, show_progress_bar=False, convert_to_tensor=True)
    return timed(exported, options, lambda texts: torch.softmax(encode(texts).double(), -1).tolist())


SIDES = {"lrvd": by_lrvd, "onnxruntime": by_onnxruntime, "sentence-transformers": by_sentence_transformers}
PACKAGES = ["onnxruntime", "sentence-transformers", "tokenizers", "torch", "transformers"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES, required=True)
    arguments(parser)
    options = parser.parse_args()
    options.batch = BATCH[options.config]
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    exported = Exported(options)
    seconds, answers, most = SIDES[options.side](exported, options)
    exported.check(answers)
    print(json.dumps({
        "config": options.config, "side": options.side, "batch": options.batch, "texts_per_step": WINDOW * options.batch,
        "seconds": [round(t, 6) for t in seconds], "peak_rss_bytes": most, "versions": versions(PACKAGES),
    }))


if __name__ == "__main__":
    main()
