# SPDX-License-Identifier: Apache-2.0
"""What of a graph is dumped: steps, layers, models, ranges, black lists, scopes, the watcher, the fusion switch."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.torch.graph import CompilerConfig
from assay.torch.graph._model import Graph, Operator
from assay.torch.graph._request import (
    ConfigurationError,
    DumpRequest,
    ModelEntry,
    OperandMask,
    StepSet,
    engine_of,
    resolve,
)

# x, w ---> MatMulV2 --> Add --> Relu --> Add_1 --> NetOutput
#                   y --'        Const --'
GRAPH = Graph(
    "graph_1",
    [
        Operator("x", "Data"),
        Operator("w", "Data"),
        Operator("y", "Data"),
        Operator("Const", "Const"),
        Operator("MatMulV2", "MatMulV2", ["x:0", "w:0"]),
        Operator("Add", "Add", ["MatMulV2:0", "y:0"]),
        Operator("Relu", "Relu", ["Add:0"]),
        Operator("Add_1", "Add", ["Relu:0", "Const:0"]),
        Operator("NetOutput", "NetOutput", ["Add_1:0", "x:0"]),
    ],
)
BOTH = OperandMask(inputs=True, outputs=True)
DATA = OperandMask(inputs=False, outputs=True)


def plan(*entries, graph=GRAPH, **options):
    return DumpRequest("/data", entries=entries or (ModelEntry(),), **options).plan(graph)


def names(*entries, **options):
    return list(plan(*entries, **options).operands)


# -- steps ---------------------------------------------------------------------------------------------------------


def test_steps_are_inclusive_ranges():
    steps = StepSet.parse("0|2-4|9")
    assert [step for step in range(11) if steps.contains(step)] == [0, 2, 3, 4, 9]
    assert [step for step in range(11) if step in steps] == [0, 2, 3, 4, 9]


def test_no_steps_mean_every_step():
    assert 0 in StepSet.parse("") and 2**40 in StepSet()


def test_overlapping_and_adjacent_ranges_are_merged():
    assert StepSet.parse("5-9|0-3|4|7-20|07").ranges == ((0, 20),)
    assert str(StepSet.parse("3-3|1-2|9-10")) == "1-3|9-10"


def test_the_largest_step_and_the_one_above():
    assert 2**63 - 1 in StepSet.parse("0|9223372036854775807")
    with pytest.raises(ValueError, match="above 9223372036854775807"):
        StepSet.parse("9223372036854775808")


def test_a_hundred_items():
    assert len(StepSet.parse("|".join(str(2 * i) for i in range(100))).ranges) == 100
    with pytest.raises(ValueError, match="101 items"):
        StepSet.parse("|".join(str(2 * i) for i in range(101)))


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=1, max_size=20))
def test_a_step_is_in_the_set_when_an_item_has_it(items):
    steps = StepSet.parse("|".join(f"{low}-{low + length}" if length else str(low) for low, length in items))
    wanted = {step for low, length in items for step in range(low, low + length + 1)}
    assert {step for step in range(400) if step in steps} == wanted
    assert StepSet.parse(str(steps)) == steps


@given(st.text(alphabet="0123456789|- \n", max_size=12))
def test_any_text_is_read_or_refused_with_a_position(text):
    try:
        steps = StepSet.parse(text)
    except ValueError as error:
        assert "position" in str(error)
    else:
        assert StepSet.parse(str(steps)) == steps


# -- whole models, modes -------------------------------------------------------------------------------------------


def test_a_whole_model_is_every_operator_with_the_data_it_reads():
    assert plan().operands == {
        "x": DATA,
        "w": DATA,
        "y": DATA,
        "MatMulV2": BOTH,
        "Add": BOTH,
        "Relu": BOTH,
        "Add_1": BOTH,
    }


def test_constants_on_demand():
    assert "Const" in names(constants=True)
    assert "Const" in names(ModelEntry(layers=("Const",)))


@pytest.mark.parametrize(("mode", "mask"), [("input", (True, False)), ("output", (False, True)), ("all", (True, True))])
def test_modes(mode, mask):
    operands = plan(mode=mode).operands
    assert operands["Add"] == OperandMask(*mask)
    assert operands["x"] == DATA  # a Data operator has nothing but its output


def test_models_by_exact_name():
    assert names(ModelEntry("graph_1", ("Add",))) == ["y", "Add"]
    assert names(ModelEntry("graph_10")) == [] == names(ModelEntry("graph"))


def test_items_accumulate_with_and_without_a_model_name():
    entries = (ModelEntry(layers=("Add",)), ModelEntry(layers=("Relu",)), ModelEntry("graph_1", ("Add_1",)))
    assert names(*entries) == ["y", "Add", "Relu", "Add_1"]


def test_nothing_asked_for():
    empty = DumpRequest("/data", entries=()).plan(GRAPH)
    assert (empty.operands, empty.watched, empty.layers, empty.warnings) == ({}, (), (), [])


@pytest.mark.parametrize("scene", ["overflow"])
def test_the_overflow_scene_dumps_nothing_by_itself(scene):
    assert plan(scene=scene).operands == {}


# -- layers --------------------------------------------------------------------------------------------------------


def test_selecting_an_operator_selects_the_data_that_feeds_it():
    assert names(ModelEntry(layers=("MatMulV2",))) == ["x", "w", "MatMulV2"]
    assert names(ModelEntry(layers=("Relu",))) == ["Relu"]


def test_a_control_edge_feeds_nothing():
    graph = Graph("graph_1", [Operator("x", "Data"), Operator("Add", "Add", ["x:-1"])])
    assert names(ModelEntry(layers=("Add",)), graph=graph) == ["Add"]


def test_wildcards():
    assert names(ModelEntry(layers=("Add*",))) == ["y", "Add", "Add_1"]
    assert names(ModelEntry(layers=("Add_?",))) == ["Add_1"]
    assert names(ModelEntry(layers=("*",))) == ["x", "w", "y", "Const", "MatMulV2", "Add", "Relu", "Add_1"]


def test_a_name_with_a_star_is_first_taken_literally():
    graph = Graph("graph_1", [Operator("a*", "Add"), Operator("ab", "Add"), Operator("a.b", "Add")])
    assert names(ModelEntry(layers=("a*",)), graph=graph) == ["a*"]
    assert names(ModelEntry(layers=("a.?",)), graph=graph) == ["a.b"]


def test_many_stars_take_no_exponential_time():
    graph = Graph("graph_1", [Operator("a" * 200, "Add")])
    begin = time.process_time()
    assert names(ModelEntry(layers=("*" * 1000 + "b",)), graph=graph) == []
    assert time.process_time() - begin < 0.5


def test_names_before_fusion_select_the_fused_operator():
    recorded = {"_datadump_original_op_names": ["Sub", b"Exp"]}
    graph = Graph(
        "graph_1",
        [
            Operator("AddMul_1", "AutomaticBufferFusionOp", members=["Add", "Mul_1"]),
            Operator("f", "F", attributes=recorded),
        ],
    )
    assert names(ModelEntry(layers=("Mul_1",)), graph=graph) == ["AddMul_1"]
    assert names(ModelEntry(layers=("Exp", "Sub")), graph=graph) == ["f"]


def test_names_that_match_nothing_are_warned_about_with_the_nearest():
    found = plan(ModelEntry(layers=("Ad_1", "relu", "nothing_like_it", "Add")))
    assert list(found.operands) == ["y", "Add"]
    assert found.warnings[0].startswith("dump_layer 'Ad_1' matches no operator of graph_1; nearest: Add_1")
    assert "'relu'" in found.warnings[1] and "Relu" in found.warnings[1]
    assert found.warnings[2] == "dump_layer 'nothing_like_it' matches no operator of graph_1."


def test_a_thousand_wrong_names_do_not_give_a_thousand_warnings():
    found = plan(ModelEntry(layers=tuple(f"no_{index}" for index in range(1000))))
    assert len(found.warnings) == 21 and "980 more" in found.warnings[-1]


def test_operators_that_leave_no_file_are_said_to():
    assert "leave no file" in plan(ModelEntry(layers=("NetOutput",))).warnings[0]


# -- scope.data_dump() ---------------------------------------------------------------------------------------------

SCOPED = {"torchair_enable_data_dump": "True"}


def scoped_graph():
    return Graph(
        "graph_1", [Operator("Sub", "Sub"), Operator("Sub_1", "Sub", attributes=SCOPED), Operator("Mul", "Mul")]
    )


def test_a_scope_and_layers_are_united():
    assert names(ModelEntry(layers=("Mul",)), graph=scoped_graph(), scope_narrows=True) == ["Sub_1", "Mul"]


def test_a_scope_without_layers_narrows_options_but_not_a_file():
    assert names(graph=scoped_graph(), scope_narrows=True) == ["Sub_1"]
    assert names(graph=scoped_graph()) == ["Sub", "Sub_1", "Mul"]
    assert names(scope_narrows=True) == names()  # a graph without a scope is dumped whole


# -- ranges: the state machine -------------------------------------------------------------------------------------


def selected(sequence, begin, end):
    """Which positions of a sequence of operator names are dumped; names may repeat."""
    graph = Graph("graph_1", [Operator(name, "Add") for name in sequence])
    found = plan(ModelEntry("graph_1", ranges=((begin, end),)), graph=graph)
    return list(found.operands), found.warnings


def test_both_ends_are_dumped():
    assert selected("abcde", "b", "d") == (["b", "c", "d"], [])
    assert selected("abcde", "a", "a") == (["a"], [])
    assert selected("abcde", "a", "e") == (list("abcde"), [])


def test_an_end_that_never_comes_dumps_to_the_end():
    found, warnings = selected("abcde", "d", "z")
    assert found == ["d", "e"] and "reaches to the end" in warnings[0]


def test_a_begin_that_never_comes_dumps_nothing():
    found, warnings = selected("abcde", "z", "d")
    assert found == []
    assert any("its end comes before its begin" in warning for warning in warnings)
    assert any("'z' is no operator" in warning for warning in warnings)


def test_an_end_before_the_begin_selects_nothing():
    found, warnings = selected("abcde", "d", "b")
    assert found == [] and "its end comes before its begin (at 'b')" in warnings[0]


def test_the_transition_table():
    from assay.torch.graph._plan import _next_state

    table = {
        "Init": ("Active", "Error", "Init"),
        "Active": ("Active", "Stopped", "Active"),
        "Stopped": ("Error", "Stopped", "Init"),
        "Error": ("Error", "Error", "Error"),
    }
    for state, (begin, end, other) in table.items():
        assert _next_state(state, True, False) == begin
        assert _next_state(state, False, True) == end
        assert _next_state(state, False, False) == other


def test_ranges_are_ored_and_layers_added():
    entry = ModelEntry("graph_1", layers=("Add_1",), ranges=(("MatMulV2", "Add"), ("Add", "Add")))
    assert names(entry) == ["x", "w", "y", "MatMulV2", "Add", "Add_1"]


def test_inputs_and_constants_between_the_ends_do_not_disturb():
    assert names(ModelEntry("graph_1", ranges=(("x", "MatMulV2"),))) == ["x", "w", "MatMulV2"]


def test_ranges_match_names_after_fusion_only():
    graph = Graph("graph_1", [Operator("AddMul", "AutomaticBufferFusionOp", members=["Add", "Mul"])])
    found = plan(ModelEntry("graph_1", ranges=(("Add", "Mul"),)), graph=graph)
    assert found.operands == {} and "from before fusion; its operator is AddMul" in found.warnings[0]


# -- black lists ---------------------------------------------------------------------------------------------------


def test_black_lists_by_type_and_name_of_global_and_model_items():
    everywhere = ModelEntry(type_blacklist={"Add": frozenset({("input", 1)})})
    here = ModelEntry(
        "graph_1", name_blacklist={"Add_1": frozenset({("output", 0)}), "Relu": frozenset({("input", 0)})}
    )
    elsewhere = ModelEntry("graph_2", type_blacklist={"Relu": frozenset({("output", 0)})})
    left_out = {name: sorted(mask.left_out) for name, mask in plan(everywhere, here, elsewhere).operands.items()}
    assert left_out["Add"] == [("input", 1)]
    assert left_out["Add_1"] == [("input", 1), ("output", 0)]
    assert left_out["Relu"] == [("input", 0)]
    assert left_out["MatMulV2"] == []


def test_a_black_list_for_an_operator_that_is_not_there():
    found = plan(ModelEntry(name_blacklist={"Add_2": frozenset({("input", 0)})}))
    assert found.warnings == ["opname_blacklist 'Add_2' matches no operator of graph_1; nearest: Add_1, Add."]


# -- watcher -------------------------------------------------------------------------------------------------------


def test_the_watcher():
    found = plan(ModelEntry(layers=("Relu", "Add_1"), watcher_nodes=("Add", "MatMulV2")), scene="watcher")
    assert (found.operands, found.watched, found.layers) == ({}, ("Add", "MatMulV2"), ("Relu", "Add_1"))


def test_without_layers_every_operator_is_looked_behind():
    found = plan(ModelEntry(watcher_nodes=("Add",)), scene="watcher")
    assert found.layers == ("MatMulV2", "Relu", "Add_1")


def test_watched_operators_and_collectives_are_no_layers():
    graph = Graph("graph_1", [Operator("a", "Add"), Operator("h", "HcomAllReduce"), Operator("b", "Add")])
    found = plan(ModelEntry(layers=("a", "h", "b"), watcher_nodes=("a",)), graph=graph, scene="watcher")
    assert (found.watched, found.layers) == (("a",), ("b",))


def test_watched_names_from_before_fusion_yield_nothing():
    graph = Graph("graph_1", [Operator("AddMul", "AutomaticBufferFusionOp", members=["Add", "Mul"])])
    found = plan(ModelEntry(watcher_nodes=("Mul", "Mol")), graph=graph, scene="watcher")
    assert found.watched == ()
    assert "from before fusion; its operator is AddMul" in found.warnings[0]
    assert "'Mol' matches no operator" in found.warnings[1]


# -- cost ----------------------------------------------------------------------------------------------------------


def test_a_plan_of_a_large_graph_is_made_in_a_moment():
    operators = [Operator("x", "Data")]
    operators += [Operator(f"Add_{i}", "Add", ["x:0"]) for i in range(10_000)]
    layers = tuple(f"Add_{i}" for i in range(0, 10_000, 2)) + tuple(f"Sub_{i}" for i in range(30))
    begin = time.process_time()
    found = plan(ModelEntry(layers=layers), graph=Graph("graph_1", operators))
    assert len(found.operands) == 5_001
    assert time.process_time() - begin < 10


# -- fusion switch file and engine ---------------------------------------------------------------------------------

OFF = {"ALL": "off"}


@pytest.mark.parametrize(
    ("switch", "engine"),
    [
        ({"Switch": {"GraphFusion": OFF, "UBFusion": OFF}}, "interpreter"),
        (
            {"Switch": {"GraphFusion": {"ALL": "off", "SplitConvConcatFusionPass": "on"}, "UBFusion": OFF}},
            "interpreter",
        ),
        ({"Switch": {"GraphFusion": OFF}}, "partition"),
        ({"Switch": {"GraphFusion": {"ALL": "on"}, "UBFusion": OFF}}, "partition"),
        ({"Switch": {}}, "partition"),
    ],
)
def test_both_groups_off_mean_the_unfused_run(tmp_path, switch, engine):
    file = tmp_path / "fusion_switch.json"
    file.write_text(json.dumps(switch))
    config = CompilerConfig()
    config.execution.engine = "partition"
    config.fusion_config.fusion_switch_file = str(file)
    assert engine_of(config) == engine


def test_the_older_form_of_the_switch_file(tmp_path):
    file = tmp_path / "fusion_switch.cfg"
    file.write_text("ConvBatchnormFusionPass:off\nSplitPass : on\n")
    config = CompilerConfig()
    config.execution.engine = "taps"
    config.fusion_config.fusion_switch_file = str(file)
    assert engine_of(config) == "taps"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"Switch": 1}', '{"Switch": {"GraphFusion": []}}', "hello", "[" * 100_000]
)
def test_a_file_that_is_no_switch_file(tmp_path, text):
    file = tmp_path / "fusion_switch.json"
    file.write_text(text)
    config = CompilerConfig()
    config.fusion_config.fusion_switch_file = str(file)
    with pytest.raises(ConfigurationError, match=r"fusion_config\.fusion_switch_file"):
        resolve(config)


def test_groups_without_the_partition_engine():
    config = CompilerConfig()
    config.execution.fusion_groups = list
    with pytest.raises(ConfigurationError, match=r"execution\.fusion_groups.*partition"):
        resolve(config)
    config.execution.engine = "partition"
    assert resolve(config) is None
