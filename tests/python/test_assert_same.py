# SPDX-License-Identifier: Apache-2.0
"""assay.assert_same: modules and functions, right and with planted faults; what is left behind."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
import torch

import assay
from assay.inject import outermost

WIDTH = 32


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.norm = torch.nn.LayerNorm(2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.down(torch.nn.functional.gelu(self.norm(self.up(x))))


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block()


@pytest.fixture
def x() -> torch.Tensor:
    # Values that bfloat16 holds, so that both types are given the same.
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16().float()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files: empty in the end where everything was the same."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    monkeypatch.setattr("tempfile.tempdir", None)


def ported(block: Block, gain: float = 1.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """The block in bfloat16; a gain other than 1 is a fault in its norm."""
    port = copy.deepcopy(block).bfloat16()
    with torch.no_grad():
        port.norm.weight *= gain
    return lambda x: port(x.bfloat16())


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_port_in_another_type_is_the_same(block, x, level, temporary):
    verdict = assay.assert_same(block, ported(block), x, level=level)
    assert verdict.outcome == "clean"
    assert verdict.coverage["weights_compared"] == 6
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("level", ["operator", "module"])
def test_a_fault_is_named_and_the_runs_are_kept(block, x, level, temporary):
    with pytest.raises(AssertionError) as caught:
        assay.assert_same(block, ported(block, gain=1.03), x, level=level)
    different = caught.value
    assert isinstance(different, assay.Different)
    assert different.verdict.first_bad.module == "norm"
    sentence, golden, mine, code, command = str(different).splitlines()
    assert sentence.startswith("first bad: norm (LayerNorm")
    assert code == f"code:   {different.verdict.first_bad.source}"
    assert (golden, mine) == (f"golden: {different.golden}", f"mine:   {different.mine}")
    assert command == f"next: assay compare {different.golden} {different.mine} --html page.html"
    # What is named is there: the command works.
    assert temporary in Path(different.golden).parents
    assert assay.locate(different.golden, different.mine).sentence == sentence


def test_calls_are_steps_and_keywords_are_passed_on(block, x):
    calls = [{"x": x, "scale": 1.0}, (x[:2], 0.5), x[:3]]
    verdict = assay.assert_same(block, copy.deepcopy(block), calls)
    assert verdict.outcome == "clean"
    port = copy.deepcopy(block)

    def wrong_in_the_second(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return port(x, scale * (1.01 if scale == 0.5 else 1.0))

    with pytest.raises(assay.Different) as caught:
        assay.assert_same(block, wrong_in_the_second, calls)
    assert caught.value.verdict.first_bad.step == 1


def test_functions_without_modules(x):
    query, key, value = (torch.randn(1, 2, 6, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))

    def decomposed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return torch.softmax(query @ key.transpose(-1, -2) * (16**-0.5 * factor), -1) @ value

    fused = torch.nn.functional.scaled_dot_product_attention
    assert assay.assert_same(fused, decomposed, (query, key, value)).outcome == "clean"
    with pytest.raises(assay.Different) as caught:
        assay.assert_same(fused, lambda *args: decomposed(*args, factor=1.01), (query, key, value))
    assert caught.value.verdict.outcome == "first_wrong"


@pytest.mark.parametrize("factor", [1.1, 1.001])
def test_a_constant_of_a_function_is_compared(x, factor):
    right = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(2))
    wrong = right.clone()
    wrong[3, 3] *= factor
    assert (
        assay.assert_same(lambda x: torch.tanh(x @ right), lambda x: torch.tanh(x @ right.clone()), x).outcome
        == "clean"
    )
    with pytest.raises(assay.Different, match="constant"):
        assay.assert_same(lambda x: torch.tanh(x @ right), lambda x: torch.tanh(x @ wrong), x)


def test_weights_that_nobody_captured_are_not_assumed(block, x, tmp_path):
    """Golden has weights, mine was captured without: clean would be a guess."""
    with assay.capture(block, tmp_path / "golden", level="operator"):
        block(x)
    port = copy.deepcopy(block)
    with assay.capture(port, tmp_path / "mine"):
        port(x)
    with pytest.raises(assay.Different, match=r"cannot judge: .*weights") as caught:
        assay.assert_same(tmp_path / "golden", tmp_path / "mine")
    assert caught.value.next == f"assay locate {tmp_path / 'golden'} {tmp_path / 'mine'} --why"


def test_other_inputs_cannot_be_judged(block, x, temporary):
    def given_others(given: torch.Tensor) -> torch.Tensor:
        return block(given + 1)

    with pytest.raises(assay.Different, match=r"^cannot judge: mine was not given what golden was"):
        assay.assert_same(block, given_others, x)


def test_each_side_has_inputs_of_its_own(block, x):
    before = x.clone()

    def spoils(given: torch.Tensor) -> torch.Tensor:
        result = block(given)
        given.zero_()
        return result

    with torch.no_grad():
        assert assay.assert_same(spoils, copy.deepcopy(block), x).outcome == "clean"
    assert torch.equal(x, before)


def test_random_numbers_are_the_same_for_both_and_put_back(x):
    noisy = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.5)).train()

    def with_noise(x: torch.Tensor) -> torch.Tensor:
        return noisy(x + torch.rand_like(x) + random.random() + float(np.random.rand()))

    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = (torch.rand(3), random.random(), np.random.rand())
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    try:
        assay.assert_same(with_noise, with_noise, x, seed=7)
    except assay.Different as different:  # dropout may be more than can be judged, but both drew the same
        assert different.verdict.outcome == "cannot_judge", different
    drawn = (torch.rand(3), random.random(), np.random.rand())
    assert torch.equal(drawn[0], expected[0])
    assert drawn[1:] == expected[1:]


def test_runs_are_kept_in_a_folder_on_request(block, x, tmp_path):
    assay.assert_same(block, copy.deepcopy(block), x, folder=tmp_path / "runs")
    assert assay.locate(tmp_path / "runs" / "golden", tmp_path / "runs" / "mine").outcome == "clean"


def refused(code: str, golden: Any, mine: Any, **options: Any) -> str:
    with pytest.raises(assay.Error) as caught:
        assay.assert_same(golden, mine, **options)
    assert caught.value.code == code
    return caught.value.message


def test_what_is_refused(block, x, temporary, tmp_path):
    assert "a int is neither a module, a function nor the path of a run" in refused("Usage", 3, block)
    assert "no operator of PyTorch ran" in refused("NotCaptured", lambda: 1, lambda: 2)
    assert "level must be" in refused("Usage", block, block, inputs=x, level="step")
    refused("NotFound", tmp_path / "nowhere", block, inputs=x)
    assert list(temporary.iterdir()) == []


def test_an_exception_of_the_program_comes_out(block, x, temporary):
    def fails(x: torch.Tensor) -> torch.Tensor:
        block(x)
        raise ZeroDivisionError("of the program")

    with pytest.raises(ZeroDivisionError, match="of the program"):
        assay.assert_same(block, fails, x)
    assert list(temporary.iterdir()) == []
    # Nothing of ours is left in torch.
    assert torch.nn.Module._call_impl.__globals__["__name__"] == "torch.nn.modules.module"
    assert outermost._injection is None
    assert assay.assert_same(block, lambda x: block(x), x).outcome == "clean"


def test_compiled_functions_do_not_break_the_next_capture(block, x):
    compiled = torch.compile(copy.deepcopy(block), backend="eager")
    for _ in range(2):
        try:
            assay.assert_same(block, lambda x: compiled(x), x, level="module")
        except assay.Different as different:
            assert different.verdict.outcome == "cannot_judge"
    assert torch.equal(compiled(x), block(x))
