#!/usr/bin/env python3
"""Write this folder: `python make.py` in it (needs `pip install transformers`).

transformers' `Qwen2Tokenizer`, which normalises by NFC and cuts numbers into digits, on the vocabulary and merges of
../byte_level_bpe.
"""
import json
import tokenizers
import transformers
from transformers import Qwen2Tokenizer

with open("../byte_level_bpe/tokenizer.json", encoding="utf-8") as file:
    model = json.load(file)["model"]
merges = [tuple(pair) for pair in model["merges"]]
tokenizer = Qwen2Tokenizer(model["vocab"], merges, unk_token=None, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
engine = tokenizer.backend_tokenizer
engine.save("tokenizer.json")
TEXTS = dict(
    plain="The river was high.",
    digits="In 2024 it cost 1,234.50, or 3.5% more; call 555-0199.",
    contractions="I'll say it's HE'LL, WE'VE and they'd; don't 'quote'.",
    composed="caf\u00e9 na\u00efve \u00c5ngstr\u00f6m",
    decomposed="cafe\u0301 nai\u0308ve A\u030angstro\u0308m",
    spaces="  two  spaces,\ta tab,   three ",
    lines="one\n\ntwo \n three\r\nfour\n",
    punctuation="(a)!? \"b\" -- c... #d/e_f",
    other_scripts="\u4e2d\u6587 \u0440\u0435\u043a\u0430 \u0928\u0926\u0940 \U0001f600",
    digits_of_other_scripts="\u0661\u0662\u0663 \u00bd x\u00b2",
    marks="e\u0301\u0323 q\u0307 \u1100\u1161",
    special="<s>The cat</s> and <pad>",
    empty="",
)
items = []
for name, text in TEXTS.items():
    found = engine.encode(text)
    items.append(dict(name=name, text=text, pair=None, truncation=None, padding=None, ids=found.ids, tokens=found.tokens,
                      type_ids=found.type_ids, attention_mask=found.attention_mask,
                      decoded_without_special=engine.decode(found.ids)))
versions = {package.__name__: package.__version__ for package in (tokenizers, transformers)}
expected = dict(case="tokenizers/qwen2_bpe", kind="tokenizer", vocab_size=engine.get_vocab_size(),
                special_ids=dict(pad=0, bos=1, eos=2), padding_side="right", items=items, versions=versions)
with open("expected.json", "w", encoding="utf-8") as file:
    json.dump(expected, file, ensure_ascii=False, indent=1)
    file.write("\n")
