# SPDX-License-Identifier: Apache-2.0
"""Leaks between the rows of a batch, planted in kernels beneath the capture: what serving engines got wrong.

Each kind changes what one module of one layer computes so that a row depends on its neighbours, on earlier calls or on
the batch as a whole. A batch of one row is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch

from assay.twin.places import Places
from bench.faults import families, kernels

Change = Callable[[torch.Tensor], torch.Tensor]


class Batch:
    """How many rows the running scenario has: kernels see matrices of all rows."""

    rows = 1


def by_rows(batch: Batch, change: Change) -> Change:
    """`change` gets `[rows, positions, channels]` of its own, whatever the shape at hand is."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        if batch.rows < 2:
            return x
        return change(x.clone().reshape(batch.rows, -1, x.shape[-1])).reshape(x.shape)

    return changed


def _first_key(x: torch.Tensor) -> torch.Tensor:
    x[:, 0] = x[:, 0].roll(1, 0)
    return x


def _rolled(x: torch.Tensor) -> torch.Tensor:
    x[:, -1] = x[:, -1].roll(1, 0)
    return x


def _slot_of_the_first(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand_as(x).clone() if x.shape[1] == 1 else x  # one position: a decode step


def _one_scale(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().max() / 127  # of the whole batch
    return (x / scale).round() * scale


def _batch_statistics(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + 0.1 * x.mean(0, keepdim=True))


def _capacity(x: torch.Tensor) -> torch.Tensor:
    norms = x.norm(dim=-1, keepdim=True)
    return x * (norms >= norms.median())


def _neighbours_value(batch: Batch) -> kernels.Kernel:
    """Attention also sees the first value of the row before: its mask begins one row too early."""

    def kernel(call: Any, func: Any, args: Any, kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if not kernels.name_of(func).startswith("_scaled_dot_product") or batch.rows < 2:
            return result
        value = args[2].roll(1, 0)[:, :, :1]
        value = value.repeat_interleave(result[0].shape[1] // value.shape[1], 1)
        return (result[0] + 0.1 * value, *result[1:])

    return kernel


def _stale() -> Change:
    last: dict[torch.Size, torch.Tensor] = {}

    def change(x: torch.Tensor) -> torch.Tensor:
        """One channel is still that of the last batch, in which another row had this place."""
        kept = last.get(x.shape)
        last[x.shape] = x.clone()
        if kept is not None:
            x[..., :1] = kept.roll(1, 0)[..., :1]
        return x

    return change


def _key(family: Places) -> str:
    return family.linears[0] if "query_key" in family.linears[0] or "c_attn" in family.linears[0] else family.linears[1]


def _output(family: Places) -> str:
    return [name for name in family.linears if name.startswith(family.attention)][-1]


# name -> (module below the layer, what its kernel does)
KINDS: dict[str, tuple[Callable[[Places], str], Callable[[Batch], kernels.Kernel]]] = {
    "neighbour's key": (_key, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _first_key))),
    "mask off by one row": (lambda family: family.attention, _neighbours_value),
    "statistics over the batch": (
        lambda family: family.norms[0],
        lambda batch: kernels.on_result(("mul", "native_layer_norm"), by_rows(batch, _batch_statistics)),
    ),
    "shared cache slot": (_key, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _slot_of_the_first))),
    "stale buffer": (_output, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _stale()))),
    "rolled batch": (_output, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _rolled))),
    "expert capacity": (_output, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _capacity))),
    "one scale for the batch": (_key, lambda batch: kernels.on_result(kernels.PRODUCTS, by_rows(batch, _one_scale))),
}


@contextlib.contextmanager
def planted(model: torch.nn.Module, family: Places, kind: str, layer: int, batch: Batch) -> Iterator[str]:
    """Plants a leak for the time of the block; gives the path of the module that it sits in."""
    where, make = KINDS[kind]
    path = f"{family.layer.format(layer)}.{where(family)}"
    with kernels.Kernels(model, path, make(batch), own=kind != "mask off by one row"):
        yield path


def driven(model: torch.nn.Module, batch: Batch) -> Callable[[Any], Any]:
    """The program for :func:`assay.invariance`, which tells the kernels how many rows there are."""
    from assay import invariance

    drive = invariance.hugging_face(model)

    def run(scenario: Any) -> Any:
        batch.rows = len(scenario.rows)
        return drive(scenario)

    return run


def shortened(model: Any, name: str, layers: int) -> torch.nn.Module:
    """The model with its first layers only."""
    stack = families.places_of(name).layer.removesuffix(".{}")
    owner, _, attribute = stack.rpartition(".")
    holder = model.get_submodule(owner)
    setattr(holder, attribute, torch.nn.ModuleList(list(getattr(holder, attribute))[:layers]))
    model.config.num_hidden_layers = layers
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:layers]
    return model.eval()


def _find_all(names: Sequence[str], layer: int) -> int:
    """Plants each kind in each family; returns how many were not named first."""
    from assay import invariance

    missed = 0
    for name, kind in itertools.product(names, KINDS):
        model, batch = shortened(families.build(name, 1, width=64), name, layer + 2), Batch()
        with planted(model, families.places_of(name), kind, layer, batch) as module:
            found = invariance.check(driven(model, batch), vocabulary=families.VOCABULARY)
        is_found = bool(found.leaks) and found.leaks[0]["module"] == module
        missed += not is_found
        print(
            "found " if is_found else "MISSED", name, kind, found.leaks[0]["module"] if found.leaks else "", flush=True
        )
    return missed


def _accuse_none(names: Sequence[str], runs: int) -> int:
    """Healthy models of all kinds; returns how many are said to leak, or to differ by more than rounding."""
    from assay import invariance

    accused = 0
    for number in range(runs):
        name, seed = names[number % len(names)], number // len(names)
        shaped = seed // 2 % 2 == 1
        width = 96 if shaped or seed % 2 == 1 else 64
        model = families.build(name, seed, ("sdpa", "eager")[seed % 2], width, shaped)
        dtype = (torch.float32, torch.float32, torch.bfloat16)[seed % 3]
        shape = {"seed": seed, "batch": (3, 2, 4)[seed % 3], "length": (6, 5, 9)[seed // 3 % 3], "decode": 1}
        drive = invariance.hugging_face(shortened(model, name, 2).to(dtype))
        found = invariance.check(drive, vocabulary=families.VOCABULARY, **shape)
        if found.leaks or any(one["beyond_rounding"] for one in found.not_invariant):
            accused += 1
            print("ACCUSED", name, seed, found.sentence, flush=True)
    return accused


def main() -> int:
    """Plants every kind in every family, then runs healthy models."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults.leaks", description=main.__doc__)
    parser.add_argument("--families", default=",".join(families.LARGER))
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=200, help="healthy runs (default: 200)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.families.split(",")
    missed = _find_all(names, options.layer)
    accused = _accuse_none(names, options.healthy)
    print(f"{missed} of {len(names) * len(KINDS)} leaks missed, {accused} of {options.healthy} healthy runs accused")
    return int(missed + accused > 0)


if __name__ == "__main__":
    sys.exit(main())
