#!/usr/bin/env python3
"""Write `bert_word_pieces`, `mpnet_word_pieces`, `roberta_byte_level` and `modernbert_byte_level`: `python make.py OUT` (needs
`pip install transformers tokenizers`).

The vocabularies are learnt from the sentences below by the `tokenizers` library, so they are tiny and free of any
published weight. `expected.json` is what transformers' `BertTokenizer`, `MPNetTokenizer` and `RobertaTokenizer` give from these
files, and `PreTrainedTokenizerFast` from the last one, which has the parts of ModernBERT's tokenizer.
"""
import json
import sys
from pathlib import Path

import tokenizers
import transformers
from tokenizers import AddedToken, ByteLevelBPETokenizer, BertWordPieceTokenizer, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors

OUT = Path(sys.argv[1])
CORPUS = """The river was high and the bridge was closed. Nobody had charged the card twice, she said; the clerk
disagreed! Refunds take five days, and transfers take two. Le café était fermé à Noël. Die Straße führt über die Brücke.
Is the card lost or stolen? It was unfreezable, unbelievable, rechargeable. 東京 は 日本 の 首都. 1234 and 56.78 euros.
What is the exchange rate today, and why was my payment declined at the supermarket?""".split("\n") * 3
TEXTS = [
    ("plain", "The river was high.", None),
    ("pair", "Is the card lost?", "Refunds take five days."),
    ("upper case and accents", "LE CAFÉ ÉTAIT FERMÉ, Straße!", None),
    ("combining accent", "cafe\u0301 e\u0301tait", None),
    ("cjk", "東京は日本の首都。the card", None),
    ("unknown", "\u2603 🚀 zebra qwxyz", None),
    ("pieces", "unchargeable rebridged disagreements", None),
    ("long word", "a" * 120 + " the", None),
    ("white space", "  the\t card\u00a0\u3000was \n lost  ", None),
    ("control characters", "the\u0000 ca\u200brd\u00ad \ufffd was", None),
    ("special tokens in the text", "the [SEP] card </s> was <mask> [MASK]", None),
    ("empty", "", None),
    ("punctuation", "don't stop--now... (56.78€) $1,234!?", None),
    ("pair, cut", "What is the exchange rate today, and why?", "Nobody had charged the card twice, she said."),
]


def write(name, kind, tokenizer, pad, surfaces=False):
    """`surfaces` are the tokens with the spaces that they took from the text."""
    items = []
    for title, text, pair in TEXTS:
        cut = dict(truncation="longest_first", max_length=12) if title.endswith(", cut") else {}
        found = tokenizer(text, pair, return_token_type_ids=True, return_attention_mask=True, **cut)
        ids = found["input_ids"]
        tokens = found.tokens() if surfaces else tokenizer.convert_ids_to_tokens(ids)
        items.append(dict(name=title, text=text, pair=pair, **cut, ids=ids, type_ids=found["token_type_ids"],
                          attention_mask=found["attention_mask"], tokens=tokens))
    versions = {p.__name__: p.__version__ for p in (transformers, tokenizers)}
    expected = dict(case=f"tokenizers/{name}", kind="tokenizer", special_ids=dict(pad=pad), padding_side="right",
                    note=f"from the vocabulary files by transformers' {kind}", versions=versions, items=items)
    (OUT / name / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=True) + "\n")


folder = OUT / "bert_word_pieces"
folder.mkdir(parents=True, exist_ok=True)
pieces = BertWordPieceTokenizer()
pieces.train_from_iterator(CORPUS, vocab_size=320, min_frequency=1, show_progress=False)
pieces.save_model(str(folder))
write(folder.name, "BertTokenizer", transformers.BertTokenizer(vocab=str(folder / "vocab.txt")), 0)

# MPNet's vocabulary has four tokens before those of BERT, which stay, and one behind them.
words = (folder / "vocab.txt").read_text().splitlines()
folder = OUT / "mpnet_word_pieces"
folder.mkdir(parents=True, exist_ok=True)
words = ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
(folder / "vocab.txt").write_text("\n".join(words) + "\n")
tokenizer = transformers.MPNetTokenizer(vocab={word: id for id, word in enumerate(words)})
write(folder.name, "MPNetTokenizer", tokenizer, 1)

folder = OUT / "roberta_byte_level"
folder.mkdir(parents=True, exist_ok=True)
pairs = ByteLevelBPETokenizer()
pairs.train_from_iterator(CORPUS, vocab_size=420, min_frequency=2, show_progress=False,
                          special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
pairs.save_model(str(folder))
tokenizer = transformers.RobertaTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
write(folder.name, "RobertaTokenizer", tokenizer, 1)

# Tokens for runs of spaces are no special ones; [MASK] takes the space before it.
folder = OUT / "modernbert_byte_level"
folder.mkdir(parents=True, exist_ok=True)
pairs = ByteLevelBPETokenizer()
pairs.train_from_iterator(CORPUS, vocab_size=420, min_frequency=2, show_progress=False, special_tokens=["<|padding|>"])
model = json.loads(pairs.to_str())["model"]
tokenizer = Tokenizer(models.BPE(model["vocab"], [tuple(pair) for pair in model["merges"]]))
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in (4, 3, 2)] + [AddedToken("|||IP_ADDRESS|||", normalized=True)])
tokenizer.add_special_tokens([AddedToken(name, lstrip=name == "[MASK]", normalized=False, special=True) for name in
                              ("<|endoftext|>", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")])
tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [
    (name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
tokenizer.save(str(folder / "tokenizer.json"))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]")
write(folder.name, "PreTrainedTokenizerFast", tokenizer, tokenizer.pad_token_id, surfaces=True)
