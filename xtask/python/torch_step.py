"""One fine-tuning step with LoRA in PyTorch and peft, timed: the other side of `cargo xtask bench`.

    python torch_step.py --config nano --steps 10 --warmup 2 --threads 2
    python torch_step.py --config base --mode forward
    python torch_step.py --config smollm2 --mode generate --batch 1 --length 8 --generate 64

The weights are random (drawn from the configuration with a fixed seed; nothing is downloaded). A step is forward,
cross-entropy, backward, clipping of the gradient norm at 0.1 and AdamW; LoRA rank 8, alpha 16. `nano` and `base` are
DeBERTa-v3 with an adapter on the six kinds of linear layers, pooler and classifier trained; `smollm2` is a Llama of the
shape of SmolLM2-135M with adapters on queries and values, which answers at the last position by the logits of two
tokens: nothing else of the head is computed, and no cache is kept. With `--mode generate` it has no adapter, and a step continues every sequence
by the most likely tokens, with a cache. Every sequence is full (no padding). Prints one line
of JSON: `seconds` per step (or forward pass) and `forward_seconds` (with the loss), and `peak_rss_bytes`, the largest
resident memory of the whole process with Python and the libraries in it.
"""

import argparse
import json
import os
import platform
import resource
import sys
import time
import warnings

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
SHARED = dict(
    max_position_embeddings=512, relative_attention=True, max_relative_positions=-1, share_att_key=True,
    pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0,
    layer_norm_eps=1e-7, hidden_act="gelu", pooler_hidden_act="gelu", pad_token_id=0, num_labels=2,
)
SIZES = {
    "base": dict(num_hidden_layers=12, hidden_size=768, num_attention_heads=12, intermediate_size=3072,
                 pooler_hidden_size=768, vocab_size=128100, position_buckets=256),
    "nano": dict(num_hidden_layers=4, hidden_size=192, num_attention_heads=3, intermediate_size=768,
                 pooler_hidden_size=192, vocab_size=8064, position_buckets=64),
    "smollm2": dict(num_hidden_layers=30, hidden_size=576, num_attention_heads=9, num_key_value_heads=3,
                    intermediate_size=1536, vocab_size=49152, max_position_embeddings=8192, rms_norm_eps=1e-5,
                    rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, tie_word_embeddings=True,
                    use_cache=False),
}
ANSWERS = [11, 22]


class Choice(torch.nn.Module):
    """A Llama that chooses between two answer tokens after the last position."""

    def __init__(self, config):
        super().__init__()
        lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
        self.model = get_peft_model(LlamaForCausalLM(config), lora)
        self.decoder = self.model.get_base_model().model

    def forward(self, input_ids, attention_mask):
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, -1]
        return hidden @ self.decoder.embed_tokens.weight[ANSWERS].T


def build(name, dropout):
    """The adapted model in float32, which gives logits; dropout 0.1 everywhere DeBERTa has it if `dropout`, else none."""
    if name == "smollm2":
        return Choice(LlamaConfig(**SIZES[name]))
    p = 0.1 if dropout else 0.0
    config = DebertaV2Config(**SHARED, **SIZES[name], hidden_dropout_prob=p, attention_probs_dropout_prob=p,
                             pooler_dropout=0.0)
    model = DebertaV2ForSequenceClassification(config)
    lora = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS, task_type="SEQ_CLS",
                      modules_to_save=["pooler", "classifier"])
    return get_peft_model(model, lora)


def generate(args):
    """Seconds of each continuation by `args.generate` tokens, and the model."""
    config = LlamaConfig(**{**SIZES[args.config], "use_cache": True}, eos_token_id=None, pad_token_id=0)
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
    parser.add_argument("--config", choices=sorted(SIZES), default="nano")
    parser.add_argument("--mode", choices=["train", "forward", "generate"], default="train")
    parser.add_argument("--generate", type=int, default=64, help="new tokens of each sequence, with `--mode generate`")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="with `--mode generate`")
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
    if args.dropout and args.config == "smollm2":
        parser.error("a Llama has no dropout in its backbone")

    if args.mode == "generate" and args.config != "smollm2":
        parser.error("an encoder continues no text")

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.mode == "generate":
        seconds, model = generate(args)
        report(args, model, [], seconds, [], tokens=args.batch * args.generate)
        return
    model = build(args.config, args.dropout).to(args.device)
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
            loss = torch.nn.functional.cross_entropy(logits(model(**batch)), labels)
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

    report(args, model, trainable, steps or forwards, forwards)


if __name__ == "__main__":
    main()
