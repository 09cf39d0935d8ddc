# SPDX-License-Identifier: Apache-2.0
"""assay.compat.install(): what is missing is served, what is installed is left alone, everything can be taken back."""

import importlib
import importlib.util
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import assay.compat  # noqa: E402
import assay.torch.graph as graph  # noqa: E402

OLD = ("msit_llm", "ait_llm", "llm")
SERVED = ("torchair", "torch_npu", *OLD)


@pytest.fixture(autouse=True)
def a_machine_with_nothing_of_the_vendor(monkeypatch):
    """assay-msit may be installed here: its packages are hidden. What a test registers is taken back."""
    for name in [name for name in sys.modules if name.partition(".")[0] in SERVED]:
        monkeypatch.delitem(sys.modules, name)
    real = importlib.util.find_spec
    hidden = {name for name in OLD if real(name) is not None}

    def find_spec(name, package=None):
        return None if name in hidden and name not in sys.modules else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    yield hidden
    assay.compat.uninstall()


@pytest.fixture
def real_package(tmp_path, monkeypatch):
    """Makes a package that can be imported, as an installed one."""

    def make(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("real = True\n")
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield make
    for name in SERVED:
        sys.modules.pop(name, None)


def test_importing_registers_nothing():
    script = "import sys, assay.compat; print({'torchair', 'torch_npu', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_everything_that_is_missing_is_registered_and_named(capsys):
    new = assay.compat.install()
    wanted = ["torchair", "torch_npu", "torch.npu", "torch.Tensor.npu", "torch.nn.Module.npu", "backend npugraph_ex"]
    assert list(new) == [*wanted, *OLD] and assay.compat.installed() == new
    out, line = capsys.readouterr()
    assert (out, line) == ("", f"assay.compat: not installed here and served by assay: {', '.join(new)}\n")
    assert assay.compat.install() == () and capsys.readouterr().err == ""


def test_the_imports_of_scripts():
    assay.compat.install(quiet=True)
    names = {}
    exec(
        "import torch, torch_npu, torchair, torchair as tng\n"
        "from torchair import logger, CompilerConfig, get_npu_backend\n"
        "from torchair.configs.compiler_config import CompilerConfig as Same\n"
        "from torchair.core.utils import logger as same_logger\n"
        "import torch_npu.dynamo.torchair as bundled\n"
        "from torch_npu.dynamo import torchair as also\n"
        "from torch_npu.contrib import transfer_to_npu\n"
        "from torch_npu.dynamo.torchair.configs.compiler_config import CompilerConfig as Third\n",
        names,
    )
    assert names["CompilerConfig"] is names["Same"] is names["Third"] is graph.CompilerConfig
    assert names["torchair"] is names["tng"] is names["bundled"] is names["also"]
    assert names["logger"] is names["same_logger"] is graph.logger
    assert names["get_npu_backend"] is graph.get_npu_backend
    assert names["torchair"].scope.data_dump is graph.scope.data_dump
    assert names["torch_npu"].save_npugraph_tensor is graph.save_tensor
    assert torch.npu is names["torch_npu"].npu
    assert importlib.util.find_spec("torchair").origin == "assay.compat"


def test_the_device_functions_answer_for_this_machine():
    assay.compat.install(quiet=True)
    npu = torch.npu
    has = torch.accelerator.is_available()
    wanted = torch.accelerator.current_accelerator().type if has else "cpu"
    assert torch.ones(2).npu().device.type == torch.ones(2).npu("npu:0").device.type == wanted
    model = torch.nn.Linear(2, 2)
    assert model.npu() is model and model.npu(0).weight.device.type == wanted
    npu.set_device(0)
    npu.set_device("npu:0")
    npu.synchronize()
    npu.empty_cache()
    assert npu.is_available() == has and npu.device_count() == torch.accelerator.device_count()
    assert npu.current_device() == 0 and npu.memory_allocated() >= 0 and npu.get_device_name().startswith(wanted)
    npu.manual_seed_all(3)
    first = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(3))
    npu.set_compile_mode(jit_compile=False)
    npu.config.allow_internal_format = False
    tensor = torch.ones(1)
    assert sys.modules["torch_npu"].npu_format_cast(tensor, 29) is tensor


def test_calls_about_the_vendor_hardware_change_nothing():
    assay.compat.install(quiet=True)
    torchair = sys.modules["torchair"]
    model = torch.nn.Linear(2, 2)
    assert torchair.use_internal_format_weight(model) is model and torchair.patch_for_hcom() is None

    @torchair.register_fx_node_ge_converter(torch.ops.aten.add.Tensor)
    def convert(x):
        return x + 1

    assert convert(1) == 2


def test_a_name_that_is_not_served_says_so():
    assay.compat.install(quiet=True)
    torchair = sys.modules["torchair"]
    with pytest.raises(AttributeError) as caught:
        _ = torchair.llm_datadist
    assert str(caught.value) == "torchair.llm_datadist is not served by assay; torchair itself is not installed here"
    assert not hasattr(torchair, "__wrapped__")


@pytest.mark.parametrize("loaded", [True, False])
def test_a_real_installation_is_never_shadowed(real_package, loaded, a_machine_with_nothing_of_the_vendor):
    for name in SERVED:
        real_package(name)
    a_machine_with_nothing_of_the_vendor.clear()
    if loaded:
        for name in SERVED:
            importlib.import_module(name)
    assert assay.compat.install(quiet=True) == ()
    for name in SERVED:
        assert importlib.import_module(name).real
    assert not hasattr(torch, "npu") and not hasattr(torch.Tensor, "npu")


def test_beside_a_real_torch_npu_its_own_torchair_is_meant(real_package):
    real_package("torch_npu")
    assert assay.compat.install(quiet=True) == OLD


def test_where_torch_knows_npu_already_it_stays(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "npu", lambda self: "mine", raising=False)
    assert "torch.Tensor.npu" not in assay.compat.install(quiet=True)
    assert torch.ones(1).npu() == "mine"
    assay.compat.uninstall()
    assert torch.ones(1).npu() == "mine"


def test_everything_can_be_taken_back():
    from torch._dynamo.backends.registry import list_backends

    backends = list_backends(())
    for _ in range(2):
        assert assay.compat.install(quiet=True)
        assert "npugraph_ex" in list_backends(())
        assay.compat.uninstall()
        assert assay.compat.installed() == ()
        assert not [name for name in sys.modules if name.partition(".")[0] in SERVED]
        assert "torch.npu" not in sys.modules and not hasattr(torch, "npu")
        assert not hasattr(torch.Tensor, "npu") and not hasattr(torch.nn.Module, "npu")
        assert list_backends(()) == backends


def test_the_old_helper_modules_without_assay_msit():
    assay.compat.install(quiet=True)
    for package in OLD:
        module = importlib.import_module(f"{package}.dump.torchair_dump")
        assert module.get_ge_dump_config is graph.get_ge_dump_config
        assert module.get_fx_dump_config is graph.get_fx_dump_config
        assert importlib.import_module(package).DumpConfig is importlib.import_module("assay.torch.strict").DumpConfig


def test_the_options_of_npugraph_ex():
    config = graph.CompilerConfig()
    assay.compat._apply_npugraph_options(
        config, {"dump_tensor_data": True, "data_dump_stage": "original", "inplace_pass": False, "capture_limit": 3}
    )
    assert config.dump_config.enable_dump and config.dump_config.data_dump_stage.value == "original"
    assert config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass.value == "1"  # the opposite of the option
    assert config.debug.aclgraph.static_capture_size_limit.value == "3"
    with pytest.raises(ValueError, match=r"'dump_tensor'.*'dump_tensor_data'"):
        assay.compat._apply_npugraph_options(config, {"dump_tensor": True})
    with pytest.raises(ValueError, match="clone_input"):
        assay.compat._apply_npugraph_options(config, {"clone_input": "yes"})
