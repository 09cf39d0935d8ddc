// SPDX-License-Identifier: Apache-2.0
#include "pair/ggml_names.hpp"

#include <gtest/gtest.h>

#include <array>

namespace assay::pair {
namespace {

using Place = ModulePlace;

TEST(GgmlNodesOf, FindsAProjectionByLayerAndKnowsItsOrder) {
  const auto nodes = ggml_nodes_of({.module = "model.layers.12.self_attn.q_proj"}, 32);

  // With a bias the sum is the result, so it stands first.
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0], (GgmlNode{.name = "Qcur-12", .op = "add", .heads = Heads::Queries}));
  EXPECT_EQ(nodes[1], (GgmlNode{.name = "Qcur-12", .op = "mul_mat", .heads = Heads::Queries}));
}

TEST(GgmlNodesOf, TakesPlacesInsideModules) {
  const auto key =
      ggml_nodes_of({.module = "model.layers.0.self_attn", .place = Place::RotatedKey});
  const auto mixed =
      ggml_nodes_of({.module = "model.layers.0.self_attn.o_proj", .place = Place::Input});

  ASSERT_EQ(key.size(), 1u);
  EXPECT_EQ(key[0], (GgmlNode{.name = "Kcur-0", .op = "rope", .heads = Heads::Keys}));
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_EQ(mixed[0].op, "cont");
  EXPECT_EQ(mixed[1].op, "reshape");
}

TEST(GgmlNodesOf, SaysWhereOnlyRequestedRowsAreComputed) {
  const auto requested = [](const char* module, Place place = Place::Output) {
    return ggml_nodes_of({.module = module, .place = place}, 4).at(0).requested_rows;
  };

  EXPECT_FALSE(requested("model.embed_tokens"));
  EXPECT_FALSE(requested("model.layers.2"));
  // In the last layer the rows are chosen behind the attention.
  EXPECT_FALSE(requested("model.layers.3.self_attn.o_proj"));
  EXPECT_TRUE(requested("model.layers.3.post_attention_layernorm", Place::Input));
  EXPECT_TRUE(requested("model.layers.3.mlp.down_proj", Place::Input));
  EXPECT_TRUE(requested("model.layers.3"));
  EXPECT_TRUE(requested("model.norm"));
  EXPECT_TRUE(requested("lm_head"));
}

TEST(GgmlNodesOf, AcceptsWhatStandsBeforeTheModelAndNothingElse) {
  EXPECT_EQ(ggml_nodes_of({.module = "language_model.model.norm"}).size(), 1u);
  EXPECT_EQ(ggml_nodes_of({.module = "draft/model.layers.1.mlp.up_proj"}).size(), 1u);
  for (const char* module : {"", "supermodel.norm", "model.layers.x.mlp", "model.layers.1.mlp.up",
                             "model.layers..mlp", "model.layers.99999999999999999999.mlp"}) {
    EXPECT_TRUE(ggml_nodes_of({.module = module}).empty()) << module;
  }
}

TEST(ModuleTensorsOf, NamesEveryModuleAndTellsOperatorsApart) {
  EXPECT_EQ(module_tensors_of("ffn_out-7", "mul_mat"),
            (std::vector<ModuleTensor>{{"model.layers.7.mlp.down_proj", Place::Output},
                                       {"model.layers.7.mlp", Place::Output}}));
  EXPECT_EQ(module_tensors_of("Qcur-0", "rope"),
            (std::vector<ModuleTensor>{{"model.layers.0.self_attn", Place::RotatedQuery}}));
  EXPECT_TRUE(module_tensors_of("Qcur-0", "reshape").empty());
  EXPECT_TRUE(module_tensors_of("norm-0", "rms_norm").empty());
  EXPECT_TRUE(module_tensors_of("x.Qcur-0", "rope").empty());
}

TEST(ModuleTensorsOf, KnowsProductsWithoutAName) {
  // Qwen2's graph names no product of attn_output.
  EXPECT_EQ(module_tensors_of("(blk.2.attn_output.weight)", "mul_mat"),
            (std::vector<ModuleTensor>{{"model.layers.2.self_attn.o_proj", Place::Output},
                                       {"model.layers.2.self_attn", Place::Output}}));
}

TEST(ModuleTensorsOf, UndoesEveryRow) {
  for (const char* module :
       {"embed_tokens", "layers.3.input_layernorm", "layers.3.self_attn.q_proj",
        "layers.3.self_attn.v_proj", "layers.3.mlp.gate_proj", "layers.3", "norm"}) {
    const ModuleTensor tensor{.module = std::string("model.") + module};
    for (const GgmlNode& node : ggml_nodes_of(tensor)) {
      EXPECT_EQ(module_tensors_of(node.name, node.op).at(0), tensor);
    }
  }
}

TEST(GgmlWeightOf, NamesParametersBothWays) {
  const std::array<std::pair<const char*, const char*>, 6> names = {{
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias"},
      {"model.layers.31.self_attn.o_proj.weight", "blk.31.attn_output.weight"},
      {"model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
  }};
  for (const auto& [parameter, weight] : names) {
    ASSERT_TRUE(ggml_weight_of(parameter)) << parameter;
    EXPECT_EQ(ggml_weight_of(parameter)->name, weight);
    EXPECT_EQ(parameters_of(weight).at(0), parameter);
  }
  EXPECT_EQ(ggml_weight_of("model.layers.3.self_attn.k_proj.weight")->heads, Heads::Keys);
  EXPECT_EQ(ggml_weight_of("model.layers.3.self_attn.v_proj.weight")->heads, Heads::None);
}

TEST(GgmlWeightOf, DoesNotGuess) {
  EXPECT_FALSE(ggml_weight_of("model.layers.3.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(ggml_weight_of("model.layers.3.mlp.up_proj"));
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

TEST(GgmlExpertsOf, ListsEachWayThatFilesHaveThem) {
  using Ways = std::vector<std::vector<std::string>>;
  EXPECT_EQ(ggml_experts_of("base.model.layers.12.mlp.experts.gate_up_proj"),
            (Ways{{"blk.12.ffn_gate_exps.weight", "blk.12.ffn_up_exps.weight"},
                  {"blk.12.ffn_gate_up_exps.weight"}}));
  EXPECT_EQ(ggml_experts_of("model.layers.0.mlp.experts.down_proj"),
            (Ways{{"blk.0.ffn_down_exps.weight"}}));
  EXPECT_TRUE(ggml_experts_of("model.layers.0.mlp.experts.3.down_proj.weight").empty());
}

TEST(GgmlNodesOf, KnowsWhatARouterAndItsExpertsMake) {
  const auto first = [](const char* module, ModulePlace place) {
    return ggml_nodes_of({.module = module, .place = place}, 4).at(0);
  };
  const GgmlNode gate = first("model.layers.3.mlp.experts", ModulePlace::ExpertGate);
  EXPECT_EQ(gate.name, "ffn_moe_gate-3");
  EXPECT_EQ(gate.op, "mul_mat_id");
  EXPECT_TRUE(gate.requested_rows);  // of the last of four layers
  EXPECT_FALSE(first("model.layers.2.mlp.experts", ModulePlace::ExpertDown).requested_rows);
  EXPECT_EQ(first("model.layers.0.mlp.gate", ModulePlace::RouterChoices).name, "ffn_moe_topk-0");
  EXPECT_EQ(first("model.layers.0.mlp.gate", ModulePlace::Output).name, "ffn_moe_logits-0");
}

TEST(GgmlChannel, PutsHalvesOfAHeadBesideEachOther) {
  // d = 6: 0 1 2 | 3 4 5 stand at 0 2 4 | 1 3 5; the second head follows.
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 12; ++i) places.push_back(ggml_channel(i, 6));
  EXPECT_EQ(places, (std::vector<int64_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

TEST(ParseGgmlNode, TakesNamesWithDotsAndMarksApart) {
  const auto node = parse_ggml_node("cache_k_l0 (view)::ggml.set_rows.12");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->name, "cache_k_l0 (view)");
  EXPECT_EQ(node->op, "set_rows");
  EXPECT_EQ(node->number, 12);
  EXPECT_EQ(parse_ggml_node("(blk.0.attn_output.weight)::ggml.mul_mat.0")->name,
            "(blk.0.attn_output.weight)");
  for (const char* text : {"", "model.norm", "model.norm::aten.mul.Tensor.1", "x::ggml.rope",
                           "x::ggml.rope.", "x::ggml.rope.one"})
    EXPECT_FALSE(parse_ggml_node(text)) << text;
}

}  // namespace
}  // namespace assay::pair
