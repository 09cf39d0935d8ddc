# SPDX-License-Identifier: Apache-2.0
"""Kinds of tensors that a host may hand over, and a program that passes each through a captured model.

    python tensor_kinds.py FOLDER     one forked process a kind, all levels; prints {kind: exit status} as JSON

A kind's tensor goes into a module and comes out of it, beside an ordinary computation whose bits must stay the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch import nn

warnings.simplefilter("ignore")

VALUES = [1.0, 2.0, 3.0, 4.0]


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is to be recorded of one kind.

    Attributes:
        make: returns the tensor.
        values: what its record holds; None when only the line is looked at.
        reason: a part of the reason of the line when nothing can be read.
        cls: the class that the line names.
        parts: slots of parts that are recorded beside it, with their values.
        around: a context to make the tensor and run the model in.
        computes: whether torch survives to compute with it.
    """

    make: Callable[[], Any]
    values: Optional[list[Any]] = None
    reason: str = ""
    cls: str = ""
    parts: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    around: Callable[[], Any] = contextlib.nullcontext
    computes: bool = True


class Sub(torch.Tensor):
    """A plain subclass: it has memory."""


class Raising(torch.Tensor):
    """A subclass whose functions must not be called by anybody who only looks."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("looked at")


class Wrapper(torch.Tensor):
    """A wrapper class: shape and strides, the storage at address null, values elsewhere."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, offset: int = 0) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=offset, dtype=inner.dtype, device=inner.device
        )
        made.hidden = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.hidden if isinstance(arg, Wrapper) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


class Flat(Wrapper):
    """The same, and says what it is made of."""

    def __tensor_flatten__(self) -> Any:
        return ["hidden"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, meta: Any, size: Any, stride: Any) -> Flat:
        return Flat(inner["hidden"])


class FlattenRaises(Wrapper):
    def __tensor_flatten__(self) -> Any:
        raise ValueError("not now")


def values(dtype: Any = torch.float32) -> torch.Tensor:
    return torch.tensor(VALUES).to(dtype)


def offset_view(tensor: torch.Tensor) -> torch.Tensor:
    """Its last two elements: a storage offset that is not 0."""
    return tensor[2:]


@contextlib.contextmanager
def fake_mode(**options: Any) -> Iterator[None]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True, **options):
        yield


def symbolic() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env = ShapeEnv()
    made = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True).from_tensor(torch.ones(5, 4))
    made.shape_environment = env
    return made


def functional(tensor: torch.Tensor) -> Any:
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(tensor)


def freed(tensor: torch.Tensor, left: int) -> torch.Tensor:
    tensor.untyped_storage().resize_(left)
    return tensor


@contextlib.contextmanager
def one_process_group() -> Iterator[None]:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def dtensor(placement: str, of: Optional[torch.Tensor] = None) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    where = {"shard": Shard(0), "replicate": Replicate(), "partial": Partial()}[placement]
    return DTensor.from_local(values() if of is None else of, mesh, [where], run_check=False)


def arriving() -> Any:
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_reduce

    return all_reduce(values(), "sum", dist.group.WORLD)


def dual() -> Any:
    import torch.autograd.forward_ad as fwAD

    return fwAD.make_dual(values(), values())


def two_tensor() -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(values(), values() * 2)


def masked() -> Any:
    return torch.masked.masked_tensor(values(), torch.tensor([True, False, True, True]))


def mapped() -> torch.Tensor:
    path = os.path.join(tempfile.mkdtemp(), "values")
    torch.save(values(), path)
    return torch.load(path, mmap=True)


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return values()


def quantised(dtype: Any) -> Any:
    return torch.quantize_per_tensor(values(), 0.5, 0, dtype)


def jagged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def sparse(layout: str) -> Any:
    dense = torch.eye(4)
    return getattr(dense, f"to_sparse_{layout}")(*([(2, 2)] if layout in ("bsr", "bsc") else []))


KINDS: dict[str, Kind] = {
    "tensor": Kind(values, VALUES),
    "parameter": Kind(lambda: nn.Parameter(values()), VALUES),
    "view at an offset": Kind(lambda: offset_view(values()), VALUES[2:]),
    "transposed": Kind(lambda: torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t(), [[1.0, 3.0], [2.0, 4.0]]),
    "expanded": Kind(lambda: torch.tensor([5.0]).expand(3), [5.0] * 3),
    "conjugate": Kind(lambda: torch.tensor([1 + 2j]).conj()),
    "negative": Kind(lambda: torch.tensor([1 + 2j]).conj().imag, [-2.0]),
    "inference": Kind(inference, VALUES),
    "lazy clone": Kind(lambda: torch._lazy_clone(values()), VALUES),
    "shared memory": Kind(lambda: values().share_memory_(), VALUES),
    "mapped file": Kind(mapped, VALUES),
    "of numpy": Kind(lambda: torch.from_numpy(values().numpy()), VALUES),
    "zero": Kind(lambda: torch._efficientzerotensor(4), reason="no storage"),
    "dual": Kind(dual, around=lambda: __import__("torch.autograd.forward_ad").autograd.forward_ad.dual_level()),
    "bfloat16": Kind(lambda: values(torch.bfloat16), VALUES),
    "complex32": Kind(lambda: values(torch.complex32)),
    "float8": Kind(lambda: values(torch.float8_e4m3fn)),
    "float4": Kind(lambda: torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)),
    "uint16": Kind(lambda: values(torch.uint16), VALUES),
    "int4": Kind(lambda: torch.empty(4, dtype=torch.int4)),
    "bits8": Kind(lambda: torch.empty(4, dtype=torch.bits8), reason="bits dtype"),
    "bits1x8": Kind(lambda: torch.empty(4, dtype=torch.bits1x8), reason="bits dtype"),
    "bits16": Kind(lambda: torch.empty(4, dtype=torch.bits16), reason="bits dtype"),
    "quint8": Kind(lambda: quantised(torch.quint8), reason="quantised"),
    "qint8": Kind(lambda: quantised(torch.qint8), reason="quantised"),
    "qint32": Kind(lambda: quantised(torch.qint32), reason="quantised"),
    "quint8 by channel": Kind(
        lambda: torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
        reason="quantised",
    ),
    "quint8 view": Kind(lambda: offset_view(quantised(torch.quint8)), reason="quantised"),
    "sparse coo": Kind(lambda: values().to_sparse(), reason="sparse_coo"),
    "sparse csr": Kind(lambda: sparse("csr"), reason="sparse_csr"),
    "sparse csc": Kind(lambda: sparse("csc"), reason="sparse_csc"),
    "sparse bsr": Kind(lambda: sparse("bsr"), reason="sparse_bsr"),
    "sparse bsc": Kind(lambda: sparse("bsc"), reason="sparse_bsc"),
    "mkldnn": Kind(lambda: values().to_mkldnn(), reason="_mkldnn"),
    "nested": Kind(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), reason="nested"),
    "jagged": Kind(jagged, reason="nested", cls="NestedTensor", parts={"_values": [1.0] * 5}),
    "meta": Kind(lambda: torch.empty(4, device="meta"), reason="meta"),
    "meta view": Kind(lambda: offset_view(torch.empty(4, device="meta")), reason="meta"),
    "uninitialised": Kind(nn.UninitializedParameter, cls="UninitializedParameter"),
    "freed": Kind(lambda: freed(values(), 0), reason="no storage", computes=False),
    "freed view": Kind(lambda: freed(offset_view(values()), 0), reason="no storage", computes=False),
    "partly freed": Kind(lambda: freed(values(), 8), reason="storage smaller than the shape", computes=False),
    "partly freed view": Kind(
        lambda: freed(offset_view(values()), 8), reason="storage smaller than the shape", computes=False
    ),
    "functional": Kind(lambda: torch._to_functional_tensor(values()), reason="no storage"),
    "functional view": Kind(lambda: offset_view(torch._to_functional_tensor(values())), reason="no storage"),
    "functional class": Kind(lambda: functional(values()), reason="torch refuses access", cls="FunctionalTensor"),
    "fake": Kind(values, reason="no storage", cls="FakeTensor", around=fake_mode),
    "fake view": Kind(lambda: offset_view(values()), reason="no storage", cls="FakeTensor", around=fake_mode),
    "fake symbolic": Kind(symbolic, cls="FakeTensor"),
    "subclass": Kind(lambda: values().as_subclass(Sub), VALUES, cls="Sub"),
    "subclass view": Kind(lambda: offset_view(values()).as_subclass(Sub), VALUES[2:], cls="Sub"),
    "subclass of meta": Kind(lambda: torch.empty(4, device="meta").as_subclass(Sub), reason="meta", cls="Sub"),
    "subclass freed": Kind(lambda: freed(values(), 0).as_subclass(Sub), reason="no storage", cls="Sub", computes=False),
    "raising subclass": Kind(lambda: values().as_subclass(Raising), VALUES, cls="Raising"),
    "parameter subclass": Kind(lambda: nn.Parameter(values().as_subclass(Sub)), VALUES, cls="Sub"),
    "masked": Kind(masked, reason="no storage", cls="MaskedTensor"),
    "wrapper": Kind(lambda: Wrapper(values()), reason="no storage", cls="Wrapper"),
    "wrapper at an offset": Kind(lambda: Wrapper(values(), 4), reason="no storage", cls="Wrapper"),
    "wrapper far away": Kind(lambda: Wrapper(values(), 1 << 45), reason="no storage", cls="Wrapper"),
    "flat wrapper": Kind(lambda: Flat(values(), 4), reason="no storage", cls="Flat", parts={"hidden": VALUES}),
    "wrapper in a wrapper": Kind(
        lambda: Flat(Flat(values(), 4), 4), reason="no storage", cls="Flat", parts={"hidden.hidden": VALUES}
    ),
    "wrapper that raises": Kind(lambda: FlattenRaises(values(), 4), reason="no storage", cls="FlattenRaises"),
    "two tensors": Kind(
        two_tensor, reason="no storage", cls="TwoTensor", parts={"a": VALUES, "b": [2 * value for value in VALUES]}
    ),
    "replicated DTensor": Kind(lambda: dtensor("replicate"), VALUES, cls="DTensor", around=one_process_group),
    "sharded DTensor": Kind(lambda: dtensor("shard"), VALUES, cls="DTensor", around=one_process_group),
    "partial DTensor": Kind(lambda: dtensor("partial"), VALUES, cls="DTensor", around=one_process_group),
    "DTensor at an offset": Kind(
        lambda: dtensor("shard", offset_view(values())), VALUES[2:], cls="DTensor", around=one_process_group
    ),
    "on its way": Kind(arriving, VALUES, cls="AsyncCollectiveTensor", around=one_process_group),
}

# By the program, so that its children need not.
IMPORTED_ONCE = (
    "assay.torch.capture",
    "assay.torch.strict",
    "torch.autograd.forward_ad",
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch._subclasses.functional_tensor",
    "torch.testing._internal.two_tensor",
    "torch.nested._internal.nested_tensor",
)
LEVELS = ("module", "operator", "weights", "statistics", "strict", "strict_statistics", "graph")


class Pass(nn.Module):
    def forward(self, given: Any) -> Any:
        return given


class Model(nn.Module):
    """Passes its tensor through a module, computes something with it, and something ordinary beside it."""

    def __init__(self, given: Any, computes: bool) -> None:
        super().__init__()
        self._computes = computes
        torch.manual_seed(0)
        self.give = Pass()
        self.linear = nn.Linear(3, 3)
        self._given = [given]

    def forward(self, x: Any) -> Any:
        passed = self.give(self._given[0])
        assert passed is self._given[0]
        return self.linear(x), self._computed(passed) if self._computes else ""

    def _computed(self, passed: Any) -> str:
        try:
            with torch.no_grad():
                return str((passed + passed).detach())
        except Exception as error:
            return type(error).__name__


def bits(x: torch.Tensor) -> str:
    return "fake" if type(x) is not torch.Tensor else x.detach().numpy().tobytes().hex()


def run(model: Any, x: Any) -> list[str]:
    result, computed = model(x)
    return [bits(result), computed]


def capture(level: str, model: Any, x: Any, folder: Path) -> list[str]:
    import assay

    if level.startswith("strict"):
        from assay.torch.strict import DumpConfig, register_hook

        config = DumpConfig(str(folder), mode=["module", "api"], dump_statistics_mode=int("statistics" in level))
        register_hook(model, config)
        result = run(model, x)
        DumpConfig.reset()
        return result
    if level == "graph":
        from assay import _capture

        dump = _capture.GraphDump(queue_bytes=1 << 20)
        given = model._given[0]
        for statistics in (None, ("Max", "Min")):
            dump.write_operator(str(folder), "Add", "add", 1, 0, [given], [given], statistics=statistics)
        dump.write_array(str(folder / "x.npy"), given)
        missed = dump.take_missed()
        dump.close()
        (folder / "missed.json").write_text(json.dumps(missed))
        return run(model, x)
    if level == "weights":
        with contextlib.suppress(TypeError, KeyError, RuntimeError):
            model.give.register_buffer("given", model._given[0])
    with assay.capture(
        model,
        folder / "run",
        level="operator" if level == "operator" else "module",
        data="stats" if level == "statistics" else "full",
        weights=level == "weights",
        digest=True,
        queue_bytes=8 << 20,
    ) as handle:
        result = run(model, x)
    assert not handle.stats["stopped"], handle.stats["stopped"]
    return result


def in_child(kind: Kind, folder: Path) -> None:
    with kind.around():
        given = kind.make()
        x = torch.ones(2, 3)
        wanted = run(Model(given, kind.computes), x)
        for level in LEVELS:
            (folder / level).mkdir(parents=True)
            got = capture(level, Model(given, kind.computes), x, folder / level)
            environment = getattr(given, "shape_environment", None)
            result = {"wanted": wanted, "got": got, "guards": len(environment.guards) if environment else 0}
            (folder / level / "result.json").write_text(json.dumps(result))


def folder_of(root: Path, name: str) -> Path:
    return root / name.replace(" ", "_")  # the old API allows no spaces in paths


def main(root: Path) -> None:
    torch.set_num_threads(1)
    for module in IMPORTED_ONCE:
        importlib.import_module(module)
    endings = {}
    for name, kind in KINDS.items():
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                in_child(kind, folder_of(root, name))
                os._exit(0)
            except BaseException as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            finally:
                os._exit(1)
        endings[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(endings))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
