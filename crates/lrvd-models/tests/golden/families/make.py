#!/usr/bin/env python3
"""Write the fixtures of BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet, ModernBERT, Qwen2, Qwen3 and Mistral:
`python make.py OUT [NAME...]` (needs `pip install torch transformers peft safetensors numpy`); names are starts of folders, such
as `mpnet`.

Tiny random models of transformers, weights stored in f32, everything else computed in float64 from them. The library
casts to single precision in norms, softmax and rotary tables; `double()` below makes those casts casts to float64.
One folder is one case, as ../README.md describes them.
"""
import json
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import peft
import safetensors
import torch
import transformers
from safetensors.numpy import load_file, save_file
from torch.nn.functional import cross_entropy, log_softmax

OUT, STARTS = Path(sys.argv[1]), tuple(sys.argv[2:])
T = transformers
SINGLE = torch.float32


@contextmanager
def double():
    """Runs the library's code with float64 wherever it names float32."""
    to_single = torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = SINGLE
        torch.Tensor.float = to_single
        torch.set_default_dtype(SINGLE)


def wanted(write):
    """`write` of a case, unless other names are asked for."""
    return lambda name, *args, **options: write(name, *args, **options) if name.startswith(STARTS or "") else None


def host(tensor):
    return tensor.detach().cpu().numpy()


def randomise(model, seed):
    """Every parameter away from its initial value, biases and gains too."""
    random = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=random, dtype=torch.float64)
        gain = p.dim() == 1 and name.endswith("weight")
        p.data = ((1.0 + 0.2 * noise) if gain else noise * (0.2 if p.dim() == 1 else 1.4 / p.shape[-1] ** 0.5)).to(p.dtype)
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
            module.weight.data[module.padding_idx] = 0.0


def reloaded(folder, kind, **options):
    return kind.from_pretrained(folder, attn_implementation="eager", dtype=SINGLE, **options).eval()


def ids_and_mask(random, vocab, lengths, left=False, special=None, pad=0):
    columns = max(lengths)
    ids, mask = np.full((len(lengths), columns), pad), np.zeros((len(lengths), columns), int)
    for row, length in enumerate(lengths):
        at = slice(columns - length, columns) if left else slice(0, length)
        ids[row, at] = random.integers(5, vocab, length)
        if special:
            ids[row, 0], ids[row, length - 1] = special
        mask[row, at] = 1
    return ids, mask


def both(load, compute):
    """`compute` of the model in float64 and in float32."""
    model = load().double()
    with double():
        exact = compute(model)
    return exact, compute(load())


def write(folder, kind, inputs, exact, single, mask, extra):
    """`expected.*`: values, and tolerances from what a float32 run of the reference loses."""
    tolerances, stored = {}, {}
    for name, value in exact.items():
        value = host(value)
        rounded = name.startswith(("hidden_states", "kv.prefill", "merged"))
        stored[name] = np.ascontiguousarray(np.atleast_1d(value.astype(np.float32 if rounded else np.float64)))
        here = np.ones_like(value, bool)
        if name.startswith("hidden_states") or name == "logits" and value.ndim == 3:
            here = np.broadcast_to(mask[..., None] == 1, value.shape)
        scale = float(np.abs(value[here]).max(initial=0.0))
        lost = float(np.abs(host(single[name]).astype(float) - value)[here].max(initial=0.0))
        one = lambda x: float(f"{x:.2g}")
        tolerances[name] = dict(scale=scale, f32_err=lost, atol_f32=one(max(16 * lost, 5e-6 * scale, 1e-12)),
                                atol_f64=one(max((1.2e-7 if rounded else 1e-9) * scale, 1e-15)))
    save_file(stored, folder / "expected.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, folder / "inputs.safetensors")
    lengths = [int(n) for n in mask.sum(1)]
    versions = {p.__name__: p.__version__ for p in (torch, transformers, peft, safetensors, np)}
    expected = dict(case=str(folder.relative_to(OUT)), kind=kind, optional=False, lengths=lengths,
                    padded_length=mask.shape[1], tolerances=tolerances, versions=versions, **extra)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def words(count, seed, step, site):
    """Random words of the dropout of a site: Philox4x32-10 (Salmon et al. 2011) under the key `seed`, of counters (block, FNV-1a
    hash of the site's path, step, 4)."""
    wide, low, path = np.uint64, np.uint64(0xFFFFFFFF), 0x811C9DC5
    for byte in site.encode():
        path = (path ^ byte) * 0x01000193 & 0xFFFFFFFF
    c = [np.arange(-(-count // 4), dtype=wide), *(wide(x) for x in (path, step, 4))]
    for turn in range(10):
        k = [wide((seed + turn * 0x9E3779B9) & 0xFFFFFFFF), wide((turn * 0xBB67AE85) & 0xFFFFFFFF)]
        a, b = c[0] * wide(0xD2511F53), c[2] * wide(0xCD9E8D57)
        c = [b >> wide(32) ^ c[1] ^ k[0], b & low, a >> wide(32) ^ c[3] ^ k[1], a & low]
    return np.stack(np.broadcast_arrays(*c), 1).ravel()[:count]


# Of the attention only the function is called, on weights with four axes.
ATTENTION = (T.models.bert.modeling_bert.BertSelfAttention, T.models.distilbert.modeling_distilbert.DistilBertSelfAttention,
             T.models.mpnet.modeling_mpnet.MPNetSelfAttention)


@contextmanager
def keyed_dropout(model, seed, step):
    """Training mode, in which element `e` of a dropout's input stays where the upper 24 bits of word `e` of its site are at least
    `rate * 2^24`."""
    entered, dropout = {}, torch.nn.functional.dropout
    path = lambda name: name.removeprefix("base_model.model.")
    site = lambda name: {"dropout": "classifier.dropout"}.get(name, name.removesuffix(".lora_dropout.default").removesuffix(".dropout"))
    # A head with one module for both of its dropouts.
    twice = iter(["pooler", "classifier.dropout"])
    hooks = []
    for name, module in model.named_modules():
        for kind, axes in [(torch.nn.Dropout, 3), (ATTENTION, 4)]:
            if isinstance(module, kind):
                of = lambda name=site(path(name)): next(twice) if name.startswith("classifier.modules_to_save") else name
                enter = lambda *_, axes=axes, of=of: entered.update({axes: of()})
                hooks.append(module.register_forward_pre_hook(enter))

    def keyed(x, p=0.5, training=True, inplace=False):
        drawn = words(x.numel(), seed, step, entered[4 if x.dim() == 4 else 3]) >> np.uint64(8)
        return x * torch.tensor(drawn >= np.ceil(p * 2**24)).reshape(x.shape).to(x.dtype) / (1 - p)

    torch.nn.functional.dropout = keyed
    model.train()
    yield
    model.eval()
    torch.nn.functional.dropout = dropout
    for hook in hooks:
        hook.remove()


ENCODER = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
               max_position_embeddings=24, layer_norm_eps=1e-12, hidden_dropout_prob=0.1,
               attention_probs_dropout_prob=0.1)


def exact_rotary(model):
    """Rotary frequencies in the precision of the model, in whose buffers they are rounded."""
    for module in model.modules():
        if isinstance(module, T.models.modernbert.modeling_modernbert.ModernBertRotaryEmbedding):
            for kind in module.layer_types:
                exact = module.compute_default_rope_parameters(module.config, layer_type=kind)[0]
                setattr(module, f"{kind}_inv_freq", exact.to(model.dtype))


@wanted
def encoder(name, config, kind, lengths, seed, special, bare=False, half=False, keys=None):
    """A classifier with its pooler or head: hidden states, logits, loss, gradients; mean of the last states over real tokens.
    `keys` change the config.json.
    """
    folder, random = OUT / name, np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config.update(dict(attn_implementation="eager"))
    model = kind(config)
    randomise(model, seed)
    if half:
        model = model.to(torch.bfloat16)
    (model.base_model if bare else model).save_pretrained(folder)
    if keys:
        file = folder / "config.json"
        stated = {k: v for k, v in (json.loads(file.read_text()) | keys).items() if v is not None}
        file.write_text(json.dumps(stated, indent=2) + "\n")
    pad = config.pad_token_id
    ids, mask = ids_and_mask(random, config.vocab_size, lengths, special=special, pad=pad)
    types = np.zeros_like(ids)
    segments = getattr(config, "type_vocab_size", 0)
    if segments > 1:
        for row, length in enumerate(lengths):
            types[row, length // 2:length] = 1
    labels = random.integers(0, config.num_labels, len(lengths))
    inputs = dict(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=labels)

    def load():
        pooler = dict(add_pooling_layer=False) if bare and hasattr(model.base_model, "pooler") else {}
        return reloaded(folder, type(model.base_model) if bare else kind, **pooler)

    def compute(m):
        t = {k: torch.tensor(v) for k, v in inputs.items()}
        exact_rotary(m)
        args = dict(input_ids=t["input_ids"], attention_mask=t["attention_mask"])
        out = m(**args, **(dict(token_type_ids=t["token_type_ids"]) if segments else {}), output_hidden_states=True)
        found = {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
        weights = t["attention_mask"].to(m.dtype)[..., None]
        found["mean"] = (out.hidden_states[-1] * weights).sum(1) / weights.sum(1)
        if not bare:
            loss = cross_entropy(out.logits, t["labels"])
            loss.backward()
            found |= dict(logits=out.logits, loss=loss)
            found |= {f"grad.{n}": p.grad for n, p in m.named_parameters() if p.grad is not None}
        return found

    exact, single = both(load, compute)
    extra = {} if bare else dict(num_labels=config.num_labels)
    write(folder, "encoder_states" if bare else "encoder_sequence_classification", inputs, exact, single, mask, extra)


DECODER = dict(vocab_size=160, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=48, max_position_embeddings=128, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2)


@wanted
def decoder(name, config, kind, lengths, seed, left=False, prefill=4):
    """A language model: hidden states, logits, answers, loss, gradients, and the cache after a prefill."""
    folder, random = OUT / name, np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config.update(dict(attn_implementation="eager"))
    model = kind(config)
    randomise(model, seed)
    model.save_pretrained(folder)
    ids, mask = ids_and_mask(random, config.vocab_size, lengths, left)
    # Nothing predicts the first token of a row.
    labels = np.where((mask == 1) & (np.cumsum(mask, 1) > 1), ids, -100)
    positions = np.where(mask == 1, np.cumsum(mask, 1) - 1, 1)
    answers = np.sort(random.choice(np.arange(5, config.vocab_size), 4, replace=False))
    right = random.integers(0, 4, len(lengths))
    inputs = dict(input_ids=ids, attention_mask=mask, position_ids=positions, labels=labels, answer_token_ids=answers,
                  answer_labels=right)

    def compute(m):
        rotary = m.model.rotary_emb
        rotary.inv_freq = rotary.compute_default_rope_parameters(m.config)[0].to(m.dtype)
        t = {k: torch.tensor(v) for k, v in inputs.items()}
        args = dict(attention_mask=t["attention_mask"], position_ids=t["position_ids"])
        out = m(t["input_ids"], **args, output_hidden_states=True)
        found = {f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}
        columns = torch.arange(mask.shape[1])
        last = (t["attention_mask"] * columns).argmax(1)
        last = out.logits[torch.arange(len(lengths)), last]
        answered = last[:, t["answer_token_ids"]]
        loss = cross_entropy(out.logits[:, :-1].flatten(0, 1), t["labels"][:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        found |= dict(logits=out.logits, last_logits=last, answer_logits=answered, loss=loss,
                      answer_logprobs=log_softmax(answered, 1), answer_loss=cross_entropy(answered, t["answer_labels"]))
        found |= {f"grad.{n}": p.grad for n, p in m.named_parameters() if p.grad is not None}
        with torch.no_grad():
            cache, steps = transformers.DynamicCache(config=m.config), []
            for start, end in [(0, prefill), *((i, i + 1) for i in range(prefill, mask.shape[1]))]:
                step = m(t["input_ids"][:, start:end], attention_mask=t["attention_mask"][:, :end],
                         position_ids=t["position_ids"][:, start:end], past_key_values=cache, use_cache=True)
                if start:
                    steps.append(step.logits)
                else:
                    layer = cache.layers[0]
                    found |= {"kv.prefill_keys.0": layer.keys.clone(), "kv.prefill_values.0": layer.values.clone()}
            found["kv.step_logits"] = torch.cat(steps, 1)
        return found

    exact, single = both(lambda: reloaded(folder, kind), compute)
    difference = (exact["kv.step_logits"] - exact["logits"][:, prefill:])[mask[:, prefill:] == 1].abs().max()
    assert difference < 1e-12, (name, difference)
    write(folder, "llama_causal_lm", inputs, exact, single, mask, dict(kv_cache=dict(prefill_columns=prefill)))


@wanted
def last_token(name, config, kind, lengths, seed):
    """A language model with a head on the last token: logits, loss, gradients. No token but padding is that of the padding."""
    folder, random = OUT / name, np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    config.update(dict(attn_implementation="eager"))
    model = kind(config)
    randomise(model, seed)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids, mask = ids_and_mask(random, config.vocab_size, lengths, pad=config.pad_token_id)
    labels = random.integers(0, config.num_labels, len(lengths))
    inputs = dict(input_ids=ids, attention_mask=mask, labels=labels)

    def compute(m):
        rotary = m.model.rotary_emb
        rotary.inv_freq = rotary.compute_default_rope_parameters(m.config)[0].to(m.dtype)
        t = {k: torch.tensor(v) for k, v in inputs.items()}
        logits = m(t["input_ids"], attention_mask=t["attention_mask"]).logits
        loss = cross_entropy(logits, t["labels"])
        loss.backward()
        return dict(logits=logits, loss=loss) | {f"grad.{n}": p.grad for n, p in m.named_parameters() if p.grad is not None}

    exact, single = both(lambda: reloaded(folder, kind), compute)
    write(folder, "llama_sequence_classification", inputs, exact, single, mask, dict(num_labels=config.num_labels))


@wanted
def adapter(name, config, kind, targets, task, seed, save=None, other=None):
    """PEFT's LoRA on a model: outputs with and without it, gradients of its tensors, merged weights; of a BERT, a DistilBERT and
    an MPNet outputs and gradients under dropout, too.

    Modules of `save` are stored whole; the tensor of the file whose name ends in `other` becomes another than the base's.
    """
    folder, random = OUT / name, np.random.default_rng(seed)
    config.update(dict(attn_implementation="eager"))
    model = kind(config)
    randomise(model, seed)
    model.save_pretrained(folder / "base")
    lora = peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, task_type=task, lora_dropout=0.1,
                           modules_to_save=save)
    with_adapter = peft.get_peft_model(model, lora)
    torch.manual_seed(seed)
    for n, p in with_adapter.named_parameters():
        if p.requires_grad:
            p.data = torch.randn_like(p) * (0.3 if "lora" in n else 0.5)
    with_adapter.peft_config["default"].base_model_name_or_path = "base"
    with_adapter.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    if other:
        file = folder / "adapter" / "adapter_model.safetensors"
        tensors = load_file(file)
        [changed] = [n for n in tensors if n.endswith(other)]
        tensors[changed] = tensors[changed] + random.normal(size=tensors[changed].shape).astype(np.float32) * 0.3
        save_file(tensors, file, {"format": "pt"})
    decodes, lengths = task == "CAUSAL_LM", [12, 7]
    special = None if decodes else (0, 2)
    ids, mask = ids_and_mask(random, config.vocab_size, lengths, special=special, pad=config.pad_token_id or 0)
    inputs = dict(input_ids=ids, attention_mask=mask)
    if decodes:
        inputs |= dict(answer_token_ids=np.array([5, 17, 90]), answer_labels=random.integers(0, 3, len(lengths)))
    else:
        inputs |= dict(labels=random.integers(0, config.num_labels, len(lengths)))

    def load():
        return peft.PeftModel.from_pretrained(reloaded(folder / "base", kind), folder / "adapter", is_trainable=True).eval()

    def compute(m):
        t = {k: torch.tensor(v) for k, v in inputs.items()}
        if decodes:
            rotary = m.base_model.model.model.rotary_emb
            rotary.inv_freq = rotary.compute_default_rope_parameters(m.base_model.model.config)[0].to(m.dtype)
        exact_rotary(m)
        run = lambda: m(input_ids=t["input_ids"], attention_mask=t["attention_mask"]).logits
        found = {}
        # The file's weight of the base is there without the adapter, too.
        if not other:
            with torch.no_grad(), m.disable_adapter():
                found = dict(base_logits=run())
        logits = found["logits"] = run()
        if decodes:
            logits = logits[torch.arange(len(lengths)), t["attention_mask"].sum(1) - 1][:, t["answer_token_ids"]]
            found["answer_logits"] = logits
        found["loss"] = cross_entropy(logits, t["answer_labels" if decodes else "labels"])
        found["loss"].backward()
        name = lambda n: n.replace(".default", "").replace("modules_to_save.", "")
        found |= {f"grad.{name(n)}": p.grad for n, p in m.named_parameters() if p.grad is not None}
        if any(isinstance(module, ATTENTION) for module in m.modules()):
            m.zero_grad()
            with keyed_dropout(m, 3, 5):
                found["dropped.logits"] = run()
            found["dropped.loss"] = cross_entropy(found["dropped.logits"], t["labels"])
            found["dropped.loss"].backward()
            found |= {f"dropped.grad.{name(n)}": p.grad for n, p in m.named_parameters() if p.grad is not None}
        merged = m.merge_and_unload()
        adapted = [n.removeprefix("grad.base_model.model.") for n in found if n.startswith("grad.") and "lora_A" in n]
        layers = [n.removesuffix(".lora_A.weight") for n in adapted]
        return found | {f"merged.{n}.weight": merged.get_submodule(n).weight for n in layers}

    exact, single = both(load, compute)
    names = [n.removeprefix("merged.").removesuffix(".weight") for n in exact if n.startswith("merged.")]
    modules = {n: dict(r=4, lora_alpha=16, scaling=4.0) for n in names}
    write(folder, "peft_lora_llama" if decodes else "peft_lora_encoder", inputs, exact, single, mask, dict(modules=modules))


ENCODERS = dict(pad_token_id=0, type_vocab_size=2)
encoder("bert/pair", T.BertConfig(**ENCODER, **ENCODERS, num_labels=3), T.BertForSequenceClassification, [12, 7, 20], 1, (3, 4))
encoder("bert/bare_relu", T.BertConfig(**ENCODER, **ENCODERS, hidden_act="relu"), T.BertForSequenceClassification, [9, 5], 2, (3, 4), bare=True)
R = ENCODER | dict(layer_norm_eps=1e-5, max_position_embeddings=26, pad_token_id=1, type_vocab_size=1)
encoder("roberta/right_padded", T.RobertaConfig(**R, num_labels=4), T.RobertaForSequenceClassification, [13, 24, 6], 3, (0, 2))
encoder("roberta/xlm", T.XLMRobertaConfig(**R, num_labels=2), T.XLMRobertaForSequenceClassification, [5, 11], 4, (0, 2))
D = dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=70, pad_token_id=0)
encoder("distilbert/one_word", T.DistilBertConfig(**D, num_labels=3), T.DistilBertForSequenceClassification, [70, 3, 24], 20, (3, 4))
encoder("distilbert/bare_bf16", T.DistilBertConfig(**D), T.DistilBertForSequenceClassification, [9, 3], 21, (3, 4), bare=True, half=True)
# As long as the last of the buckets, which are those of distances of 91 and more.
M = ENCODER | dict(layer_norm_eps=1e-5, max_position_embeddings=152, pad_token_id=1)
encoder("mpnet/one_word", T.MPNetConfig(**M, num_labels=3), T.MPNetForSequenceClassification, [150, 3, 24], 22, (0, 2))
encoder("mpnet/bare_bf16", T.MPNetConfig(**M), T.MPNetForSequenceClassification, [40, 3], 23, (0, 2), bare=True, half=True)
decoder("qwen/qwen2_tied", T.Qwen2Config(**DECODER, tie_word_embeddings=True, rope_theta=1e6), T.Qwen2ForCausalLM, [14, 6, 9], 5)
decoder("qwen/qwen3_head_dim", T.Qwen3Config(**DECODER, head_dim=12, rope_theta=1e6), T.Qwen3ForCausalLM, [11, 16], 6, left=True)
decoder("mistral/window", T.MistralConfig(**DECODER, sliding_window=5, rope_theta=1e4, head_dim=8), T.MistralForCausalLM, [17, 9], 7)
decoder("mistral/no_window", T.MistralConfig(**DECODER, sliding_window=None, rope_theta=1e6), T.MistralForCausalLM, [8, 12], 8, left=True)
decoder("qwen/qwen2_window_layers", T.Qwen2Config(**DECODER, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        T.Qwen2ForCausalLM, [13, 7], 9)
decoder("qwen/qwen3_bias_listed_window", T.Qwen3Config(**DECODER, head_dim=8, attention_bias=True, use_sliding_window=True,
        sliding_window=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"]), T.Qwen3ForCausalLM,
        [5, 12], 13, left=True)
decoder("llama/attention_bias", T.LlamaConfig(**DECODER, attention_bias=True), T.LlamaForCausalLM, [6, 10], 14)
last_token("qwen/qwen3_last_token", T.Qwen3Config(**DECODER | dict(num_hidden_layers=2), head_dim=8, rope_theta=1e6, pad_token_id=0,
           num_labels=3, tie_word_embeddings=True), T.Qwen3ForSequenceClassification, [15, 1, 7], 26)
PEFT_QWEN = T.Qwen2Config(**DECODER, rope_theta=1e6)
adapter("peft/qwen2_lora_all_linear", PEFT_QWEN, T.Qwen2ForCausalLM, "all-linear", "CAUSAL_LM", 10)
PEFT_ROBERTA = T.RobertaConfig(**R, num_labels=3)
adapter("peft/roberta_lora", PEFT_ROBERTA, T.RobertaForSequenceClassification, ["query", "value"], "SEQ_CLS", 11)
PEFT_BERT = T.BertConfig(**ENCODER, **ENCODERS, num_labels=3)
adapter("peft/bert_lora", PEFT_BERT, T.BertForSequenceClassification, ["query", "key", "value", "dense"], "SEQ_CLS", 12)
PEFT_DISTIL = T.DistilBertConfig(**D, num_labels=3)
adapter("peft/distilbert_lora", PEFT_DISTIL, T.DistilBertForSequenceClassification, ["q_lin", "v_lin", "out_lin", "lin2"], "SEQ_CLS",
        24, save=["pre_classifier", "classifier"])
PEFT_MPNET = T.MPNetConfig(**M, num_labels=3)
adapter("peft/mpnet_lora", PEFT_MPNET, T.MPNetForSequenceClassification, ["q", "v", "o", "dense"], "SEQ_CLS", 25)
MODERN = dict(vocab_size=99, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=24,
              max_position_embeddings=80, local_attention=8, pad_token_id=0, bos_token_id=3, cls_token_id=3, eos_token_id=4,
              sep_token_id=4)
# Longer than the window on either side, and than the queries that one product has; one word; one token.
encoder("modernbert/windows", T.ModernBertConfig(**MODERN, num_labels=3), T.ModernBertForSequenceClassification, [70, 3, 1, 9], 20,
        (3, 4))
# As the published files spell it, with a null for every key of newer ones.
OLD = dict(global_attn_every_n_layers=2, global_rope_theta=5e4, local_rope_theta=300.0, layer_norm_eps=1e-5, norm_eps=1e-5,
           position_embedding_type="absolute", reference_compile=None, repad_logits_with_grad=False, layer_types=None,
           rope_parameters=None)
encoder("modernbert/mean_published_keys", T.ModernBertConfig(**MODERN | dict(local_attention=6), classifier_pooling="mean", num_labels=2),
        T.ModernBertForSequenceClassification, [6, 17], 21, (3, 4), keys=OLD)
encoder("modernbert/bare_bf16", T.ModernBertConfig(**MODERN), T.ModernBertForSequenceClassification, [12, 2], 22, (3, 4), bare=True,
        half=True)
adapter("peft/modernbert_lora", T.ModernBertConfig(**MODERN | dict(num_hidden_layers=2), num_labels=3),
        T.ModernBertForSequenceClassification, ["attn.Wqkv", "attn.Wo"], "SEQ_CLS", 23, save=["head", "classifier"])
SMALL = DECODER | dict(num_hidden_layers=1)
LLAMA, TIED = T.LlamaConfig(**SMALL), T.LlamaConfig(**SMALL, tie_word_embeddings=True)
Q_HEAD, Q_V = ["q_proj", "lm_head"], ["q_proj", "v_proj"]
adapter("peft/llama_base_layer", LLAMA, T.LlamaForCausalLM, Q_HEAD, "CAUSAL_LM", 15, other="lm_head.base_layer.weight")
adapter("peft/tied_base_layer", TIED, T.LlamaForCausalLM, Q_HEAD, "CAUSAL_LM", 16, other="lm_head.base_layer.weight")
adapter("peft/tied_embeddings_saved", TIED, T.LlamaForCausalLM, Q_V, "CAUSAL_LM", 17, save=["embed_tokens"])
adapter("peft/tied_head_saved", TIED, T.LlamaForCausalLM, Q_V, "CAUSAL_LM", 18, save=["lm_head"])
adapter("peft/tied_both_saved", TIED, T.LlamaForCausalLM, Q_V, "CAUSAL_LM", 19, save=["embed_tokens", "lm_head"])
