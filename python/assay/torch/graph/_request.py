# SPDX-License-Identifier: Apache-2.0
"""What shall be dumped: validated options as one frozen request, and its answer for one graph, the plan.

    config --resolve--> DumpRequest --plan(graph)--> Plan {operator name: which operands}

Selection rules: docs/graph/dump-json.md. Importing this module does not import torch.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Optional

from assay.torch.graph._log import tell
from assay.torch.graph._model import Graph, Operator

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
    "check_layer_text",
    "engine_of",
    "folder_problems",
    "resolve",
    "scoped_operators",
    "split_layers",
]

# The documented forms, shown in messages. They are not matched: the vendor's step expression backtracks exponentially.
STEP_PATTERN = r"^(\d+(-\d+)?(\|\d+(-\d+)?)*)?$"
LAYER_PATTERN = "names of printable characters separated by blanks, * and ? as wildcards"
MAX_STEP = 2**63 - 1
MAX_STEP_ITEMS = 100


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration.

    Attributes:
        code: "EP0001" ... "EP0005" of docs/graph/dump-json.md.
        item: the place: "dump_list[0].layer[1]", "dump_config.dump_path".
        reason: what was expected and found.
        advice: what to write instead.
        original: whether the vendor's run time reports it too; it stops at the first one.
        fatal: False for a warning: the value is not used, or only GE refuses it.
    """

    code: str
    item: str
    reason: str
    advice: str = ""
    original: bool = True
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.code} {self.item}: {self.reason}" + (f" {self.advice}" if self.advice else "")


class ConfigurationError(ValueError):
    """Everything that is wrong with a configuration, found before anything is compiled.

    Attributes:
        problems: all of them, in the order in which the vendor's run time checks.
        path: the file they are in, or "".
    """

    def __init__(self, problems: Sequence[Problem], path: str = "") -> None:
        self.problems = tuple(problems)
        self.path = path
        count = len(self.problems)
        head = f"{path}: " if path else ""
        errors = "1 error" if count == 1 else f"{count} errors"
        super().__init__(f"{head}{errors} in the dump configuration\n  " + "\n  ".join(map(str, self.problems)))

    @property
    def first(self) -> Optional[Problem]:
        """The one that the vendor's run time would report; None when it would report none of them."""
        return next((problem for problem in self.problems if problem.original), None)


@dataclass(frozen=True)
class StepSet:
    """Steps as sorted, disjoint, inclusive ranges; no range means every step."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> StepSet:
        """Reads ``"0|2-5"``: numbers and inclusive ranges joined by bars, "" for all. Linear in the length.

        Raises:
            ValueError: the position (from 0) and the reason: an empty item, a character that is no digit, a third
                part, a reversed range, more than 100 items, a step above 2**63 - 1.
        """
        if not text:
            return cls()
        items = text.split("|")
        found: list[tuple[int, int]] = []
        position = 0
        for item in items:
            found.append(_parse_step_item(item, position, at_end=position + len(item) == len(text)))
            position += len(item) + 1
        if len(items) > MAX_STEP_ITEMS:
            raise ValueError(f"{len(items)} items, at most {MAX_STEP_ITEMS} are allowed.")
        return cls(_merged(found))

    def contains(self, step: int) -> bool:
        if not self.ranges:
            return True
        index = bisect_right(self.ranges, (step, MAX_STEP + 1)) - 1
        return index >= 0 and step <= self.ranges[index][1]

    __contains__ = contains

    def __str__(self) -> str:
        return "|".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges)


def _parse_step_item(item: str, position: int, at_end: bool) -> tuple[int, int]:
    if not item:
        where = "after the last bar" if at_end else "between two bars or before the first"
        raise ValueError(f"at position {position}: a number is missing {where}.")
    parts = item.split("-")
    if len(parts) > 2:
        third = position + len(parts[0]) + len(parts[1]) + 1
        raise ValueError(f"at position {third}: a second '-' in one item; a bar belongs between two items.")
    numbers: list[int] = []
    for part in parts:
        numbers.append(_parse_step(part, position))
        position += len(part) + 1
    low, high = numbers[0], numbers[-1]
    if low > high:
        raise ValueError(f"at position {position - len(item) - 1}: the range {low}-{high} is reversed.")
    return low, high


def _parse_step(digits: str, position: int) -> int:
    if not digits:
        raise ValueError(f"at position {position}: a number is missing beside '-'.")
    bad = next((i for i, c in enumerate(digits) if not "0" <= c <= "9"), None)
    if bad is not None:
        raise ValueError(f"at position {position + bad}: {digits[bad]!r} is no digit.")
    # Python's int() is quadratic and refuses more than 4300 digits.
    significant = digits.lstrip("0") or "0"
    if len(significant) > 19 or int(significant) > MAX_STEP:
        raise ValueError(f"at position {position}: a number of {len(digits)} digits is above {MAX_STEP}.")
    return int(significant)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def check_layer_text(text: str) -> None:
    """Raises ValueError, with the position, where ``text`` has a character that cannot be part of a name or a blank."""
    for position, character in enumerate(text):
        if not character.isprintable():
            raise ValueError(f"at position {position}: {character!r} is not printable; separate names by blanks.")


def split_layers(text: str) -> tuple[str, ...]:
    """The names in a ``dump_layer`` text, each once, in their order."""
    return tuple(dict.fromkeys(text.split()))


@dataclass(frozen=True)
class ModelEntry:
    """One item of ``dump_list``: a model (None: every model) and what of it.

    ``layers`` and ``ranges`` both empty: the whole model.
    """

    model_name: Optional[str] = None
    layers: tuple[str, ...] = ()
    ranges: tuple[tuple[str, str], ...] = ()  # (begin, end), both dumped
    type_blacklist: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    name_blacklist: Mapping[str, frozenset[tuple[str, int]]] = field(default_factory=dict)
    watcher_nodes: tuple[str, ...] = ()

    def concerns(self, graph_name: str) -> bool:
        return self.model_name is None or self.model_name == graph_name


@dataclass(frozen=True)
class OperandMask:
    """Which operands of one operator are stored; ``left_out`` are ("input", 0) of black lists."""

    inputs: bool
    outputs: bool
    left_out: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Plan:
    """The answer of a request for one graph.

    Attributes:
        operands: operator name -> what to store, in the order of execution. Data operators that feed a selected
            operator are among them. Empty in the overflow scene and in an exception scene asked for by a file, where
            what happens at run time decides, and in the watcher scene, where the watcher writes its own files.
        watched: operators whose outputs are watched; layers: operators after which they are looked at again.
        warnings: sentences for the user: names that match nothing with the nearest names, ranges that went wrong.
    """

    operands: dict[str, OperandMask] = field(default_factory=dict)
    watched: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


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
    steps: StepSet = StepSet()
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
        return _Planner(self, graph).plan()


# Operators that never leave a file: nothing is computed, or nothing comes out.
_WITHOUT_FILE = frozenset({"NetOutput", "NoOp", "Send", "Recv", "StreamActive", "StreamSwitch", "ControlTrigger"})
_CONSTANT = frozenset({"Const", "Constant", "ConstPlaceHolder", "FileConstant"})
_SCOPE_ATTRIBUTE = "torchair_enable_data_dump"


def scoped_operators(graph: Graph) -> list[str]:
    """Names of the operators that were made inside ``scope.data_dump()``, in their order."""
    return [
        operator.name
        for operator in graph
        if str(operator.attributes.get(_SCOPE_ATTRIBUTE)) == "True" and operator.type not in _WITHOUT_FILE
    ]


class _Planner:
    def __init__(self, request: DumpRequest, graph: Graph) -> None:
        self._request = request
        self._graph = graph
        self._by_name = graph.by_name()
        self._entries = [entry for entry in request.entries if entry.concerns(graph.name)]
        self._warnings: list[str] = []
        # Post-fusion names and, behind them, the names before fusion.
        self._owners: dict[str, list[str]] = {}
        for operator in graph:
            for name in dict.fromkeys([operator.name, *_names_before_fusion(operator)]):
                self._owners.setdefault(name, []).append(operator.name)

    def plan(self) -> Plan:
        if self._request.scene == "watcher":
            return self._watcher_plan()
        if self._request.scene == "overflow" or not self._entries:
            return Plan()
        selected = self._selected()
        self._add_feeding_data(selected)
        blacklist = _Blacklist(self._entries)
        masks: dict[str, OperandMask] = {}
        for operator in self._graph:
            if operator.name in selected:
                masks[operator.name] = self._mask(operator, blacklist)
        self._warn_unused_blacklists(blacklist)
        return Plan(operands=masks, warnings=self._warnings)

    def _mask(self, operator: Operator, blacklist: _Blacklist) -> OperandMask:
        # A Data operator has no input of its own: what it hands on is its output.
        mode = "output" if operator.type == "Data" else self._request.mode
        return OperandMask(mode in ("input", "all"), mode in ("output", "all"), blacklist.left_out(operator))

    def _selected(self) -> set[str]:
        scoped = set(scoped_operators(self._graph))
        selected: set[str] = set()
        for entry in self._entries:
            if entry.ranges:
                for begin, end in entry.ranges:
                    selected |= self._in_range(begin, end)
            elif not entry.layers and not (scoped and self._request.scope_narrows):
                selected |= {op.name for op in self._graph if self._dumped_with_the_model(op)}
            selected |= self._matching(entry.layers, "dump_layer" if not self._request.source else "layer")
        return selected | scoped

    def _dumped_with_the_model(self, operator: Operator) -> bool:
        if operator.type in _CONSTANT:
            return self._request.constants
        return operator.type not in _WITHOUT_FILE and operator.type != "Data"

    def _matching(self, names: Iterable[str], option: str) -> set[str]:
        found: set[str] = set()
        missing: list[str] = []
        for name in names:
            owners = self._owners.get(name)
            if owners is None and ("*" in name or "?" in name):
                fits = _wildcard(name)
                owners = [owner for known, all_ in self._owners.items() if fits.fullmatch(known) for owner in all_]
            if not owners:
                missing.append(name)
                continue
            silent = [owner for owner in owners if self._by_name[owner].type in _WITHOUT_FILE]
            found.update(set(owners) - set(silent))
            if silent and len(silent) == len(owners):
                self._warnings.append(f"{option} {name!r}: {self._by_name[silent[0]].type} operators leave no file.")
        for name in missing[:20]:
            self._warnings.append(f"{option} {name!r} matches no operator of {self._graph.name}{self._nearest(name)}.")
        if len(missing) > 20:
            self._warnings.append(f"{option}: {len(missing) - 20} more names match no operator of {self._graph.name}.")
        return found

    def _nearest(self, name: str) -> str:
        """ "; nearest: ..." or "", for the end of a sentence about a name that is no operator's."""
        from difflib import get_close_matches

        if name in self._owners:
            return f" (a name from before fusion; its operator is {', '.join(self._owners[name])})"
        near = get_close_matches(name, self._owners, n=3, cutoff=0.5)
        if not near:
            lowered = name.lower()
            near = [known for known in self._owners if lowered in known.lower()][:3]
        return "; nearest: " + ", ".join(near) if near else ""

    def _in_range(self, begin: str, end: str) -> set[str]:
        found: set[str] = set()
        state = "Init"
        for operator in self._graph:
            named = operator.name in (begin, end)
            if not named and (operator.type in _WITHOUT_FILE | _CONSTANT or operator.type == "Data"):
                continue
            was = state
            state = _next_state(state, operator.name == begin, operator.name == end)
            if state == "Error" and was != "Error":
                reason = "its end comes before its begin" if was == "Init" else "its begin follows directly on its end"
                self._warnings.append(
                    f"opname_range {begin!r} to {end!r} of {self._graph.name}: {reason} (at {operator.name!r}); "
                    "it selects nothing from there on."
                )
            if state in ("Active", "Stopped") and operator.type not in _WITHOUT_FILE:
                found.add(operator.name)
        for name in dict.fromkeys((begin, end)):
            if name not in self._by_name:
                what = "it selects nothing" if name == begin else "it reaches to the end of the model"
                self._warnings.append(
                    f"opname_range {begin!r} to {end!r}: {name!r} is no operator of {self._graph.name}"
                    f"{self._nearest(name)}; {what}."
                )
        return found

    def _add_feeding_data(self, selected: set[str]) -> None:
        for name in list(selected):
            for edge in self._by_name[name].inputs:
                producer = self._by_name.get(self._graph.producer(edge))
                if producer is not None and producer.type == "Data" and not edge.endswith(":-1"):
                    selected.add(producer.name)

    def _warn_unused_blacklists(self, blacklist: _Blacklist) -> None:
        for name in blacklist.names:
            if name not in self._by_name:
                self._warnings.append(
                    f"opname_blacklist {name!r} matches no operator of {self._graph.name}{self._nearest(name)}."
                )

    def _watcher_plan(self) -> Plan:
        watched: list[str] = []
        layers: list[str] = []
        every_layer = False
        for entry in self._entries:
            for name in entry.watcher_nodes:
                if name in self._by_name:
                    watched.append(name)
                else:
                    self._warnings.append(
                        f"watcher_nodes {name!r} matches no operator of {self._graph.name}{self._nearest(name)}."
                    )
            matching = self._matching(entry.layers, "layer")
            layers += [op.name for op in self._graph if op.name in matching]
            every_layer = every_layer or not entry.layers
        if every_layer:
            layers = [op.name for op in self._graph if self._dumped_with_the_model(op)]
        unwatched = [
            name
            for name in dict.fromkeys(layers)
            if name not in watched and not self._by_name[name].type.startswith("Hcom")
        ]
        return Plan(watched=tuple(dict.fromkeys(watched)), layers=tuple(unwatched), warnings=self._warnings)


class _Blacklist:
    """The black lists of all entries that concern one graph, united."""

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self.types: dict[str, set[tuple[str, int]]] = {}
        self.names: dict[str, set[tuple[str, int]]] = {}
        for entry in entries:
            for name, operands in entry.type_blacklist.items():
                self.types.setdefault(name, set()).update(operands)
            for name, operands in entry.name_blacklist.items():
                self.names.setdefault(name, set()).update(operands)

    def left_out(self, operator: Operator) -> frozenset[tuple[str, int]]:
        return frozenset(self.types.get(operator.type, set()) | self.names.get(operator.name, set()))


def _names_before_fusion(operator: Operator) -> Iterator[str]:
    yield from operator.members
    recorded = operator.attributes.get("_datadump_original_op_names")
    if isinstance(recorded, (list, tuple)):
        yield from (name.decode() if isinstance(name, bytes) else str(name) for name in recorded)


def _wildcard(pattern: str) -> re.Pattern[str]:
    # Adjacent stars are one: "**" would make the match cubic, and mean the same.
    parts = re.split(r"(\*+|\?)", pattern)
    return re.compile("".join("." if p == "?" else ".*" if p.startswith("*") else re.escape(p) for p in parts))


def _next_state(state: str, is_begin: bool, is_end: bool) -> str:
    """The state machine of one range, one executed operator on."""
    if state == "Error":
        return "Error"
    if is_begin and is_end:
        return "Stopped" if state == "Init" else "Error" if state == "Stopped" else state
    if state == "Init":
        return "Active" if is_begin else "Error" if is_end else "Init"
    if state == "Active":
        return "Stopped" if is_end else "Active"
    return "Error" if is_begin else "Stopped" if is_end else "Init"


def resolve(config: CompilerConfig) -> Optional[DumpRequest]:
    """Checks ``config`` as a whole and says what it asks for; None when no operator of a graph is to be dumped.

    ``dump_config_path`` alone: the file counts and the other options of ``dump_config`` do not. ``enable_dump``: the
    options count, and a file given beside them is replaced as a whole.

    Raises:
        ConfigurationError: all errors at once, each with place, reason and advice.
    """
    problems = _check_folders(config) + _check_execution(config)
    warnings: list[str] = []
    request: Optional[DumpRequest] = None
    if config.mode.value == "max-autotune":
        if config.dump_config.enable_dump:
            request = _request_of_options(config, problems)
            if config.dump_config.dump_config_path.value is not None:
                warnings.append(
                    "dump_config_path is not used: enable_dump is set, and options replace the file as a whole."
                )
        elif config.dump_config.dump_config_path.value is not None:
            from assay.torch.graph._dump_json import read_dump_json

            try:
                request = read_dump_json(config.dump_config.dump_config_path.value)
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


def folder_problems(item: str, path: str, code: str) -> list[Problem]:
    """Why ``path`` cannot take a dump: missing, not a directory, not readable and writable."""
    advice = "Give a folder that exists and that this user can read and write."
    if not os.path.exists(path):
        return [Problem(code, item, f"{path!r} does not exist.", advice)]
    if not os.path.isdir(path):
        return [Problem(code, item, f"{path!r} is not a directory.", advice)]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return [Problem(code, item, f"{path!r} is not readable and writable.", advice)]
    return []


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
