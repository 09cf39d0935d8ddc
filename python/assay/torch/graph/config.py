# SPDX-License-Identifier: Apache-2.0
"""``CompilerConfig``: what a compiled model shall dump, in the vendor's option tree and one group of ours.

    config = CompilerConfig()
    config.dump_config.enable_dump = True
    config.dump_config.dump_step = "0|2-5"
    config.execution.engine = "partition"
    compiled = torch.compile(model, backend=get_backend(config))

Options: docs/graph/configuration.md. Importing this module does not import torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Optional

from assay.torch.graph._options import (
    Choice,
    Dictionary,
    ExistingDirectory,
    ExistingFile,
    ExistingJsonFile,
    Function,
    IntegerList,
    IntegerRange,
    Leaf,
    OptionGroup,
    Options,
    RealPath,
    Text,
    TextPattern,
)
from assay.torch.graph._steps import LAYER_PATTERN, STEP_PATTERN, StepSet, check_layer_text

__all__ = ["CompilerConfig", "rank_and_world", "rank_folder", "without_effect"]

_INT64_MAX = 2**63 - 1
_SORTING = {"BFS": "0", "DFS": "1", "RDFS": "2", "StableRDFS": "3"}


def rank_and_world() -> tuple[int, int]:
    """(rank, world size) of torch.distributed; (0, 1) when it is not initialised or torch was never imported."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return int(distributed.get_rank()), int(distributed.get_world_size())


def rank_folder(path: str) -> str:
    """``{path}/worldsize{W}_global_rank{R}``, where all files of this process go."""
    rank, world = rank_and_world()
    return os.path.join(path, f"worldsize{world}_global_rank{rank if world > 1 else 0}")


def _true_false(leaf: Leaf) -> str:
    return "true" if leaf else "false"


class DumpConfig(OptionGroup):
    """``config.dump_config``: which operators of the compiled graph are stored, and how."""

    def __init__(self) -> None:
        self.enable_dump: Any = Choice(False, [False, True])
        self.dump_path: Any = ExistingDirectory("./")
        self.dump_mode: Any = Choice("all", ["input", "output", "all"])
        self.quant_dumpable: Any = Choice(False, [False, True])
        self.dump_step: Any = TextPattern("", StepSet.parse, STEP_PATTERN, "0|1|2-5|6")
        self.dump_layer: Any = TextPattern("", check_layer_text, LAYER_PATTERN, "Mul_1 Add1 Conv2D_1")
        self.dump_data: Any = Choice("tensor", ["tensor", "stats"])
        self.dump_config_path: Any = ExistingJsonFile(None)
        self.data_dump_stage: Any = Choice("optimized", ["original", "optimized"])
        super().__init__()

    def full_path(self) -> str:
        """Creates and returns this rank's folder below ``dump_path``."""
        path = rank_folder(str(self.dump_path.value))
        os.makedirs(path, exist_ok=True)
        return path

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        lowered: Options = {}
        if self.dump_config_path.value is not None:
            lowered["ge_dump_with_acl_config"] = self.dump_config_path.value
        if self.enable_dump and mode == "max-autotune":
            lowered["ge.exec.enableDump"] = "1"
            lowered["ge.exec.dumpPath"] = self.full_path()
            lowered["ge.exec.dumpMode"] = self.dump_mode.value
            lowered["ge.quant_dumpable"] = "1" if self.quant_dumpable else "0"
            if self.dump_step.value:
                lowered["ge.exec.dumpStep"] = self.dump_step.value
            if self.dump_layer.value:
                lowered["ge.exec.dumpLayer"] = self.dump_layer.value
            lowered["ge.exec.dumpData"] = self.dump_data.value
        elif self.enable_dump:
            lowered["aclgraph.enableDump"] = "1"
            lowered["aclgraph.dumpPath"] = self.full_path()
            lowered["aclgraph.dumpStage"] = self.data_dump_stage.value
        return {}, lowered


class _TypedPath(OptionGroup):
    """A kind of output (``type``, None: off) and the folder it goes to (``path``, in older scripts ``_path``)."""

    type: Any
    _path: Any
    _aliases: Mapping[str, str] = {"path": "_path"}

    @property
    def path(self) -> Optional[str]:
        return None if self._path.value is None else str(self._path.value)

    @property
    def enabled(self) -> bool:
        return self.type.value is not None

    @property
    def folder(self) -> str:
        """``path``, or the current directory when it was not set."""
        return os.getcwd() if self.path is None else self.path

    def full_path(self, name: str, *, with_timestap: bool = True) -> Optional[str]:
        """``{path}/{name}_rank_{r}_pid_{p}_ts_{UTC, 20 digits}.{type}``, or None when ``type`` is None.

        The argument's spelling is the vendor's.
        """
        if not self.enabled:
            return None
        path = "." if self.path is None else self.path
        stem = f"{path}/{name}_rank_{rank_and_world()[0]}_pid_{os.getpid()}"
        if with_timestap:
            stem += "_ts_" + datetime.now(tz=timezone.utc).strftime("%Y%m%d%H%M%S%f")
        return f"{stem}.{self.type.value}"


class GraphDump(_TypedPath):
    """``config.debug.graph_dump``: the graph as text."""

    def __init__(self) -> None:
        self.type: Any = Choice(None, ["txt", "pbtxt", "py"])
        self._path: Any = RealPath(None)
        super().__init__()


class DataDump(_TypedPath):
    """``config.debug.data_dump``: every Aten node's inputs and outputs as .npy, run eagerly."""

    def __init__(self) -> None:
        self.filter: Any = Function(None)  # torch.fx.Node -> the node, or None: not dumped
        self.type: Any = Choice(None, ["npy"])
        self._path: Any = RealPath(None)
        super().__init__()


class FxSummary(_TypedPath):
    """``config.debug.fx_summary``: a table of the operators in the graph."""

    def __init__(self) -> None:
        self.type: Any = Choice(None, ["csv"])
        self.skip_compile: Any = Choice(True, [True, False])
        self._path: Any = RealPath(None)
        super().__init__()


class _AclGraphDebug(OptionGroup):
    def __init__(self) -> None:
        self.disable_reinplace_inplaceable_ops_pass: Any = Choice(False, [True, False])
        self.disable_reinplace_input_mutated_ops_pass: Any = Choice(False, [True, False])
        self.disable_mempool_reuse_in_same_fx: Any = Choice(False, [True, False])
        self.enable_output_clone: Any = Choice(False, [True, False])
        self.static_capture_size_limit: Any = IntegerRange(64, 1, _INT64_MAX)
        self.clone_input: Any = Choice(True, [True, False])
        self.remove_cat_ops: Any = Choice(True, [True, False])
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        names = ("disable_mempool_reuse_in_same_fx", "enable_output_clone", "static_capture_size_limit", "clone_input")
        return {name: getattr(self, name).value for name in names}, {}


class DebugConfig(OptionGroup):
    """``config.debug``."""

    def __init__(self) -> None:
        self.graph_dump: Any = GraphDump()
        self.data_dump: Any = DataDump()
        self.fx_summary: Any = FxSummary()
        self.run_eagerly: Any = Choice(False, [True, False])
        self.aclgraph: Any = _AclGraphDebug()
        self.deadlock_check: Any = Choice(False, [True, False])
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        local, _ = self.aclgraph.as_dict(mode)
        local["run_eagerly"] = self.run_eagerly.value
        local["deadlock_check"] = self.deadlock_check.value
        return local, {}


class FusionConfig(OptionGroup):
    """``config.fusion_config``."""

    def __init__(self) -> None:
        self.fusion_switch_file: Any = ExistingFile(None)
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        file = self.fusion_switch_file.value
        return {}, {} if file is None else {"ge.fusionSwitchFile": file}


class _AoeConfig(OptionGroup):
    def __init__(self) -> None:
        self.aoe_mode: Any = Choice(None, ["2"])
        self.work_path: Any = ExistingDirectory("./")
        self.aoe_config_file: Any = ExistingFile(None)
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        return ({}, {}) if self.aoe_mode.value is None else super().as_dict(mode)


class _ExportExperimental(OptionGroup):
    def __init__(self) -> None:
        self.enable_record_nn_module_stack: Any = Choice(False, [True, False])
        self.auto_atc_config_generated: Any = Choice(False, [True, False])
        self.enable_lite_export: Any = Choice(False, [True, False])
        super().__init__()


class _ExportConfig(OptionGroup):
    def __init__(self) -> None:
        self.export_mode: Any = Choice(False, [False, True])
        self.export_path_dir: Any = ExistingDirectory("./")
        self.export_name: Any = Text(None)
        self.weight_name: Any = Leaf(None)
        self.inputs_name: Any = Leaf(None)
        self.experimental: Any = _ExportExperimental()
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        if not self.export_mode:
            return {}, {}
        return {"export_path_dir": self.export_path_dir.value, "export_name": self.export_name.value}, {}


class _AclGraphExperimental(OptionGroup):
    def __init__(self) -> None:
        self._aclnn_static_shape_kernel: Any = Choice(False, [True, False])
        self._aclnn_static_shape_kernel_build_dir: Any = Text(None)
        self._aclnn_static_shape_kernel_sym_value_range: Any = IntegerList(None)
        self._aclnn_static_shape_kernel_sym_index: Any = IntegerRange(0, 0, _INT64_MAX)
        self._super_kernel_optimize: Any = Choice(False, [True, False])
        self._super_kernel_optimize_options: Any = Dictionary(None)
        self._super_kernel_debug_options: Any = Dictionary(None)
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        local: Options = {}
        if mode == "max-autotune":
            return {}, {}
        if self._aclnn_static_shape_kernel:
            local["_aclnn_static_shape_kernel"] = "1"
            local["_aclnn_static_shape_kernel_build_dir"] = self._aclnn_static_shape_kernel_build_dir.value or ""
            for name in ("_aclnn_static_shape_kernel_sym_value_range", "_aclnn_static_shape_kernel_sym_index"):
                local[name] = getattr(self, name).value
        if self._super_kernel_optimize:
            local["_super_kernel_optimize"] = "1"
            for name in ("_super_kernel_optimize_options", "_super_kernel_debug_options"):
                if getattr(self, name).value is not None:
                    local[name] = getattr(self, name).value
        return local, {}


class _ExperimentalConfig(OptionGroup):
    def __init__(self) -> None:
        self.cc_parallel_enable: Any = Choice(False, [False, True])
        self.keep_inference_input_mutations: Any = Choice(True, [True, False])
        self.memory_efficiency: Any = Choice(False, [True, False])
        self.frozen_parameter: Any = Choice(False, [True, False])
        self.static_model_ops_lower_limit: Any = IntegerRange(None, -1, _INT64_MAX)
        self.jit_compile: Any = Choice("auto", ["auto"])
        self.npu_fx_pass: Any = Choice(False, [True, False])
        self.aot_config_enable_joint_graph: Any = Choice(False, [True, False])
        self.aot_config_output_loss_index: Any = Leaf(0)
        self.topology_sorting_strategy: Any = Choice("DFS", ["BFS", "DFS", "RDFS", "StableRDFS"])
        self.enable_ref_data: Any = Choice(False, [True, False])
        self.enable_view_optimize: Any = Choice(True, [True, False])
        self.remove_noop_ops: Any = Choice(True, [True, False])
        self.tiling_schedule_optimize: Any = Choice(False, [True, False])
        self.pattern_fusion_pass: Any = Choice(True, [True, False])
        self.aclgraph: Any = _AclGraphExperimental()
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        local = {name: getattr(self, name).value for name in ("remove_noop_ops", "pattern_fusion_pass")}
        local["frozen_parameter"] = self.frozen_parameter.value
        if mode != "max-autotune":
            local.update(self.aclgraph.as_dict(mode)[0])
            return local, {}
        local["ge.tiling_schedule_optimize"] = self.tiling_schedule_optimize.value
        local["ge.featureBaseRefreshable"] = self.memory_efficiency.value
        local["ge.topoSortingMode"] = _SORTING[self.topology_sorting_strategy.value]
        local["ge.jit_compile"] = "2"
        if self.static_model_ops_lower_limit.value is not None:
            local["ge.exec.static_model_ops_lower_limit"] = self.static_model_ops_lower_limit.value
        return local, {"ge.exec.enableEngineParallel": self.cc_parallel_enable.value}


class _InferenceConfig(OptionGroup):
    def __init__(self) -> None:
        self.dynamic_gears_merge_policy: Any = Choice("zip", ["zip", "product"])
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        return {}, {}


class _GeConfig(OptionGroup):
    def __init__(self) -> None:
        self.enable_single_stream: Any = Choice(False, [True, False])
        self.oo_level: Any = Choice("O3", ["O1", "O3"])
        self.oo_constant_folding: Any = Choice(None, [True, False])
        self.oo_dead_code_elimination: Any = Choice(None, [True, False])
        self.export_compile_stat: Any = Choice("2", ["0", "1", "2"])
        self.aicore_num: Any = Leaf(None)
        self.optimization_switch: Any = Leaf(None)
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        lowered: Options = {
            "ge.enableSingleStream": _true_false(self.enable_single_stream),
            "ge.oo.level": self.oo_level.value,
            "ge.exportCompileStat": self.export_compile_stat.value,
        }
        if self.aicore_num.value is not None:
            lowered["ge.aicoreNum"] = self.aicore_num.value
        if self.oo_constant_folding.value is not None:
            lowered["ge.oo.constantFolding"] = _true_false(self.oo_constant_folding)
        if self.oo_dead_code_elimination.value is not None:
            lowered["ge.oo.deadCodeElimination"] = _true_false(self.oo_dead_code_elimination)
        if self.optimization_switch.value is not None:
            lowered["ge.optimizationSwitch"] = self.optimization_switch.value
        return ({"ge.topoSortingMode": _SORTING["StableRDFS"]} if self.oo_level.value == "O1" else {}), lowered


class _AclGraphConfig(OptionGroup):
    def __init__(self) -> None:
        self.use_custom_pool: Any = Leaf(None)
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        return {}, {}


class ExecutionConfig(OptionGroup):
    """``config.execution``: how this backend runs the graph while it dumps. Ours; the vendor has no such group.

    engine               "interpreter": operator by operator, unfused, bit-identical to aot_eager | "taps": Inductor on
                         the whole graph with the selected values as extra outputs | "partition": groups of operators,
                         each compiled by Inductor, one file a group
    decomposition_level  0: Dynamo's graph | 1: Aten after AOTAutograd | 2: with the core-Aten decompositions
    fusion_groups        None (a built-in rule) or a function (list of operators) -> list of lists of names; partition
    queue_bytes          most bytes of tensors waiting to be written
    on_full              "wait": the model waits, nothing is lost | "drop": operands are dropped and counted
    synchronous          each file is on disk before the next operator runs
    token_counter        what a step is: "graph": runs of this graph | "token": the counter that step() advances |
                         "auto": "token" once step() was called, else "graph"
    dump_constants       numbers given to operators are stored as operators of type Const
    layout               "ge": a file an operator, as the vendor's engine writes them | "native": a file a step
    """

    def __init__(self) -> None:
        self.engine: Any = Choice("interpreter", ["interpreter", "taps", "partition"])
        self.decomposition_level: Any = Choice(1, [0, 1, 2])
        self.fusion_groups: Any = Function(None)
        self.queue_bytes: Any = IntegerRange(256 << 20, 1, _INT64_MAX)
        self.on_full: Any = Choice("wait", ["wait", "drop"])
        self.synchronous: Any = Choice(False, [False, True])
        self.token_counter: Any = Choice("auto", ["auto", "graph", "token"])
        self.dump_constants: Any = Choice(False, [False, True])
        self.layout: Any = Choice("ge", ["ge", "native"])
        super().__init__()

    def as_dict(self, mode: str = "max-autotune") -> tuple[Options, Options]:
        return {}, {}


class CompilerConfig(OptionGroup):
    """All options of one backend. Two with the same values are equal."""

    def __init__(self) -> None:
        self.debug: Any = DebugConfig()
        self.aoe_config: Any = _AoeConfig()
        self.export: Any = _ExportConfig()
        self.dump_config: Any = DumpConfig()
        self.fusion_config: Any = FusionConfig()
        self.experimental_config: Any = _ExperimentalConfig()
        self.inference_config: Any = _InferenceConfig()
        self.ge_config: Any = _GeConfig()
        self.aclgraph_config: Any = _AclGraphConfig()
        self.mode: Any = Choice("max-autotune", ["max-autotune", "reduce-overhead", "npugraph_ex"])
        self.post_grad_custom_pre_pass: Any = Function(None)
        self.post_grad_custom_post_pass: Any = Function(None)
        self.execution: Any = ExecutionConfig()
        super().__init__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompilerConfig):
            return NotImplemented
        mine = {path: leaf.raw for path, leaf in self.leaves()}
        return mine == {path: leaf.raw for path, leaf in other.leaves()}

    __hash__ = None  # type: ignore[assignment]

    def as_dict(self, mode: Optional[str] = None) -> tuple[Options, Options]:
        """Returns (local, global) engine options under the engine's names, as they are for ``mode`` (default: own)."""
        local, global_ = super().as_dict(mode or self.mode.value)
        local.pop("post_grad_custom_pre_pass", None)
        local.pop("post_grad_custom_post_pass", None)
        return local, global_

    to_options = as_dict


# Options that change what this backend does; the captured-graph modes read the second set only.
_WITH_EFFECT = frozenset(
    {"mode", "fusion_config.fusion_switch_file"}
    | {f"dump_config.{name}" for name in DumpConfig()._names}
    | {f"debug.graph_dump.{name}" for name in GraphDump()._names}
    | {f"debug.data_dump.{name}" for name in DataDump()._names}
    | {f"debug.fx_summary.{name}" for name in FxSummary()._names}
    | {f"execution.{name}" for name in ExecutionConfig()._names}
    | {"experimental_config.keep_inference_input_mutations"}
)
_CAPTURED_GRAPH_ONLY = frozenset({"dump_config.data_dump_stage"})
_MAX_AUTOTUNE_ONLY = frozenset(
    f"dump_config.{name}"
    for name in ("dump_mode", "quant_dumpable", "dump_step", "dump_layer", "dump_data", "dump_config_path")
) | {f"debug.fx_summary.{name}" for name in FxSummary()._names}


def without_effect(config: CompilerConfig) -> list[str]:
    """Names and values of options that were changed and mean nothing here: ``["ge_config.oo_level='O1'"]``.

    They steer the vendor's compiler and hardware; they are accepted so that scripts run unchanged.
    """
    ignored = _MAX_AUTOTUNE_ONLY if config.mode.value != "max-autotune" else _CAPTURED_GRAPH_ONLY
    return [
        f"{path}={leaf.raw!r}"
        for path, leaf in config.leaves()
        if leaf.changed and (path not in _WITH_EFFECT or path in ignored)
    ]
