"""One fine-tuning step with LoRA in PyTorch and peft, timed: the other side of `cargo xtask bench`.

    python torch_step.py --config nano --steps 10 --warmup 2 --threads 2
    python torch_step.py --config base --mode forward
    python torch_step.py --config llama-1b --dtype bfloat16 --device cuda
    python torch_step.py --config smollm2 --mode generate --batch 1 --length 8 --generate 64

The shapes are those of `benches/src/models`, or of a folder `models` beside the script. The weights are random (drawn on
the device with a fixed seed; nothing is downloaded). A step is forward, cross-entropy, backward, clipping of the gradient
norm at 0.1 and AdamW; LoRA rank 8, alpha 16. A DeBERTa-v3 has an adapter on the six kinds of linear layers, pooler and
classifier trained; a Llama has adapters on queries and values, and answers at the last position by the logits of two
tokens: nothing else of the head is computed, and no cache is kept. With `--dtype bfloat16` base, activations, pooler and
classifier have that type, and the factors single precision, as peft makes them. With `--mode generate` it has no adapter, and a step continues every sequence
by the most likely tokens, with a cache. Every sequence is full (no padding). Prints one line
of JSON: `seconds` per step (or forward pass) and `forward_seconds` (with the loss), `peak_rss_bytes`, the largest
resident memory of the whole process with Python and the libraries in it, and on a GPU `reserved_bytes`, the most that
PyTorch's allocator held.
"""

import argparse
import json
import os
import platform
import resource
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import (  # noqa: E402
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

TARGETS = ["query_proj", "key_proj", "value_proj", "attention.output.dense", "intermediate.dense", "output.dense"]
HERE = Path(__file__).resolve().parent
MODELS = next(folder for folder in (HERE / "models", HERE / "../../benches/src/models") if folder.is_dir())
SIZES = {file.stem: json.loads(file.read_text()) for file in MODELS.glob("*.json")}
KINDS = {name: sizes.pop("model_type") for name, sizes in SIZES.items()}
ANSWERS = [11, 22]


class Choice(torch.nn.Module):
    """A Llama that chooses between two answer tokens after the last position."""

    def __init__(self, config, dtype):
        super().__init__()
        lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
        self.model = get_peft_model(LlamaForCausalLM(config).to(dtype), lora)
        self.decoder = self.model.get_base_model().model

    def forward(self, input_ids, attention_mask):
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, -1]
        return hidden @ self.decoder.embed_tokens.weight[ANSWERS].T


def llama_config(name, **more):
    sizes = dict(SIZES[name])
    rope = {"rope_type": "default", "rope_theta": sizes.pop("rope_theta")}
    return LlamaConfig(**sizes, rope_parameters=rope, **more)


def build(name, dropout, dtype):
    """The adapted model, which gives logits; dropout 0.1 everywhere DeBERTa has it if `dropout`, else none."""
    if KINDS[name] == "llama":
        return Choice(llama_config(name, use_cache=False), dtype)
    p = 0.1 if dropout else 0.0
    rates = {"hidden_dropout_prob": p, "attention_probs_dropout_prob": p}
    model = DebertaV2ForSequenceClassification(DebertaV2Config(**{**SIZES[name], **rates}, num_labels=2)).to(dtype)
    lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS, task_type="SEQ_CLS",
                      modules_to_save=["pooler", "classifier"])
    return get_peft_model(model, lora)


def generate(args):
    """Seconds of each continuation by `args.generate` tokens, and the model."""
    config = llama_config(args.config, eos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).to(args.device, getattr(torch, args.dtype)).eval()
    ids = torch.randint(3, config.vocab_size, (args.batch, args.length)).to(args.device)
    seconds = []
    for i in range(args.warmup + args.steps):
        start = time.perf_counter()
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.generate, do_sample=False)
        seconds.append(time.perf_counter() - start)
        assert found.shape[1] == args.length + args.generate, found.shape
    return seconds[args.warmup:], model


def logits(output):
    return output if isinstance(output, torch.Tensor) else output.logits


def report(args, model, trainable, seconds, forward_seconds, **more):
    # ru_maxrss counts KiB on Linux and bytes on macOS.
    if args.device != "cpu":
        more["reserved_bytes"] = torch.cuda.max_memory_reserved(args.device)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({
        "framework": "torch", "config": args.config, "mode": args.mode, "batch": args.batch, "length": args.length,
        "threads": args.threads, "dropout": args.dropout, "dtype": args.dtype,
        "trainable_parameters": sum(p.numel() for p in trainable),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": [round(t, 6) for t in seconds],
        "forward_seconds": [round(t, 6) for t in forward_seconds],
        "peak_rss_bytes": rss,
        **more,
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "transformers": transformers.__version__, "peft": peft.__version__},
    }))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(name for name, kind in KINDS.items() if kind in ("deberta-v2", "llama"))
    parser.add_argument("--config", choices=known, default="nano")
    parser.add_argument("--mode", choices=["train", "forward", "generate"], default="train")
    parser.add_argument("--generate", type=int, default=64, help="new tokens of each sequence, with `--mode generate`")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the base")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="cpu", help="cpu or cuda[:N]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--dropout", action="store_true", help="dropout 0.1 in the backbone")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if min(args.batch, args.length, args.threads, args.steps) < 1 or args.warmup < 0:
        parser.error("batch, length, threads and steps must be at least 1 and warmup at least 0")
    is_llama = KINDS[args.config] == "llama"
    if args.dropout and is_llama:
        parser.error("a Llama has no dropout in its backbone")
    if args.mode == "generate" and not is_llama:
        parser.error("an encoder continues no text")

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.mode == "generate":
        seconds, model = generate(args)
        report(args, model, [], seconds, [], tokens=args.batch * args.generate)
        return
    with torch.device(args.device):
        model = build(args.config, args.dropout, getattr(torch, args.dtype))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3)
    vocabulary = SIZES[args.config]["vocab_size"]
    batches = [
        {"input_ids": torch.randint(3, vocabulary, (args.batch, args.length)).to(args.device),
         "attention_mask": torch.ones(args.batch, args.length, dtype=torch.long, device=args.device)}
        for _ in range(4)
    ]
    labels = torch.arange(args.batch, device=args.device) % 2

    steps, forwards = [], []
    model.train(args.mode == "train")
    for i in range(args.warmup + args.steps):
        batch = batches[i % len(batches)]
        start = time.perf_counter()
        if args.mode == "forward":
            with torch.inference_mode():
                logits(model(**batch))
            middle = time.perf_counter()
        else:
            loss = torch.nn.functional.cross_entropy(logits(model(**batch)).float(), labels)
            middle = time.perf_counter()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainable, 0.1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if args.device != "cpu":
            torch.cuda.synchronize(args.device)
        end = time.perf_counter()
        if i >= args.warmup:
            forwards.append(middle - start)
            if args.mode == "train":
                steps.append(end - start)

    report(args, model, trainable, steps or forwards, forwards, **({"loss": loss.item()} if steps else {}))


if __name__ == "__main__":
    main()
