# SPDX-License-Identifier: Apache-2.0
"""Cross substitution on real captures: golden operators in fp32 replayed on the module boundaries of a bf16 run.

The limits are those of the walk itself (2 and 3, layers 1.5 and 1.75); healthy runs must stay clear of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
opcheck = pytest.importorskip("assay._opcheck")

import assay  # noqa: E402

LEVELS = ["L", "M", "B"]
VOCABULARY = 256


def llama(seed: int, attention: str = "sdpa") -> torch.nn.Module:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
        attn_implementation=attention,
        initializer_range=0.1,
    )
    return uneven(transformers.LlamaForCausalLM(config))


def gpt2(seed: int, attention: str = "sdpa") -> torch.nn.Module:
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        n_embd=64,
        n_layer=2,
        n_head=4,
        vocab_size=VOCABULARY,
        n_positions=128,
        attn_implementation=attention,
        initializer_range=0.1,
    )
    return uneven(transformers.GPT2LMHeadModel(config))


def mixtral(seed: int, attention: str = "sdpa") -> torch.nn.Module:
    torch.manual_seed(seed)
    config = transformers.MixtralConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=128,
        attn_implementation=attention,
        initializer_range=0.1,
    )
    return uneven(transformers.MixtralForCausalLM(config))


def uneven(model: torch.nn.Module) -> torch.nn.Module:
    """Gains and biases that are not all one or zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def tokens(seed: int, count: int = 24) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(seed))


def capture(model: torch.nn.Module, path: Path, level: str, ids: torch.Tensor) -> str:
    with torch.no_grad(), assay.capture(model, str(path), level=level):
        model(ids, use_cache=False)
    return str(path)


def walk(golden: str, mine: str, level: str) -> dict[str, Any]:
    return opcheck._walk(golden, mine, level)


@pytest.mark.parametrize("family", [llama, gpt2, mixtral])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_healthy_run_stays_within_its_rounding(
    family: Callable[..., torch.nn.Module], seed: int, attention: str, tmp_path: Path
) -> None:
    # Given golden in fp32 with fused attention, mine in bf16 with fused or decomposed attention
    ids = tokens(seed)
    golden = capture(family(seed), tmp_path / "golden", "operator", ids)
    mine = capture(family(seed, attention).to(torch.bfloat16), tmp_path / "mine", "module", ids)
    for level in LEVELS:
        walked = walk(golden, mine, level)
        # Then nothing is found and every operator of golden was inside some judged region
        assert walked["findings"] == []
        assert walked["operators_covered"] == walked["operators"] > 50
        judged = [step for step in walked["steps"] if not step["reason"]]
        assert max(step["r"] for step in judged) <= 1.5
        assert max(step["r_element"] for step in judged) <= (2.0 if level != "B" else 1.5)


def quarter_of_columns(_module: torch.nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
    output = output.clone()
    output[..., ::4] *= 1.03
    return output


@pytest.mark.parametrize(
    ("family", "module"),
    [
        (llama, "model.layers.1.input_layernorm"),
        (llama, "model.layers.0.self_attn.k_proj"),
        (llama, "model.layers.1.self_attn.o_proj"),
        (llama, "model.layers.0.mlp.up_proj"),
        (llama, "lm_head"),
        (gpt2, "transformer.h.0.ln_2"),
        (gpt2, "transformer.h.1.attn.c_attn"),
        (gpt2, "transformer.h.0.mlp.dropout"),  # hands its input on when healthy
    ],
)
@pytest.mark.parametrize("level", ["L", "M"])
def test_a_fault_of_three_percent_is_named_and_nothing_else(
    family: Callable[..., torch.nn.Module], module: str, level: str, tmp_path: Path
) -> None:
    ids = tokens(3)
    golden = capture(family(3), tmp_path / "golden", "operator", ids)
    wrong = family(3).to(torch.bfloat16)
    wrong.get_submodule(module).register_forward_hook(quarter_of_columns)
    mine = capture(wrong, tmp_path / "mine", "module", ids)
    # When
    findings = walk(golden, mine, level)["findings"]
    # Then
    assert [finding["module"] for finding in findings] == [module]
    assert findings[0]["kind"] == "gap"
    assert findings[0]["ratio"] > 3


@pytest.mark.parametrize("level", ["L", "M"])
def test_a_wiring_fault_inside_decomposed_attention_is_found_there(level: str, tmp_path: Path) -> None:
    # Given golden with fused attention; mine decomposed, with heads of the keys exchanged in layer 1
    ids = tokens(4)
    golden = capture(llama(4), tmp_path / "golden", "operator", ids)
    wrong = llama(4, "eager").to(torch.bfloat16)
    # k_proj is recorded as it should be; the attention reads its heads in the other order.
    original = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    layers = iter([False, True])

    def exchanged(q: torch.Tensor, k: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        q, k = original(q, k, *args, **kwargs)
        return (q, k.flip(1)) if next(layers) else (q, k)

    transformers.models.llama.modeling_llama.apply_rotary_pos_emb = exchanged
    try:
        mine = capture(wrong, tmp_path / "mine", "module", ids)
    finally:
        transformers.models.llama.modeling_llama.apply_rotary_pos_emb = original
    # When
    finding = walk(golden, mine, level)["findings"][0]
    # Then level L sees the wrong input of the output projection, M its output
    if level == "L":
        assert finding["module"] == "model.layers.1.self_attn"
    else:
        assert finding["module"] == "model.layers.1.self_attn.o_proj"
        assert finding["also"] == "model.layers.1.self_attn"


@pytest.mark.parametrize("static", [False, True])
def test_caches_of_earlier_steps_are_replayed_on_mines_values(static: bool, tmp_path: Path) -> None:
    # Given a prompt and two tokens; the static cache is written in place through views
    ids = tokens(5, 8)

    def generate(model: torch.nn.Module, path: Path, level: str) -> str:
        cache: Any = transformers.DynamicCache()
        if static:
            cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        with torch.no_grad(), assay.capture(model, str(path), level=level):
            current, position = ids, 0
            for step in range(3):
                places = torch.arange(position, position + current.shape[1])
                model(current, past_key_values=cache, use_cache=True, cache_position=places)
                position += current.shape[1]
                current = ids[:, step : step + 1]
        return str(path)

    golden = generate(llama(5), tmp_path / "golden", "operator")
    mine = generate(llama(5).to(torch.bfloat16), tmp_path / "mine", "module")
    for level in LEVELS:
        walked = walk(golden, mine, level)
        assert walked["findings"] == [] and walked["unjudged"] == {}
        assert walked["operators_covered"] == walked["operators"]


def test_a_golden_without_operators_is_refused(tmp_path: Path) -> None:
    mine = capture(llama(0), tmp_path / "mine", "module", tokens(0))
    with pytest.raises(assay.Error, match="no program"):
        walk(mine, mine, "L")
