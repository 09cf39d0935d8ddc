# SPDX-License-Identifier: Apache-2.0
"""CompilerConfig: leaves, values, messages, lowering, what is accepted without effect; the logger's line."""

import json
import logging
import os
import re
import subprocess
import sys
import time

import pytest

from assay.torch.graph import CompilerConfig, logger
from assay.torch.graph._log import EVENT, tell
from assay.torch.graph._request import ConfigurationError, resolve
from assay.torch.graph.config import without_effect


@pytest.fixture
def config():
    return CompilerConfig()


def first_line(caught):
    return str(caught.value).splitlines()[0]


# -- leaves --------------------------------------------------------------------------------------------------------


def test_importing_the_configuration_does_not_import_torch():
    script = "import sys, assay.torch.graph as g; g.CompilerConfig().as_dict(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_defaults(config, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    values = {path: leaf.value for path, leaf in config.leaves()}
    wanted = {
        "enable_dump": "0",
        "dump_path": "./",
        "dump_mode": "all",
        "quant_dumpable": "0",
        "dump_step": "",
        "dump_layer": "",
        "dump_data": "tensor",
        "dump_config_path": None,
        "data_dump_stage": "optimized",
    }
    assert {name: values[f"dump_config.{name}"] for name in wanted} == wanted
    assert values["mode"] == "max-autotune" and values["debug.graph_dump.type"] is None
    assert not config.dump_config.enable_dump and config.dump_config.dump_mode


def test_value_of_bools_none_and_the_rest(config):
    config.dump_config.enable_dump = True
    assert config.dump_config.enable_dump.value == "1"
    config.dump_config.enable_dump = False
    assert config.dump_config.enable_dump.value == "0"
    assert config.dump_config.dump_config_path.value is None
    config.execution.decomposition_level = 2
    assert config.execution.decomposition_level.value == "2"
    assert config.execution.decomposition_level.raw == 2


def test_one_is_true_and_a_text_is_not(config):
    config.dump_config.enable_dump = 1
    assert config.dump_config.enable_dump.value == "1" and bool(config.dump_config.enable_dump)
    with pytest.raises(ValueError) as caught:
        config.dump_config.enable_dump = "True"
    for part in ("DumpConfig.enable_dump", "'True'", "type str", "[False, True]", "type bool"):
        assert part in first_line(caught)


def test_an_unknown_option_names_class_option_and_known_options(config):
    with pytest.raises(ValueError) as caught:
        config.dump_config.dump_layers = "Add"
    for part in ("DumpConfig", "'dump_layers'", "Did you mean dump_layer?", "'enable_dump'", "'data_dump_stage'"):
        assert part in first_line(caught)
    with pytest.raises(ValueError, match="CompilerConfig"):
        config.dumpconfig = None


def test_a_group_cannot_be_replaced_by_a_value(config):
    with pytest.raises(ValueError, match=r"CompilerConfig\.dump_config is a group of options"):
        config.dump_config = True
    other = CompilerConfig()
    other.dump_config.dump_mode = "input"
    config.dump_config = other.dump_config
    assert config.dump_config.dump_mode.value == "input"


def test_the_text_of_errors(config):
    with pytest.raises(ValueError) as caught:
        config.dump_config.dump_mode = "none"
    message, trace, blank, last = re.fullmatch(
        r"(DumpConfig\.dump_mode: [^\n]*)\n(Traceback .*)\n(\n)(\[ERROR\] .*)", str(caught.value), re.DOTALL
    ).groups()
    assert "'none'" in message and "['input', 'output', 'all']" in message
    assert "ValueError" in trace and blank
    pattern = rf"\[ERROR\] \d{{4}}-\d\d-\d\d-\d\d:\d\d:\d\d \(PID:{os.getpid()}, Device:-1, RankID:-1\) "
    assert re.fullmatch(pattern + "ERR03005 GRAPH internal error", last)


@pytest.mark.parametrize(
    ("error", "line"), [(ValueError, "parameter"), (FileNotFoundError, "not found"), (TypeError, "internal")]
)
def test_with_the_vendor_runtime_its_own_line_ends_the_text(config, monkeypatch, error, line):
    class ErrCode:
        INTERNAL, PARAM, NOT_SUPPORT, NOT_FOUND = "internal", "parameter", "not supported", "not found"

    vendor = type(sys)("torch_npu.utils._error_code")
    vendor.ErrCode, vendor.graph_error = ErrCode, lambda code: f"\n[ERROR] vendor {code}"
    for name in ("torch_npu", "torch_npu.utils"):
        monkeypatch.setitem(sys.modules, name, type(sys)(name))
    monkeypatch.setitem(sys.modules, vendor.__name__, vendor)
    wrong = {ValueError: ("dump_mode", "x"), FileNotFoundError: ("dump_path", "/absent"), TypeError: ("dump_layer", 1)}
    with pytest.raises(error) as caught:
        setattr(config.dump_config, *wrong[error])
    assert str(caught.value).endswith(f"[ERROR] vendor {line}")


def test_directories(config, tmp_path):
    config.dump_config.dump_path = str(tmp_path)
    assert config.dump_config.dump_path.value == str(tmp_path)
    config.dump_config.dump_path = tmp_path  # a Path is fine
    file = tmp_path / "file"
    file.write_text("")
    for wrong, reason in ((None, "not found"), (str(tmp_path / "no"), "not found"), (str(file), "not a directory")):
        with pytest.raises(FileNotFoundError, match=reason):
            config.dump_config.dump_path = wrong
    with pytest.raises(FileNotFoundError):
        config.dump_config.dump_path = "a\0b"


def test_json_files(config, tmp_path):
    good = tmp_path / "dump.json"
    good.write_text("{}")
    other = tmp_path / "dump.txt"
    other.write_text("{}")
    config.dump_config.dump_config_path = str(good)
    assert config.dump_config.dump_config_path.value == str(good)
    config.dump_config.dump_config_path = None
    assert config.dump_config.dump_config_path.value is None
    with pytest.raises(ValueError, match="empty"):
        config.dump_config.dump_config_path = ""
    for wrong in (str(other), str(tmp_path / "no.json"), str(tmp_path)):
        with pytest.raises(FileNotFoundError):
            config.dump_config.dump_config_path = wrong


def test_files(config, tmp_path):
    file = tmp_path / "fusion_switch.cfg"
    file.write_text("{}")
    config.fusion_config.fusion_switch_file = str(file)
    config.fusion_config.fusion_switch_file = None
    for wrong in (str(tmp_path), str(tmp_path / "no")):
        with pytest.raises(FileNotFoundError, match="not found or not a file"):
            config.fusion_config.fusion_switch_file = wrong


# The vendor's expression, the oracle of the second column; the third is what this parser says, with the position.
VENDOR_STEPS = re.compile(r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$")
STEPS = [
    ("", True, None),
    ("0", True, None),
    ("12", True, None),
    ("0-1", True, None),
    ("0|1|2-5|6", True, None),
    ("5-2", True, "position 0: the range 5-2 is reversed"),
    ("0|", True, "position 2: a number is missing"),
    ("1-2|", True, "position 4: a number is missing"),
    ("1-23-4", True, "position 4: a second '-'"),
    ("0\n", True, "position 1: '\\n' is no digit"),
    ("|", False, "position 0: a number is missing"),
    ("|0", False, "position 0: a number is missing"),
    ("0||1", False, "position 2: a number is missing"),
    ("--", False, "position 1: a second '-'"),
    ("-1", False, "position 0: a number is missing"),
    ("1-", False, "position 2: a number is missing"),
    ("1--6", False, "position 2: a second '-'"),
    ("1-2-3", False, "position 3: a second '-'"),
    ("0 1", False, "position 1: ' ' is no digit"),
    ("\u0661", True, "position 0"),  # an Arabic digit is \d
]


@pytest.mark.parametrize(("text", "vendor", "reason"), STEPS)
def test_steps(config, text, vendor, reason):
    assert bool(VENDOR_STEPS.match(text)) == vendor
    if reason is None:
        config.dump_config.dump_step = text
        assert config.dump_config.dump_step.value == text
        return
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        config.dump_config.dump_step = text
    assert "0|1|2-5|6" in first_line(caught)  # a correct example


@pytest.mark.parametrize("text", ["9" * 10_000, "1" * 10_000 + "x", "1|" * 5_000, "1-" * 5_000, "0" * 10_000])
def test_ten_thousand_characters_of_steps_take_linear_time(config, text):
    begin = time.process_time()
    if set(text) == {"0"}:
        config.dump_config.dump_step = text
    else:
        with pytest.raises(ValueError) as caught:
            config.dump_config.dump_step = text
        assert len(first_line(caught)) < 500  # the message does not repeat it all
    assert time.process_time() - begin < 0.1


@pytest.mark.parametrize("value", [1, ["0"], b"0"])
def test_steps_that_are_no_text(config, value):
    with pytest.raises(TypeError):
        config.dump_config.dump_step = value


@pytest.mark.parametrize(
    "text", ["Mul_1 Add1 Conv2D_1", " Add ", "", "layer-0:attn,q", "操作_1", "Add*", '"A"', "a/b\\c.d"]
)
def test_layers_of_every_printable_character(config, text):
    config.dump_config.dump_layer = text
    assert config.dump_config.dump_layer.value == text


@pytest.mark.parametrize(("text", "position"), [("A\tB", 1), ("Add\n", 3), ("\0", 0)])
def test_layers_that_are_not_printable(config, text, position):
    with pytest.raises(ValueError, match=f"position {position}"):
        config.dump_config.dump_layer = text


@pytest.mark.parametrize(
    ("group", "option", "default"),
    [("graph_dump", "type", None), ("data_dump", "type", None), ("fx_summary", "type", None)],
)
def test_none_sets_an_option_back_whose_default_it_is(config, group, option, default):
    section = getattr(config.debug, group)
    setattr(section, option, getattr(section, option).optional[0])
    setattr(section, option, None)
    assert getattr(section, option).value is default
    config.dump_config.dump_step = "3"
    config.dump_config.dump_step = None
    assert config.dump_config.dump_step.value == ""


def test_other_kinds(config):
    config.debug.aclgraph.static_capture_size_limit = 1
    for wrong in (0, 2**63, "64", 1.5, None):
        with pytest.raises(ValueError):
            config.debug.aclgraph.static_capture_size_limit = wrong
    shapes = config.experimental_config.aclgraph
    shapes._aclnn_static_shape_kernel_sym_value_range = [1, 2]
    assert shapes._aclnn_static_shape_kernel_sym_value_range.value == [1, 2]
    for wrong in ("12", ["1"]):
        with pytest.raises(TypeError):
            shapes._aclnn_static_shape_kernel_sym_value_range = wrong
    with pytest.raises(TypeError):
        shapes._aclnn_static_shape_kernel_build_dir = 1
    with pytest.raises(TypeError):
        shapes._super_kernel_optimize_options = [1]
    with pytest.raises(TypeError):
        config.debug.data_dump.filter = "add"
    config.debug.data_dump.filter = len
    assert config.debug.data_dump.filter.value is len


def test_the_paths_of_debug_outputs(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dump = config.debug.graph_dump
    assert dump.full_path("x") is None and not dump.enabled and dump.folder == str(tmp_path)
    dump.type = "txt"
    assert dump.full_path("x").startswith("./x_rank_0_pid_")
    dump._path = "a/../b"  # the older spelling
    assert dump.path == str(tmp_path / "b") == dump.folder
    dump.path = "c"
    pattern = rf"{re.escape(str(tmp_path))}/c/dynamo_original_graph_1_rank_0_pid_{os.getpid()}_ts_\d{{20}}\.txt"
    assert re.fullmatch(pattern, dump.full_path("dynamo_original_graph_1"))
    assert dump.full_path("x", with_timestap=False) == f"{tmp_path}/c/x_rank_0_pid_{os.getpid()}.txt"


def test_configs_with_the_same_values_are_equal(config):
    other = CompilerConfig()
    assert config == other
    other.debug.graph_dump.type = "py"
    assert config != other and config != 1
    assert "debug.graph_dump.type='py'" in repr(other) and repr(config) == "CompilerConfig()"


# -- lowering ------------------------------------------------------------------------------------------------------


def test_a_dump_is_lowered_to_the_engine_options(config, tmp_path):
    config.dump_config.dump_path = str(tmp_path)
    assert not [key for key in config.as_dict()[1] if "dump" in key.lower()]
    assert os.listdir(tmp_path) == []

    config.dump_config.enable_dump = True
    assert {key: value for key, value in config.as_dict()[1].items() if "ump" in key} == {
        "ge.exec.enableDump": "1",
        "ge.exec.dumpPath": str(tmp_path / "worldsize1_global_rank0"),
        "ge.exec.dumpMode": "all",
        "ge.quant_dumpable": "0",
        "ge.exec.dumpData": "tensor",
    }
    assert (tmp_path / "worldsize1_global_rank0").is_dir()

    config.dump_config.dump_step = "0|2"
    config.dump_config.dump_layer = "Add"
    config.dump_config.quant_dumpable = True
    lowered = config.as_dict()[1]
    assert (lowered["ge.exec.dumpStep"], lowered["ge.exec.dumpLayer"], lowered["ge.quant_dumpable"]) == (
        "0|2",
        "Add",
        "1",
    )


def test_a_dump_file_is_lowered_without_enable_dump(config, tmp_path):
    file = tmp_path / "dump.json"
    file.write_text("{}")
    config.dump_config.dump_config_path = str(file)
    assert config.to_options()[1]["ge_dump_with_acl_config"] == str(file)


def test_the_captured_graph_modes_are_lowered_to_their_own_options(config, tmp_path):
    config.mode = "npugraph_ex"
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    config.dump_config.data_dump_stage = "original"
    assert {key: value for key, value in config.as_dict()[1].items() if "ump" in key} == {
        "aclgraph.enableDump": "1",
        "aclgraph.dumpPath": str(tmp_path / "worldsize1_global_rank0"),
        "aclgraph.dumpStage": "original",
    }


def test_other_groups_are_lowered(config, tmp_path):
    file = tmp_path / "fusion.cfg"
    file.write_text("{}")
    config.fusion_config.fusion_switch_file = str(file)
    config.ge_config.oo_level = "O1"
    config.ge_config.oo_constant_folding = False
    config.experimental_config.topology_sorting_strategy = "BFS"
    local, global_ = config.as_dict()
    assert global_["ge.fusionSwitchFile"] == str(file)
    assert (global_["ge.oo.level"], global_["ge.oo.constantFolding"]) == ("O1", "false")
    assert local["ge.topoSortingMode"] == "3"  # O1 asks for the stable order, whatever was chosen


# Every option of the vendor's tree, written down from its option classes.
VENDOR_OPTIONS = {
    "": "debug aoe_config export dump_config fusion_config experimental_config inference_config ge_config "
    "aclgraph_config mode post_grad_custom_pre_pass post_grad_custom_post_pass",
    "debug": "graph_dump data_dump fx_summary run_eagerly aclgraph deadlock_check",
    "debug.graph_dump": "type path",
    "debug.data_dump": "type path filter",
    "debug.fx_summary": "type skip_compile",
    "debug.aclgraph": "disable_reinplace_inplaceable_ops_pass disable_reinplace_input_mutated_ops_pass "
    "disable_mempool_reuse_in_same_fx enable_output_clone static_capture_size_limit clone_input remove_cat_ops",
    "aoe_config": "aoe_mode work_path aoe_config_file",
    "export": "export_mode export_path_dir export_name weight_name inputs_name experimental",
    "export.experimental": "enable_record_nn_module_stack auto_atc_config_generated enable_lite_export",
    "fusion_config": "fusion_switch_file",
    "experimental_config": "cc_parallel_enable keep_inference_input_mutations memory_efficiency frozen_parameter "
    "static_model_ops_lower_limit jit_compile npu_fx_pass aot_config_enable_joint_graph aot_config_output_loss_index "
    "topology_sorting_strategy enable_ref_data enable_view_optimize remove_noop_ops tiling_schedule_optimize "
    "pattern_fusion_pass aclgraph",
    "experimental_config.aclgraph": "_aclnn_static_shape_kernel _aclnn_static_shape_kernel_build_dir "
    "_aclnn_static_shape_kernel_sym_value_range _aclnn_static_shape_kernel_sym_index _super_kernel_optimize "
    "_super_kernel_optimize_options _super_kernel_debug_options",
    "inference_config": "dynamic_gears_merge_policy",
    "ge_config": "enable_single_stream oo_level oo_constant_folding oo_dead_code_elimination export_compile_stat "
    "aicore_num optimization_switch",
    "aclgraph_config": "use_custom_pool",
}


@pytest.mark.parametrize("group", VENDOR_OPTIONS)
def test_every_vendor_option_is_there(config, group):
    section = config
    for name in filter(None, group.split(".")):
        section = getattr(section, name)
    for name in VENDOR_OPTIONS[group].split():
        assert hasattr(section, name), f"{group}.{name}"


def test_options_without_meaning_here_are_listed(config):
    assert without_effect(config) == []
    config.ge_config.oo_level = "O1"
    config.experimental_config.frozen_parameter = True
    config.dump_config.enable_dump = True
    config.dump_config.data_dump_stage = "original"
    assert without_effect(config) == [
        "dump_config.data_dump_stage='original'",
        "experimental_config.frozen_parameter=True",
        "ge_config.oo_level='O1'",
    ]
    config.mode = "reduce-overhead"
    config.dump_config.dump_layer = "Add"
    assert without_effect(config) == [
        "dump_config.dump_layer='Add'",
        "experimental_config.frozen_parameter=True",
        "ge_config.oo_level='O1'",
    ]


def test_the_folder_of_a_rank(monkeypatch, tmp_path):
    from assay.torch.graph.config import rank_folder

    class Distributed:
        rank, world, initialized = 3, 8, True

        is_available = staticmethod(lambda: True)
        is_initialized = staticmethod(lambda: Distributed.initialized)
        get_rank = staticmethod(lambda: Distributed.rank)
        get_world_size = staticmethod(lambda: Distributed.world)

    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert rank_folder("d") == "d/worldsize1_global_rank0"
    monkeypatch.setitem(sys.modules, "torch.distributed", Distributed)
    assert rank_folder("d") == "d/worldsize8_global_rank3"
    config = CompilerConfig()
    config.dump_config.dump_path = str(tmp_path)
    assert config.dump_config.full_path() == str(tmp_path / "worldsize8_global_rank3")
    config.debug.graph_dump.type = "py"
    assert "/x_rank_3_pid_" in config.debug.graph_dump.full_path("x")
    Distributed.rank, Distributed.world = 0, 1
    assert rank_folder("d") == "d/worldsize1_global_rank0"
    Distributed.initialized = False
    assert rank_folder("d") == "d/worldsize1_global_rank0"


# -- precedence ----------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_mode": "input", "dump_list": [{}]}}))
    return str(path)


def test_nothing_is_asked_for_by_default(config):
    assert resolve(config) is None


def test_the_file_alone_counts_and_options_beside_it_do_not(config, file):
    config.dump_config.dump_config_path = file
    config.dump_config.dump_mode = "output"
    config.dump_config.dump_step = "7"
    asked = resolve(config)
    assert (asked.mode, asked.steps.ranges, asked.source) == ("input", (), file)


def test_the_switch_and_the_file_are_the_dump_of_the_file(config, file):
    # The document: all options but enable_dump can stand in the file, which is the way to prefer.
    config.dump_config.enable_dump = True
    config.dump_config.dump_config_path = file
    asked = resolve(config)
    assert (asked.mode, asked.source) == ("input", file)
    assert not any("dump_config_path is not used" in warning for warning in asked.warnings)


def test_options_replace_the_file_as_a_whole(config, file, tmp_path):
    config.dump_config.dump_config_path = file
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(tmp_path)
    asked = resolve(config)
    assert (asked.mode, asked.source) == ("all", "")
    assert "dump_config_path is not used: dump_path is set" in asked.warnings[0]


def test_the_captured_graph_modes_have_no_operator_dump(config, file):
    config.dump_config.dump_config_path = file
    config.dump_config.enable_dump = True
    config.mode = "npugraph_ex"
    assert resolve(config) is None


def test_the_fx_dump_wins_and_says_so(config):
    config.dump_config.enable_dump = True
    config.debug.data_dump.type = "npy"
    with pytest.warns(UserWarning, match=r"debug\.data_dump is set"):
        assert resolve(config) is None


def test_all_errors_of_options_and_file_come_together(config, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"dump": {"dump_mode": "none", "dump_list": [{}]}}')
    config.dump_config.dump_config_path = str(bad)
    config.debug.graph_dump.type = "txt"
    config.debug.graph_dump.path = str(tmp_path / "absent")
    with pytest.raises(ConfigurationError) as caught:
        resolve(config)
    assert [problem.item for problem in caught.value.problems] == ["debug.graph_dump.path", "dump_mode", "dump_path"]


def test_a_folder_that_has_gone_since_it_was_assigned(config, tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    config.dump_config.enable_dump = True
    config.dump_config.dump_path = str(folder)
    folder.rmdir()
    with pytest.raises(ConfigurationError, match=r"dump_config\.dump_path.*does not exist"):
        resolve(config)


def test_the_environment_adds_an_exception_scene(config, monkeypatch, tmp_path):
    monkeypatch.setenv("NPU_COLLECT_PATH", str(tmp_path))
    assert resolve(config).scene == "aic_err_norm_dump" and resolve(config).entries == ()
    monkeypatch.setenv("ASCEND_DUMP_SCENE", "aic_err_detail_dump")
    config.dump_config.enable_dump = True
    asked = resolve(config)
    assert asked.scene == "aic_err_detail_dump" and len(asked.entries) == 1


# -- logger --------------------------------------------------------------------------------------------------------


def test_the_line_of_the_logger(capsys):
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        logger.log(EVENT, "a %s", "message")
    finally:
        logger.setLevel(level)
    out, line = capsys.readouterr()
    assert out == ""  # stdout is the host's
    pattern = (
        rf"\[EVENT\] TORCHAIR\({os.getpid()},{re.escape(os.path.basename(sys.executable))}\):"
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\.\d{3} \[test_config\.py:\d+\]\d+ a message\n"
    )
    assert re.fullmatch(pattern, line)


def test_the_logger_says_errors_by_default_and_warnings_reach_the_user_anyway(capsys):
    assert logger.name == "torchair" and logger.level == logging.ERROR
    with pytest.warns(UserWarning, match="seen"):
        tell("seen")
    logger.setLevel(logging.WARNING)
    try:
        tell("100% logged")
    finally:
        logger.setLevel(logging.ERROR)
    assert capsys.readouterr().err.endswith(" 100% logged\n")


def test_torch_compile_debug_logs_everything():
    script = "from assay.torch.graph import logger; print(logger.level)"
    environment = {**os.environ, "TORCH_COMPILE_DEBUG": "1"}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "10\n"
