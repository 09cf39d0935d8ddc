# SPDX-License-Identifier: Apache-2.0
"""The C types of assay._capture: they are made when the module is imported, their objects hold a reference to them, and
some are called without a tuple of arguments."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
native = pytest.importorskip("assay._capture")

from bench import record_lines  # noqa: E402

import assay  # noqa: E402

ROUNDS = 50


def dumper(folder: Path) -> Any:
    def none(*_: Any) -> None:
        return None

    return native.StrictDumper(
        dump_dir=str(folder), dump_dir_text=str(folder), analyze_path="", token_range=[0, 1], tensor_part=2,
        statistics_mode=0, dump_modules=True, dump_apis=False, last_logits=False, host_threads=1, module_list=(),
        to_dense=none, warn_once=none, after_fork=none,
    )  # fmt: skip


def objects_of(folder: Path) -> Iterator[Any]:
    """One object of every type, each used once."""
    model = torch.nn.Linear(2, 2)
    session = native.Session(str(folder / "session"), data="stats", operators=True)
    node = session.add_node("", "Linear", True, True)
    call = session.module_call(model, node)
    call.install("_call_impl")
    model(torch.ones(1, 2))
    call.remove()
    model._compiled_call_impl = model.forward  # as module.compile() would
    compiled = session.module_call(model, node)
    compiled.install("_compiled_call_impl")
    watched = model._compiled_call_impl
    watched(torch.ones(1, 2))
    compiled.remove()
    run = session.graph_run(node, 0)
    run.end()
    strict = dumper(folder)
    enter, leave = strict.module_hooks("", "Linear", True, True)
    enter(model, ())
    leave(model, (), torch.ones(2))
    yield from (session, call, watched, run, native.GraphDump(), strict, enter)
    strict.close()
    session.close()


def test_what_a_capture_made_is_gone_with_it(tmp_path: Path) -> None:
    # given the references to each type while none of its objects is alive
    types = [type(one) for one in objects_of(tmp_path)]
    gc.collect()
    before = [sys.getrefcount(one) for one in types]
    # when many of them came and went
    for _ in range(ROUNDS):
        for one in objects_of(tmp_path):
            del one
    gc.collect()
    # then no reference is left, and none was given back twice
    assert [sys.getrefcount(one) for one in types] == before


def test_objects_in_a_circle_are_collected(tmp_path: Path) -> None:
    # given a session whose predicate refers to the call that the session made
    gc.collect()
    held = sys.getrefcount(native.ModuleCall)
    for i in range(ROUNDS):
        circle: list[Any] = []
        session = native.Session(str(tmp_path / str(i)), wanted=lambda step, circle=circle: bool(circle))
        circle.append(session.module_call(torch.nn.Linear(1, 1), session.add_node("", "Linear", True, True)))
    # when nobody else knows them any more
    del circle, session
    gc.collect()
    # then they are gone
    left = sys.getrefcount(native.ModuleCall)
    assert left == held


def test_names_of_arguments_are_let_go(tmp_path: Path) -> None:
    # given a text that is nobody else's, as the name of an argument
    name = "".join(["mask", str(id(tmp_path))])
    held = sys.getrefcount(name)
    model = torch.nn.Identity()
    with assay.capture(model, tmp_path / "run"):
        model({name: torch.ones(1)})
    gc.collect()
    left = sys.getrefcount(name)
    assert left == held


def test_names_of_arguments_are_those_of_their_texts(tmp_path: Path) -> None:
    # given names of all kinds: not ASCII, not UTF-8, equal texts that are two objects, a number
    model = torch.nn.Identity()
    equal = ["".join(["va", "lue"]) for _ in range(2)]
    named = {"länge": torch.ones(1), "\udc80": torch.ones(2), 7: torch.ones(3), equal[0]: torch.ones(4)}
    with assay.capture(model, tmp_path / "run"):
        for _ in range(2):  # what is not known yet, and what is
            model(named)
        model({equal[1]: torch.ones(5)})
    records = record_lines.read(tmp_path / "run" / "rank0" / "records.jsonl")
    slots = [record["slot"] for record in records if record["role"] == "input"]
    # then a text stands for itself, and for what is none its place
    assert slots == ["0.länge", "0.1", "0.7", "0.value"] * 2 + ["0.value"]


def test_numbers_among_the_arguments_are_written_out(tmp_path: Path) -> None:
    model = torch.nn.Identity()
    numbers = [0, -5, 2**63 - 1, -(2**63), 2**63, -(10**40), True, 0.5, "text", "\udc80"]
    with assay.capture(model, tmp_path / "run", inputs=True):
        model(numbers)
    records = record_lines.read(tmp_path / "run" / "rank0" / "records.jsonl")
    values = [record["value"] for record in records if record["role"] == "input" and record["kind"] == "value"]
    assert values == [*numbers[:-1], None]  # JSON's numbers have no bounds; a text that is no UTF-8 has none


def test_only_a_capture_makes_its_objects(tmp_path: Path) -> None:
    made_by_others = (native.Session, native.GraphDump, native.StrictDumper)
    for one in {type(one) for one in objects_of(tmp_path)}:
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Sub", (one,), {})
        if one not in made_by_others:
            with pytest.raises(TypeError, match=f"cannot create 'assay._capture.{one.__name__}' instances"):
                one()
        assert one.__module__ == "assay._capture"


def test_hooks_do_the_same_with_and_without_a_tuple(tmp_path: Path) -> None:
    # given the hooks of two modules of one dump
    session = dumper(tmp_path)
    model, x = torch.nn.Linear(1, 1), torch.ones(1)
    ways = {"plain": lambda hook, *given: hook(*given), "slot": lambda hook, *given: hook.__call__(*given)}
    for name, call in ways.items():
        enter, leave = session.module_hooks(name, "Linear", True, True)
        # when one is called as Python does, and the other by its slot
        assert call(enter, model, (x,)) is None
        assert call(leave, model, (x,), x + 1) is None
        with pytest.raises(TypeError, match=r"a forward hook takes \(module, args, output\)"):
            call(leave, model)
    enter, leave = session.module_hooks("words", "Linear", True, True)
    assert enter.__call__(model, (x,), more=1) is None
    with pytest.raises(TypeError, match="a forward hook takes"):
        leave.__call__(model, args=(x,), output=x)  # names do not count as places
    session.close()
    # then both left the same files
    files = {name: sorted(path.name for path in tmp_path.rglob(f"{name}/*")) for name in ways}
    assert files["plain"] == files["slot"] == ["input_0.pth", "output.pth"]


def test_bytes_come_from_whatever_has_them(tmp_path: Path) -> None:
    # given objects with a buffer
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6, dtype="uint8").reshape(2, 3)
    dump = native.GraphDump()
    for content in (b"ab", bytearray(b"abc"), memoryview(b"abcd")[1:], array):
        dump.write_bytes(str(tmp_path / "file"), content)
        dump.flush()
        assert (tmp_path / "file").read_bytes() == bytes(content)
    # and others
    for wrong, name in (("text", "str"), (3, "int"), ([1], "list"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"a bytes-like object is required, not '{name}'"):
            dump.write_bytes(str(tmp_path / "file"), wrong)
    for gaps in (memoryview(b"abcd")[::2], array.T):
        with pytest.raises(BufferError, match="not C-contiguous"):
            dump.write_bytes(str(tmp_path / "file"), gaps)
    dump.close()


def test_types_are_named_as_the_interpreter_names_them(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    dump = native.GraphDump()
    for value, name in ((3, "int"), (numpy.ones(1), "numpy.ndarray"), (torch.nn.Linear(1, 1), "Linear")):
        with pytest.raises(TypeError, match=f"input 0 is a {name}, not a torch.Tensor or None"):
            dump.write_operator(str(tmp_path), "Add", "add", 0, 0, [value], [])
    dump.close()
