# SPDX-License-Identifier: Apache-2.0
"""How calls cross between Python and the extension modules: arguments, results, errors, arrays, references."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import assay
from assay import _core, _opcheck, reference

CALLS = 20_000


@pytest.fixture
def run(tmp_path):
    """A run of two files."""
    for index, name in enumerate(["a", "b"]):
        np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.float32).reshape(2, 3) + index)
    return _core.open_run(os.fsencode(tmp_path))


@pytest.fixture
def graph():
    lists = ", ".join(f'"{name}": []' for name in ("inTensors", "outTensors", "internalTensors", "nodes"))
    return _core.read_graph(f'{{"modelName": "m", {lists}}}'.encode())


# Arguments


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: _core.open_run("text"), "open_run(): argument 'path' must be bytes, not str"),
        (lambda: _core.open_run(path=None), "open_run(): argument 'path' must be bytes, not NoneType"),
        (lambda: _core.open_run(), "open_run(): needs argument 'path'"),
        (lambda: _core.open_run(b"a", b"b"), "open_run(): takes at most 1 arguments by position, not 2"),
        (lambda: _core.open_run(b"a", path=b"b"), "open_run(): has two values for argument 'path'"),
        (lambda: _core.open_run(folder=b"a"), "open_run(): has no parameter 'folder'"),
        (lambda: _core.compare_runs("a", "b", "api"), "compare_runs(): takes at most 2 arguments by position, not 3"),
        (lambda: _core.compare_runs("a", "b", stats=1), "compare_runs(): argument 'stats' must be bool, not int"),
        (
            lambda: _core.compare_runs("a", "b", atol="1"),
            "compare_runs(): argument 'atol' must be float, or None, not str",
        ),
        (
            lambda: _core.compare_runs("a", "b", jobs=2**31),
            "compare_runs(): argument 'jobs' must be int from -2147483648 to 2147483647, not 2147483648",
        ),
        (
            lambda: _core.compare_runs("a", "b", max_memory=-1),
            "compare_runs(): argument 'max_memory' must be int from 0 to 18446744073709551615, not -1",
        ),
        (
            lambda: _core.compare_runs("a", "b", jobs=1.5),
            "compare_runs(): argument 'jobs' must be int from -2147483648 to 2147483647, not float",
        ),
        (
            lambda: _core.compare_runs("a", "b", map="\ud800"),
            "compare_runs(): argument 'map' must be str that UTF-8 can spell, not '\\ud800'",
        ),
        (
            lambda: _core.compare_runs("a", "b", algorithm_files="text"),
            "compare_runs(): argument 'algorithm_files' must be sequence, its items str that UTF-8 can spell, not str",
        ),
        (
            lambda: _core.compare_runs("a", "b", token_map=[(1, 2, 3)]),
            "compare_runs(): argument 'token_map' must be sequence, its items pair of int from -9223372036854775808 to "
            "9223372036854775807 and int from -9223372036854775808 to 9223372036854775807, not [(1, 2, 3)]",
        ),
        (lambda: _core.graph_diff(1, 2), "graph_diff(): argument 'golden' must be Graph, not int"),
        (lambda: _core.ShapeTable(1), "ShapeTable(): takes at most 0 arguments by position, not 1"),
        (lambda: _core.ShapeTable(text=b""), "ShapeTable(): has no parameter 'text'"),
        (lambda: _core.Graph(), "Graph has no constructor"),
        (lambda: _core.Graph.__new__(_core.Graph), "Graph has no constructor"),
        (lambda: _opcheck._ScenarioRun(), "_ScenarioRun(): needs argument 'path'"),
        (lambda: _opcheck.relu(), "relu(): needs 1 arguments, not 0"),
        (lambda: _opcheck.relu(1, 2), "relu(): takes at most 1 arguments by position, not 2"),
        (lambda: _opcheck.relu(x=1), "relu(): has no parameter 'x'"),
        (lambda: _opcheck.gelu([1.0], "tanh"), "gelu(): argument 2 must be bool, not str"),
    ],
)
def test_a_wrong_argument_is_a_type_error_that_names_function_and_argument(call, sentence):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == sentence


def test_a_long_wrong_value_is_told_in_part():
    with pytest.raises(TypeError) as caught:
        _core.compare_runs("a", "b", ranks=["a" + "\u00e4" * 100])
    # 80 bytes of the text, of which the last is the first half of a character
    assert str(caught.value).endswith(", not ['a" + "\u00e4" * 38 + "\\xc3...")


def test_a_method_refuses_the_self_of_another_class(graph):
    with pytest.raises(TypeError, match=r"'record' .*Run.* doesn't apply to .*Graph"):
        _core.Run.record(graph, 0)


def test_arguments_go_by_position_and_by_name_in_any_order(run):
    assert run.record(1).name == run.record(index=1).name != run.record(0).name
    x = np.array([1.0, 2.0])
    expected = _core.compare_arrays(x, x, compat="none", kl_divergence=False, jobs=2)
    assert repr(_core.compare_arrays(jobs=2, mine=x, kl_divergence=False, golden=x)) == repr(expected)


def test_what_says_that_it_is_an_integer_is_one(run):
    class Index:
        def __index__(self):
            return 1

    class Broken:
        def __index__(self):
            raise KeyError("no index")

    assert run.record(np.int8(1)).name == run.record(Index()).name == run.record(True).name == run.record(1).name
    with pytest.raises(KeyError, match="no index"):
        run.record(Broken())


def test_a_list_a_tuple_and_an_array_are_sequences_of_numbers():
    x = np.zeros((2, 3))
    for axes in ([1, 0], (1, 0), np.array([1, 0])):
        assert _opcheck.permute(x, axes).shape == (3, 2)


def test_functions_say_their_names_and_parameters():
    function = _core.compare_arrays
    assert (function.__name__, function.__module__) == ("compare_arrays", "assay._core")
    assert str(inspect.signature(function)) == "(golden, mine, *, compat='none', kl_divergence=True, jobs=1)"
    assert function.__doc__.startswith("All metrics of one pair")
    assert pickle.loads(pickle.dumps(function)) is function
    assert str(inspect.signature(_core.Run.record)) == "(self, /, index)"
    assert str(inspect.signature(_opcheck.gelu)) == "(arg0, arg1, /)"
    assert (_core.Graph.__qualname__, _core.Graph.__module__) == ("Graph", "assay._core")


# Objects


def test_objects_are_read_only_and_cannot_be_copied(run):
    record = run.record(0)
    with pytest.raises(AttributeError):
        record.rank = 1
    with pytest.raises(AttributeError):
        record.other = 1
    for copied in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle"):
            copied(record)


def test_statistics_are_equal_field_by_field_and_to_nothing_else():
    one, same = (_core.stats_of_array(np.array([np.nan, 1.0]), "float64") for _ in range(2))
    other = _core.stats_of_array(np.array([1.0]), "float64")
    assert one == same
    assert one != other
    assert one != 1
    assert one != None  # noqa: E711
    assert repr(one).startswith("TensorStats(count=2, min=1.0")
    assert len({one, one}) == 1


def test_a_subclass_is_an_object_of_its_class():
    class Table(_core.ShapeTable):
        pass

    table = Table()
    table.note = "kept"
    assert len(table) == 0
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None


def test_a_record_outlives_its_run_and_an_array_its_record(run):
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    record = run.record(0)
    del run
    gc.collect()
    tensor = record.load()
    array = tensor.raw()
    del record, tensor
    gc.collect()
    assert np.array_equal(array, expected)
    assert not array.flags.writeable


# Errors


def test_an_error_of_ours_has_its_class_path_and_sentence(tmp_path):
    missing = tmp_path / "missing"
    with pytest.raises(assay.Error) as caught:
        _core.open_run(os.fsencode(missing))
    assert str(missing) in str(caught.value)


def test_errors_of_c_plus_plus_have_the_class_that_fits(run, graph):
    with pytest.raises(IndexError, match="record index out of range"):
        run.record(2)
    with pytest.raises(IndexError, match="node index out of range"):
        graph.node(99)
    with pytest.raises(ValueError, match="words"):
        _core.text_score("rouge", b"a", b"")


def test_an_exception_of_a_callable_comes_back_as_text_from_a_thread_of_ours(tmp_path):
    for side in ("golden", "mine"):
        (tmp_path / side).mkdir()
        for index in range(8):
            np.save(tmp_path / side / f"{index}.npy", np.ones(4, np.float32))
    threads = set()

    def refuses(golden, mine):
        threads.add(threading.get_ident())
        assert golden.flags.writeable and golden.dtype == np.float32 and golden.tolist() == [1.0] * 4
        raise ValueError("seven")

    rows = _core.compare_runs(
        str(tmp_path / "golden"), str(tmp_path / "mine"), algorithms=[("refuses", refuses)], jobs=2
    ).rows()
    assert len(rows) == 8
    for row in rows:
        assert row["cmp_fail_reason"].startswith("refuses: Traceback (most recent call last):")
        assert row["cmp_fail_reason"].endswith("ValueError: seven")
    assert threads


def test_threads_of_python_call_at_the_same_time():
    x = np.random.default_rng(1).standard_normal(1 << 16).astype(np.float32)
    expected = _core.digest_of_array(x, "float32")
    found = []

    def work():
        for _ in range(50):
            found.append(_core.digest_of_array(x, "float32"))
            with pytest.raises(TypeError):
                _core.digest_of_array(x, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 200


def test_nothing_is_said_at_the_end_of_a_process_that_still_holds_objects(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    script = "import sys, assay; sys.kept = (assay.open(sys.argv[1]), assay.open(sys.argv[1]).records[0].numpy())"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Arrays in

MAX, SUM = 5.0, 15.0  # of 0..5


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(np.arange(6.0), id="plain"),
        pytest.param(np.arange(6.0)[::-1], id="negative-stride"),
        pytest.param(np.arange(12.0)[::2] / 2, id="step"),
        pytest.param(np.arange(6.0).reshape(2, 3).T, id="transposed"),
        pytest.param(np.arange(6.0).reshape(3, 2)[::-1, ::-1], id="two-negative-strides"),
        pytest.param(np.broadcast_to(np.arange(6.0), (1, 6)), id="zero-stride"),
        pytest.param(np.arange(6.0).reshape(1, 1, 1, 1, 1, 1, 1, 1, 6), id="nine-dimensions"),
        pytest.param(np.lib.stride_tricks.as_strided(np.arange(6.0), writeable=False), id="read-only"),
        pytest.param(np.arange(7.0).tobytes()[:48], id="bytes"),
    ],
)
def test_every_layout_of_an_array_is_read_in_place(array):
    if isinstance(array, bytes):
        stats = _core.stats_of_array(memoryview(array).cast("d"), "float64")
    else:
        stats = _core.stats_of_array(array, "float64")
        assert _core.digest_of_array(array, "float64") == _core.digest_of_array(array.copy(order="C"), "float64")
    assert (stats.count, stats.min, stats.max, stats.mean) == (6, 0.0, MAX, SUM / 6)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_an_array_without_elements_has_no_statistics(shape):
    stats = _core.stats_of_array(np.zeros(shape, np.float16), "float16")
    assert stats.count == 0
    assert np.isnan(stats.max)
    assert _core.compare_arrays(np.zeros(shape), np.zeros(shape))["state"] == "empty"


@pytest.mark.parametrize("kind", list("?bBhHiIqQefdFD"))
def test_every_type_of_numpy_that_a_tensor_has_is_taken(kind):
    array = np.array([0, 1, 1], kind)
    assert _core.compare_arrays(array, array)["identical"]
    assert _core.stats_of_array(array, array.dtype.name).count == 3
    assert np.array_equal(_opcheck.concat([array, array], 0), np.concatenate([array, array]))


def test_a_scalar_is_an_array_of_no_dimension():
    assert _core.stats_of_array(np.array(2.0), "float64").max == 2.0


@pytest.mark.parametrize(
    "array",
    [
        pytest.param([1.0], id="list"),
        pytest.param(np.array([1.0], ">f8"), id="big-endian"),
        pytest.param(np.zeros(2, [("a", "f4"), ("b", "i1")])["a"], id="field"),
        pytest.param(np.array(["a"]), id="text"),
        pytest.param(np.array([None]), id="objects"),
        pytest.param(np.array(["2020"], "M8[Y]"), id="dates"),
        pytest.param(None, id="none"),
    ],
)
def test_what_is_no_array_of_our_numbers_is_a_type_error(array):
    with pytest.raises(TypeError, match=r"compare_arrays\(\): argument 'mine' must be array of numbers"):
        _core.compare_arrays(np.array([1.0]), array)


def test_the_wrappers_take_what_the_module_refuses():
    big = np.arange(4, dtype=">f4")
    assert assay.stats(big).max == 3.0
    field = np.array([(1.5, 1), (2.5, 2)], [("a", "f4"), ("b", "i1")])["a"]
    assert assay.stats(field).max == 2.5
    assert reference.relu([[-1.0, 2.0]]).tolist() == [[0.0, 2.0]]


def test_tensors_of_torch_come_through_dlpack_without_a_copy():
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float16, torch.complex64, torch.bool):
        tensor = torch.arange(6).to(dtype).reshape(2, 3)
        assert _core.compare_arrays(tensor.t(), tensor.t())["identical"], dtype
        assert not _core.compare_arrays(tensor.t(), (tensor == 0).to(dtype).t())["identical"], dtype
    tensor = torch.arange(6.0)
    before = sys.getrefcount(tensor)
    for _ in range(1000):
        _core.compare_arrays(tensor, tensor[2:])
    assert sys.getrefcount(tensor) == before
    with pytest.raises(TypeError, match="must be array of numbers"):
        _core.compare_arrays(tensor.requires_grad_(), tensor)
    with pytest.raises(TypeError, match="must be array of numbers"):
        _core.compare_arrays(torch.empty(3, device="meta"), tensor)


def test_what_stops_a_program_is_not_taken_for_a_missing_array():
    class Interrupted:
        def __dlpack__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _core.compare_arrays(Interrupted(), Interrupted())


# Arrays out


@pytest.mark.parametrize("kind", list("?bBhHiIqQefdFD"))
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (4,), (2, 3)])
def test_an_array_comes_back_as_it_lies_in_the_file(tmp_path, kind, shape):
    array = np.arange(np.prod(shape, dtype=int)).astype(kind).reshape(shape)
    np.save(tmp_path / "a.npy", array)
    raw = _core.open_run(os.fsencode(tmp_path)).record(0).load().raw()
    assert (raw.dtype, raw.shape, raw.flags.writeable) == (array.dtype, shape, False)
    assert np.array_equal(raw, array)
    with pytest.raises(ValueError, match="read-only"):
        raw[...] = 0


def test_strides_come_back_as_the_file_has_them(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "a.npy", array)
    raw = _core.open_run(os.fsencode(tmp_path)).record(0).load().raw()
    assert raw.strides == array.strides
    assert np.array_equal(raw, array)


def test_a_result_owns_its_memory():
    results = [_opcheck.scale(np.full(1 << 12, 1.0), float(factor)) for factor in range(20)]
    gc.collect()
    assert [set(result.tolist()) for result in results] == [{float(factor)} for factor in range(20)]
    tail = results[7][-2:]
    del results
    gc.collect()
    np.zeros(1 << 12).fill(9.0)
    assert tail.tolist() == [7.0, 7.0]


# References


def _leak(call, objects):
    """Bytes that many calls keep, and by how much they change the reference counts of objects."""
    for _ in range(100):
        call()
    gc.collect()
    counts = [sys.getrefcount(one) for one in objects]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(CALLS):
        call()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before, [a - b for a, b in zip([sys.getrefcount(one) for one in objects], counts)]


def _refused(function, *args, **keywords):
    try:
        function(*args, **keywords)
    except TypeError:
        return
    raise AssertionError("was taken")


def test_calls_keep_no_reference(run):
    record, x, name, marker = run.record(0), np.arange(4.0), b"a", object()
    numbers, axes = [1, 0], (10**6, 10**7)
    calls = [
        lambda: run.record(index=1).shape,
        lambda: (record.name, record.recorded_stats, record.call, len(run), run.nodes),
        lambda: run.named(name),
        lambda: _core.stats_of_array(x, "float64") == marker,
        lambda: _opcheck.relu(x),
        lambda: _refused(_opcheck.permute, x, (*axes, marker)),
        lambda: _refused(run.record, marker),
        lambda: _refused(run.record, index=0, other=marker),
        lambda: _refused(_core.open_run, marker),
        lambda: _refused(_core.compare_arrays, x, numbers),
        lambda: _core.ShapeTable(),
    ]
    objects = [run, record, x, name, marker, numbers, axes, _core.Record, _core.TensorStats, _core.ShapeTable]
    for call in calls:
        kept, changes = _leak(call, objects)
        assert changes == [0] * len(objects)
        assert kept < 4096


def test_none_true_and_false_are_counted(run):
    record = run.record(0)
    objects = [None, True, False]
    before = [sys.getrefcount(one) for one in objects]
    for _ in range(CALLS):
        record.recorded_digest, record.has_bytes, run.is_file  # noqa: B018
    after = [sys.getrefcount(one) for one in objects]
    assert max(abs(a - b) for a, b in zip(after, before)) < 1000
