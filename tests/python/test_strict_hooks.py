# SPDX-License-Identifier: Apache-2.0
"""register_hook: which files a forward leaves, as the tables of docs/formats/torch-tree.md demand."""

import copy
import csv
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("assay._capture")

from assay.torch.strict import DumpConfig, register_hook, remove_hooks, reset  # noqa: E402

HEADER = ["NodeName", "NodeType", "InputOutput", "Index", "DataType", "Shape", "Max", "Min", "Mean", "L2Norm"]


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch):
    for name in ("ATB_TIMESTAMP", "MSIT_DUMP_TIMESTAMP", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    reset()
    yield
    reset()


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.o_proj = torch.nn.Linear(4, 4)
        self.q_proj = torch.nn.Linear(4, 4)
        self.unused = torch.nn.Linear(4, 4)

    def forward(self, x):
        weights = torch.softmax(self.q_proj(x), -1)
        out = self.o_proj(weights)
        return out, (out + 1, out * 2), {"weights": weights}, None, 3


class Root(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lm_head = torch.nn.Linear(4, 8)
        self.attn = Attention()

    def forward(self, x):
        return {"logits": self.lm_head(self.attn(x)[0])}


def tree(folder):
    """Every file below `folder` as a sorted list of relative paths."""
    found = []
    for where, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(where, name), folder) for name in names]
    return sorted(found)


def folders(path):
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())


def load(config, relative):
    return torch.load(os.path.join(config.dump_dir, relative), weights_only=True)


def rows(config, relative):
    with open(os.path.join(config.dump_dir, relative), newline="") as file:
        return list(csv.reader(file))


def test_values_in_tuples_and_lists_are_files_and_everything_else_is_skipped(tmp_path):
    config = DumpConfig(str(tmp_path), [0])
    model = Root()
    assert register_hook(model, config) is None
    x = torch.randn(2, 4)
    model(x)
    token = os.path.join(config.dump_dir, "0")
    assert tree(os.path.join(token, "root.attn")) == ["input_0.pth", "output_0.pth", "output_1_0.pth", "output_1_1.pth"]
    assert tree(os.path.join(token, "root")) == ["input_0.pth"]  # the root returned a dict
    assert folders(token) == ["root", "root.attn", "root.attn.o_proj", "root.attn.q_proj", "root.lm_head"]
    assert torch.equal(load(config, "0/root/input_0.pth"), x)
    remove_hooks()
    out = model.attn.o_proj(torch.softmax(model.attn.q_proj(x), -1))
    assert torch.equal(load(config, "0/root.attn/output_1_1.pth"), out * 2)


def test_layout_and_permissions(tmp_path):
    config = DumpConfig(str(tmp_path), [0], dump_statistics_mode=2)
    register_hook(Root(), config)
    (stamp,) = os.listdir(tmp_path)
    assert stamp.startswith("msit_dump_") and len(stamp) == len("msit_dump_20250220_083154")
    assert config.dump_dir == os.path.join(str(tmp_path), stamp, "torch_tensors", f"cpu_{os.getpid()}")
    Root()(torch.randn(1, 4))  # another model: not hooked
    assert folders(config.dump_dir) == []

    def mode(*parts):
        return stat.S_IMODE(os.stat(os.path.join(config.dump_dir, *parts)).st_mode)

    umask = os.umask(0)
    os.umask(umask)
    assert mode() == 0o750 & ~umask
    assert mode("model_tree.json") == 0o640 & ~umask
    model = Root()
    reset()
    config = DumpConfig(str(tmp_path), [0], dump_statistics_mode=2, mode=["module", "api"], dump_weight=True)
    register_hook(model, config)
    model(torch.randn(1, 4))
    assert mode("0", "root.attn") == 0o750 & ~umask
    assert mode("0", "root.attn.softmax") == 0o777 & ~umask
    assert mode("0", "root.attn", "statistics.csv") == 0o640 & ~umask
    assert mode("0", "root.attn", "input_0.pth") == 0o666 & ~umask
    assert mode("weights") == 0o777 & ~umask


def test_only_wanted_tokens_are_dumped(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 2])
    model = Root()
    register_hook(model, config)
    inputs = [torch.full((1, 4), float(i)) for i in range(3)]
    seen = []
    for x in inputs:
        model(x)
        seen.append((config.token_id, config.dump_flag))
    assert seen == [(0, True), (1, False), (2, True)]
    assert folders(config.dump_dir) == ["0", "2"]
    assert torch.equal(load(config, "2/root/input_0.pth"), inputs[2])


def test_token_ids_are_compared_by_value(tmp_path):
    config = DumpConfig(str(tmp_path), [numpy.int64(1), 2.0, "0"])
    model = torch.nn.Identity()
    register_hook(model, config)
    for _ in range(3):
        model(torch.ones(1))
    assert folders(config.dump_dir) == ["1", "2"]


def test_root_forward_called_directly_is_no_token(tmp_path):
    config = DumpConfig(str(tmp_path), [0])
    model = Root()
    register_hook(model, config)
    model.forward(torch.randn(1, 4))  # sub-modules are dumped under the id that stands
    assert config.token_id == 0
    assert "root" not in folders(os.path.join(config.dump_dir, "0"))
    model(torch.randn(1, 4))
    assert config.token_id == 0


def test_last_logits_are_the_only_output(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 2], dump_last_logits=True, tensor_part=0, layer_name="nothing")
    model = Root()
    register_hook(model, config)
    outputs = [model(torch.full((1, 4), float(i)))["logits"] for i in range(3)]
    for token in (0, 2):
        assert tree(os.path.join(config.dump_dir, str(token))) == ["root.lm_head/output.pth"]
        assert torch.equal(load(config, f"{token}/root.lm_head/output.pth"), outputs[token])
    assert folders(config.dump_dir) == ["0", "2"]
    assert config.last_logits is None  # nothing is kept alive between tokens


def test_last_logits_of_a_module_that_returns_a_tuple_of_a_root_that_returns_a_tensor(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(2, 2)
            self.b = torch.nn.LSTM(2, 3)

        def forward(self, x):
            return self.b(self.a(x))[0] + 1

    config = DumpConfig(str(tmp_path), dump_last_logits=True)
    model = Model()
    register_hook(model, config)
    model(torch.randn(4, 2))
    assert tree(os.path.join(config.dump_dir, "0")) == [
        "root.b/output_0.pth",
        "root.b/output_1_0.pth",
        "root.b/output_1_1.pth",
    ]


@pytest.mark.parametrize("logits", [False, True])
def test_a_list_that_contains_itself_ends(tmp_path, logits):
    value = ["text"]
    value.append(value)
    model = constant_model(value)
    register_hook(model, DumpConfig(str(tmp_path), dump_last_logits=logits))
    assert model() is value


def test_second_config_is_the_first_and_second_registration_is_ignored(tmp_path, caplog):
    config = DumpConfig(str(tmp_path), [0])
    assert DumpConfig() is config
    assert not caplog.records
    assert DumpConfig(str(tmp_path), [5]) is config
    assert "DumpConfig exists already" in caplog.text and config.token_range == [0]
    model = Root()
    register_hook(model, config)
    hooks = len(model._forward_hooks), len(model._forward_pre_hooks)
    caplog.clear()
    assert register_hook(model, config) is None
    assert [(r.levelname, r.message) for r in caplog.records] == [("WARNING", "dump_data has been register in model.")]
    assert (len(model._forward_hooks), len(model._forward_pre_hooks)) == hooks == (1, 1)


def test_wrong_model_and_wrong_config_are_logged_and_do_not_use_up_the_registration(tmp_path, caplog):
    config = DumpConfig(str(tmp_path))
    assert register_hook("no model", config) is None
    assert register_hook(Root(), {"dump_path": "x"}) is None
    assert [r.levelname for r in caplog.records] == ["ERROR", "ERROR"]
    model = Root()
    register_hook(model, config)
    assert len(model._forward_hooks) == 1


def test_another_hook_type_installs_nothing_and_uses_up_the_registration(tmp_path, caplog):
    config = DumpConfig(str(tmp_path))
    model = Root()
    register_hook(model, config, "something")
    assert not model._forward_hooks and os.path.isdir(config.dump_dir)
    register_hook(model, config)
    assert not model._forward_hooks
    assert "something has been register in model." in caplog.text


def test_hook_name_is_the_old_spelling_of_hook_type(tmp_path):
    model = Root()
    register_hook(model, DumpConfig(str(tmp_path)), hook_name="dump_data")
    assert len(model._forward_hooks) == 1


def test_layer_name_filters_modules_functions_and_weights(tmp_path):
    config = DumpConfig(
        str(tmp_path), layer_name="*q_proj*", mode=["module", "api"], dump_weight=True, dump_statistics_mode=0
    )
    register_hook(Model := Root(), config)
    Model(torch.randn(1, 4))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.attn.q_proj"]
    assert tree(os.path.join(config.dump_dir, "weights")) == [
        "root.attn.q_proj.bias.pth",
        "root.attn.q_proj.weight.pth",
    ]


def test_layer_name_filters_api_folders_by_their_own_name(tmp_path):
    config = DumpConfig(str(tmp_path), layer_name="*.softmax", mode=["module", "api"])
    model = Root()
    register_hook(model, config)
    model(torch.randn(1, 4))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.attn.softmax"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer_name": "attn.q_proj"}, ["layer_name 'attn.q_proj' matches no name", "'root.attn.q_proj'"]),
        ({"layer_name": "zzz", "dump_weight": True}, ["layer_name 'zzz' matches no name", "begin with 'root'"]),
        ({"layer_name": "*q_proj.bias", "dump_weight": True}, []),
        ({"layer_name": "*q_proj"}, []),
        ({"layer_name": "attn.softmax", "mode": ["module", "api"]}, ["layer_name 'attn.softmax' matches no name"]),
        ({"layer_name": "*.softmax", "mode": ["module", "api"]}, []),
        ({"module_list": [torch.nn.Conv2d]}, ["one of module_list (Conv2d), and nothing is dumped"]),
        ({"module_list": [torch.nn.Linear]}, []),
    ],
)
def test_a_filter_that_matches_nothing_says_so_once(tmp_path, caplog, options, said):
    model = Root()
    register_hook(model, DumpConfig(str(tmp_path), **options))
    for _ in range(2):
        model(torch.randn(1, 4))
    reset()
    texts = [record.getMessage() for record in caplog.records if "nothing is dumped" in record.getMessage()]
    assert len(texts) == bool(said), texts
    assert all(part in texts[0] for part in said)


def test_module_list_keeps_instances_only_and_a_wrong_entry_raises_in_the_forward(tmp_path):
    config = DumpConfig(str(tmp_path), module_list=[torch.nn.Linear])
    model = Root()
    register_hook(model, config)
    model(torch.randn(1, 4))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.attn.o_proj", "root.attn.q_proj", "root.lm_head"]
    reset()
    config = DumpConfig(str(tmp_path), module_list=["Linear"])
    register_hook(model, config)
    with pytest.raises(TypeError):
        model(torch.randn(1, 4))


@pytest.mark.parametrize(
    ("part", "expected"), [(0, ["input_0.pth"]), (1, ["output.pth"]), (2, ["input_0.pth", "output.pth"])]
)
def test_tensor_part(tmp_path, part, expected):
    config = DumpConfig(str(tmp_path), tensor_part=part)
    model = Root()
    register_hook(model, config)
    model(torch.randn(1, 4))
    assert tree(os.path.join(config.dump_dir, "0", "root.lm_head")) == expected


class Constant(torch.nn.Module):
    """Returns what it was made with; child `norm` of a root, as in the example of the document."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, *_):
        return self.value


class LlamaRMSNorm(Constant):
    pass


def constant_model(value, kind=Constant):
    inner = torch.nn.Module()
    inner.norm = kind(value)
    root = torch.nn.Module()
    root.model = inner
    root.forward = lambda *args: root.model.norm(*args)
    return root


def test_statistics_row_of_the_document_to_the_byte(tmp_path):
    value = torch.tensor([[1, -2], [3, 4]], dtype=torch.float16)
    config = DumpConfig(str(tmp_path), dump_statistics_mode=1)
    model = constant_model(value, LlamaRMSNorm)
    register_hook(model, config)
    model()
    with open(os.path.join(config.dump_dir, "0/root.model.norm/statistics.csv"), "rb") as file:
        assert file.read() == (
            b"NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n"
            b'root.model.norm,LlamaRMSNorm,Output,0,torch.float16,"(2, 2)",4.0,-2.0,1.5,5.4772257804870605\r\n'
        )
    assert not [name for name in tree(config.dump_dir) if name.endswith(".pth")]


def test_statistics_mode_2_writes_both_and_csv_rows_of_repeated_calls_pile_up(tmp_path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(self.linear(x))

    config = DumpConfig(str(tmp_path), dump_statistics_mode=2)
    model = Twice()
    register_hook(model, config)
    x = torch.randn(3, 2)
    y = model(x)
    table = rows(config, "0/root.linear/statistics.csv")
    assert table[0] == HEADER
    assert [(row[2], row[3]) for row in table[1:]] == [("Input", "0"), ("Output", "0")] * 2
    assert torch.equal(load(config, "0/root.linear/input_0.pth"), model.linear.forward(x))  # the last call wins
    assert torch.equal(load(config, "0/root.linear/output.pth"), y)
    assert torch.equal(load(config, "0/root/input_0.pth"), x)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([]),
        torch.tensor(2.5),
        torch.tensor([float("nan"), 1.0]),
        torch.tensor([float("inf"), -1.0]),
        torch.tensor([True, False, True]),
        torch.tensor([2**53 + 1, -5]),
        torch.randn(3, 4, dtype=torch.complex64),
        torch.randn(4, 6).t(),
        torch.randn(4, 6)[1:3, ::2],
        torch.randn(1, 3).expand(5, 3),
        torch.randn(8).to(torch.bfloat16),
        torch.randn(8).to(torch.float8_e4m3fn),
        torch.randn(3, 3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.randint(0, 60000, (5,)).to(torch.uint16),
    ],
    ids=lambda v: f"{str(v.dtype)[6:]}-{tuple(v.shape)}-{v.stride()}",
)
def test_every_kind_of_tensor_comes_back_and_has_numbers(tmp_path, value):
    config = DumpConfig(str(tmp_path), dump_statistics_mode=2)
    model = constant_model(value)
    register_hook(model, config)
    model()
    saved = load(config, "0/root.model.norm/output.pth")
    assert saved.dtype == value.dtype and saved.shape == value.shape and saved.is_contiguous()
    if saved.is_complex() or value.is_neg():
        assert torch.equal(saved, value.resolve_conj().resolve_neg())
    else:
        assert saved.tolist() == value.tolist() or torch.isnan(value.float()).any()
    row = rows(config, "0/root.model.norm/statistics.csv")[1]
    assert row[4:6] == [str(value.dtype), str(tuple(value.shape))]
    numbers = (value.abs() if value.is_complex() else value).double()
    if value.numel() == 0:
        assert row[6:9] == ["nan"] * 3
        return
    expected = [numbers.max(), numbers.min(), numbers.mean(), numbers.square().sum().sqrt()]
    for text, number in zip(row[6:], expected):
        number = number.float().item()
        assert float(text) == pytest.approx(number, rel=1e-6, nan_ok=True)
        assert repr(float(text)) == text


@pytest.mark.parametrize(
    "make", [lambda: torch.eye(3).to_sparse(), lambda: torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)]
)
def test_sparse_and_quantised_tensors_are_saved_by_torch_and_have_no_numbers(tmp_path, make):
    value = make()
    config = DumpConfig(str(tmp_path), dump_statistics_mode=2)
    model = constant_model(value)
    register_hook(model, config)
    model()
    path = os.path.join(config.dump_dir, "0/root.model.norm/output.pth")
    saved = torch.load(path, weights_only=False)
    pairs = [t.dequantize() if t.is_quantized else t.to_dense() for t in (saved, value)]
    assert torch.equal(*pairs)
    assert rows(config, "0/root.model.norm/statistics.csv")[1][6:] == ["nan"] * 4


def test_meta_and_fake_tensors_do_not_stop_the_model(tmp_path, caplog):
    config = DumpConfig(str(tmp_path))
    model = constant_model((torch.empty(3, device="meta"), torch.ones(2)))
    register_hook(model, config)
    model()
    assert tree(os.path.join(config.dump_dir, "0/root.model.norm")) == ["output_1.pth"]
    assert "it has no data" in caplog.text


def test_unsupported_values_warn_once_a_type(tmp_path, caplog):
    config = DumpConfig(str(tmp_path), [0, 1])
    model = Root()
    register_hook(model, config)
    for _ in range(2):
        model(torch.randn(1, 4))
    texts = [r.message for r in caplog.records if r.message.startswith("Unrecognized data type")]
    assert len(texts) == 3 and len(set(texts)) == 3  # dict, NoneType, int


def test_device_id_is_ignored_on_the_cpu_and_a_mismatch_leaves_nothing(tmp_path, monkeypatch):
    config = DumpConfig(str(tmp_path), device_id=3)
    register_hook(Root(), config)
    assert os.path.isdir(config.dump_dir)
    reset()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    config = DumpConfig(str(tmp_path / "dump"), device_id=3, dump_weight=True)
    model = torch.nn.Linear(2, 2, device="meta")  # stands for an accelerator: its device text is not "cpu"
    register_hook(model, config)
    assert not config.is_dump_cur_device and config.dump_dir == ""
    assert not (tmp_path / "dump").exists() and os.listdir(work) == [] and not model._forward_hooks


def test_model_tree_is_written_at_registration_in_registration_order(tmp_path):
    class Block(torch.nn.Module):
        pass

    class TinyLM(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(4, 2)
            self.blocks = torch.nn.ModuleList([Block()])
            self.lm_head = torch.nn.Linear(2, 4)

        def forward(self, ids):
            self.lm_head(self.embed(ids))
            raise RuntimeError("half way")

    config = DumpConfig(str(tmp_path), layer_name="nothing")
    model = TinyLM()
    register_hook(model, config)
    with pytest.raises(RuntimeError, match="half way"):
        model(torch.tensor([1]))
    with open(os.path.join(config.dump_dir, "model_tree.json")) as file:
        text = file.read()
    assert text == (
        '{"name": "root", "type": "TinyLM", "children": [{"name": "root.embed", "type": "Embedding", "children": []}, '
        '{"name": "root.blocks", "type": "ModuleList", "children": [{"name": "root.blocks.0", "type": "Block", '
        '"children": []}]}, {"name": "root.lm_head", "type": "Linear", "children": []}]}'
    )
    assert json.loads(text)["name"] == "root"
    assert config.module_ids == {"root.embed": 0, "root.lm_head": 1}


def test_function_called_twice_in_a_module_the_last_call_wins(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.matmul(torch.matmul(x, x), x)

    config = DumpConfig(str(tmp_path), mode="api", dump_statistics_mode=2)
    model = Model()
    register_hook(model, config)
    x = torch.randn(3, 3)
    y = model(x)
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.matmul"]
    assert torch.equal(load(config, "0/root.matmul/output.pth"), y)
    assert torch.equal(load(config, "0/root.matmul/input_0.pth"), x @ x)
    table = rows(config, "0/root.matmul/statistics.csv")
    assert len(table) == 1 + 2 * 3 and {row[1] for row in table[1:]} == {"Model"}


def test_names_are_right_after_an_exception_inside_a_module(tmp_path):
    class Fragile(torch.nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                raise ValueError("positive")
            return None

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fragile = Fragile()

        def forward(self, x):
            try:
                self.fragile(x)
            except ValueError:
                self.fragile(-x)  # returns None while an exception is being handled
            return torch.abs(x)

    config = DumpConfig(str(tmp_path), mode=["module", "api"])
    model = Model()
    register_hook(model, config)
    model(torch.ones(2))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root", "root.abs", "root.fragile"]
    assert torch.equal(load(config, "0/root.fragile/input_0.pth"), -torch.ones(2))
    with pytest.raises(AttributeError):
        model(None)
    torch.abs(torch.ones(1))  # outside of every module
    assert "root.abs" in folders(os.path.join(config.dump_dir, "0"))


def test_functions_before_and_between_root_calls_belong_to_the_root(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 1], mode="api")
    model = torch.nn.Identity()
    register_hook(model, config)
    torch.exp(torch.zeros(1))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.exp"]
    model(torch.ones(1))
    model(torch.ones(1))
    torch.sin(torch.zeros(2))
    assert folders(os.path.join(config.dump_dir, "1")) == ["root.sin"]


def test_wrappers_exist_only_in_api_mode_and_are_restored(tmp_path):
    original = torch.softmax, torch.nn.functional.softmax, torch.matmul
    register_hook(Root(), DumpConfig(str(tmp_path)))
    assert (torch.softmax, torch.nn.functional.softmax, torch.matmul) == original
    reset()
    register_hook(Root(), DumpConfig(str(tmp_path), mode=["module", "api"]))
    assert torch.softmax is not original[0] and torch.softmax.__name__ == "softmax"
    assert torch.softmax.__wrapped__ is original[0]
    remove_hooks()
    assert (torch.softmax, torch.nn.functional.softmax, torch.matmul) == original


@pytest.mark.parametrize("api_list", [[torch.matmul], ["matmul"], ["torch.matmul"]])
def test_api_list_by_function_or_by_name(tmp_path, api_list):
    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.matmul(torch.abs(x), x)

    config = DumpConfig(str(tmp_path), mode="api", api_list=api_list)
    model = Model()
    register_hook(model, config)
    model(torch.randn(2, 2))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root.matmul"]


def test_unknown_mode_dumps_nothing(tmp_path, caplog):
    config = DumpConfig(str(tmp_path), mode="modules")
    model = Root()
    register_hook(model, config)
    model(torch.randn(1, 4))
    assert folders(config.dump_dir) == [] and "mode ['modules'] is unknown" in caplog.text


def test_weights_are_plain_tensors_and_shared_ones_come_once(tmp_path):
    model = Root()
    model.tied = model.lm_head
    config = DumpConfig(str(tmp_path), dump_weight=True)
    register_hook(model, config)
    expected = {f"root.{name}.pth": value for name, value in model.named_parameters()}
    assert tree(os.path.join(config.dump_dir, "weights")) == sorted(expected)
    for name, value in expected.items():
        saved = load(config, f"weights/{name}")
        assert type(saved) is torch.Tensor and not saved.requires_grad and torch.equal(saved, value)


def test_shared_module_is_hooked_once_under_its_first_name(tmp_path):
    class Parent(torch.nn.Module):
        def __init__(self, child):
            super().__init__()
            self.child = child

        def forward(self, x):
            return self.child(x)

    shared = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(Parent(shared), Parent(shared))
    config = DumpConfig(str(tmp_path))
    register_hook(model, config)
    assert len(shared._forward_hooks) == 1 and shared.msit_name == "root.0.child"
    model(torch.randn(1, 2))
    assert folders(os.path.join(config.dump_dir, "0")) == ["root", "root.0", "root.0.child", "root.1"]
    with open(os.path.join(config.dump_dir, "model_tree.json")) as file:
        assert [child["children"][0]["name"] for child in json.load(file)["children"]] == [
            "root.0.child",
            "root.1.child",
        ]


def test_in_place_modules_show_what_they_left_and_reused_memory_is_not_mistaken(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(64, 64)
            self.relu = torch.nn.ReLU(inplace=True)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(6))

        def forward(self, x):
            x = self.relu(self.first(x))
            for layer in self.layers:
                x = layer(x)  # frees its input: the allocator hands the same addresses out again
            return x

    config = DumpConfig(str(tmp_path), dump_statistics_mode=2)
    model = Model()
    register_hook(model, config)
    x = torch.randn(5, 64)
    with torch.no_grad():
        model(x)
        remove_hooks()
        y = model.first(x)
        assert torch.equal(load(config, "0/root.first/output.pth"), y)  # before ReLU changed it
        y = torch.relu(y)
        assert torch.equal(load(config, "0/root.relu/input_0.pth"), y)  # read after the call
        for i, layer in enumerate(model.layers):
            assert torch.equal(load(config, f"0/root.layers.{i}/input_0.pth"), y)
            y = layer(y)
            assert torch.equal(load(config, f"0/root.layers.{i}/output.pth"), y)
            row = rows(config, f"0/root.layers.{i}/statistics.csv")[2]
            assert float(row[6]) == y.max().item()


def test_a_module_called_again_does_not_change_what_was_linked_to_its_first_call(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.sink = torch.nn.Identity()
            self.late = torch.nn.Identity()

        def forward(self, x):
            first = self.linear(x)
            self.sink(first)
            second = self.linear(first)
            self.late(first)  # its file may not be a link to root.linear/output.pth, which is another call's now
            return second

    config = DumpConfig(str(tmp_path))
    model = Model()
    register_hook(model, config)
    x = torch.randn(3, 2)
    with torch.no_grad():
        second = model(x)
        first = model.linear.forward(x)
    assert torch.equal(load(config, "0/root.sink/input_0.pth"), first)
    assert torch.equal(load(config, "0/root.late/input_0.pth"), first)
    assert torch.equal(load(config, "0/root.late/output.pth"), first)
    assert torch.equal(load(config, "0/root.linear/output.pth"), second)


def test_a_returned_argument_is_stored_once_when_its_module_runs_again(tmp_path):
    """The second call replaces the file of the first, so its input is no link; what it returns is one to that input."""
    config = DumpConfig(str(tmp_path))
    identity = torch.nn.Identity()
    model = torch.nn.Sequential(identity, identity)
    register_hook(model, config)
    x = torch.randn(2)
    model(x)
    paths = [os.path.join(config.dump_dir, "0", "root.0", name) for name in ("input_0.pth", "output.pth")]
    assert all(torch.equal(torch.load(p, weights_only=True), x) for p in paths)
    assert os.path.samefile(*paths)


def test_no_hard_links_no_difference(tmp_path, monkeypatch):
    """On a file system without hard links every file is written."""
    config = DumpConfig(str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity())
    register_hook(model, config)
    x = torch.randn(2)
    model(x)
    names = ["root", "root.0", "root.1"]
    paths = [os.path.join(config.dump_dir, "0", n, f) for n in names for f in ("input_0.pth", "output.pth")]
    assert all(torch.equal(torch.load(p, weights_only=True), x) for p in paths)
    assert len({os.stat(p).st_ino for p in paths}) == 1  # the same bytes six times: one file


@pytest.mark.parametrize("statistics", [0, 2])
def test_results_are_bit_identical_and_hooks_go_away(tmp_path, statistics):
    torch.manual_seed(1)
    model = Root()
    x = torch.randn(3, 4)
    before = model(x)["logits"]
    register_hook(model, DumpConfig(str(tmp_path), mode=["module", "api"], dump_statistics_mode=statistics))
    during = model(x)["logits"]
    remove_hooks()
    after = model(x)["logits"]
    assert torch.equal(before, during) and torch.equal(before, after)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks and not hasattr(module, "msit_name")


def test_registering_again_after_removal(tmp_path):
    model = Root()
    register_hook(model, DumpConfig(str(tmp_path)))
    remove_hooks()
    register_hook(model, DumpConfig())
    model(torch.randn(1, 4))
    assert os.path.isdir(os.path.join(DumpConfig().dump_dir, "0", "root"))


def test_inference_mode_autocast_and_gradients(tmp_path):
    model = Root()
    config = DumpConfig(str(tmp_path), [0, 1, 2])
    register_hook(model, config)
    x = torch.randn(2, 4)
    with torch.inference_mode():
        y0 = model(x)["logits"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y1 = model(x)["logits"]
    y2 = model(x)["logits"]
    y2.sum().backward()
    assert torch.equal(load(config, "0/root.lm_head/output.pth"), y0)
    assert load(config, "1/root.lm_head/output.pth").dtype == torch.bfloat16
    assert torch.equal(load(config, "1/root.lm_head/output.pth"), y1)
    saved = load(config, "2/root.lm_head/output.pth")
    assert torch.equal(saved, y2.detach()) and not saved.requires_grad
    assert model.lm_head.weight.grad is not None


def test_threads_have_their_own_name_stack_and_token(tmp_path):
    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left = torch.nn.Identity()
            self.right = torch.nn.Identity()

        def forward(self, x):
            barrier.wait(20)
            side = self.left if x.item() == 0 else self.right
            side(torch.abs(x))
            barrier.wait(20)
            return torch.neg(x)

    barrier = threading.Barrier(2)
    config = DumpConfig(str(tmp_path), [0, 1], mode=["module", "api"])
    model = Slow()
    register_hook(model, config)
    threads = [threading.Thread(target=model, args=(torch.tensor([float(i)]),)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sides = [set(folders(os.path.join(config.dump_dir, token))) - {"root", "root.abs", "root.neg"} for token in "01"]
    assert sorted(map(sorted, sides)) == [["root.left"], ["root.right"]]
    values = {load(config, f"{token}/root/input_0.pth").item() for token in "01"}
    assert values == {0.0, 1.0}


def test_forked_child_dumps_into_its_own_folder(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 1, 2])
    model = torch.nn.Identity()
    register_hook(model, config)
    model(torch.zeros(1))
    pid = os.fork()
    if pid == 0:
        try:
            model(torch.ones(1))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    model(torch.full((1,), 2.0))
    child = os.path.join(os.path.dirname(config.dump_dir), f"cpu_{pid}")
    assert torch.load(os.path.join(child, "1/root/output.pth"), weights_only=True).item() == 1
    assert os.path.exists(os.path.join(child, "model_tree.json"))
    assert load(config, "1/root/output.pth").item() == 2
    assert folders(config.dump_dir) == ["0", "1"]


def test_deepcopy_and_pickle_of_a_hooked_model(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 1])
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    register_hook(model, config)
    twin = copy.deepcopy(model)
    x = torch.randn(1, 2)
    twin(x)
    assert torch.equal(load(config, "0/root/input_0.pth"), x)
    restored = pickle.loads(pickle.dumps(model))
    assert torch.equal(restored(x), model[0](x))
    assert config.token_id == 0


def test_analyze_table(tmp_path):
    value = torch.tensor([[1, -2], [3, 4]], dtype=torch.float16)
    config = DumpConfig(str(tmp_path), analyze=True)
    register_hook(model := constant_model(value, LlamaRMSNorm), config)
    model()
    path = os.path.join(os.path.dirname(os.path.dirname(config.dump_dir)), "tensor_analyze.csv")
    with open(path, "rb") as file:
        lines = file.read().decode().split("\r\n")
    assert lines[0] == "Node Name,Node Type,Tensor Path,dtype,shape,max,min,variance,mean"
    tensor_path = os.path.join(config.dump_dir, "0/root.model.norm/output.pth")
    assert lines[1] == (
        f'root.model.norm,LlamaRMSNorm,{tensor_path},torch.float16,"torch.Size([2, 2])",4.0,-2.0,7.0,1.5'
    )
    assert not os.path.exists(os.path.join(config.dump_dir, "0/root.model.norm/statistics.csv"))


def test_files_are_complete_when_the_root_call_returns_and_no_temporary_name_stays(tmp_path):
    config = DumpConfig(str(tmp_path), [0])
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(20)))
    register_hook(model, config)
    x = model(torch.randn(256, 256))
    names = tree(os.path.join(config.dump_dir, "0"))
    assert len(names) == 2 * 21 and not [name for name in names if "tmp" in name]
    assert torch.equal(load(config, "0/root/output.pth"), x.detach())


FULL_DISK = """
import os, sys, torch
from assay.torch.strict import DumpConfig, register_hook
model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(40)))
x = torch.randn(1, 2)
want = model(x)
config = DumpConfig(sys.argv[1], [0, 1])
register_hook(model, config)
assert all(torch.equal(model(x), want) for _ in range(2))
for folder, _, names in os.walk(config.dump_dir + "/0"):
    for name in names:
        torch.load(f"{folder}/{name}", weights_only=True)
print(*sorted(name for name in os.listdir(config.dump_dir) if name.isdigit()))
"""


def test_a_full_disk_stops_the_dump_and_not_the_model(tmp_path):
    # A disk that has room for bytes but not for one more file: our budget does not foresee it.
    mount = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=1m,nr_inodes=40 none {tmp_path} && exec "$@"', "sh")
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("no private mounts here")
    command = [*mount, sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "No space left" in done.stderr
    assert done.stdout.split() == ["0"]  # off after the first failure


class Doubling(torch.nn.Module):
    """Returns a new tensor and changes the one it was given, which may not be on the disk yet."""

    def forward(self, x):
        result = x * 2
        x.zero_()
        return result


def test_tensors_that_the_writer_does_not_keep_up_with_are_written_by_the_calling_thread(tmp_path):
    config = DumpConfig(str(tmp_path), [0, 1], dump_statistics_mode=2)
    twice = Doubling()  # the last call wins, whoever wrote the first
    model = torch.nn.Sequential(*(Doubling() for _ in range(4)), twice, twice)
    register_hook(model, config)
    count = 1 << 20  # 4 MiB: with one of them the writer has enough to do
    for token in range(2):
        model(torch.ones(count) + token)
    for token in range(2):
        for i in range(4):
            want = torch.full((count,), (1.0 + token) * 2.0 ** (i + 1))
            assert torch.equal(load(config, f"{token}/root.{i}/output.pth"), want), (token, i)
            assert torch.equal(load(config, f"{token}/root.{i}/input_0.pth"), torch.zeros(count)), (token, i)
            with open(os.path.join(config.dump_dir, f"{token}/root.{i}/statistics.csv")) as table:
                assert [row["Max"] for row in csv.DictReader(table)] == ["0.0", str(want[0].item())]
        assert load(config, f"{token}/root.4/output.pth")[0] == (1.0 + token) * 2.0**6
        assert load(config, f"{token}/root/output.pth")[0] == (1.0 + token) * 2.0**6
    counters = config.registration.dumper.counters()
    # Input and output of each: the first call of a module, and the second of `twice`, which is copied.
    assert (counters["own_bytes"], counters["bytes"]) == (2 * 5 * 8 << 20, 2 * 6 * 8 << 20)


# --- modules that hooks have trouble with -------------------------------------------------------------------------


class Nest(torch.nn.Module):
    """A module inside a module, so many times."""

    def __init__(self, inner):
        super().__init__()
        self.m = inner

    def forward(self, x):
        return self.m(x)


DEEP = """
import json, os, sys, threading
import torch
sys.path.insert(0, sys.argv[2])
from test_strict_hooks import Nest
from assay.torch.strict import DumpConfig, register_hook
import assay

model = torch.nn.Linear(2, 2)
for _ in range(200):
    model = Nest(model)

def at_depth(frames, work):
    return work() if frames == 0 else at_depth(frames - 1, work)

# A host deep in its own calls: some hundred frames are left for us, and its model needs more of them than we.
sys.setrecursionlimit(1000)
at_depth(700, lambda: register_hook(model, DumpConfig(sys.argv[1] + "/old")))
handle = at_depth(700, lambda: assay.capture(model, sys.argv[1] + "/new"))
sys.setrecursionlimit(10000)
threading.stack_size(256 << 20)
thread = threading.Thread(target=lambda: model(torch.ones(1, 2)))
thread.start()
thread.join()
handle.remove()
DumpConfig.reset()
"""


@pytest.mark.slow
def test_a_tree_of_200_modules_inside_each_other(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", DEEP, str(tmp_path), str(Path(__file__).parent)], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    (tree,) = (tmp_path / "old").rglob("model_tree.json")
    topology = tmp_path / "new" / "rank0" / "topology.json"
    for path, root in ((tree, "root"), (topology, "")):
        node, depth = json.loads(path.read_text()), 0
        assert node["name"] == root
        while node["children"]:
            (node,) = node["children"]
            depth += 1
        assert (depth, node["type"]) == (200, "Linear")
        assert node["name"] == ".".join(([root] if root else []) + ["m"] * 200)
    # "root" and 200 times ".m" are 404 bytes: a folder's name has 255.
    manifest = json.loads(tree.with_name("manifest.json").read_text())
    dumped = [path for path in tree.parent.glob("0/*") if (path / "output.pth").exists()]
    assert len(dumped) == 201 and manifest["complete"] is True
    import assay

    assert len({record.node for record in assay.open(str(tmp_path / "new")).records}) == 201


def test_a_scripted_child_is_dumped_and_left_as_it_was(tmp_path):
    class Host(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
            self.last = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.last(self.scripted(x))

    model, x = Host(), torch.ones(1, 2)
    wanted = model(x)
    DumpConfig.reset()
    config = DumpConfig(str(tmp_path), mode=["module", "api"])
    register_hook(model, config)
    got = model(x)
    DumpConfig.reset()

    assert torch.equal(got, wanted) and torch.equal(model(x), wanted)
    assert "_call_impl" not in model.scripted.__dict__
    folder = Path(config.dump_dir) / "0"
    assert torch.equal(torch.load(folder / "root.scripted" / "output.pth"), model.scripted(x))
    assert torch.equal(torch.load(folder / "root.scripted" / "input_0.pth"), x)
    assert torch.equal(torch.load(folder / "root.last" / "output.pth"), wanted)
