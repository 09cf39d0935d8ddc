# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Llama under generate(): every file name and every value against an oracle in plain PyTorch.

The oracle registers hooks of its own (with copies of what they see) and applies the tables of
docs/formats/torch-tree.md; it shares no code with the dumper.
"""

import csv
import os

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("assay._capture")

from assay.torch.strict import DumpConfig, register_hook, remove_hooks, reset  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch):
    monkeypatch.delenv("ATB_TIMESTAMP", raising=False)
    reset()
    yield
    reset()


def tiny_llama(dtype=torch.float32):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation="eager",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval().to(dtype)


def files_of(prefix, value):
    """Yields (stem, tensor) as the traversal table says."""
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from files_of(f"{prefix}_{index}", item)


class Oracle:
    """Copies of what every module took and returned, by token and module name; the last call wins."""

    def __init__(self, model):
        self.token = -1
        self.folders = {}  # (token, name) -> {stem: tensor}
        self.rows = {}  # (token, name) -> [(type, direction, index, tensor)]
        self.handles = [model.register_forward_pre_hook(self.count)]
        for name, module in model.named_modules():
            full = f"root.{name}" if name else "root"
            self.handles.append(module.register_forward_hook(lambda m, i, o, full=full: self.record(full, m, i, o)))

    def count(self, *_):
        self.token += 1

    def record(self, name, module, inputs, outputs):
        files = self.folders.setdefault((self.token, name), {})
        rows = self.rows.setdefault((self.token, name), [])
        for direction, prefix, value in (("Input", "input", inputs), ("Output", "output", outputs)):
            for stem, tensor in files_of(prefix, value):
                files[stem] = tensor.detach().clone()
                last = stem.rpartition("_")[2]
                rows.append((type(module).__name__, direction, last if "_" in stem else "0", files[stem]))

    def remove(self):
        for handle in self.handles:
            handle.remove()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_generate_leaves_exactly_the_files_of_the_tables(tmp_path, dtype, mode):
    model = tiny_llama(dtype)
    prompt = torch.tensor([[3, 14, 15, 9, 26]])
    with torch.no_grad():
        expected_ids = model.generate(prompt, max_new_tokens=4, do_sample=False)
    oracle = Oracle(model)
    config = DumpConfig(str(tmp_path), [0, 2, 3, 9], dump_statistics_mode=2)
    register_hook(model, config)
    with mode():
        ids = model.generate(prompt, max_new_tokens=4, do_sample=False)
    remove_hooks()
    oracle.remove()
    assert torch.equal(ids, expected_ids) and oracle.token == 3

    assert sorted(entry.name for entry in os.scandir(config.dump_dir) if entry.is_dir()) == ["0", "2", "3"]
    count = 0
    for token in (0, 2, 3):
        wanted = {name: files for (t, name), files in oracle.folders.items() if t == token}
        where = os.path.join(config.dump_dir, str(token))
        assert sorted(os.listdir(where)) == sorted(wanted)
        for name, files in wanted.items():
            names = {f"{stem}.pth" for stem in files} | ({"statistics.csv"} if files else set())
            assert set(os.listdir(os.path.join(where, name))) == names, name
            for stem, tensor in files.items():
                path = os.path.join(where, name, f"{stem}.pth")
                saved = torch.load(path, weights_only=True)
                assert saved.dtype == tensor.dtype and saved.is_contiguous() and torch.equal(saved, tensor), path
                count += 1
            if files:
                check_statistics(os.path.join(where, name, "statistics.csv"), name, oracle.rows[(token, name)])
    # 46 modules a token: 3 layers of 13, model, embed_tokens, norm, rotary_emb, lm_head, layers (no call), root
    assert count > 100
    assert "output.pth" not in os.listdir(os.path.join(config.dump_dir, "0", "root"))  # a ModelOutput


def check_statistics(path, name, expected):
    with open(path, newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[:6] for row in rows] == [
        [name, kind, direction, index, str(tensor.dtype), str(tuple(tensor.shape))]
        for kind, direction, index, tensor in expected
    ]
    for row, (_, _, _, tensor) in zip(rows, expected):
        values = tensor.double()
        exact = [values.max(), values.min(), values.mean(), values.square().sum().sqrt()]
        for text, value in zip(row[6:], exact):
            # fp64 sums, rounded once: at most one unit in the last place of the float32 apart
            assert float(text) == pytest.approx(value.float().item(), rel=2e-7, abs=1e-12)


def test_last_logits_of_generate(tmp_path):
    model = tiny_llama()
    logits = []
    handle = model.lm_head.register_forward_hook(lambda m, i, o: logits.append(o.clone()))
    config = DumpConfig(dump_path=str(tmp_path), token_range=list(range(1000)), dump_last_logits=True)
    register_hook(model, config)
    model.generate(torch.tensor([[3, 14, 15]]), max_new_tokens=3, do_sample=False)
    handle.remove()
    found = []
    for where, _, names in os.walk(config.dump_dir):
        found += [os.path.relpath(os.path.join(where, name), config.dump_dir) for name in names]
    assert sorted(found) == [
        "0/root.lm_head/output.pth",
        "1/root.lm_head/output.pth",
        "2/root.lm_head/output.pth",
        "manifest.json",
        "model_tree.json",
    ]
    for token, value in enumerate(logits):
        path = os.path.join(config.dump_dir, str(token), "root.lm_head/output.pth")
        assert torch.equal(torch.load(path, weights_only=True), value)


def test_api_mode_sees_the_attention_and_restores_torch(tmp_path):
    model = tiny_llama()
    prompt = torch.tensor([[3, 14, 15, 9]])
    calls = []
    original = torch.matmul

    def spy(*args, **kwargs):
        calls.append(original(*args, **kwargs))
        return calls[-1]

    config = DumpConfig(str(tmp_path), [0], mode=["module", "api"], layer_name="*self_attn.*")
    try:
        torch.matmul = spy
        register_hook(model, config)
        with torch.no_grad():
            model(prompt)
        remove_hooks()
        assert torch.matmul is spy
    finally:
        torch.matmul = original
    names = os.listdir(os.path.join(config.dump_dir, "0"))
    for layer in range(3):
        prefix = f"root.model.layers.{layer}.self_attn"
        assert {f"{prefix}.softmax", f"{prefix}.q_proj", f"{prefix}.spy"} <= set(names)
        # two products a layer, the last wins: weights times values
        saved = torch.load(os.path.join(config.dump_dir, "0", f"{prefix}.spy", "output.pth"), weights_only=True)
        per_layer = [value for value in calls if value.dim() == 4]
        assert torch.equal(saved, per_layer[2 * layer + 1])
    assert not [name for name in names if name == "root" or name.endswith("mlp")]
