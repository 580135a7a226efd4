"""A classifier trained by this workspace and its exports, for the scripts that time answers."""

import json
import resource
import subprocess
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from served import ROOT, run

MODELS = ROOT / "benches/src/models"
# A tokenizer for random models: vocabularies of theirs are larger than its own.
TOKENIZER = ROOT / "crates/lrvd-bench/assets/deberta-v3-nano"
WORDS = "the film was warm and long but never dull they say".split()
LABELS = ["no", "yes"]
# Texts of a batch of `lrvd predict`.
BATCH = {"minilm": 32, "base": 8}
# Largest difference of probabilities from those of `lrvd predict`, in single precision and in eight bits.
TOLERANCE = {False: 1e-5, True: 0.02}
# Texts whose answers are compared.
COMPARED = 128


def arguments(parser):
    """Adds the options that `cargo xtask bench` passes to every side."""
    parser.add_argument("--program", metavar="LRVD", type=Path, required=True, help="a built `lrvd`")
    parser.add_argument("--config", choices=["minilm", "base"], default="minilm", help="the model")
    parser.add_argument("--folder", metavar="DIR", type=Path, required=True, help="of the trained models, which are made there first")
    parser.add_argument("--inputs", metavar="DIR", type=Path, help="with models in place of random ones, and texts.txt")
    parser.add_argument("--int8", action="store_true", help="products of eight bits")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)


def random_base(config, folder):
    """A model of the size of `config` with random weights."""
    import torch
    from transformers import AutoConfig, AutoModel

    settings = json.loads((MODELS / f"{config}.json").read_text())
    torch.manual_seed(1)
    AutoModel.from_config(AutoConfig.for_model(**settings)).save_pretrained(folder)
    for file in TOKENIZER.glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())


def texts(inputs):
    """The lines of `texts.txt` in `inputs`, or texts of 3 to 33 words."""
    if inputs and (inputs / "texts.txt").is_file():
        return (inputs / "texts.txt").read_text().splitlines()
    return [" ".join(WORDS[(number + i * 5) % len(WORDS)] for i in range(3 + number * 7 % 31)) for number in range(341)]


class Exported:
    """A classifier of two classes: LoRA of rank 8 on every layer, after two steps; trained and exported unless it is there."""

    def __init__(self, options):
        self.texts = texts(options.inputs)
        self.lrvd = options.program.resolve()
        folder = options.folder / options.config
        self.int8, self.run, self.sentences = options.int8, folder / "run", folder / "sentences"
        self.onnx = folder / ("onnx-int8" if options.int8 else "onnx")
        expected = folder / "expected.json"
        if not expected.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            self.make(options.inputs and options.inputs / options.config, options.config, folder)
            lines = subprocess.run(self.single(), input="\n".join(self.texts[:COMPARED]) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout
            expected.write_text(json.dumps([json.loads(line)["probs"] for line in lines.splitlines()]))
        self.expected = np.array(json.loads(expected.read_text()))

    def make(self, base, config, folder):
        if not (base and base.is_dir()):
            base = folder / "base"
            random_base(config, base)
        for name, some in [("train", self.texts[:64]), ("held-out", self.texts[64:128])]:
            rows = [json.dumps({"text": text, "label": LABELS[number % 2]}) for number, text in enumerate(some)]
            (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
        options = ["--method", "lora", "--rank", 8, "--steps", 2, "--batch-size", 8, "--max-length", 128, "--learning-rate", "1e-4", "--seed", 1]
        options += ["--set", f"evaluation_batch_size={BATCH[config]}"]
        files = ["--train", folder / "train.jsonl", "--validation", folder / "held-out.jsonl", "--out", self.run]
        run(self.lrvd, "train", "--quiet", "--model", base, *options, *files)
        run(self.lrvd, "export", "--quiet", "--to", "onnx", self.run, "--out", folder / "onnx")
        run(self.lrvd, "export", "--quiet", "--to", "onnx", "--int8", self.run, "--out", folder / "onnx-int8")
        run(self.lrvd, "export", "--quiet", "--to", "sentence-transformers", self.run, "--out", self.sentences)

    def single(self):
        """`lrvd predict` for texts of standard input, in single precision."""
        return [str(self.lrvd), "predict", "--quiet", str(self.run), "--draws", "0", "--format", "jsonl"]

    def command(self):
        return [*self.single(), *["--int8"] * self.int8]

    def cycled(self, number):
        return list(islice(cycle(self.texts), number))

    def check(self, probabilities):
        """Fails unless these answers to `cycled` texts are those of `lrvd predict`."""
        found = np.array(probabilities[:COMPARED], dtype=np.float64)
        wanted = self.expected[:len(found)]
        # Answers that are all alike would agree with anything.
        assert self.expected.std(0).max() > 10 * TOLERANCE[False], self.expected.std(0)
        largest = np.abs(found - wanted).max()
        assert largest <= TOLERANCE[self.int8], f"answers differ from those of lrvd by {largest:.1e}"

    def onnx_answers(self, threads):
        """A function from texts to probabilities, in the order of the texts: ONNX Runtime, batches of `size` texts of like length."""
        import onnxruntime
        from transformers import AutoTokenizer

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(self.onnx / f"onnx/model{'_quantized' * self.int8}.onnx", settings, providers=["CPUExecutionProvider"])
        tokenizer = AutoTokenizer.from_pretrained(self.onnx)
        names = [one.name for one in session.get_inputs()]

        def answer(some, size):
            encoded = tokenizer(some, truncation=True)
            order = sorted(range(len(some)), key=lambda at: len(encoded["input_ids"][at]))
            answers = [None] * len(some)
            for start in range(0, len(order), size):
                batch = order[start:start + size]
                longest = len(encoded["input_ids"][batch[-1]])
                feeds = {name: np.zeros((len(batch), longest), dtype=np.int64) for name in names}
                if "input_ids" in feeds:
                    feeds["input_ids"][:] = tokenizer.pad_token_id
                for row, at in enumerate(batch):
                    for name in names:
                        values = encoded[name][at]
                        feeds[name][row, :len(values)] = values
                for at, own in zip(batch, session.run(["probabilities"], feeds)[0]):
                    answers[at] = own
            return answers

        return answer


def versions(names):
    from importlib.metadata import version

    return {name: version(name) for name in names}


def peak(process=None):
    """Largest resident memory in bytes, of this process or of another one that still runs."""
    if process is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
