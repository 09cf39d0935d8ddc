# SPDX-License-Identifier: Apache-2.0
"""DumpConfig: the 13 parameters of a hook dump, one instance a process."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, Optional

from assay.torch.strict.determinism import seed_all
from assay.torch.strict.log import forget_warnings, logger
from assay.torch.strict.paths import check_output_path, forget_stamp

if TYPE_CHECKING:
    from assay.torch.strict.hooks import Registration

_PARAMETERS = (
    "dump_path",
    "token_range",
    "analyze",
    "module_list",
    "api_list",
    "tensor_part",
    "device_id",
    "dump_statistics_mode",
    "dump_last_logits",
    "mode",
    "dump_weight",
    "layer_name",
    "seed",
)
# Positional order before `analyze` and `api_list` were inserted; a list in third place gives such a caller away.
_OLD_PARAMETERS = ("dump_path", "token_range", "module_list", "tensor_part", "device_id")


def name_pattern(layer_name: Optional[str]) -> re.Pattern[str]:
    """Returns the pattern whose match() decides by name: `*` stands for any characters, nothing else is special.

    None gives a pattern that matches every name.

    Raises:
        AttributeError: `layer_name` is not a string.
    """
    if layer_name is None:
        return re.compile("")
    escaped = layer_name.translate({ord(char): "\\" + char for char in "\\.?+^$|()[]{}"})
    return re.compile("^" + escaped.replace("*", ".*") + "$")


class _Config:
    """State of the process-wide hook dump. Scripts see it as what ``DumpConfig(...)`` returns.

    Attributes:
        dump_dir: ``{dump_path}/msit_dump_<stamp>/torch_tensors/{device}_{pid}`` once hooks are registered, else "".
        token_range: ids of the root calls that are dumped.
        is_dump_cur_device: False when `device_id` excludes this process.
        token_id, dump_flag: id of the latest root call and whether it is dumped; 0 and True before the first.
        module_ids: module name -> number of its first call during token 0.
        last_logits: with `dump_last_logits` (name, outputs) of the last module that returned a tensor, else None.
    """

    def __init__(
        self,
        dump_path: Optional[str] = None,
        token_range: Optional[list[int]] = None,
        analyze: bool = False,
        module_list: Optional[list[type]] = None,
        api_list: Optional[list[Callable[..., Any]]] = None,
        tensor_part: int = 2,
        device_id: Optional[int] = None,
        dump_statistics_mode: int = 0,
        dump_last_logits: bool = False,
        mode: Any = None,
        dump_weight: bool = False,
        layer_name: Optional[str] = None,
        seed: Optional[int] = None,
    ):
        self.dump_path = os.fspath(dump_path or "./")
        self.token_range = token_range or [0]
        self.analyze = analyze
        self.module_list = module_list or []
        self.api_list = api_list or []
        self.tensor_part = tensor_part
        self.device_id = device_id
        self.dump_statistics_mode = dump_statistics_mode
        self.dump_last_logits = dump_last_logits
        mode = mode or ["module"]
        self.mode = mode if isinstance(mode, (list, tuple)) else [mode]
        self.dump_weight = dump_weight
        self.layer_name = layer_name
        self.layer_pattern = name_pattern(layer_name)
        self.seed = seed
        self.dump_dir = ""
        self.is_dump_cur_device = True
        self.registration: Optional[Registration] = None
        self._check()
        if seed is not None:
            seed_all(seed)

    def _check(self) -> None:
        check_output_path(self.dump_path)
        complaints = []
        if not isinstance(self.token_range, list):
            complaints.append("token_range must be a list.")
        if not isinstance(self.module_list, list):
            complaints.append("module_list must be a list.")
        if not isinstance(self.tensor_part, int) or self.tensor_part not in (0, 1, 2):
            complaints.append("tensor_part must be 0, 1 or 2.")
        if self.device_id is not None and not isinstance(self.device_id, int):
            complaints.append("device_id must be an int.")
        if self.dump_statistics_mode not in (0, 1, 2):
            complaints.append("dump_statistics_mode must be 0, 1 or 2.")
        if complaints:
            for complaint in complaints:
                logger.error(complaint)
            raise ValueError("Invalid args of DumpConfig.")
        unknown = [entry for entry in self.mode if entry not in ("module", "api")]
        if unknown:
            logger.warning("mode %s is unknown and dumps nothing; the modes are 'module' and 'api'.", unknown)

    @property
    def token_id(self) -> int:
        return self.registration.dumper.token_id if self.registration else 0

    @token_id.setter
    def token_id(self, value: int) -> None:
        if self.registration:
            self.registration.dumper.token_id = value

    @property
    def dump_flag(self) -> bool:
        return self.registration.dumper.dump_flag if self.registration else True

    @dump_flag.setter
    def dump_flag(self, value: bool) -> None:
        if self.registration:
            self.registration.dumper.dump_flag = value

    @property
    def module_ids(self) -> dict[str, int]:
        return self.registration.dumper.module_ids if self.registration else {}

    @property
    def last_logits(self) -> Optional[tuple[str, Any]]:
        return self.registration.dumper.last_logits if self.registration else None


# What scripts test is type(config).__name__.
_Config.__name__ = _Config.__qualname__ = "DumpConfig"

_instance: Optional[_Config] = None
_arguments: dict[str, Any] = {}


def DumpConfig(*args: Any, **kwargs: Any) -> _Config:
    """Returns the one configuration of this process, made by the first successful call.

    Positional order: dump_path, token_range, analyze, module_list, api_list, tensor_part, device_id,
    dump_statistics_mode, dump_last_logits, mode, dump_weight, layer_name, seed (docs/commands/register_hook.md has
    the table). Later calls return the same object; one with other arguments warns. ``DumpConfig.reset()`` forgets it.

    Raises:
        ValueError: "Invalid args of DumpConfig."; the log says which.
        argparse.ArgumentTypeError: `dump_path` cannot be used, or `seed` is not an int.
        AttributeError: `layer_name` is not a string.
    """
    global _instance, _arguments
    injection = sys.modules.get("assay.inject.outermost")
    if injection is not None:  # the script dumps by itself: what `assay dump` started ends
        injection.step_back("DumpConfig()")
    given = _named_arguments(args, kwargs)
    if _instance is None:
        _instance = _Config(**given)
        _arguments = given
    elif given and not _same(given, _arguments):
        logger.warning(
            "DumpConfig exists already in this process and keeps its first parameters; "
            "DumpConfig.reset() makes room for another."
        )
    return _instance


def _same(given: dict[str, Any], first: dict[str, Any]) -> bool:
    return all(name in first and first[name] == value for name, value in given.items())


def _named_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    order: Sequence[str] = _PARAMETERS
    if len(args) > 2 and isinstance(args[2], list):
        warnings.warn(
            "a list in third position is taken as module_list; write module_list=[...]",
            DeprecationWarning,
            stacklevel=3,
        )
        order = _OLD_PARAMETERS
    if len(args) > len(order):
        raise TypeError(f"DumpConfig takes at most {len(order)} positional arguments ({len(args)} given)")
    given = dict(zip(order, args))
    for name, value in kwargs.items():
        if name not in _PARAMETERS:
            raise TypeError(f"DumpConfig got an unexpected keyword argument {name!r}")
        if name in given:
            raise TypeError(f"DumpConfig got multiple values for argument {name!r}")
        given[name] = value
    return given


def reset() -> None:
    """Removes the hooks and forgets the configuration, so that the process can dump again with other parameters."""
    global _instance, _arguments
    from assay.torch.strict.hooks import remove_hooks

    remove_hooks()
    forget_stamp()
    forget_warnings()
    _instance, _arguments = None, {}


DumpConfig.reset = reset  # type: ignore[attr-defined]
