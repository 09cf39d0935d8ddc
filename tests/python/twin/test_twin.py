# SPDX-License-Identifier: Apache-2.0
"""Twins: what is written, that it is what was asked for, and what is refused. torch and transformers are the oracle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("transformers")
import model_configs
import torch
import transformers
from safetensors.torch import load_file

import assay
from assay.twin import checking, files

FAST = ("llama", "mixtral", "gpt2")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folders of the twins of FAST."""
    folder = tmp_path_factory.mktemp("twins")
    for kind in FAST:
        assay.twin(model_configs.write(kind, folder / kind), folder / f"{kind}-twin", gguf_type=None)
    return lambda kind: folder / f"{kind}-twin"


def auto(folder, **options):
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


def outputs(model, path, tokens, position_ids=None):
    """What a module returns while the model runs the tokens, [tokens, width]."""
    seen = []
    hook = model.get_submodule(path).register_forward_hook(lambda _, __, result: seen.append(result))
    with torch.no_grad():
        model(input_ids=torch.tensor([tokens]), position_ids=position_ids)
    hook.remove()
    result = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
    return result.float().reshape(-1, result.shape[-1])


def plain(folder):
    return assay.twin.prompts(folder)[0]["tokens"]


def test_importing_assay_loads_no_torch_and_twin_is_there():
    code = (
        "import sys, assay; assay.twin; import assay.twin.__main__; assert callable(assay.twin);"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", FAST)
def test_transformers_loads_what_is_written(kind, tiny, tmp_path):
    model = auto(tiny(kind))

    model.save_pretrained(tmp_path)

    again, stored = load_file(tmp_path / "model.safetensors"), load_file(tiny(kind) / "model.safetensors")
    assert again.keys() == stored.keys()
    assert all(torch.equal(again[name], stored[name]) for name in stored)
    assert json.loads((tiny(kind) / "config.json").read_text())["architectures"] == [type(model).__name__]
    assert {value.dtype for value in stored.values()} == {torch.float32}


def test_same_seed_same_bytes_other_seed_others(tiny, tmp_path):
    source = model_configs.write("llama", tmp_path / "llama")
    torch.manual_seed(5)
    expected = torch.manual_seed(5).get_state().clone()
    torch.set_num_threads(2)
    assay.twin(source, tmp_path / "same", gguf_type=None)
    assert torch.equal(torch.get_rng_state(), expected)  # the caller's random numbers go on as before
    assert torch.get_num_threads() == 2
    assay.twin(source, tmp_path / "other", gguf_type=None, seed=1)

    for file in ("config.json", "model.safetensors", "twin.json"):
        bytes_of = [(folder / file).read_bytes() for folder in (tiny("llama"), tmp_path / "same", tmp_path / "other")]
        assert bytes_of[0] == bytes_of[1], file
        assert (bytes_of[0] == bytes_of[2]) == (file == "config.json"), file


def test_a_gguf_file_does_not_tell_its_folder(tiny, tmp_path):
    """Its bytes are the same for the same seed, and llama.cpp expects the tokenizer of a real model called "phi3"."""
    pytest.importorskip("gguf")
    from assay.twin import gguf_file

    made = []
    for name in ("phi3", "another"):
        shutil.copytree(tiny("llama"), tmp_path / name)
        gguf_file.convert(tmp_path / name, tmp_path / f"{name}.gguf")
        made.append(hashlib.sha256((tmp_path / f"{name}.gguf").read_bytes()).hexdigest())
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", FAST)
def test_a_channel_is_written_early_and_erased_late(kind, tiny):
    written = assay.twin.read(tiny(kind))["shaped"]["written"]
    model = auto(tiny(kind))
    layers = "transformer.h" if kind == "gpt2" else "model.layers"

    heights = []
    for layer in range(4):
        rows = outputs(model, f"{layers}.{layer}", plain(tiny(kind)))
        sizes = rows.pow(2).mean(0).sqrt()
        heights.append(float(sizes[written["channel"]] / sizes.median()))

    assert (written["early"], written["late"]) == (1, 3)
    assert heights[0] < 3
    assert 20 < heights[1] < 100
    assert 20 < heights[2] < 100
    assert heights[3] < 0.2 * heights[2]


def test_gains_are_log_normal_and_a_head_looks_at_the_first_token(tiny):
    model = auto(tiny("llama"), attn_implementation="eager")
    gains = model.model.layers[0].input_layernorm.weight.detach()
    usual = gains[[n for n in range(128) if n not in assay.twin.read(tiny("llama"))["shaped"]["outlier_channels"]]]
    assert 0.4 < float(usual.log().std()) < 0.6  # drawn with 0.5
    assert float(usual.min()) > 0

    with torch.no_grad():
        maps = model(input_ids=torch.tensor([plain(tiny("llama"))]), output_attentions=True).attentions
    shares = torch.stack([one[0, :, 4:, 0].mean(-1) for one in maps])  # of the first token, by layer and head
    assert float(shares.max()) > 0.7
    assert float(shares.min()) < 0.2
    sharpest = torch.stack([one[0, :, 4:].amax(-1).median(-1)[0] for one in maps])
    assert float(sharpest.max()) > 0.9  # a saturated head


def test_latent_attention_has_a_sink_too(tmp_path):
    """DeepSeek's queries come from a small latent, and its keys' rotary part is one for all heads."""
    assay.twin(model_configs.write("deepseek_v3", tmp_path / "config"), tmp_path / "twin", gguf_type=None)
    model = auto(tmp_path / "twin", attn_implementation="eager")

    with torch.no_grad():
        maps = model(input_ids=torch.tensor([plain(tmp_path / "twin")]), output_attentions=True).attentions

    shares = torch.stack([one[0, :, 4:, 0].mean(-1) for one in maps])
    assert float((shares > 0.5).float().mean()) > 0.2
    assert float(shares.min()) < 0.2  # and heads that look elsewhere


def test_one_activation_comes_near_the_limit_of_float16(tiny, tmp_path):
    large = assay.twin.read(tiny("llama"))["shaped"]["large"]
    model = auto(tiny("llama")).half()

    peaks = []
    for prompt in assay.twin.prompts(tiny("llama")):
        first = torch.arange(len(prompt["tokens"]))[None] + prompt["first"]
        peaks.append(float(outputs(model, large["module"], prompt["tokens"], first)[:, large["channel"]].abs().max()))
    assert 1e4 < max(peaks) < 65504
    for logits in assay.twin.run(model, tiny("llama")).values():
        assert logits.isfinite().all()

    source = model_configs.write("llama", tmp_path / "llama")
    assay.twin(source, tmp_path / "twin", gguf_type=None, float16_limit=False)
    assert assay.twin.read(tmp_path / "twin")["shaped"]["large"] is None
    small = outputs(auto(tmp_path / "twin"), large["module"], plain(tmp_path / "twin"))
    assert float(small.abs().max()) < 1e3


def test_prompts_reach_far_positions_padding_and_decoding(tiny):
    by_name = {prompt["name"]: prompt for prompt in assay.twin.prompts(tiny("llama"))}

    assert [(name, p["first"], p["padding"], p["decoded"]) for name, p in by_name.items()] == [
        ("plain", 0, 0, 3),
        ("padded", 0, 5, 2),
        ("offset", 300, 0, 1),
        ("far", 16000, 0, 1),
    ]
    assert all(3 <= token < 512 for token in by_name["plain"]["tokens"][1:])
    assert by_name["plain"]["tokens"][0] == 1  # what begins a text
    # GPT-2's table of positions ends at 1024: the last prompt ends there, too.
    far = assay.twin.prompts(tiny("gpt2"))[-1]
    assert far["first"] + len(far["tokens"]) == 1024


class Recorder(torch.nn.Module):
    """Takes what transformers' models take and keeps it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.calls = []

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=None):
        call = {"tokens": input_ids[0].tolist(), "cache": past_key_values, "use_cache": use_cache}
        call["mask"] = None if attention_mask is None else attention_mask[0].tolist()
        call["positions"] = None if position_ids is None else position_ids[0].tolist()
        self.calls.append(call)
        logits = torch.zeros(1, input_ids.shape[1], 7)
        return transformers.modeling_outputs.CausalLMOutputWithPast(logits=logits, past_key_values=f"{len(self.calls)}")


def test_run_calls_the_model_once_a_step_with_given_tokens(tiny):
    model = Recorder()

    logits = assay.twin.run(model, tiny("llama"))

    prompts = {prompt["name"]: prompt["tokens"] for prompt in assay.twin.prompts(tiny("llama"))}
    assert [len(call["tokens"]) for call in model.calls] == [16, 1, 1, 1, 15, 1, 1, 12, 1, 24, 1]
    assert [call["cache"] for call in model.calls[:5]] == [None, "1", "2", "3", None]  # each prompt begins anew
    assert [token for call in model.calls[:4] for token in call["tokens"]] == prompts["plain"]
    padded = model.calls[4:7]
    assert padded[0]["mask"] == [0] * 5 + [1] * 10
    assert padded[0]["positions"] == [0] * 5 + list(range(10))
    assert (padded[1]["mask"], padded[1]["positions"]) == ([0] * 5 + [1] * 11, [10])
    assert model.calls[7]["positions"] == list(range(300, 312))
    assert model.calls[10]["positions"] == [16024]
    assert logits["plain"].shape == (1, 19, 7)


def test_padding_changes_nothing_behind_it(tiny):
    model = auto(tiny("llama"))
    padded = next(prompt for prompt in assay.twin.prompts(tiny("llama")) if prompt["name"] == "padded")

    with torch.no_grad():
        bare = model(input_ids=torch.tensor([padded["tokens"][5:]])).logits
    torch.testing.assert_close(assay.twin.run(model, tiny("llama"))["padded"][:, 5:], bare, rtol=1e-3, atol=1e-3)


def test_ties_are_where_bfloat16_chooses_other_experts(tiny):
    folder = tiny("mixtral")
    declared = {(tie["router"], tie["token"]) for tie in assay.twin.read(folder)["ties"] if tie["prompt"] == "plain"}
    exact, moved = auto(folder), auto(folder).bfloat16()

    other = set()
    for layer in range(4):
        router = f"model.layers.{layer}.mlp.gate"
        scores = [outputs(model, router, plain(folder)) for model in (exact, moved)]  # logits of all experts
        chosen = [score.topk(2, dim=1)[1].sort(1)[0] for score in scores]
        other |= {(router, token) for token in range(16) if not torch.equal(chosen[0][token], chosen[1][token])}
        margins = scores[0].sort(1, descending=True)[0]
        for tie in assay.twin.read(folder)["ties"]:
            if tie["prompt"] == "plain" and tie["router"] == router and tie["token"] < 16:
                margin = float(margins[tie["token"], 1] - margins[tie["token"], 2])
                assert tie["margin"] == pytest.approx(margin, abs=1e-3)

    assert other <= declared
    assert 0 < len(declared) < 0.4 * 4 * 19


def test_check_is_good_and_sees_what_was_undone(tiny, tmp_path):
    assert all(row.good is not False for row in checking.check(tiny("llama")))

    folder = tmp_path / "twin"
    shutil.copytree(tiny("llama"), folder)
    values = files.read(folder)
    model = auto(folder)
    with torch.no_grad():
        model.get_submodule(values["shaped"]["written"]["eraser"]).weight[values["shaped"]["written"]["channel"]] = 0
        model.get_submodule(values["shaped"]["large"]["module"]).weight[values["shaped"]["large"]["channel"]] *= 4
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"model\.safetensors is not the file that twin\.json describes"):
        checking.check(folder)
    files.write(folder, {name: value for name, value in values.items() if name not in ("format", "version", "weights")})

    bad = {row.what for row in checking.check(folder) if row.good is False}
    assert bad == {"float16", "written early, erased late"}


def refused(source, output, **options):
    with pytest.raises((ValueError, OSError)) as caught:
        assay.twin(source, output, **options)
    return str(caught.value)


def test_what_is_no_model_is_refused_with_one_sentence(tmp_path):
    source, output = tmp_path / "config.json", tmp_path / "out" / "twin"
    source.write_text(json.dumps({"model_type": "lama"}))
    assert "does not know the architecture lama; did you mean llama?" in refused(source, output)
    source.write_text("{")
    assert "config.json is not JSON" in refused(source, output)
    source.write_text("[]")
    assert "has no model_type" in refused(source, output)
    source.write_text(json.dumps({"model_type": "t5"}))
    assert "t5 has an encoder and a decoder" in refused(source, output)
    source.write_text(json.dumps({"model_type": "vit"}))
    assert "transformers has no vit that continues a text by itself" in refused(source, output)
    source.write_text(json.dumps({"model_type": "llama", "num_attention_heads": "many"}))
    assert "transformers does not accept it" in refused(source, output)
    source.write_text(json.dumps({"model_type": "xlnet"}))
    assert "transformers does not accept a xlnet with small sizes" in refused(source, output)
    source.write_bytes(b"GGUF\x03\0\0\0")
    assert "transformers does not accept it" in refused(source, output)
    assert "is not there" in refused(tmp_path / "nothing", output)
    (tmp_path / "empty").mkdir()
    assert "empty has no config.json" in refused(tmp_path / "empty", output)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "empty"]


def test_a_quantised_checkpoint_in_another_type_has_a_float32_twin(tmp_path):
    quantised = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    source = model_configs.write("llama", tmp_path / "llama", quantization_config=quantised, torch_dtype="bfloat16")

    assay.twin(source, tmp_path / "twin", gguf_type=None)

    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "twin").dtype == torch.float32
    assert "quantization_config" not in json.loads((tmp_path / "twin" / "config.json").read_text())


def test_a_full_size_model_is_no_twin(tmp_path):
    source = model_configs.write("llama", tmp_path / "llama")
    assert "8.0 billion parameters are too many for a twin" in refused(source, tmp_path / "twin", same_size=True)


def test_what_is_small_already_is_refused_and_kept_when_asked(tiny, tmp_path):
    assert "cannot be made smaller; --same-size keeps its sizes" in refused(tiny("llama"), tmp_path / "twin")
    assert os.listdir(tmp_path) == []

    assay.twin(tiny("llama"), tmp_path / "twin", same_size=True, gguf_type=None)
    assert auto(tmp_path / "twin").config.hidden_size == 128


def test_a_folder_that_is_there_is_not_written_over(tiny):
    before = (tiny("llama") / "twin.json").read_bytes()
    assert "is there already" in refused(tiny("llama"), tiny("llama"), same_size=True)
    assert (tiny("llama") / "twin.json").read_bytes() == before


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError, SystemExit])
def test_a_failure_in_the_middle_leaves_nothing(fault, tmp_path):
    with pytest.raises(fault), files.appearing(tmp_path / "twin") as folder:
        (folder / "half").write_text("")
        raise fault
    assert os.listdir(tmp_path) == []


def test_descriptions_that_are_none_are_refused(tiny, tmp_path):
    shutil.copytree(tiny("llama"), tmp_path / "twin")
    path = tmp_path / "twin" / "twin.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "version": 2}))
    with pytest.raises(ValueError, match="of version 2; this Assay reads version 1"):
        assay.twin.load(tmp_path / "twin")
    path.write_text("{}")
    with pytest.raises(ValueError, match="is not the description of a twin"):
        assay.twin.prompts(tmp_path / "twin")
    with pytest.raises(FileNotFoundError, match="so it is no twin"):
        assay.twin.read(tmp_path)


def test_a_gguf_file_is_a_source(tmp_path):
    gguf = pytest.importorskip("gguf")
    assay.twin(model_configs.write("qwen2", tmp_path / "qwen2"), tmp_path / "first", gguf_type="q8_0")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "first/model.gguf").tensors}
    # Four layers with seven matrices, the embedding and the head; norms and biases stay.
    assert list(kinds.values()).count("Q8_0") == 4 * 7 + 2
    assert kinds["blk.0.attn_q.bias"] == kinds["output_norm.weight"] == "F32"

    assay.twin(tmp_path / "first" / "model.gguf", tmp_path / "second", same_size=True)

    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "second"))
    for name in ("model_type", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size"):
        assert first[name] == second[name], name
    assert (tmp_path / "second" / "model.gguf").exists()


# Where transformers fails, or the family has nothing of the kind.
LEFT_OUT = {
    "bloom": {"offset", "far"},
    "mpt": {"offset", "far"},
    "mamba": {"offset", "far"},
    "mamba2": {"offset", "far"},
    "recurrent_gemma": {"decoding"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(model_configs.MODELS))
def test_every_family_is_made_runs_and_is_what_it_should_be(kind, tmp_path):
    source = model_configs.write(kind, tmp_path / kind)

    assay.twin(source, tmp_path / "twin")

    bad = [row for row in checking.check(tmp_path / "twin") if row.good is False]
    assert not bad
    values = assay.twin.read(tmp_path / "twin")
    left_out = {one["name"] for one in values["left_out"]}
    assert left_out == LEFT_OUT.get(kind, set()), values["left_out"]
    assert values["parameters"] < 8e6
    small = json.loads((tmp_path / "twin" / "config.json").read_text())
    assert small["model_type"] == kind
