# SPDX-License-Identifier: Apache-2.0
"""Small configurations keep the ratios of large ones. The numbers come from the published sizes, by arithmetic."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")
import model_configs
from transformers import AutoConfig

from assay.twin import shrink, sources


@pytest.fixture
def small(tmp_path):
    def of(kind, layers=4, width=128, **changes):
        return shrink.shrink(sources.read(model_configs.write(kind, tmp_path, **changes)), layers, width)

    return of


def test_llama_keeps_heads_width_vocabulary_and_scaled_positions(small):
    config = small("llama")

    # 32 query heads on 8 key/value heads: 4 to 1. 8 heads of 16 are the width, as 32 of 128 are.
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (8, 2, 16)
    assert config.hidden_size == 8 * 16
    assert config.intermediate_size == 448  # 3.5 times the width, as 14336 is of 4096
    assert config.num_hidden_layers == 4
    assert config.vocab_size == 512  # 128256 is 2004 times 64
    assert (config.bos_token_id, config.eos_token_id) == (1, 2)
    assert config.max_position_embeddings == 131072  # 8 times 8192 and more: the scale stays consistent
    assert config.rope_parameters["factor"] == 8.0
    assert config.rope_parameters["original_max_position_embeddings"] == 8192


def test_seven_query_heads_share_one_key_head(small):
    config = small("qwen2")

    assert (config.num_attention_heads, config.num_key_value_heads) == (14, 2)  # 28 to 4
    assert config.hidden_size == 14 * 16  # a width of 14 * 8 would be no multiple of 32, a block of Q8_0
    assert config.layer_types == ["full_attention"] * 4


def test_window_is_shorter_than_prompts(small):
    assert small("mistral").sliding_window == 24
    assert small("mixtral").sliding_window is None


def test_every_kind_of_layer_stays(small):
    assert small("gemma2").layer_types == ["sliding_attention", "full_attention"] * 2
    # Five of six layers have a window: the first four consecutive layers with one that has none are 2 to 5.
    assert small("gemma3_text").layer_types == ["sliding_attention"] * 3 + ["full_attention"]
    assert small("cohere2", layers=2).layer_types == ["sliding_attention", "full_attention"]
    assert small("qwen3_next", layers=1).layer_types == ["linear_attention", "full_attention"]
    assert small("recurrent_gemma", layers=1).num_hidden_layers == 3  # the cycle of its blocks
    jamba = small("jamba")  # attention at 4 of each 8 layers becomes attention at 2 of 4
    assert [jamba.layers_block_type[layer] for layer in range(4)] == ["mamba", "mamba", "attention", "mamba"]
    assert [jamba.layers_num_experts[layer] for layer in range(4)] == [1, 8, 1, 8]


def test_kinds_further_apart_than_the_layers_asked_for():
    kinds = [("a",)] * 5 + [("b",)] + [("a",)] * 4 + [("c",)]

    assert shrink.choose_layers(kinds, 4) == [0, 1, 5, 10]
    assert shrink.choose_layers([("a",), ("b",)] * 3, 4) == [0, 1, 2, 3]
    # Of [a a a b], [a a b b] and [a b b b] it is the second, whose rarest kind has two layers.
    assert shrink.choose_layers([("a",)] * 3 + [("b",)] * 3, 4) == [1, 2, 3, 4]


def test_mixture_keeps_a_choice_between_experts(small):
    mixtral = small("mixtral")
    assert (mixtral.num_local_experts, mixtral.num_experts_per_tok) == (8, 2)
    qwen = small("qwen3_moe")  # 8 of 128: of 8 experts 8 would be no choice
    assert (qwen.num_experts, qwen.num_experts_per_tok) == (8, 4)
    assert (qwen.num_attention_heads, qwen.num_key_value_heads) == (16, 2)


def test_latent_attention_keeps_its_proportions(small):
    config = small("deepseek_v3")

    assert config.qk_nope_head_dim == config.v_head_dim  # 128 and 128
    assert 2 * config.qk_rope_head_dim == config.qk_nope_head_dim  # 64 and 128
    assert config.q_lora_rank == 3 * config.kv_lora_rank  # 1536 and 512
    assert config.first_k_dense_replace == 1  # one dense layer, three with experts
    # Two of four groups with two experts each can be reached: two of those four are chosen.
    assert (config.n_routed_experts, config.n_group, config.topk_group, config.num_experts_per_tok) == (8, 4, 2, 2)
    assert config.n_shared_experts == 1
    assert config.rope_parameters["factor"] == 40
    assert config.max_position_embeddings == 163840


def test_rotary_share_is_kept(small):
    phi = small("phi")
    assert phi.hidden_size // phi.num_attention_heads == 40  # 0.4 of it are 16, an even number
    assert phi.rope_parameters["partial_rotary_factor"] == 0.4
    gptj = small("gptj")
    assert gptj.rotary_dim * 4 == gptj.n_embd // gptj.n_head  # 64 of 256


def test_longrope_has_a_factor_for_each_pair_of_channels(small):
    rope = small("phi3").rope_parameters

    # 96 channels a head become 32: every third of 48 factors.
    assert rope["short_factor"] == model_configs.PHI35_FACTORS[::3]
    assert rope["long_factor"] == model_configs.PHI35_FACTORS[::-1][::3]
    assert small("phi3").max_position_embeddings == 131072


def test_factors_that_stand_for_the_size_of_a_head_follow_it(small):
    gemma = small("gemma2")
    assert gemma.query_pre_attn_scalar == gemma.head_dim  # 256 and 256
    granite = small("granite")
    assert granite.attention_multiplier == 1 / 16  # 1/128 with heads of 128
    assert (granite.embedding_multiplier, granite.logits_scaling, granite.residual_multiplier) == (12, 16, 0.22)


def test_remainder_of_the_vocabulary_is_kept(small):
    assert small("gpt2").vocab_size == 512 + 17  # 50257 is 785 * 64 + 17
    assert small("granite").vocab_size == 512 + 3  # 49155 is 768 * 64 + 3


@pytest.mark.parametrize(
    ("heads", "few"),
    [((32, 8), (8, 2)), ((32, 32), (4, 4)), ((8, 1), (8, 1)), ((71, 1), (7, 1)), ((32, 2), (32, 2)), ((4, 1), (4, 1))],
)
def test_few_heads_have_the_same_ratio(heads, few):
    assert shrink.heads(*heads) == few


def test_uneven_heads_are_refused():
    with pytest.raises(ValueError, match="30 query heads are no multiple of 8 key/value heads"):
        shrink.heads(30, 8)


def test_tables_of_positions_and_tied_heads_stay(small):
    assert small("gpt2").n_positions == 1024
    assert small("gemma2").tie_word_embeddings
    assert not small("llama").tie_word_embeddings
    assert small("opt").word_embed_proj_dim * 2 == small("opt").hidden_size  # 512 and 1024


def test_a_twin_of_a_twin_is_refused(small):
    with pytest.raises(ValueError, match="a llama of 4 layers of width 128 cannot be made smaller"):
        shrink.shrink(small("llama"))


def test_sizes_can_be_asked_for(small):
    config = small("llama", layers=6, width=256)
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (6, 256, 32)


def test_multimodal_stands_for_its_text():
    config = shrink.shrink(AutoConfig.for_model("gemma3"))
    assert config.model_type == "gemma3_text"
