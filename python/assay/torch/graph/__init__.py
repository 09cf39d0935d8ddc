# SPDX-License-Identifier: Apache-2.0
"""Capture models under ``torch.compile`` with the options, folders and files of the vendor's graph mode.

    from assay.torch.graph import CompilerConfig, get_backend
    config = CompilerConfig()
    config.dump_config.enable_dump = True
    compiled = torch.compile(model, backend=get_backend(config))

Guide: docs/graph.md. Importing this package does not import torch; making a backend does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional

from assay.torch.graph._log import logger
from assay.torch.graph._request import ConfigurationError
from assay.torch.graph.config import CompilerConfig

if TYPE_CHECKING:
    from assay.torch.graph import scope, torchair_dump
    from assay.torch.graph._backend import step
    from assay.torch.graph._captured_graph import save_tensor
    from assay.torch.graph.torchair_dump import get_fx_dump_config, get_ge_dump_config

__all__ = [
    "CompilerConfig",
    "ConfigurationError",
    "get_backend",
    "get_fx_dump_config",
    "get_ge_dump_config",
    "get_npu_backend",
    "logger",
    "save_tensor",
    "scope",
    "step",
    "torchair_dump",
]

# name -> (module, attribute); an empty attribute is the module itself
_LAZY = {
    "get_fx_dump_config": ("assay.torch.graph.torchair_dump", "get_fx_dump_config"),
    "get_ge_dump_config": ("assay.torch.graph.torchair_dump", "get_ge_dump_config"),
    "save_tensor": ("assay.torch.graph._captured_graph", "save_tensor"),
    "scope": ("assay.torch.graph.scope", ""),
    "step": ("assay.torch.graph._backend", "step"),
    "torchair_dump": ("assay.torch.graph.torchair_dump", ""),
}


def get_backend(
    config: Optional[CompilerConfig] = None, *, custom_decompositions: Optional[Mapping[Any, Any]] = None
) -> Callable[..., Any]:
    """Returns a backend for ``torch.compile(model, backend=...)`` that dumps what ``config`` asks for.

    Args:
        config: None for the defaults, which dump nothing and return the un-instrumented callable.
        custom_decompositions: operator -> function, beside those of ``config.execution.decomposition_level``.

    Raises:
        ConfigurationError: all errors of the configuration at once, before anything is compiled.
        TypeError: ``config`` is no CompilerConfig.
    """
    from assay.torch.graph import _backend

    made: Callable[..., Any] = _backend.get_backend(config, custom_decompositions=dict(custom_decompositions or {}))
    return made


def get_npu_backend(
    *, compiler_config: Optional[CompilerConfig] = None, custom_decompositions: Optional[Mapping[Any, Any]] = None
) -> Callable[..., Any]:
    """:func:`get_backend` under the vendor's name and argument names."""
    return get_backend(compiler_config, custom_decompositions=custom_decompositions)


def __getattr__(name: str) -> Any:
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module 'assay.torch.graph' has no attribute {name!r}")
    module = importlib.import_module(place[0])
    value = getattr(module, place[1]) if place[1] else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
