# SPDX-License-Identifier: Apache-2.0
"""Configurations for the two dumps in one call, under the names of ait, msit and msprobe.

    from msit_llm.dump.torchair_dump import get_ge_dump_config
    config = get_ge_dump_config(dump_path="dump", fusion_switch_file="fusion_switch.json")

The data go to a fixed folder below ``dump_path``, the same on every rank. Docs: docs/graph/configuration.md.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from assay.torch.graph._log import tell
from assay.torch.graph.config import CompilerConfig

__all__ = ["get_fx_dump_config", "get_ge_dump_config", "set_fx_dump_config", "set_ge_dump_config"]

Steps = Union[str, int, Sequence[Union[int, str]]]
Names = Union[str, Sequence[str]]


def get_ge_dump_config(
    dump_path: str = "",
    dump_mode: str = "all",
    fusion_switch_file: Optional[str] = None,
    dump_token: Optional[Steps] = None,
    dump_layer: Optional[Names] = None,
    compiler_config: Any = None,
) -> Any:
    """Returns a configuration that dumps the compiled graph: operators in binary files, and the graph as text.

    Args:
        dump_path: the data go to ``{dump_path}/msit_ge_dump``, which is created; "" is the current directory.
        dump_mode: "input", "output" or "all".
        fusion_switch_file: switches fusion passes; both groups off give the unfused run.
        dump_token: steps: ``[0, 1]``, ``["2-5"]`` or ``"0|2-5"``; None for all.
        dump_layer: operator names, as a list or separated by blanks; None for all.
        compiler_config: an instance to set up; None makes a new one.

    Raises:
        TypeError: ``dump_path`` is no str, ``compiler_config`` no CompilerConfig.
        FileNotFoundError: ``fusion_switch_file`` is not a file that can be read.
        PermissionError: the folder cannot be read and written.
        ValueError: another option has an illegal value.
        ModuleNotFoundError: torch is not installed.
    """
    return _ge(dump_path, "msit_ge_dump", dump_mode, fusion_switch_file, dump_token, dump_layer, compiler_config)


def get_fx_dump_config(dump_path: str = "", compiler_config: Any = None) -> Any:
    """Returns a configuration that runs the graph eagerly and stores every Aten node's inputs and outputs as .npy.

    Args and errors as for :func:`get_ge_dump_config`; the folder is ``{dump_path}/msit_fx_dump``.
    """
    return _fx(dump_path, "msit_fx_dump", None, compiler_config)


def set_ge_dump_config(
    dump_path: str = "",
    dump_mode: str = "all",
    fusion_switch_file: Optional[str] = None,
    dump_token: Optional[Steps] = None,
    dump_layer: Optional[Names] = None,
    compiler_config: Any = None,
) -> Any:
    """:func:`get_ge_dump_config` as msprobe spells it; the folder is ``{dump_path}/msprobe_ge_dump``."""
    return _ge(dump_path, "msprobe_ge_dump", dump_mode, fusion_switch_file, dump_token, dump_layer, compiler_config)


def set_fx_dump_config(dump_path: str = "", op_list: Optional[Names] = None, compiler_config: Any = None) -> Any:
    """:func:`get_fx_dump_config` as msprobe spells it; the folder is ``{dump_path}/msprobe_fx_dump``.

    Args:
        op_list: store only nodes whose name contains one of these, whatever the case; None or empty for all.
    """
    wanted = [op_list] if isinstance(op_list, str) else list(op_list or ())
    for name in wanted:
        if not isinstance(name, str):
            raise TypeError(f"op_list holds {name!r}, which is not a str")
    return _fx(dump_path, "msprobe_fx_dump", _name_filter(wanted) if wanted else None, compiler_config)


def _ge(
    dump_path: str,
    folder: str,
    dump_mode: str,
    fusion_switch_file: Optional[str],
    dump_token: Optional[Steps],
    dump_layer: Optional[Names],
    compiler_config: Any,
) -> Any:
    config = _configuration(compiler_config)
    if fusion_switch_file is not None:
        if not os.path.isfile(fusion_switch_file) or not os.access(fusion_switch_file, os.R_OK):
            raise FileNotFoundError(f"fusion_switch_file {fusion_switch_file!r} is not a file that can be read")
        config.fusion_config.fusion_switch_file = fusion_switch_file
    path = _dump_folder(dump_path, folder)
    config.debug.graph_dump.type = "txt"
    _set_path(config.debug.graph_dump, path)
    config.dump_config.enable_dump = True
    config.dump_config.dump_mode = dump_mode
    config.dump_config.dump_path = path
    if dump_token is not None:
        config.dump_config.dump_step = _joined("dump_token", dump_token, "|")
    if dump_layer is not None:
        config.dump_config.dump_layer = _joined("dump_layer", dump_layer, " ")
    return config


def _fx(dump_path: str, folder: str, node_filter: Optional[Callable[[Any], Any]], compiler_config: Any) -> Any:
    config = _configuration(compiler_config)
    path = _dump_folder(dump_path, folder)
    config.debug.data_dump.type = "npy"
    _set_path(config.debug.data_dump, path)
    if node_filter is not None:
        config.debug.data_dump.filter = node_filter
    return config


def _configuration(given: Any) -> Any:
    """The instance to set up: the vendor's class where its package is installed, else ours."""
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch': a dump of a compiled model needs it", name="torch")
    kinds: tuple[type, ...] = (CompilerConfig,)
    vendor = _vendor_class()
    if vendor is not None:
        kinds = (vendor, CompilerConfig)
    if given is None:
        return kinds[0]()
    if not isinstance(given, kinds):
        raise TypeError(f"compiler_config is a {type(given).__name__}, not a CompilerConfig")
    return given


def _vendor_class() -> Optional[type]:
    try:
        from torchair import CompilerConfig as Vendor  # type: ignore[import-not-found,unused-ignore]
    except (ImportError, OSError):  # OSError: its libraries are missing
        return None
    return Vendor if isinstance(Vendor, type) and Vendor is not CompilerConfig else None


def _dump_folder(dump_path: str, name: str) -> str:
    if not isinstance(dump_path, str):
        raise TypeError(f"dump_path is {dump_path!r} (type {type(dump_path).__name__}), not a str")
    path = os.path.join(dump_path or ".", name)
    os.makedirs(path, exist_ok=True)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(f"{path!r} cannot be read and written by this user")
    if os.listdir(path):
        tell(f"{path} is not empty: what is dumped now lies beside what is there")
    return path


def _set_path(group: Any, path: str) -> None:
    try:
        group.path = path
    except ValueError:
        group._path = path  # versions of the vendor's package before 2024


def _joined(option: str, value: Any, separator: str) -> str:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (list, tuple, set, range)):
        raise TypeError(f"{option} is {value!r} (type {type(value).__name__}), not a list")
    return separator.join(str(item) for item in value)


def _name_filter(wanted: Sequence[str]) -> Callable[[Any], Any]:
    lowered = [name.lower() for name in wanted]
    return lambda node: node if any(name in node.name.lower() for name in lowered) else None
