#!/usr/bin/env python3
"""Write the adapter of PEFT beside this file and print the answers that `scripts/foreign.txt` expects: `python make.py OUT`
(needs `pip install torch transformers peft`; torch 2.15.0, transformers 5.24.0, peft 0.21.2).

A tiny random BERT with 200 positions and a LoRA on it; a text is read to the model's limit, or to the given one.
"""
import sys
from pathlib import Path

import peft
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

out = Path(sys.argv[1])
(out / "base").mkdir(parents=True, exist_ok=True)
words = "a number film book song cold warm lovely grim fine bright dull awful good bad".split()
vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words
(out / "base/vocab.txt").write_text("\n".join(vocab) + "\n")
torch.manual_seed(1)
config = BertConfig(vocab_size=len(vocab), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
                    max_position_embeddings=200, initializer_range=0.3, num_labels=2)
model = BertForSequenceClassification(config)
model.save_pretrained(out / "base")
model = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], task_type="SEQ_CLS"))
for name, p in model.named_parameters():
    if p.requires_grad:
        p.data = torch.randn_like(p) * (0.3 if "lora" in name else 0.12)
model.peft_config["default"].base_model_name_or_path = "base"
model.save_pretrained(out / "adapter")
(out / "adapter/README.md").unlink()
model.eval()
tokenizer = BertTokenizerFast(str(out / "base/vocab.txt"))
for count, limit in [(150, 200), (300, 200), (150, 60)]:
    text = " ".join((words * 40)[:count])
    e = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
    logits = model(input_ids=e["input_ids"], attention_mask=e["attention_mask"]).logits
    print(f"{count} words at {limit} tokens:", torch.softmax(logits.double(), -1).tolist()[0])
