# SPDX-License-Identifier: Apache-2.0
"""get_ge_dump_config and get_fx_dump_config: folders, options, call forms of every age, errors."""

import importlib
import inspect
import os
import sys
import types
from pathlib import Path

import pytest

from assay.torch.graph import CompilerConfig, get_fx_dump_config, get_ge_dump_config
from assay.torch.graph._request import resolve
from assay.torch.graph.torchair_dump import set_fx_dump_config, set_ge_dump_config


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_current_signatures():
    assert str(inspect.signature(get_ge_dump_config)).replace("'", "") == (
        "(dump_path: str = , dump_mode: str = all, fusion_switch_file: Optional[str] = None, "
        "dump_token: Optional[Steps] = None, dump_layer: Optional[Names] = None, compiler_config: Any = None) -> Any"
    )
    assert list(inspect.signature(get_fx_dump_config).parameters) == ["dump_path", "compiler_config"]


def test_ge(tmp_path):
    switch = tmp_path / "fusion_switch.json"
    switch.write_text('{"Switch": {"GraphFusion": {"ALL": "on"}}}')
    config = get_ge_dump_config(str(tmp_path / "dump"), "input", str(switch), [0, 2, "4-6"], ["Add_1", "Mul"])
    folder = str(tmp_path / "dump" / "msit_ge_dump")
    assert os.path.isdir(folder)
    assert (config.debug.graph_dump.type.value, config.debug.graph_dump.path) == ("txt", folder)
    assert config.fusion_config.fusion_switch_file.value == str(switch)
    values = {name: getattr(config.dump_config, name).value for name in ("enable_dump", "dump_mode", "dump_path")}
    assert values == {"enable_dump": "1", "dump_mode": "input", "dump_path": folder}
    asked = resolve(config)
    assert asked.steps.ranges == ((0, 0), (2, 2), (4, 6)) and asked.entries[0].layers == ("Add_1", "Mul")


def test_fx(tmp_path):
    config = get_fx_dump_config("dump")
    folder = str(tmp_path / "dump" / "msit_fx_dump")
    assert os.path.isdir(folder)
    assert (config.debug.data_dump.type.value, config.debug.data_dump.path) == ("npy", folder)
    assert config.debug.data_dump.filter.value is None


def test_the_calls_of_the_early_document(tmp_path):
    (tmp_path / "f.json").write_text('{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}')
    fused = get_ge_dump_config(dump_path="dump")
    with pytest.warns(UserWarning, match="is not empty"):
        (tmp_path / "dump" / "msit_ge_dump" / "old").write_text("")
        unfused = get_ge_dump_config(dump_path="dump", fusion_switch_file="f.json")
    assert fused.fusion_config.fusion_switch_file.value is None
    assert unfused.fusion_config.fusion_switch_file.value == "f.json"
    assert get_fx_dump_config().debug.data_dump.path == str(tmp_path / "msit_fx_dump")
    assert get_ge_dump_config().dump_config.dump_path.value == "./msit_ge_dump"


def test_both_dumps_in_one_given_configuration():
    given = CompilerConfig()
    assert get_ge_dump_config("a", compiler_config=given) is given
    assert get_fx_dump_config("a", given) is given
    assert given.dump_config.enable_dump and given.debug.data_dump.enabled


@pytest.mark.parametrize(("token", "text"), [(3, "3"), ("0|2-5", "0|2-5"), (range(3), "0|1|2"), ((7,), "7"), ([], "")])
def test_forms_of_steps(token, text):
    assert get_ge_dump_config(dump_token=token).dump_config.dump_step.value == text


def test_wrong_arguments(tmp_path):
    for call in (get_ge_dump_config, get_fx_dump_config, set_ge_dump_config, set_fx_dump_config):
        with pytest.raises(TypeError, match="dump_path"):
            call(dump_path=None)
        with pytest.raises(TypeError, match="compiler_config"):
            call(compiler_config={})
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        get_ge_dump_config(fusion_switch_file="absent.json")
    with pytest.raises(ValueError, match="dump_mode"):
        get_ge_dump_config(dump_mode="none")
    with pytest.raises(ValueError, match="reversed"):
        get_ge_dump_config(dump_token=["5-2"])
    with pytest.raises(TypeError, match="dump_token"):
        get_ge_dump_config(dump_token=1.5)
    with pytest.raises(TypeError, match="dump_layer"):
        get_ge_dump_config(dump_layer={"Add": 1})
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        get_fx_dump_config("file")


def test_without_torch(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="'torch'"):
        get_ge_dump_config()


def test_the_names_of_msprobe(tmp_path):
    assert set_ge_dump_config("d").dump_config.dump_path.value == os.path.join("d", "msprobe_ge_dump")
    every = set_fx_dump_config("d")
    assert every.debug.data_dump.path == str(tmp_path / "d" / "msprobe_fx_dump")
    assert every.debug.data_dump.filter.value is None
    chosen = set_fx_dump_config("e", ["ADD", "softmax"]).debug.data_dump.filter.value
    nodes = [types.SimpleNamespace(name=name) for name in ("add_1", "mul", "_softmax", "padding")]
    assert [node.name for node in nodes if chosen(node) is node] == ["add_1", "_softmax", "padding"]
    assert [chosen(node) for node in nodes if node.name == "mul"] == [None]
    with pytest.raises(TypeError, match="op_list"):
        set_fx_dump_config("f", ["add", 1])


@pytest.mark.parametrize("package", ["msit_llm", "ait_llm", "llm"])
def test_old_module_names(package, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "compat"))
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    module = importlib.import_module(f"{package}.dump.torchair_dump")
    assert module.get_ge_dump_config is get_ge_dump_config and module.get_fx_dump_config is get_fx_dump_config
    assert module.set_fx_dump_config is set_fx_dump_config


def test_where_the_vendor_is_installed_its_configuration_is_set_up(monkeypatch, tmp_path):
    class Group:
        pass

    class VendorConfig:  # its oldest form: debug groups know _path only
        def __init__(self):
            self.debug, self.dump_config, self.fusion_config = Group(), Group(), Group()
            self.debug.graph_dump = OldGroup()

    class OldGroup:
        def __setattr__(self, name, value):
            if name == "path":
                raise ValueError("no option path")
            object.__setattr__(self, name, value)

    vendor = types.ModuleType("torchair")
    vendor.CompilerConfig = VendorConfig
    monkeypatch.setitem(sys.modules, "torchair", vendor)
    config = get_ge_dump_config("d")
    assert isinstance(config, VendorConfig)
    assert config.debug.graph_dump._path == os.path.join("d", "msit_ge_dump")
    assert config.dump_config.enable_dump is True
