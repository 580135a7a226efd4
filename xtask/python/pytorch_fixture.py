"""Writes the PyTorch files that `crates/lrvd-burn/tests/pytorch_file.rs` reads.

    python xtask/python/pytorch_fixture.py crates/lrvd-burn/tests/golden/pytorch

Values are 0, 1, 2, … so that the test can state them.
"""

import collections
import os
import sys

import torch


class Call:
    """Unpickling this in Python would run a command."""

    def __reduce__(self):
        return (os.system, ("true",))


def main(folder: str) -> None:
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensors = collections.OrderedDict(
        whole=base,
        transposed=base.t(),
        part=base[1:, 1:3],
        half=base.to(torch.float16),
        brain=base.to(torch.bfloat16),
        double=base.to(torch.float64),
        index=torch.arange(3),
        parameter=torch.nn.Parameter(base[0].clone()),
        scalar=torch.tensor(7.0),
    )
    torch.save(tensors, os.path.join(folder, "weights.bin"))
    torch.save(tensors, os.path.join(folder, "legacy.bin"), _use_new_zipfile_serialization=False)
    torch.save({"weight": base, "call": Call()}, os.path.join(folder, "call.bin"))


if __name__ == "__main__":
    main(sys.argv[1])
