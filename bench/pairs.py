# SPDX-License-Identifier: Apache-2.0
"""Generates the files that bench/compare_speed.py compares, and prints the two paths.

    python -m bench.pairs npy|npy-and-copy|bf16|small|run|msprobe FOLDER COUNT

COUNT is elements, or files for `small`, `run` (64 MiB each) and `msprobe` (16 MiB each). The other side differs by a
thousandth (bf16: a hundredth). Files are written just before they are used, so they are in the page cache.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def make_npy_pair(folder: Path, elements: int, copy: bool = False) -> tuple[Path, Path]:
    """Writes golden.npy and mine.npy (golden plus a thousandth of noise), fp32, and leaves them in the page cache."""
    import numpy

    folder.mkdir(parents=True)
    paths = (folder / "golden.npy", folder / "mine.npy")
    golden, mine = (
        numpy.lib.format.open_memmap(path, mode="w+", dtype=numpy.float32, shape=(elements // 4096, 4096))
        for path in paths
    )
    generator = numpy.random.default_rng(0)
    rows = 4096
    block = generator.standard_normal((rows, 4096), dtype=numpy.float32)
    for start in range(0, len(golden), rows):
        end = min(start + rows, len(golden))
        scale = numpy.float32(1 + start * 1e-6)  # every block differs, without drawing every number anew
        golden[start:end] = block[: end - start] * scale
        mine[start:end] = golden[start:end] * numpy.float32(1 + 1e-3)
    golden.flush()
    mine.flush()
    if copy:
        shutil.copyfile(paths[0], folder / "copy.npy")
    return paths


def make_bf16_pair(folder: Path, elements: int) -> tuple[Path, Path]:
    """Writes the same kind of pair in bf16 as golden.safetensors and mine.safetensors."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    golden = torch.randn(elements // 4096, 4096, generator=torch.Generator().manual_seed(0))
    paths = (folder / "golden.safetensors", folder / "mine.safetensors")
    save_file({"tensor": golden.to(torch.bfloat16)}, paths[0])
    save_file({"tensor": (golden * 1.01).to(torch.bfloat16)}, paths[1])
    return paths


def make_small_files(folder: Path, count: int) -> tuple[Path, Path]:
    """Writes `count` pairs of 16 KiB .npy files into golden/ and mine/."""
    import numpy

    generator = numpy.random.default_rng(0)
    for side in ("golden", "mine"):
        (folder / side).mkdir(parents=True)
    for index in range(count):
        values = generator.standard_normal((32, 128), dtype=numpy.float32)
        numpy.save(folder / "golden" / f"tensor_{index:05}.npy", values)
        numpy.save(folder / "mine" / f"tensor_{index:05}.npy", values * numpy.float32(1.001))
    return folder / "golden", folder / "mine"


def make_runs(folder: Path, count: int) -> tuple[Path, Path]:
    """Writes two runs of `count` tensors of 64 MiB, fp32, one .npy each."""
    import numpy

    generator = numpy.random.default_rng(0)
    block = generator.standard_normal((4096, 4096), dtype=numpy.float32)
    for side, factor in (("golden", 1.0), ("mine", 1.001)):
        (folder / side).mkdir(parents=True)
        for index in range(count):
            scale = numpy.float32(factor * (1 + index * 1e-3))
            numpy.save(folder / side / f"tensor_{index:05}.npy", block * scale)
    return folder / "golden", folder / "mine"


def make_msprobe_runs(folder: Path, count: int) -> tuple[Path, Path]:
    """Writes two dumps as msprobe's, `count` module outputs of 16 MiB each, fp32: docs/formats/msprobe.md."""
    import json

    import torch

    block = torch.randn(1024, 4096, generator=torch.Generator().manual_seed(0))
    for side, factor in (("golden", 1.0), ("mine", 1.001)):
        rank = folder / side / "step0" / "rank0"
        (rank / "dump_tensor_data").mkdir(parents=True)
        data = {}
        for index in range(count):
            tensor = block * (factor * (1 + index * 1e-3))
            call = f"Module.layers.{index}.Linear.forward.0"
            torch.save(tensor, rank / "dump_tensor_data" / f"{call}.output.0.pt")
            leaf = {
                "type": "torch.Tensor",
                "dtype": "torch.float32",
                "shape": list(tensor.shape),
                "Max": tensor.max().item(),
                "Min": tensor.min().item(),
                "Mean": tensor.mean().item(),
                "Norm": tensor.norm().item(),
                "requires_grad": False,
                "data_name": f"{call}.output.0.pt",
            }
            data[call] = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
        head = {"task": "tensor", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
        (rank / "dump.json").write_text(json.dumps({**head, "data": data}))
        (rank / "construct.json").write_text(json.dumps({call: None for call in data}))
        (rank / "stack.json").write_text("{}")
    return tuple(folder / side / "step0" / "rank0" / "dump.json" for side in ("golden", "mine"))  # type: ignore[return-value]


def main() -> None:
    """Generates one pair."""
    kind, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if kind == "bf16":
        paths = make_bf16_pair(folder, count)
    elif kind == "small":
        paths = make_small_files(folder, count)
    elif kind == "run":
        paths = make_runs(folder, count)
    elif kind == "msprobe":
        paths = make_msprobe_runs(folder, count)
    else:
        paths = make_npy_pair(folder, count, copy=kind == "npy-and-copy")
    print("\n".join(map(str, paths)))


if __name__ == "__main__":
    main()
