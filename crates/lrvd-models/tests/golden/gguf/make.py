#!/usr/bin/env python3
"""Write the GGUF fixtures: `python make.py` in this folder (needs `pip install gguf==0.19.0 safetensors numpy`, and for
the Qwen files `torch transformers`).

blocks.gguf         one tensor of every element type that is read, of random blocks
byte_level.gguf     a tiny random Llama with the tokenizer of ../tokenizers/byte_level_bpe
sentencepiece.gguf  the same with the tokenizer of ../tokenizers/llama2_spm_bpe and Llama 3's stretched rotation
qwen2.gguf          a tiny random Qwen2 with biases, with the tokenizer of ../tokenizers/qwen2_bpe
qwen3.gguf          a tiny random Qwen3 with norms of queries and keys and an untied head, with the same tokenizer
*.safetensors       what they hold, by the package's own `dequantize`, under Hugging Face's names
"""
import json
import math
import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter, TokenType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

rng = np.random.default_rng(20261123)
TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split()
# First bytes of the half-precision numbers in a block.
HALVES = dict(Q4_0=[0], Q4_1=[0, 2], Q5_0=[0], Q5_1=[0, 2], Q8_0=[0],
              Q2_K=[80, 82], Q3_K=[108], Q4_K=[0, 2], Q5_K=[0, 2], Q6_K=[208])


def blocks() -> None:
    writer, expected = GGUFWriter("blocks.gguf", "llama"), {}
    for name in TYPES:
        kind = Type[name]
        elements, size = GGML_QUANT_SIZES[kind]
        columns = 5 if elements == 1 else 2 * elements if elements == 32 else elements
        if elements == 1:
            raw = quantize(rng.normal(size=(2, columns)).astype(np.float32), kind)
        else:
            raw = rng.integers(0, 256, size=(2, columns // elements, size), dtype=np.uint8)
            for at in HALVES[name]:
                raw[..., at:at + 2] = rng.normal(size=raw.shape[:2] + (1,)).astype(np.float16).view(np.uint8)
            raw = raw.reshape(2, -1)
        writer.add_tensor(name, raw, raw_dtype=kind)
        expected[name] = np.ascontiguousarray(dequantize(raw, kind).reshape(2, columns))
    finish(writer)
    save_file(expected, "blocks.safetensors")


def permute(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of query and key projections."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def model(path: str, tokenizer: dict, byte_level: bool) -> None:
    hidden, heads, groups, width, inner, layers = 32, 4, 2, 8, 64, 2
    vocab = tokenizer["model"]["vocab"]
    writer, expected = GGUFWriter(path, "llama"), {}
    writer.add_type("model")
    writer.add_block_count(layers)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width)
    tokens = sorted(vocab, key=vocab.get)
    writer.add_token_list(tokens + ([] if byte_level else ["[PAD690]", "[PAD691]"]))
    kinds = [TokenType.NORMAL] * len(tokens)
    if byte_level:
        kinds[:3] = [TokenType.CONTROL] * 3
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        writer.add_pad_token_id(0)
    else:
        kinds = [TokenType.BYTE if t.startswith("<0x") else TokenType.NORMAL for t in tokens]
        kinds[:3] = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
        kinds += [TokenType.UNUSED] * 2
        made = ["".join(pair) for pair in tokenizer["model"]["merges"]]
        rank = {token: made.index(token) for token in set(made)}
        last = len(made)
        scores = [0.0 if kind in (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE)
                  else -float(rank.get(token, last + i)) for i, (token, kind) in enumerate(zip(tokens, kinds))]
        writer.add_tokenizer_model("llama")
        writer.add_token_scores(scores + [-10000.0] * 2)
        writer.add_unk_token_id(0)
        # As llama.cpp's converter writes the stretching of Llama 3: factor 32, 1, 4, 8192.
        factors = []
        for i in range(0, width, 2):
            wavelength = 2 * math.pi * 500000.0 ** (i / width)
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            factors.append(1 if wavelength < 8192 / 4 else 32 if wavelength > 8192
                           else 1 / ((1 - smooth) / 32 + smooth))
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(2 if byte_level else 5)

    def put(own: str, other: str, shape: tuple, kind: str, order: int | None = None) -> None:
        value = rng.normal(scale=0.4, size=shape).astype(np.float32)
        stored = quantize(permute(value, order) if order else value, Type[kind])
        writer.add_tensor(own + ".weight", stored, raw_dtype=Type[kind])
        value = dequantize(stored, Type[kind]).reshape(shape)
        expected[other + ".weight"] = np.ascontiguousarray(unpermute(value, order) if order else value)

    rows = len(tokens) + (0 if byte_level else 2)
    put("token_embd", "model.embed_tokens", (rows, hidden), "Q8_0")
    put("output_norm", "model.norm", (hidden,), "F32")
    if not byte_level:
        put("output", "lm_head", (rows, hidden), "Q4_0")
    for i in range(layers):
        own, other = f"blk.{i}.", f"model.layers.{i}."
        put(own + "attn_norm", other + "input_layernorm", (hidden,), "F32")
        put(own + "attn_q", other + "self_attn.q_proj", (heads * width, hidden), "Q4_1", heads)
        put(own + "attn_k", other + "self_attn.k_proj", (groups * width, hidden), "Q5_0", groups)
        put(own + "attn_v", other + "self_attn.v_proj", (groups * width, hidden), "Q5_1")
        put(own + "attn_output", other + "self_attn.o_proj", (hidden, heads * width), "BF16")
        put(own + "ffn_norm", other + "post_attention_layernorm", (hidden,), "F32")
        put(own + "ffn_gate", other + "mlp.gate_proj", (inner, hidden), "F16")
        put(own + "ffn_up", other + "mlp.up_proj", (inner, hidden), "Q4_0")
        put(own + "ffn_down", other + "mlp.down_proj", (hidden, inner), "Q8_0")
    finish(writer)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in expected:
            expected[name] = np.ascontiguousarray(expected[name][-3:])
    if not byte_level:
        expected = {"lm_head.weight": expected["lm_head.weight"]}
    save_file(expected, path.replace(".gguf", ".safetensors"))


def qwen(path: str, architecture: str, tokenizer: dict, seed: int) -> None:
    """Weights, and logits of a text by transformers, which reads the file itself. Rows are not permuted."""
    random, third = np.random.default_rng(seed), architecture == "qwen3"
    hidden, heads, groups, width, inner, layers = 32, 4, 2, 16 if third else 8, 64, 2
    vocab = tokenizer["model"]["vocab"]
    writer, expected = GGUFWriter(path, architecture), {}
    writer.add_type("model")
    writer.add_block_count(layers)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    if third:
        writer.add_key_length(width)
        writer.add_value_length(width)
    tokens = sorted(vocab, key=vocab.get)
    writer.add_token_list(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_token_types([int(TokenType.CONTROL)] * 3 + [int(TokenType.NORMAL)] * (len(tokens) - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)

    def put(own: str, other: str, shape: tuple, kind: str) -> None:
        value = random.normal(scale=0.4, size=shape).astype(np.float32) + (1 if "norm" in own else 0)
        stored = quantize(value, Type[kind])
        writer.add_tensor(own, stored, raw_dtype=Type[kind])
        if ".self_attn." in other:
            expected[other] = np.ascontiguousarray(dequantize(stored, Type[kind]).reshape(shape))

    put("token_embd.weight", "", (len(tokens), hidden), "Q8_0")
    put("output_norm.weight", "", (hidden,), "F32")
    if third:
        put("output.weight", "", (len(tokens), hidden), "Q4_0")
    for i in range(layers):
        own, other = f"blk.{i}.", f"model.layers.{i}."
        for short, long, rows, columns, kind in (
            ("attn_q", "self_attn.q_proj", heads * width, hidden, "Q8_0"),
            ("attn_k", "self_attn.k_proj", groups * width, hidden, "F16"),
            ("attn_v", "self_attn.v_proj", groups * width, hidden, "Q5_0"),
            ("attn_output", "self_attn.o_proj", hidden, heads * width, "Q8_0"),
            ("ffn_gate", "", inner, hidden, "F16"),
            ("ffn_up", "", inner, hidden, "Q4_0"),
            ("ffn_down", "", hidden, inner, "Q8_0"),
        ):
            put(own + short + ".weight", other + long + ".weight", (rows, columns), kind)
            if not third and short in ("attn_q", "attn_k", "attn_v"):
                put(own + short + ".bias", other + long + ".bias", (rows,), "F32")
        for short in ("attn_norm", "ffn_norm"):
            put(own + short + ".weight", "", (hidden,), "F32")
        if third:
            put(own + "attn_q_norm.weight", other + "self_attn.q_norm.weight", (width,), "F32")
            put(own + "attn_k_norm.weight", other + "self_attn.k_norm.weight", (width,), "F32")
    finish(writer)

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(".", gguf_file=path)
    config.head_dim = width  # which the library does not read from the file
    loaded = AutoModelForCausalLM.from_pretrained(".", gguf_file=path, config=config, dtype=torch.float32).eval()
    with torch.no_grad():
        expected["logits"] = loaded(torch.tensor([[1, 7, 300, 2]])).logits[0, -1].numpy()
    save_file(expected, path.replace(".gguf", ".safetensors"))


def finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    blocks()
    for name, folder in (("byte_level", "byte_level_bpe"), ("sentencepiece", "llama2_spm_bpe")):
        with open(f"../tokenizers/{folder}/tokenizer.json", encoding="utf-8") as file:
            model(f"{name}.gguf", json.load(file), name == "byte_level")
    with open("../tokenizers/qwen2_bpe/tokenizer.json", encoding="utf-8") as file:
        tokenizer = json.load(file)
    for seed, name in enumerate(("qwen2", "qwen3")):
        qwen(f"{name}.gguf", name, tokenizer, seed)
