# SPDX-License-Identifier: Apache-2.0
"""What shall be dumped: validated options as one frozen request, and its answer for one graph, the plan.

    config --resolve--> DumpRequest --plan(graph)--> Plan {operator name: which operands}

Options: docs/graph/configuration.md. Importing this module does not import torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional

from assay.torch.graph._log import tell
from assay.torch.graph._model import Graph
from assay.torch.graph._plan import ModelEntry, OperandMask, Plan, make_plan
from assay.torch.graph._problems import ConfigurationError, Problem, folder_problems
from assay.torch.graph._steps import EVERY_STEP, StepSet, split_layers

if TYPE_CHECKING:
    from assay.torch.graph.config import CompilerConfig

__all__ = [
    "ConfigurationError",
    "DumpRequest",
    "ModelEntry",
    "OperandMask",
    "Plan",
    "Problem",
    "StepSet",
    "engine_of",
    "resolve",
]


@dataclass(frozen=True)
class DumpRequest:
    """Everything a backend needs to know about a dump.

    Attributes:
        path: absolute folder, without the level ``worldsize{W}_global_rank{R}``; "" in an exception scene without one.
        mode: "input", "output" or "all".
        data: "tensor" or "stats".
        statistics: names of ``dump_stats``; () for the six defaults.
        steps: which steps.
        entries: what of which model; () when no model is dumped.
        scene: "", "overflow", "watcher", "lite_exception", "aic_err_brief_dump", "aic_err_norm_dump" or
            "aic_err_detail_dump".
        operators: whether eagerly launched operators, outside of graphs, are dumped too.
        level: "op", "kernel" or "all".
        quant_dumpable: tensors before quantisation are kept.
        constants: operators of type Const are dumped.
        scope_narrows: a graph with operators inside ``scope.data_dump()`` and no layer named dumps those only.
        warnings: what the configuration says and nothing will act on; for the user.
        source: the file the request comes from, or "" for options.
    """

    path: str
    mode: str = "all"
    data: str = "tensor"
    statistics: tuple[str, ...] = ()
    steps: StepSet = EVERY_STEP
    entries: tuple[ModelEntry, ...] = (ModelEntry(),)
    scene: str = ""
    operators: bool = False
    level: str = "all"
    quant_dumpable: bool = False
    constants: bool = False
    scope_narrows: bool = False
    warnings: tuple[str, ...] = ()
    source: str = ""

    def plan(self, graph: Graph) -> Plan:
        """Says which operands of which operators of ``graph`` are dumped. Never fails: what is wrong is a warning."""
        return make_plan(self, graph)


def resolve(config: CompilerConfig) -> Optional[DumpRequest]:
    """Checks ``config`` as a whole and says what it asks for; None when no operator of a graph is to be dumped.

    ``dump_config_path``: the file counts, with ``enable_dump`` or without. Where ``enable_dump`` is set and another
    option of ``dump_config`` is, too, the options count, and the file is replaced as a whole.

    Raises:
        ConfigurationError: all errors at once, each with place, reason and advice.
    """
    problems = _check_folders(config) + _check_execution(config)
    warnings: list[str] = []
    request: Optional[DumpRequest] = None
    if config.mode.value == "max-autotune":
        file = config.dump_config.dump_config_path.value
        beside = _options_beside_file(config) if config.dump_config.enable_dump else []
        if config.dump_config.enable_dump and (file is None or beside):
            request = _request_of_options(config, problems)
            if file is not None:
                set_too = ", ".join(beside)
                warnings.append(
                    f"dump_config_path is not used: {set_too} is set, and options replace the file as a whole."
                )
        elif file is not None:
            from assay.torch.graph._dump_json import read_dump_json

            try:
                request = read_dump_json(file)
            except ConfigurationError as error:
                raise ConfigurationError([*problems, *error.problems], error.path) from None
    if problems:
        raise ConfigurationError(problems)
    if request is not None and config.debug.data_dump.enabled:
        # The FX dump interprets the graph eagerly; there is no compiled graph to dump.
        tell("debug.data_dump is set: the options of dump_config are not used.")
        return None
    scene = _scene_of_environment()
    if request is None:
        return DumpRequest(path="", entries=(), scene=scene) if scene else None
    return replace(
        request,
        scene=request.scene or scene,
        constants=bool(config.execution.dump_constants),
        warnings=(*request.warnings, *warnings),
    )


def _options_beside_file(config: CompilerConfig) -> list[str]:
    """Options of ``dump_config`` that were set and that a dump JSON could say."""
    no_key = ("enable_dump", "dump_config_path", "data_dump_stage")
    return [name for name, leaf in config.dump_config.leaves() if leaf.changed and name not in no_key]


def _scene_of_environment() -> str:
    """The exception scene that the environment asks for, or ""."""
    scene = os.environ.get("ASCEND_DUMP_SCENE", "")
    if scene in ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"):
        return scene
    if scene:
        tell(f"ASCEND_DUMP_SCENE={scene!r} is ignored: it takes one of the aic_err_*_dump scenes.")
    return "aic_err_norm_dump" if os.environ.get("NPU_COLLECT_PATH") else ""


def engine_of(config: CompilerConfig) -> str:
    """The engine that runs: ``config.execution.engine``, or "interpreter" where fusion is switched off altogether.

    Raises:
        FusionSwitchError: the fusion switch file is none.
        OSError: it cannot be read.
    """
    from assay.torch.graph._fusion_switch import FusionSwitch

    file = config.fusion_config.fusion_switch_file.value
    if file is not None and FusionSwitch.load(file).turns_fusion_off:
        return "interpreter"
    return str(config.execution.engine.value)


def _check_execution(config: CompilerConfig) -> list[Problem]:
    from assay.torch.graph._fusion_switch import FusionSwitchError

    item = "fusion_config.fusion_switch_file"
    problems: list[Problem] = []
    try:
        engine_of(config)
    except FusionSwitchError as error:
        problems += [Problem("EP0004", item, f"{error.path}: {reason}.", original=False) for reason in error.problems]
    except OSError as error:
        problems.append(Problem("EP0003", item, f"cannot be read: {error}.", original=False))
    execution: Any = config.execution
    if execution.fusion_groups.value is not None and execution.engine.value != "partition":
        reason = f"a function is given, and engine is {execution.engine.value!r}."
        problems.append(Problem("EP0005", "execution.fusion_groups", reason, 'Set engine to "partition".', False))
    return problems


def _check_folders(config: CompilerConfig) -> list[Problem]:
    problems: list[Problem] = []
    for name in ("graph_dump", "data_dump", "fx_summary"):
        group = getattr(config.debug, name)
        if group.enabled:
            problems += folder_problems(f"debug.{name}.path", group.folder, "EP0003")
    return problems


def _request_of_options(config: CompilerConfig, problems: list[Problem]) -> Optional[DumpRequest]:
    options: Any = config.dump_config
    path = os.path.abspath(options.dump_path.value)
    problems += folder_problems("dump_config.dump_path", path, "EP0003")
    if problems:
        return None
    return DumpRequest(
        path=path,
        mode=options.dump_mode.value,
        data=options.dump_data.value,
        steps=StepSet.parse(options.dump_step.value),
        entries=(ModelEntry(layers=split_layers(options.dump_layer.value)),),
        quant_dumpable=bool(options.quant_dumpable),
        scope_narrows=True,
    )
