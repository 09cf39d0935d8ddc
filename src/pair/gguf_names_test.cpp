// SPDX-License-Identifier: Apache-2.0
#include "pair/gguf_names.hpp"

#include <gtest/gtest.h>

#include <array>

namespace assay::pair {
namespace {

TEST(GgufNameOf, NamesParametersBothWays) {
  const std::array<std::pair<const char*, const char*>, 6> names = {{
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias"},
      {"model.layers.31.self_attn.o_proj.weight", "blk.31.attn_output.weight"},
      {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
  }};
  for (const auto& [parameter, weight] : names) {
    ASSERT_TRUE(gguf_name_of(parameter)) << parameter;
    EXPECT_EQ(gguf_name_of(parameter)->name, weight);
    EXPECT_EQ(parameters_of(weight).at(0), parameter);
  }
  EXPECT_EQ(gguf_name_of("model.layers.3.self_attn.k_proj.weight")->heads, Heads::Keys);
  EXPECT_EQ(gguf_name_of("model.layers.3.self_attn.v_proj.weight")->heads, Heads::None);
}

TEST(GgufNameOf, DoesNotGuess) {
  EXPECT_FALSE(gguf_name_of("model.layers.3.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(gguf_name_of("model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(parameters_of("rope_freqs.weight").empty());
  EXPECT_TRUE(parameters_of("blk.3.ffn_gate_exps.weight").empty());  // of all experts
  EXPECT_TRUE(parameters_of("blk.3.ffn_gate.x.weight").empty());
}

TEST(ParametersOf, ListsTheNamesOfOtherFamiliesBehindTheUsualOne) {
  const std::vector<std::string> norm = parameters_of("blk.2.ffn_norm.weight");
  ASSERT_EQ(norm.size(), 3u);
  EXPECT_EQ(norm[0], "model.layers.2.post_attention_layernorm.weight");
  EXPECT_EQ(norm[1], "model.layers.2.pre_feedforward_layernorm.weight");  // Gemma
  EXPECT_EQ(norm[2], "gpt_neox.layers.2.post_attention_layernorm.weight");
}

TEST(ParametersOf, NamesOneExpert) {
  EXPECT_EQ(parameters_of("blk.12.ffn_up.34.weight"),
            (std::vector<std::string>{"model.layers.12.mlp.experts.34.up_proj.weight",
                                      "model.layers.12.block_sparse_moe.experts.34.w3.weight"}));
}

TEST(GgufExpertsOf, ListsEachWayThatFilesHaveThem) {
  using Ways = std::vector<std::vector<std::string>>;
  EXPECT_EQ(gguf_experts_of("base.model.layers.12.mlp.experts.gate_up_proj"),
            (Ways{{"blk.12.ffn_gate_exps.weight", "blk.12.ffn_up_exps.weight"},
                  {"blk.12.ffn_gate_up_exps.weight"}}));
  EXPECT_EQ(gguf_experts_of("model.layers.0.mlp.experts.down_proj"),
            (Ways{{"blk.0.ffn_down_exps.weight"}}));
  EXPECT_TRUE(gguf_experts_of("model.layers.0.mlp.experts.3.down_proj.weight").empty());
}

TEST(GgufChannel, PutsHalvesOfAHeadBesideEachOther) {
  // d = 6: 0 1 2 | 3 4 5 stand at 0 2 4 | 1 3 5; the second head follows.
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 12; ++i) places.push_back(gguf_channel(i, 6));
  EXPECT_EQ(places, (std::vector<int64_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

}  // namespace
}  // namespace assay::pair
