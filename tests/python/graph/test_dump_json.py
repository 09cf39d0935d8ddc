# SPDX-License-Identifier: Apache-2.0
"""The dump JSON: the validation table row by row, the combinations cell by cell, the examples, the file per process."""

import json
import os
import re
import tempfile
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.torch.graph import CompilerConfig
from assay.torch.graph._dump_json import _request, read_dump_json
from assay.torch.graph._dump_json_checks import check_dump_json
from assay.torch.graph._dump_options_file import DumpOptionsFile
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import ConfigurationError, ModelEntry, StepSet, resolve

LIST = [{"model_name": "graph_1"}]
OPERANDS = [{"name": "Add", "pos": ["input0"]}]


@pytest.fixture
def check(tmp_path):
    """Checks {"dump": {a dump_path that is there, **keys}}; None as a value leaves the key out."""

    def run(**keys):
        dump = {"dump_path": str(tmp_path), **keys}
        return check_dump_json({"dump": {key: value for key, value in dump.items() if value is not None}})

    return run


def found(problems):
    return [(problem.code, problem.item) for problem in problems if problem.fatal]


def warned(problems):
    return [(problem.code, problem.item) for problem in problems if not problem.fatal]


# -- the file: parse failures are EP0004 ---------------------------------------------------------------------------


def read(tmp_path, text):
    path = tmp_path / "dump.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_dump_json(str(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not JSON"),
        ('{"dump": {', "is not JSON"),
        ('{"dump": {"dump_list": [{},]}}', "is not JSON"),
        ('{"dump": {"dump_step": NaN}}', "NaN"),
        (b'{"dump": "\xff"}', "cannot be read"),
        ('{"dump": ' + '{"a":' * 10 + "1" + "}" * 10 + "}", "more than 10 objects"),
        ('{"dump": ' + "[" * 11 + "]" * 11 + "}", "more than 10 arrays"),
    ],
)
def test_a_file_that_cannot_be_parsed(tmp_path, text, reason):
    with pytest.raises(ConfigurationError, match=reason) as caught:
        read(tmp_path, text)
    assert caught.value.first.code == "EP0004"
    assert caught.value.path == str(tmp_path / "dump.json") and caught.value.path in str(caught.value)


def test_ten_levels_and_brackets_inside_strings_are_fine(tmp_path):
    nine = '{"a":' * 8 + "1" + "}" * 8  # the root and "dump" are two more
    read(tmp_path, '{"dump": {"dump_scene": "lite_exception", "x": "' + "[{" * 50 + '\\"[[[", "y": ' + nine + "}}")


def test_a_file_above_ten_mebibytes(tmp_path):
    with pytest.raises(ConfigurationError, match="10485760") as caught:
        read(tmp_path, '{"dump": {}}' + " " * (10 << 20))
    assert caught.value.first.code == "EP0004"


def test_ten_mebibytes_of_one_string_are_read_in_linear_time(tmp_path):
    text = '{"dump": {}, "x": "' + "a" * ((10 << 20) - 100) + '"}'
    begin = time.process_time()
    with pytest.warns(UserWarning, match="asks for no dump"):
        read(tmp_path, text)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("text", ["{}", '{"dump": {}}', '{"other": 1}'])
def test_no_dump_is_success_and_nothing_is_dumped(tmp_path, text):
    with pytest.warns(UserWarning, match="asks for no dump"):
        assert read(tmp_path, text) is None


@pytest.mark.parametrize("dump", [[], 1, "on", None, True])
def test_dump_is_no_object(dump):
    assert found(check_dump_json({"dump": dump})) == [("EP0001", "dump")]


def test_the_root_is_no_object(tmp_path):
    with pytest.raises(ConfigurationError, match=r"\(root\)"):
        read(tmp_path, "[]")


# -- step 2: types -------------------------------------------------------------------------------------------------

STRING_KEYS = [
    "dump_path",
    "dump_mode",
    "dump_op_switch",
    "dump_debug",
    "dump_scene",
    "dump_data",
    "dump_step",
    "dump_level",
    "dump_kernel_data",
]


@pytest.mark.parametrize("key", STRING_KEYS)
@pytest.mark.parametrize("value", [1, True, [], {}])
def test_string_keys_must_be_strings(check, key, value):
    assert found(check(**{key: value}, dump_list=LIST)) == [("EP0001", key)]


@pytest.mark.parametrize(
    ("keys", "item"),
    [
        ({"dump_stats": "Max", "dump_data": "stats"}, "dump_stats"),
        ({"dump_stats": ["Max", 1], "dump_data": "stats"}, "dump_stats[1]"),
        ({"dump_list": {}}, "dump_list"),
        ({"dump_list": [{}, "graph_1"]}, "dump_list[1]"),
        ({"dump_list": [{"model_name": 1}]}, "dump_list[0].model_name"),
        ({"dump_list": [{"layer": "Add"}]}, "dump_list[0].layer"),
        ({"dump_list": [{"layer": ["Add", 2]}]}, "dump_list[0].layer[1]"),
        ({"dump_list": [{"watcher_nodes": "Add"}]}, "dump_list[0].watcher_nodes"),
        ({"dump_list": [{"watcher_nodes": [None]}]}, "dump_list[0].watcher_nodes[0]"),
        ({"dump_list": [{"optype_blacklist": {}}]}, "dump_list[0].optype_blacklist"),
        ({"dump_list": [{"optype_blacklist": ["Add"]}]}, "dump_list[0].optype_blacklist[0]"),
        ({"dump_list": [{"opname_blacklist": [{"pos": []}]}]}, "dump_list[0].opname_blacklist[0].name"),
        ({"dump_list": [{"opname_blacklist": [{"name": 1, "pos": []}]}]}, "dump_list[0].opname_blacklist[0].name"),
        ({"dump_list": [{"opname_blacklist": [{"name": "A"}]}]}, "dump_list[0].opname_blacklist[0].pos"),
        (
            {"dump_list": [{"opname_blacklist": [{"name": "A", "pos": "input0"}]}]},
            "dump_list[0].opname_blacklist[0].pos",
        ),
        ({"dump_list": [{"opname_blacklist": [{"name": "A", "pos": [0]}]}]}, "dump_list[0].opname_blacklist[0].pos[0]"),
        ({"dump_list": [{"model_name": "g", "opname_range": {}}]}, "dump_list[0].opname_range"),
        ({"dump_list": [{"model_name": "g", "opname_range": [1]}]}, "dump_list[0].opname_range[0]"),
        ({"dump_list": [{"model_name": "g", "opname_range": [{"end": "B"}]}]}, "dump_list[0].opname_range[0].begin"),
        (
            {"dump_list": [{"model_name": "g", "opname_range": [{"begin": "A", "end": 3}]}]},
            "dump_list[0].opname_range[0].end",
        ),
    ],
)
def test_types_of_arrays_and_their_items(check, keys, item):
    problems = check(dump_level="op", **keys)
    assert found(problems) == [("EP0001", item)]
    assert problems[0].original


# -- step 3: values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["dump_mode", "dump_data", "dump_op_switch", "dump_level", "dump_debug", "dump_scene", "dump_kernel_data"]
)
def test_values_outside_their_set(check, key):
    assert found(check(**{key: ""}, dump_list=LIST)) == [("EP0001", key)]
    wrong = check(**{key: "On"}, dump_list=LIST)
    assert found(wrong) == [("EP0002", key)]
    assert "/" in wrong[0].advice  # the allowed values, joined


def test_each_token_of_the_kernel_data(check):
    assert found(check(dump_list=LIST, dump_kernel_data="all,printf,tensor,assert,timestamp")) == []
    assert found(check(dump_list=LIST, dump_kernel_data="printf, tensor")) == [("EP0002", "dump_kernel_data")]
    assert found(check(dump_list=LIST, dump_kernel_data="printf,")) == [("EP0001", "dump_kernel_data")]


def test_each_statistic(check):
    every = ["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"]
    assert found(check(dump_list=LIST, dump_data="stats", dump_stats=every)) == []
    wrong = check(dump_list=LIST, dump_data="stats", dump_stats=["Max", "min", "", "NegativeInf"])
    assert found(wrong) == [("EP0002", "dump_stats[1]"), ("EP0001", "dump_stats[2]"), ("EP0002", "dump_stats[3]")]


# -- step 4: constraints, and the combination matrix ---------------------------------------------------------------

EXCEPTIONS = ["lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"]
WATCH = [{"layer": ["A"], "watcher_nodes": ["C"]}]


def test_list_with_operator_switch(check):
    assert check(dump_list=LIST, dump_op_switch="on") == []


def test_list_with_overflow_is_only_warned_about(check):
    problems = check(dump_list=LIST, dump_debug="on")
    assert found(problems) == [] and warned(problems) == [("EP0005", "dump_list")]


def test_list_with_watcher_needs_watched_nodes_and_no_model(check):
    assert found(check(dump_list=WATCH, dump_scene="watcher")) == []
    assert found(check(dump_list=[{"layer": ["A"]}], dump_scene="watcher")) == [
        ("EP0001", "dump_list[0].watcher_nodes")
    ]
    assert found(check(dump_list=[{"watcher_nodes": []}], dump_scene="watcher")) == [
        ("EP0001", "dump_list[0].watcher_nodes")
    ]
    assert found(check(dump_list=[{"model_name": "g", "watcher_nodes": ["C"]}], dump_scene="watcher")) == [
        ("EP0005", "dump_list[0].model_name")
    ]
    assert warned(check(dump_scene="watcher")) == [("EP0001", "dump_list")]


@pytest.mark.parametrize("scene", [None, "lite_exception"])
def test_watched_nodes_need_the_watcher(check, scene):
    problems = check(dump_list=WATCH, dump_scene=scene)
    place = ("EP0005", "dump_list[0].watcher_nodes")
    if scene is None:
        assert found(problems) == [place]
    else:
        assert found(problems) == [] and warned(problems) == [("EP0005", "dump_list"), place]


@pytest.mark.parametrize("scene", EXCEPTIONS)
def test_list_with_an_exception_scene_is_ignored(check, scene):
    problems = check(dump_list=LIST, dump_scene=scene)
    assert found(problems) == [] and warned(problems) == [("EP0005", "dump_list")]


def test_operator_switch_with_overflow(check):
    assert found(check(dump_op_switch="on", dump_debug="on")) == [("EP0005", "dump_debug")]


@pytest.mark.parametrize("scene", ["watcher", *EXCEPTIONS])
@pytest.mark.parametrize("key", ["dump_op_switch", "dump_debug"])
def test_scenes_with_operator_switch_or_overflow(check, scene, key):
    listed = WATCH if scene == "watcher" else None
    problems = check(dump_scene=scene, dump_list=listed, **{key: "on"})
    assert found(problems) == [("EP0005", key)] and problems[0].original


@pytest.mark.parametrize(
    ("mode", "wanted"), [("output", []), ("all", [("EP0005", "dump_mode")]), ("input", [("EP0005", "dump_mode")])]
)
def test_watcher_stores_outputs(check, mode, wanted):
    assert found(check(dump_list=WATCH, dump_scene="watcher", dump_mode=mode)) == wanted


@pytest.mark.parametrize(
    "armed", [{"dump_list": LIST}, {"dump_op_switch": "on"}, {"dump_scene": "watcher", "dump_list": WATCH}]
)
@pytest.mark.parametrize("data", [None, "tensor"])
def test_statistics_need_the_data_kind(check, armed, data):
    assert found(check(**armed, dump_stats=["Max"], dump_data=data)) == [("EP0005", "dump_stats")]
    assert found(check(**armed, dump_stats=["Max"], dump_data="stats")) == []
    assert found(check(**armed, dump_stats=[], dump_data="stats")) == [("EP0001", "dump_stats")]


@pytest.mark.parametrize("unchecked", [{"dump_debug": "on"}, {"dump_scene": "lite_exception"}])
def test_statistics_blacklists_and_ranges_are_not_checked_but_warned_about(check, unchecked):
    item = {"optype_blacklist": OPERANDS, "opname_range": [{"begin": "", "end": "B"}]}
    problems = check(**unchecked, dump_stats=["Max"], dump_list=[item])
    assert found(problems) == []
    assert {place for _, place in warned(problems)} == {
        "dump_list",
        "dump_list[0].optype_blacklist",
        "dump_list[0].opname_range",
        "dump_list[0].model_name",
        "dump_list[0].opname_range[0].begin",
        "dump_stats",
    }


@pytest.mark.parametrize("key", ["optype_blacklist", "opname_blacklist"])
@pytest.mark.parametrize("armed", [{}, {"dump_op_switch": "on"}, {"dump_scene": "watcher"}])
def test_blacklists_need_the_operator_level(check, key, armed):
    item = {key: OPERANDS, **({"watcher_nodes": ["C"]} if "dump_scene" in armed else {})}
    place = ("EP0005", f"dump_list[0].{key}")
    assert found(check(dump_list=[item], **armed)) == [place]
    assert found(check(dump_list=[item], dump_level="kernel", **armed)) == [place]
    assert found(check(dump_list=[item], dump_level="op", **armed)) == []


@pytest.mark.parametrize("armed", [{}, {"dump_op_switch": "on"}])
def test_ranges_need_level_and_model(check, armed):
    pair = [{"begin": "A", "end": "B"}]
    place = "dump_list[0]"
    assert found(check(dump_list=[{"model_name": "g", "opname_range": pair}], dump_level="op", **armed)) == []
    assert found(check(dump_list=[{"model_name": "g", "opname_range": pair}], **armed)) == [
        ("EP0005", f"{place}.opname_range")
    ]
    assert found(check(dump_list=[{"opname_range": pair}], dump_level="op", **armed)) == [
        ("EP0001", f"{place}.model_name")
    ]


def test_ranges_with_the_watcher_cannot_be_right(check):
    item = {"watcher_nodes": ["C"], "opname_range": [{"begin": "A", "end": "B"}]}
    armed = {"dump_scene": "watcher", "dump_level": "op"}
    assert found(check(dump_list=[item], **armed)) == [("EP0001", "dump_list[0].model_name")]
    assert found(check(dump_list=[{**item, "model_name": "g"}], **armed)) == [("EP0005", "dump_list[0].model_name")]


@pytest.mark.parametrize("end", ["begin", "end"])
def test_empty_ends_of_ranges(check, end):
    item = {"model_name": "g", "opname_range": [{"begin": "A", "end": "B", end: ""}]}
    assert found(check(dump_list=[item], dump_level="op")) == [("EP0003", f"dump_list[0].opname_range[0].{end}")]


def test_a_blacklist_takes_a_hundred_entries(check):
    assert found(check(dump_list=[{"opname_blacklist": OPERANDS * 100}], dump_level="op")) == []
    assert found(check(dump_list=[{"opname_blacklist": OPERANDS * 101}], dump_level="op")) == [
        ("EP0003", "dump_list[0].opname_blacklist")
    ]


def test_positions_that_are_no_operands_are_ignored_with_a_warning(check):
    positions = ["input0", "Input1", "output", "input-1", "output1 ", "inout0"]
    problems = check(dump_list=[{"opname_blacklist": [{"name": "A", "pos": positions}]}], dump_level="op")
    place = "dump_list[0].opname_blacklist[0].pos"
    assert found(problems) == []
    assert warned(problems) == [("EP0003", f"{place}[{index}]") for index in range(1, 6)]


@pytest.mark.parametrize(
    "armed",
    [
        {"dump_list": LIST},
        {"dump_op_switch": "on"},
        {"dump_debug": "on"},
        {"dump_scene": "watcher", "dump_list": WATCH},
    ],
)
def test_a_missing_path(check, armed):
    assert found(check(dump_path=None, **armed)) == [("EP0001", "dump_path")]


@pytest.mark.parametrize("scene", EXCEPTIONS)
def test_an_exception_scene_needs_no_path(check, scene):
    assert check(dump_path=None, dump_scene=scene) == []


def test_illegal_paths(check, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert found(check(dump_path="", dump_list=LIST)) == [("EP0001", "dump_path")]
    assert found(check(dump_path="/" + "a" * 512, dump_list=LIST)) == [("EP0003", "dump_path")]
    assert found(check(dump_path=str(tmp_path / "absent"), dump_list=LIST)) == [("EP0003", "dump_path")]
    assert found(check(dump_path=str(file), dump_list=LIST)) == [("EP0003", "dump_path")]
    assert found(check(dump_path="a\0b", dump_list=LIST)) == [("EP0003", "dump_path")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_writable(check, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert found(check(dump_list=LIST)) == [("EP0003", "dump_path")]
    finally:
        tmp_path.chmod(0o700)


def test_paths_on_other_machines(check):
    remote = check(dump_path="10.0.0.255:/data", dump_list=LIST)
    assert found(remote) == [("EP0003", "dump_path")] and not remote[0].original  # adump takes it
    colon = check(dump_path="10.0.0.255:/data:", dump_list=LIST)
    assert found(colon) == [("EP0003", "dump_path")] and colon[0].original
    folder = check(dump_path="10.0.0.256:/data", dump_list=LIST)  # no address, so a folder, which does not exist
    assert "does not exist" in folder[0].reason


STEPS = [
    ("0", []),
    ("0|2-5", []),
    ("7-9|1", []),
    ("|".join(["1"] * 100), []),
    ("|".join(["1"] * 101), ["at most 100"]),
    ("1-2-3", ["position 3"]),
    ("1-", ["position 2"]),
    ("0|", ["position 2"]),
    ("0||1", ["position 2"]),
    ("a", ["position 0"]),
    ("0 |1", ["position 1"]),
    ("5-2", ["reversed"]),
]


@pytest.mark.parametrize(("text", "reasons"), STEPS)
@pytest.mark.parametrize("debug", ["off", "on"])
def test_steps(check, text, reasons, debug):
    problems = check(dump_step=text, dump_list=None if debug == "on" else LIST, dump_debug=debug)
    assert found(problems) == [("EP0003", "dump_step")] * len(reasons)
    for problem, reason in zip(problems, reasons):
        assert reason in problem.reason
        assert problem.original == (debug == "off")  # adump does not look at the steps of an overflow dump


def test_a_range_of_one_step_is_refused_by_ge_only(check):
    problems = check(dump_step="3-3", dump_list=LIST)
    assert found(problems) == [] and warned(problems) == [("EP0003", "dump_step")]


def test_empty_names_with_the_switch_off_and_on(check):
    item = [{"model_name": "", "layer": []}]
    assert found(check(dump_list=item)) == [("EP0001", "dump_list[0].model_name"), ("EP0001", "dump_list[0].layer")]
    assert found(check(dump_list=item, dump_op_switch="on")) == []


def test_unknown_keys_are_warned_about_with_the_nearest(check):
    problems = check(dump_list=[{"model_nam": "g"}], dump_sept="0", quant_dumpable="1")
    assert warned(problems) == [("EP0003", "dump_sept"), ("EP0003", "dump_list[0].model_nam")]
    assert [problem.advice for problem in problems] == ["Did you mean dump_step?", "Did you mean model_name?"]


def test_a_key_that_stands_twice_is_warned_about(tmp_path):
    text = json.dumps({"dump": {"dump_path": str(tmp_path), "dump_mode": "none", "dump_list": [{}]}})
    asked = read(tmp_path, text.replace('"dump_list"', '"dump_mode": "all", "dump_list"'))
    assert asked.mode == "all"
    assert "dump_mode: stands twice" in asked.warnings[-1]


def test_a_number_of_any_length_is_a_number(tmp_path):
    for number in ("1" * 10_000, "-1e999", "1.5"):
        with pytest.raises(ConfigurationError, match="dump_mode: is a number, not a string"):
            text = json.dumps({"dump": {"dump_path": str(tmp_path), "dump_mode": "?", "dump_list": [{}]}})
            read(tmp_path, text.replace('"?"', number))


def test_all_errors_at_once_and_the_first_is_the_original_one(tmp_path):
    dump = {
        "dump_mode": "none",
        "dump_data": "stats",
        "dump_stats": [],
        "dump_step": "5-2",
        "dump_list": [{"model_name": "", "layer": [1]}],
    }
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, json.dumps({"dump": dump}))
    assert found(caught.value.problems) == [
        ("EP0001", "dump_list[0].layer[0]"),  # types come before values
        ("EP0002", "dump_mode"),
        ("EP0001", "dump_path"),
        ("EP0003", "dump_step"),
        ("EP0001", "dump_list[0].model_name"),
        ("EP0001", "dump_stats"),
    ]
    assert caught.value.first == caught.value.problems[0]
    for problem in caught.value.problems:
        assert str(problem) in str(caught.value)


def test_what_has_no_counterpart_here_is_warned_about(check):
    problems = check(dump_list=LIST, dump_level="kernel", dump_kernel_data="printf")
    assert found(problems) == []
    assert warned(problems) == [("EP0003", "dump_level"), ("EP0003", "dump_kernel_data")]


# -- step 5: what arms a dump, and the request ---------------------------------------------------------------------


def request(tmp_path, **keys):
    return read(tmp_path, json.dumps({"dump": {"dump_path": str(tmp_path), **keys}}))


@pytest.mark.parametrize("keys", [{}, {"dump_list": []}, {"dump_kernel_data": "printf"}, {"dump_data": "stats"}])
def test_what_does_not_arm_a_dump(tmp_path, keys):
    with pytest.warns(UserWarning, match="asks for no dump"):
        assert request(tmp_path, **keys) is None


def test_the_model_dump_example(tmp_path):
    asked = request(
        tmp_path,
        dump_mode="all",
        dump_data="stats",
        dump_stats=["Max", "Min", "L2norm"],
        dump_step="0|2-4",
        dump_list=[{"model_name": "graph_1", "layer": ["Add_1", "SoftmaxV2"]}],
    )
    assert (asked.path, asked.mode, asked.data) == (str(tmp_path), "all", "stats")
    assert asked.statistics == ("Max", "Min", "L2norm") and asked.steps == StepSet(((0, 0), (2, 4)))
    assert asked.entries == (ModelEntry("graph_1", ("Add_1", "SoftmaxV2")),)
    assert (asked.scene, asked.operators, asked.level, asked.warnings) == ("", False, "all", ())


def test_the_single_operator_examples(tmp_path):
    for items in ([], [{}]):
        asked = request(tmp_path, dump_list=items, dump_op_switch="on")
        assert asked.operators and asked.entries == (ModelEntry(),) and asked.mode == "output"


def test_the_overflow_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    asked = request(tmp_path, dump_path="output", dump_debug="on")
    assert (asked.scene, asked.mode, asked.entries) == ("overflow", "all", ())
    assert asked.path == str(tmp_path / "output")  # relative to where the program runs


def test_the_watcher_example(tmp_path):
    listed = [{"layer": ["A", "B"], "watcher_nodes": ["C", "D"]}]
    asked = request(tmp_path, dump_mode="output", dump_scene="watcher", dump_list=listed)
    assert asked.scene == "watcher"
    assert asked.entries == (ModelEntry(layers=("A", "B"), watcher_nodes=("C", "D")),)


def test_the_range_and_blacklist_example(tmp_path):
    item = {
        "model_name": "graph_1",
        "opname_range": [{"begin": "Add_1", "end": "Mul_9"}],
        "opname_blacklist": [{"name": "Cast_3", "pos": ["input0", "output0", "nonsense"]}],
    }
    asked = request(tmp_path, dump_level="op", dump_list=[item])
    (entry,) = asked.entries
    assert entry.ranges == (("Add_1", "Mul_9"),)
    assert entry.name_blacklist == {"Cast_3": frozenset({("input", 0), ("output", 0)})}
    assert asked.level == "op" and "nonsense" in asked.warnings[0]


@pytest.mark.parametrize("scene", EXCEPTIONS)
def test_an_exception_scene_dumps_nothing_else(tmp_path, scene):
    asked = read(tmp_path, json.dumps({"dump": {"dump_scene": scene, "dump_step": "nonsense", "dump_list": LIST}}))
    assert (asked.scene, asked.path, asked.entries, asked.steps) == (scene, "", (), StepSet())
    assert len(asked.warnings) == 2


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3))
WORDS = st.sampled_from(
    ["on", "off", "all", "op", "output", "input", "tensor", "stats", "watcher", "lite_exception", "0|2-3", "1-", "Max"]
)
ANYTHING = st.recursive(
    SCALARS | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "pos", "begin", "end", "layer", "model_name"]), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.lists(st.sampled_from(["Add", "Mul_1", "M*", "x"]), min_size=1, max_size=3)
BLACKLIST = st.lists(st.fixed_dictionaries({"name": st.just("Add"), "pos": st.just(["input0", "x"])}), max_size=2)
LEGAL_ITEM = st.fixed_dictionaries(
    {},
    optional={
        "model_name": st.just("graph_1"),
        "layer": NAMES,
        "watcher_nodes": NAMES,
        "opname_range": st.just([{"begin": "Add", "end": "Mul_1"}]),
        "optype_blacklist": BLACKLIST,
        "opname_blacklist": BLACKLIST,
    },
)
LEGAL = st.fixed_dictionaries(
    {"dump_path": st.just(".")},
    optional={
        "dump_mode": st.sampled_from(["input", "output", "all"]),
        "dump_op_switch": st.sampled_from(["on", "off"]),
        "dump_debug": st.sampled_from(["on", "off"]),
        "dump_scene": st.sampled_from(["watcher", "lite_exception"]),
        "dump_data": st.sampled_from(["tensor", "stats"]),
        "dump_level": st.sampled_from(["op", "op", "all"]),
        "dump_step": st.sampled_from(["", "0|2-3", "3-3", "1-"]),
        "dump_stats": st.sampled_from([["Max"], []]),
        "dump_list": st.lists(LEGAL_ITEM, max_size=2),
    },
)


@st.composite
def dumps(draw):
    """A dump object of legal values, some of them in conflict, or one with anything in one place."""
    dump = draw(LEGAL)
    if draw(st.booleans()):
        target = dump
        if dump.get("dump_list") and draw(st.booleans()):
            target = dump["dump_list"][0]
        key = draw(st.sampled_from(sorted(target) or ["dump_mode"]))
        target[key] = draw(ANYTHING)
    return dump


@settings(max_examples=300, deadline=None)
@given(dumps())
def test_any_dump_object_is_refused_with_places_or_gives_a_request_that_plans(dump):
    problems = check_dump_json({"dump": dump})
    for problem in problems:
        assert re.fullmatch(r"EP000[1235]", problem.code) and problem.item and problem.reason
        assert problem.fatal or not problem.original
    if not dump or any(problem.fatal for problem in problems):
        return
    asked = _request(dump, "dump.json", [])
    planned = asked.plan(Graph("graph_1", [Operator("Add", "Add"), Operator("Mul_1", "Mul", ["Add:0"])]))
    assert set(planned.operands) <= {"Add", "Mul_1"}


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,dump \\1', max_size=60).map(str.encode))
def test_any_bytes_are_refused_or_read(data):
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(Path(folder), data)
        except ConfigurationError as error:
            assert error.first is None or error.first.code in ("EP0001", "EP0004")


# -- the file per process ------------------------------------------------------------------------------------------


def graph(name, *operators):
    return Graph(name, list(operators))


def test_the_file_per_process_has_names_and_one_entry_a_graph(tmp_path):
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    config.dump_config.dump_layer = "Add_1 Mul Add_1"
    config.dump_config.dump_data = "stats"
    config.dump_config.dump_step = "0|2-3"
    folder = tmp_path / "worldsize1_global_rank0"
    folder.mkdir()
    scoped = {"torchair_enable_data_dump": "True"}

    file = DumpOptionsFile(str(folder), resolve(config))
    file.add_graph(graph("graph_1", Operator("Sub", "Sub"), Operator("Sub_1", "Sub", attributes=scoped)))
    file.add_graph(graph("graph_2"))

    assert file.path == str(folder / f"dump_options_worldsize1_rank0_pid{os.getpid()}.json")
    text = (folder / os.path.basename(file.path)).read_text()
    assert text.startswith('{\n    "dump"')  # indented by four
    assert json.loads(text) == {
        "dump": {
            "dump_path": str(folder),
            "dump_mode": "all",
            "dump_data": "stats",
            "dump_step": "0|2-3",
            "quant_dumpable": "0",
            "dump_list": [
                {"model_name": "graph_1", "layer": ["Add_1", "Mul", "Sub_1"]},
                {"model_name": "graph_2", "layer": ["Add_1", "Mul"]},
            ],
        }
    }
    assert sorted(os.listdir(folder)) == [os.path.basename(file.path)]  # no temporary file is left


def test_the_file_given_back_asks_for_the_same(tmp_path):
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    config.dump_config.dump_mode = "input"
    config.dump_config.quant_dumpable = True
    asked = resolve(config)
    file = DumpOptionsFile(str(tmp_path), asked)
    file.add_graph(graph("graph_1"))

    again = read_dump_json(file.path)
    assert (again.mode, again.data, again.steps, again.quant_dumpable) == ("input", "tensor", StepSet(), True)
    assert again.entries == (ModelEntry("graph_1"),) and again.warnings == ()


def test_another_request_in_the_same_folder_gets_a_file_of_its_own(tmp_path):
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    first, second = (DumpOptionsFile(str(tmp_path), resolve(config)) for _ in range(2))
    first.add_graph(graph("graph_1"))
    second.add_graph(graph("graph_2"))
    first.add_graph(graph("graph_3"))
    assert second.path.endswith("_2.json")
    written = json.loads((tmp_path / os.path.basename(first.path)).read_text())
    names = [item["model_name"] for item in written["dump"]["dump_list"]]
    assert names == ["graph_1", "graph_3"]
