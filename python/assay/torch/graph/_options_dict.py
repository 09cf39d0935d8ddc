# SPDX-License-Identifier: Apache-2.0
"""Options given to ``torch.compile(backend="assay", options=...)``, as a CompilerConfig.

    {"config": CompilerConfig() | {...} | "file.json"}       the same under the name "numdump"
    {"enable_dump": True, "dump_path": "d"}                  names of dump_config
    {"execution.engine": "partition"}                        every other option by its path
    {"dump_tensor_data": True, "data_dump_dir": "d"}         names of the captured-graph backend

A file holds a dump JSON (``{"dump": {...}}``) or a tree of options (``{"dump_config": {"enable_dump": true}}``).
This module does not import torch.
"""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from assay.torch.graph._request import ConfigurationError, Problem
from assay.torch.graph.config import CompilerConfig

__all__ = ["ENVIRONMENT", "config_of"]

ENVIRONMENT = "ASSAY_GRAPH_CONFIG"

# Names of the captured-graph backend -> ours. The first one also chooses the mode.
_CAPTURED_GRAPH = {
    "dump_tensor_data": "dump_config.enable_dump",
    "data_dump_dir": "dump_config.dump_path",
    "data_dump_stage": "dump_config.data_dump_stage",
}


def config_of(options: Optional[Mapping[str, Any]], mode: Optional[str] = None, **unknown: Any) -> CompilerConfig:
    """The configuration that the arguments of a backend mean.

    Args:
        options: see above; None or empty: the file of the environment variable ASSAY_GRAPH_CONFIG, else the defaults.
        mode: of torch.compile: "default", or a value of ``CompilerConfig.mode``.
        unknown: arguments that nobody knows.

    Raises:
        ValueError: unknown names, with the known ones; a ConfigurationError for values that are not allowed, all at
            once.
    """
    if unknown:
        raise ValueError(f"the backend assay takes options= and mode=, not {', '.join(sorted(unknown))}.")
    given = dict(options or {})
    config = _base(given)
    problems: list[Problem] = []
    known = _paths(config)
    for name, value in given.items():
        path = _path_of(name, known)
        if name in _CAPTURED_GRAPH and "dump_tensor_data" in given:
            config.mode = "npugraph_ex"
        _assign(config, path, value, problems)
    if mode not in (None, "default"):
        _assign(config, "mode", mode, problems)
    if problems:
        raise ConfigurationError(problems)
    return config


def _base(given: dict[str, Any]) -> CompilerConfig:
    named = [name for name in ("config", "numdump") if name in given]
    if len(named) == 2:
        raise ValueError("options 'config' and 'numdump' are the same option; give one of them.")
    if named:
        return _from_value(given.pop(named[0]), f"options[{named[0]!r}]")
    path = os.environ.get(ENVIRONMENT)
    if path and not given:
        return _from_value(path, ENVIRONMENT)
    return CompilerConfig()


def _from_value(value: Any, place: str) -> CompilerConfig:
    if isinstance(value, CompilerConfig):
        return copy.deepcopy(value)
    config = CompilerConfig()
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        document = _read(path, place)
        if "dump" in document:
            problems: list[Problem] = []
            _assign(config, "dump_config.dump_config_path", path, problems)
            if problems:
                raise ConfigurationError(problems, path)
            return config
        value, place = document, path
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{place} must be a CompilerConfig, a dict of options or the path of a .json file, "
            f"not {value!r} (type {type(value).__name__})."
        )
    problems = []
    known = _paths(config)
    for name, item in _flat(value, ""):
        _assign(config, _path_of(name, known), item, problems)
    if problems:
        raise ConfigurationError(problems, place)
    return config


def _read(path: str, place: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ConfigurationError([Problem("EP0003", place, str(error), "Give a .json file.")], path) from error
    except ValueError as error:
        raise ConfigurationError([Problem("EP0004", place, f"is no JSON: {error}.")], path) from error
    if not isinstance(document, dict):
        raise ConfigurationError([Problem("EP0001", place, "must be an object.")], path)
    return document


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + str(name), value


def _paths(config: CompilerConfig) -> dict[str, str]:
    """name -> path of every option: full paths, the names of dump_config alone, those of the captured-graph backend."""
    known = {path: path for path, _ in config.leaves()}
    for path in list(known):
        group, _, name = path.rpartition(".")
        if group == "dump_config":
            known[name] = path
        if name == "_path":
            known[f"{group}.path"] = path
    known.update(_CAPTURED_GRAPH)
    return known


def _path_of(name: str, known: dict[str, str]) -> str:
    path = known.get(name)
    if path is None:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        names = ", ".join(["config", "numdump", *sorted(known)])
        raise ValueError(f"unknown option {name!r} of the backend assay.{hint} Known options: {names}.")
    return path


def _assign(config: CompilerConfig, path: str, value: Any, problems: list[Problem]) -> None:
    group_path, _, name = path.rpartition(".")
    group: Any = config
    for part in group_path.split(".") if group_path else ():
        group = getattr(group, part)
    try:
        setattr(group, name, value)
    except (ValueError, TypeError, FileNotFoundError) as error:
        problems.append(Problem("EP0003", path, str(error).partition("\n")[0]))
