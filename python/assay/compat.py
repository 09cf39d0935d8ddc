# SPDX-License-Identifier: Apache-2.0
"""The vendor's package names on a machine without the vendor's packages, so that an unedited script runs.

    import assay.compat; assay.compat.install()          # the only added line
    import torch_npu, torchair
    config = torchair.CompilerConfig()

:func:`install` registers names that cannot be imported, and nothing else: where a package is installed it stays what
it is. ``.npu()`` moves to the machine's accelerator, or stays on the CPU. Device strings such as ``"npu:0"`` are not
served: torch itself would have to know them. Docs: docs/graph/configuration.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Optional

__all__ = ["install", "installed", "uninstall"]

_GRAPH = "assay.torch.graph"
_OLD_PACKAGES = ("msit_llm", "ait_llm", "llm")
# Names of the old packages that are not about graphs -> where they are.
_OLD_NAMES = {
    "Analyzer": "assay.badcase",
    "CaseFilter": "assay.badcase",
    "DumpConfig": "assay.torch.strict",
    "Synthesizer": "assay.badcase",
    "atb_json_to_onnx": "assay.topology",
    "compare_data": "assay._compare",
    "read_atb_data": "assay.torch.strict",
    "register_hook": "assay.torch.strict",
    "seed_all": "assay.torch.strict",
}
# Options of the backend npugraph_ex -> our option and whether its meaning is the opposite.
_NPUGRAPH_OPTIONS: Mapping[str, tuple[str, bool]] = {
    "dump_tensor_data": ("dump_config.enable_dump", False),
    "data_dump_stage": ("dump_config.data_dump_stage", False),
    "data_dump_dir": ("dump_config.dump_path", False),
    "force_eager": ("debug.run_eagerly", False),
    "inplace_pass": ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True),
    "input_inplace_pass": ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True),
    "reuse_graph_pool_in_same_fx": ("debug.aclgraph.disable_mempool_reuse_in_same_fx", True),
    "capture_limit": ("debug.aclgraph.static_capture_size_limit", False),
    "clone_input": ("debug.aclgraph.clone_input", False),
    "clone_output": ("debug.aclgraph.enable_output_clone", False),
    "remove_cat_ops": ("debug.aclgraph.remove_cat_ops", False),
    "remove_noop_ops": ("experimental_config.remove_noop_ops", False),
    "pattern_fusion_pass": ("experimental_config.pattern_fusion_pass", False),
    "frozen_parameter": ("experimental_config.frozen_parameter", False),
    "static_kernel_compile": ("experimental_config.aclgraph._aclnn_static_shape_kernel", False),
    "super_kernel_optimize": ("experimental_config.aclgraph._super_kernel_optimize", False),
    "super_kernel_optimize_options": ("experimental_config.aclgraph._super_kernel_optimize_options", False),
    "super_kernel_debug_options": ("experimental_config.aclgraph._super_kernel_debug_options", False),
    "_vllm_aclnn_static_kernel_sym_index": (
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index",
        False,
    ),
    "_vllm_aclnn_static_kernel_sym_range": (
        "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range",
        False,
    ),
    "use_graph_pool": ("aclgraph_config.use_custom_pool", False),
    "post_grad_custom_pre_pass": ("post_grad_custom_pre_pass", False),
    "post_grad_custom_post_pass": ("post_grad_custom_post_pass", False),
}

_modules: dict[str, types.ModuleType] = {}
_undo: list[Callable[[], None]] = []
_said: list[str] = []


def install(*, quiet: bool = False) -> tuple[str, ...]:
    """Registers the vendor's names that are missing on this machine; a second call adds nothing.

    Args:
        quiet: do not say on stderr what was registered.

    Returns:
        What this call registered: package names, ``"torch.npu"``, ``"torch.Tensor.npu"``, ``"torch.nn.Module.npu"``,
        ``"backend npugraph_ex"``. Empty where everything is installed.
    """
    before = len(_said)
    has_torch = importlib.util.find_spec("torch") is not None
    # The vendor's torch_npu brings a torchair of its own.
    bare = _is_missing("torch_npu")
    if bare and _is_missing("torchair"):
        _register_torchair(has_torch)
    if bare and has_torch:
        _register_torch_npu()
    for package in _OLD_PACKAGES:
        if _is_missing(package):
            _register_old_package(package)
    new = tuple(_said[before:])
    if new and not quiet:
        print(f"assay.compat: not installed here and served by assay: {', '.join(new)}", file=sys.stderr)
    return new


def installed() -> tuple[str, ...]:
    """What :func:`install` has registered so far."""
    return tuple(_said)


def uninstall() -> None:
    """Takes back everything that :func:`install` registered. Objects that a script holds go on working."""
    for name, module in _modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    _modules.clear()
    while _undo:
        _undo.pop()()
    _said.clear()


def _is_missing(name: str) -> bool:
    if name in sys.modules:
        return False
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return False


def _register(name: str, lazy: Optional[Mapping[str, tuple[str, str]]] = None, **attributes: Any) -> types.ModuleType:
    """Makes a module of the given attributes; those in ``lazy`` are (module, name) and loaded when first used."""
    module = types.ModuleType(name, f"{name}, served by assay.")
    spec = ModuleSpec(name, None, origin="assay.compat", is_package=True)
    module.__spec__ = spec
    module.__path__ = []
    vars(module).update(attributes)
    later = dict(lazy or {})

    def module_getattr(attribute: str) -> Any:
        if attribute not in later:
            if attribute.startswith("__"):
                raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
            raise AttributeError(f"{name}.{attribute} is not served by assay; {name} itself is not installed here")
        place, wanted = later[attribute]
        value = importlib.import_module(place)
        result = getattr(value, wanted) if wanted else value
        setattr(module, attribute, result)
        return result

    module.__getattr__ = module_getattr  # type: ignore[method-assign]
    _add_module(name, module)
    return module


def _add_module(name: str, module: types.ModuleType) -> None:
    sys.modules[name] = module
    _modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in _modules:
        setattr(_modules[parent], child, module)


def _set(owner: Any, name: str, value: Any, said: str) -> None:
    """Sets an attribute that is missing."""
    if hasattr(owner, name):
        return
    setattr(owner, name, value)

    def undo() -> None:
        if vars(owner).get(name) is value:
            delattr(owner, name)

    _undo.append(undo)
    _said.append(said)


# ---- torchair --------------------------------------------------------------------------------------------------------


def _register_torchair(has_torch: bool) -> None:
    from assay.torch import graph
    from assay.torch.graph import config

    front: dict[str, Any] = {
        "CompilerConfig": graph.CompilerConfig,
        "get_npu_backend": graph.get_npu_backend,
        "logger": graph.logger,
        "patch_for_hcom": _nothing_to_patch,
        "register_fx_node_ge_converter": _keep_converter,
        "use_internal_format_weight": _same_module,
    }
    _register("torchair", None, **front, __version__="0")
    _register("torchair.configs")
    groups: Mapping[str, Mapping[str, Any]] = {
        "compiler_config": {"CompilerConfig": graph.CompilerConfig},
        "dump_config": {"_DataDumpConfig": config.DumpConfig},
        "debug_config": {"_DebugConfig": config.DebugConfig},
        "fusion_config": {"_FusionConfig": config.FusionConfig},
    }
    for name, attributes in groups.items():
        _register(f"torchair.configs.{name}", None, **attributes)
    _register("torchair.core")
    _register("torchair.core.utils", logger=graph.logger)
    _register("torchair.npu_fx_compiler", get_npu_backend=graph.get_npu_backend)
    if has_torch:
        _add_module("torchair.scope", importlib.import_module(f"{_GRAPH}.scope"))
    _said.append("torchair")


def _nothing_to_patch() -> None:
    """Collectives of the vendor's hardware: torch's own are used."""


def _keep_converter(operator: Any) -> Callable[[Any], Any]:
    """A decorator for converters to the vendor's operators, which are not called here."""
    return lambda converter: converter


def _same_module(module: Any) -> Any:
    """Weights in a storage format of the vendor's hardware: they keep the one they have."""
    return module


# ---- torch_npu -------------------------------------------------------------------------------------------------------


def _register_torch_npu() -> None:
    import torch

    npu = _npu_module(torch)
    save = {"save_npugraph_tensor": (_GRAPH, "save_tensor")}
    _register("torch_npu", save, __version__="0", npu_format_cast=_same_tensor)
    _add_module("torch_npu.npu", npu)
    _register("torch_npu.dynamo", get_npu_backend=_get_npu_backend)
    if "torchair" in _modules:
        # The very modules, under their second name.
        for name in [name for name in _modules if name.partition(".")[0] == "torchair"]:
            _add_module(f"torch_npu.dynamo.{name}", _modules[name])
    _register("torch_npu.contrib")
    _register("torch_npu.contrib.transfer_to_npu")
    _said.append("torch_npu")
    if not hasattr(torch, "npu") and "torch.npu" not in sys.modules:
        sys.modules["torch.npu"] = _modules["torch.npu"] = npu
        _set(torch, "npu", npu, "torch.npu")
    _set(torch.Tensor, "npu", _tensor_npu, "torch.Tensor.npu")
    _set(torch.nn.Module, "npu", _module_npu, "torch.nn.Module.npu")
    _register_npugraph_backend()


def _get_npu_backend(*, compiler_config: Any = None, custom_decompositions: Any = None) -> Callable[..., Any]:
    from assay.torch import graph

    return graph.get_npu_backend(compiler_config=compiler_config, custom_decompositions=custom_decompositions)


def _same_tensor(tensor: Any, *_: Any, **__: Any) -> Any:
    """A storage format of the vendor's hardware: the tensor keeps the one it has."""
    return tensor


def _accelerator(device: Any = None) -> Any:
    """The device that stands for an "npu": this machine's accelerator, or the CPU."""
    import torch

    index = getattr(device, "index", None) if device is not None and not isinstance(device, int) else device
    if isinstance(device, str):
        number = device.rpartition(":")[2]
        index = int(number) if number.isdigit() else None
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return torch.device("cpu")
    return accelerator if index is None else torch.device(accelerator.type, index)


def _tensor_npu(self: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
    """``Tensor.npu()``: the tensor on the accelerator; itself where there is none."""
    return self.to(_accelerator(device), non_blocking=non_blocking)


def _module_npu(self: Any, device: Any = None) -> Any:
    """``Module.npu()``: the module, moved to the accelerator where there is one."""
    return self.to(_accelerator(device))


def _npu_module(torch: Any) -> types.ModuleType:
    """``torch_npu.npu``: functions of torch.accelerator under a device module's names, or what the CPU answers."""
    cpu = torch.cpu
    has = torch.accelerator.is_available

    def set_device(device: Any) -> None:
        chosen = _accelerator(device)
        if chosen.type != "cpu" and chosen.index is not None:
            torch.accelerator.set_device_index(chosen.index)

    def synchronize(device: Any = None) -> None:
        if has():
            torch.accelerator.synchronize(_accelerator(device))

    def current_device() -> int:
        return int(torch.accelerator.current_device_index()) if has() else 0

    def current_stream(device: Any = None) -> Any:
        return torch.accelerator.current_stream(_accelerator(device)) if has() else cpu.current_stream()

    def device_count() -> int:
        return int(torch.accelerator.device_count())

    def is_available() -> bool:
        return bool(has())

    def get_device_name(device: Any = None) -> str:
        return str(_accelerator(device))

    def empty_cache() -> None:
        if has():
            torch.accelerator.empty_cache()

    def memory_of(name: str) -> Callable[..., int]:
        def ask(device: Any = None) -> int:
            return int(getattr(torch.accelerator, name)(_accelerator(device))) if has() else 0

        ask.__name__ = name
        return ask

    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    def set_compile_mode(**_: Any) -> None:
        """A switch of the vendor's kernels."""

    functions = (
        *(set_device, synchronize, current_device, current_stream, device_count, is_available, get_device_name),
        *(empty_cache, manual_seed, set_compile_mode, *map(memory_of, ("memory_allocated", "max_memory_allocated"))),
    )
    attributes: dict[str, Any] = {function.__name__: function for function in functions}
    attributes["manual_seed_all"] = manual_seed
    attributes["config"] = types.SimpleNamespace(allow_internal_format=False)
    module = _register("torch_npu.npu", None, **attributes)
    return module


# ---- the backend npugraph_ex -----------------------------------------------------------------------------------------


def _npugraph_ex(gm: Any, example_inputs: Sequence[Any], *, options: Any = None, **_: Any) -> Any:
    """The backend of ``torch.compile(model, backend="npugraph_ex", options={...})``."""
    from assay.torch.graph import CompilerConfig, _backend

    config = CompilerConfig()
    config.mode = "npugraph_ex"
    _apply_npugraph_options(config, options or {})
    return _backend.backend(gm, example_inputs, options={"config": config})


def _apply_npugraph_options(config: Any, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in _NPUGRAPH_OPTIONS:
            raise ValueError(f"unknown option {name!r} of npugraph_ex. Known options: {sorted(_NPUGRAPH_OPTIONS)}")
        path, inverted = _NPUGRAPH_OPTIONS[name]
        group_path, _, option = path.rpartition(".")
        group = config
        for part in filter(None, group_path.split(".")):
            group = getattr(group, part)
        setattr(group, option, not value if inverted and value in (True, False) else value)


def _register_npugraph_backend() -> None:
    from torch._dynamo.backends import registry

    if "npugraph_ex" in registry.list_backends(exclude_tags=()):
        return
    registry.register_backend(_npugraph_ex, name="npugraph_ex")

    def undo() -> None:
        for table in ("_COMPILER_FNS", "_BACKENDS"):
            getattr(registry, table, {}).pop("npugraph_ex", None)

    _undo.append(undo)
    _said.append("backend npugraph_ex")


# ---- msit_llm, ait_llm, llm ------------------------------------------------------------------------------------------


def _register_old_package(package: str) -> None:
    _register(package, {name: (module, name) for name, module in _OLD_NAMES.items()})
    _register(f"{package}.dump")
    _add_module(f"{package}.dump.torchair_dump", importlib.import_module(f"{_GRAPH}.torchair_dump"))
    _said.append(package)
