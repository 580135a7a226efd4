"""Continuations by llama.cpp, timed: the other side of the generation group of `cargo xtask bench`.

    python llama_cpp_generate.py --config smollm2 --base q8 --batch 8 --length 8 --generate 64 --threads 2

Needs the packages llama-cpp-python and gguf. The weights are random, of the shape of SmolLM2-135M, written to a GGUF file
in a temporary folder without a vocabulary. Every step continues `--batch` prompts of `--length` random tokens by
`--generate` tokens, each the most likely one; the prompts are read in one batch, and every token of all prompts in one more.
Prints one line of JSON: `seconds` for each step and `peak_rss_bytes`.
"""

import argparse
import json
import platform
import resource
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

SIZES = dict(layers=30, hidden=576, heads=9, key_heads=3, wide=1536, vocab=49152)
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
         "q8": gguf.GGMLQuantizationType.Q8_0}


def write(path, base, random):
    """A Llama with random weights, whose head is its embedding."""
    s = SIZES
    narrow = s["hidden"] // s["heads"] * s["key_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_block_count(s["layers"])
    writer.add_embedding_length(s["hidden"])
    writer.add_feed_forward_length(s["wide"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["key_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(s["vocab"])
    writer.add_tokenizer_model("no_vocab")

    def matrix(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32) * 0.02
        data = values if base == "f32" else gguf.quants.quantize(values, TYPES[base])
        writer.add_tensor(name + ".weight", data, raw_dtype=TYPES[base])

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(s["hidden"], dtype=np.float32))

    matrix("token_embd", s["vocab"], s["hidden"])
    norm("output_norm")
    for layer in range(s["layers"]):
        at = f"blk.{layer}."
        norm(at + "attn_norm")
        norm(at + "ffn_norm")
        matrix(at + "attn_q", s["hidden"], s["hidden"])
        matrix(at + "attn_k", narrow, s["hidden"])
        matrix(at + "attn_v", narrow, s["hidden"])
        matrix(at + "attn_output", s["hidden"], s["hidden"])
        matrix(at + "ffn_gate", s["wide"], s["hidden"])
        matrix(at + "ffn_up", s["wide"], s["hidden"])
        matrix(at + "ffn_down", s["hidden"], s["wide"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=["smollm2"], default="smollm2")
    parser.add_argument("--base", choices=sorted(TYPES), default="f32", help="type of the weights")
    parser.add_argument("--batch", type=int, default=1, help="prompts")
    parser.add_argument("--length", type=int, default=8, help="tokens of a prompt")
    parser.add_argument("--generate", type=int, default=64, help="new tokens of each prompt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="timed steps")
    parser.add_argument("--warmup", type=int, default=1, help="steps before the clock starts")
    args = parser.parse_args()

    random = np.random.default_rng(0)
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.gguf"
        write(path, args.base, random)
        loading = llama_cpp.llama_model_default_params()
        # AMX, which not every virtual machine that lists it can run.
        loading.use_extra_bufts = False
        model = llama_cpp.llama_model_load_from_file(path.encode(), loading)
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = args.batch * 256
    settings.n_seq_max = args.batch
    settings.n_threads = settings.n_threads_batch = args.threads
    context = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(args.batch * args.length, 0, 1)

    def read(rows, first):
        """The most likely token after `rows`, which continue what was read of each sequence up to position `first`."""
        tokens = [(row, first + i, token, i + 1 == len(ids)) for row, ids in enumerate(rows) for i, token in enumerate(ids)]
        batch.n_tokens = len(tokens)
        for i, (row, position, token, is_last) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, is_last
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = row
        if llama_cpp.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        ends = [i for i, (*_, is_last) in enumerate(tokens) if is_last]
        logits = (llama_cpp.llama_get_logits_ith(context, i) for i in ends)
        return [[int(np.ctypeslib.as_array(row, (SIZES["vocab"],)).argmax())] for row in logits]

    prompts = random.integers(3, SIZES["vocab"], (args.batch, args.length)).tolist()
    seconds = []
    for _ in range(args.warmup + args.steps):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        start = time.perf_counter()
        rows = read(prompts, 0)
        for i in range(1, args.generate):
            rows = read(rows, args.length + i - 1)
        seconds.append(time.perf_counter() - start)
    # ru_maxrss counts KiB on Linux and bytes on macOS.
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({
        "framework": "llama.cpp", "config": args.config, "base": args.base, "batch": args.batch, "length": args.length,
        "threads": args.threads, "tokens": args.batch * args.generate,
        "seconds": [round(t, 6) for t in seconds[args.warmup:]], "peak_rss_bytes": rss,
        "versions": {"python": platform.python_version(), "llama-cpp-python": llama_cpp.__version__},
    }))


if __name__ == "__main__":
    main()
