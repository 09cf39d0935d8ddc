# SPDX-License-Identifier: Apache-2.0
"""The tree of modules as ``topology.json`` has it, and which modules a capture can look into."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Optional, Union

import torch

from assay._manifest import printable
from assay.torch._source import ForwardSources

__all__ = [
    "COMPILED",
    "NodePlan",
    "Pattern",
    "children_of",
    "class_name",
    "joined",
    "leaves_of",
    "matches",
    "matches_nothing",
    "modules_of",
    "plan_nodes",
    "something_was_compiled",
    "to_json",
    "trees_of",
]

Pattern = Union[str, type]

# How the calls of a module are seen.
VIA_CALL_IMPL = "_call_impl"
VIA_COMPILED_IMPL = "_compiled_call_impl"  # what `module.compile()` has made


COMPILED = "compiled by torch.compile"


@dataclass
class NodePlan:
    """One module of a capture.

    Attributes:
        name: dotted path, with the model's name in front when there are several models.
        module: the module itself.
        is_root: whether its calls count steps.
        planned: whether its calls are to be recorded.
        via: the attribute through which its calls are made and seen, or None when they cannot be seen.
        hidden: why nothing of it can be seen; empty when it can.
        opaque: whether its calls run compiled code.
    """

    name: str
    module: torch.nn.Module
    is_root: bool
    planned: bool
    via: Optional[str]
    hidden: str = ""
    opaque: bool = False
    aliases: list[str] = field(default_factory=list)


def class_name(module: torch.nn.Module) -> str:
    """Returns the class name of a module, of a scripted one that of the original class."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", type(module).__name__))
    return type(module).__name__


def matches(name: str, module: torch.nn.Module, patterns: Sequence[Pattern]) -> bool:
    """Returns whether one of some globs and classes means the module."""
    for pattern in patterns:
        if isinstance(pattern, str):
            if fnmatch.fnmatchcase(name, pattern):
                return True
        elif isinstance(module, pattern):
            return True
    return False


def matches_nothing(pattern: str, names: Iterable[str]) -> str:
    """Returns the sentence about a pattern that no name matches, with the nearest name."""
    known = list(dict.fromkeys(name for name in names if name))
    if "*" in pattern:
        known = list(dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in known))
    near = get_close_matches(pattern, known, n=1, cutoff=0.5)
    ending = pattern.rpartition(".")[2]
    if not near and ending.strip("*?"):
        endings = get_close_matches(ending, [name.rpartition(".")[2] for name in known], n=1, cutoff=0.5)
        near = [name for name in known if name.rpartition(".")[2] in endings]
    return f"{pattern!r} matches no module" + (f"; did you mean {near[0]!r}?" if near else "")


def _has_forward(module: torch.nn.Module) -> bool:
    # Containers such as ModuleList inherit the forward that only raises.
    forward = getattr(type(module), "forward", None)
    return forward is not torch.nn.Module.forward or "forward" in module.__dict__


def _is_compiled_wrapper(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def something_was_compiled() -> bool:
    """Returns whether torch.compile has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", {})
    return any(counters.get(group, {}).get(name) for group, name in (("frames", "total"), ("stats", "unique_graphs")))


def _runs_compiled(module: torch.nn.Module) -> bool:
    if _is_compiled_wrapper(module) or getattr(module, "_compiled_call_impl", None) is not None:
        return True
    # `model.forward = torch.compile(model.forward)`
    return hasattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable")


def _hides_children(module: torch.nn.Module) -> str:
    """Returns why the modules below `module` run where nobody sees them, or an empty string."""
    if _runs_compiled(module):
        return COMPILED
    if isinstance(module, torch.jit.ScriptModule):
        return "inside a ScriptModule"
    forward = module.__dict__.get("forward")
    if "graphed" in getattr(forward, "__qualname__", ""):
        return "inside a CUDA graph"
    return ""


def _how_to_see(module: torch.nn.Module) -> str:
    compiled = getattr(module, VIA_COMPILED_IMPL, None)
    return VIA_CALL_IMPL if compiled is None else VIA_COMPILED_IMPL


def children_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields the children by their names; what a program has put among them that is no module is none."""
    for name, child in module._modules.items():
        if isinstance(child, torch.nn.Module):
            yield name, child


def modules_of(model: torch.nn.Module, each_name: bool = False) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields (dotted path, module) of all modules, parents first: as ``named_modules()``, past what classes made of it.

    Args:
        model: the outermost one; its path is "".
        each_name: whether a module that has several paths comes with each of them.
    """
    seen: set[int] = set()
    # A list instead of recursion, as below; None ends the module that it names.
    pending: list[tuple[Optional[str], torch.nn.Module]] = [("", model)]
    while pending:
        path, module = pending.pop()
        if path is None:
            seen.discard(id(module))
            continue
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        if each_name:
            pending.append((None, module))
        pending += [(f"{path}.{name}" if path else name, child) for name, child in reversed(list(children_of(module)))]


def plan_nodes(
    models: dict[str, torch.nn.Module], include: Sequence[Pattern], exclude: Sequence[Pattern]
) -> list[NodePlan]:
    """Lists every module of `models` once, in the order of ``named_modules()``.

    Args:
        models: name -> model; a single model has the name "".
        include: globs over dotted paths, or classes; empty means everything.
        exclude: the same, taken out again.

    Returns:
        One plan a distinct module; modules that occur several times carry their other names as aliases.
    """
    plans: list[NodePlan] = []
    by_id: dict[int, NodePlan] = {}

    # A list instead of recursion: a host deep in its own calls has few frames left.
    pending: list[tuple[torch.nn.Module, str, bool, str]] = [
        (model, printable(model_name), True, "") for model_name, model in reversed(models.items())
    ]
    while pending:
        module, name, is_root, hidden = pending.pop()
        known = by_id.get(id(module))
        if known is not None:
            known.is_root = known.is_root or is_root
            if name != known.name:
                known.aliases.append(name)
            continue
        wanted = (not include or matches(name, module, include)) and not matches(name, module, exclude)
        callable_module = _has_forward(module)
        plan = NodePlan(
            name=name,
            module=module,
            is_root=is_root,
            planned=wanted and callable_module,
            via=_how_to_see(module) if callable_module and not hidden else None,
            hidden=hidden,
        )
        plans.append(plan)
        by_id[id(module)] = plan
        hides = _hides_children(module)
        plan.opaque = bool(hides)
        below = hidden or hides
        separator = "/" if is_root and name else "."
        children = [(printable(n), child) for n, child in children_of(module)]
        pending += [
            (child, f"{name}{separator}{child_name}" if name else child_name, False, below)
            for child_name, child in reversed(children)
        ]
    return plans


def leaves_of(models: dict[str, torch.nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the parameters, then the buffers of `models` by the names that records use for them, tied ones by each."""
    for kind in ("_parameters", "_buffers"):
        for model_name, model in models.items():
            for path, module in modules_of(model, each_name=True):
                for name, tensor in getattr(module, kind).items():
                    if tensor is None:
                        continue
                    name = f"{path}.{name}" if path else name
                    yield printable(f"{model_name}/{name}" if model_name else name), tensor


def _tensor_entry(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    try:
        sizes = tuple(tensor.shape)
        # The value of a symbolic size would be a guard of the host's trace.
        shape: Optional[list[int]] = [int(n) for n in sizes] if all(isinstance(n, int) for n in sizes) else None
    except (RuntimeError, TypeError):  # uninitialised parameters of lazy modules
        shape = None
    return {"name": printable(name), "dtype": str(tensor.dtype).replace("torch.", ""), "shape": shape}


def first_dropout(models: dict[str, torch.nn.Module]) -> Optional[str]:
    """Path of the first module that drops values at random as it is set now; None when none is known to.

    That is a module in training mode with a rate above 0: ``p`` of the classes that are called after it, or an
    attribute with ``dropout`` in its name (``attention_dropout`` of transformers).
    """
    for model_name, model in models.items():
        for path, module in modules_of(model):
            if module.training and _drops(module):
                return f"{model_name}/{path}" if model_name and path else model_name or path or "the root"
    return None


def _drops(module: torch.nn.Module) -> bool:
    names = [name for name in vars(module) if "dropout" in name.lower()]
    if "Dropout" in type(module).__name__:
        names.append("p")
    rates = (vars(module).get(name) for name in names)
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def trees_of(models: dict[str, torch.nn.Module], plans: Iterable[NodePlan]) -> list[dict[str, Any]]:
    """Returns one tree a model: modules with class, line of their code, other names, parameters, children."""
    by_id = {id(plan.module): plan for plan in plans}
    sources = ForwardSources()
    placed: set[int] = set()
    trees: list[dict[str, Any]] = []
    pending: list[tuple[torch.nn.Module, list[dict[str, Any]]]] = [
        (model, trees) for model in reversed(list(models.values()))
    ]
    while pending:
        module, siblings = pending.pop()
        if id(module) in placed or id(module) not in by_id:
            continue
        placed.add(id(module))
        children: list[dict[str, Any]] = []
        source = sources.of(module)
        siblings.append(
            {
                "name": by_id[id(module)].name,
                "type": class_name(module),
                **({} if source is None else {"source": source}),
                "aliases": by_id[id(module)].aliases,
                "parameters": [_tensor_entry(n, p) for n, p in module.named_parameters(recurse=False)],
                "children": children,
            }
        )
        pending += [(child, children) for _, child in reversed(list(children_of(module)))]
    return trees


def to_json(tree: dict[str, Any]) -> str:
    """Returns a tree of dicts whose last member is ``children`` as ``json.dumps`` would, however deep it is."""
    pieces: list[str] = []
    pending: list[Union[str, dict[str, Any]]] = [tree]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        head = json.dumps({key: value for key, value in item.items() if key != "children"})
        pieces.append(f'{head[:-1]}, "children": [')
        pending.append("]}")
        for index, child in reversed(list(enumerate(item["children"]))):
            pending.append(child)
            if index:
                pending.append(", ")
    return "".join(pieces)


def joined(trees: list[dict[str, Any]], models: int) -> dict[str, Any]:
    """Returns the content of ``topology.json``: the tree of a single model, else all trees below a node ``models``."""
    if models == 1:
        return trees[0]
    return {"name": "", "type": "models", "aliases": [], "parameters": [], "children": trees}
