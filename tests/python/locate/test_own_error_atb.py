# SPDX-License-Identifier: Apache-2.0
"""Own errors of the operations of an ATB dump made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
native = pytest.importorskip("assay._opcheck")

FLOAT16 = 1  # aclDataType


def write_tensor(path: Path, values: np.ndarray) -> None:
    data = values.tobytes()
    head = (
        f"$Version=1.0\n$Object.Count=1\n$Object.Length={len(data)}\nformat=2\ndtype={FLOAT16}\n"
        f"dims={','.join(map(str, values.shape))}\n$Object.data=0,{len(data)}\n$End=1\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head.encode() + data)


def write_operation(place: Path, parameters: dict, inputs: list[np.ndarray], output: np.ndarray) -> None:
    place.mkdir(parents=True)
    (place / "op_param.json").write_text(json.dumps(parameters) + "\n")
    for number, tensor in enumerate(inputs):
        write_tensor(place / "after" / f"intensor{number}.bin", tensor)
    write_tensor(place / "after" / "outtensor0.bin", output)


def test_an_operation_that_fails_its_standard_is_named(tmp_path: Path) -> None:
    # Given three sums, the second with an element doubled, and an operation that no table lists
    random = np.random.default_rng(1)
    token = tmp_path / "msit_dump_20250102_030405" / "tensors" / "0_4711" / "0"
    for number in range(3):
        a, b = (random.uniform(1, 2, (64, 32)).astype(np.float16) for _ in range(2))
        y = (a.astype(np.float64) + b).astype(np.float16)
        if number == 1:
            y[:, 7] *= 2
        write_operation(token / f"{number}_ElewiseOperation", {"elewiseType": 8}, [a, b], y)
    write_operation(token / "3_NobodyKnowsOperation", {}, [a], a)

    judged = native._own_errors(str(tmp_path / "msit_dump_20250102_030405"))

    assert [finding["node"] for finding in judged["findings"]] == ["1_ElewiseOperation"]
    finding = judged["findings"][0]
    assert finding["operator"] == "ElewiseOperation" and finding["confidence"] == "medium"
    # y instead of y / 2 beside it, with |y| in [2, 4]: at least 2 / (4 * 2^-8) times any limit of the standard
    assert finding["ratio"] > 100
    assert judged["judged"] == 3
    assert judged["judgeable"] - judged["judged"] == sum(judged["unjudged"].values())
