// SPDX-License-Identifier: Apache-2.0
#include "engines/ggml/node_names.hpp"

#include <gtest/gtest.h>

#include <array>

namespace assay::engines::ggml {
namespace {

using Place = ModulePlace;

TEST(NodesOf, FindsAProjectionByLayerAndKnowsItsOrder) {
  const auto nodes = nodes_of({.module = "model.layers.12.self_attn.q_proj"}, 32);

  // With a bias the sum is the result, so it stands first.
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0], (GraphNode{.name = "Qcur-12", .op = "add", .heads = Heads::Queries}));
  EXPECT_EQ(nodes[1], (GraphNode{.name = "Qcur-12", .op = "mul_mat", .heads = Heads::Queries}));
}

TEST(NodesOf, TakesPlacesInsideModules) {
  const auto key = nodes_of({.module = "model.layers.0.self_attn", .place = Place::RotatedKey});
  const auto mixed = nodes_of({.module = "model.layers.0.self_attn.o_proj", .place = Place::Input});

  ASSERT_EQ(key.size(), 1u);
  EXPECT_EQ(key[0], (GraphNode{.name = "Kcur-0", .op = "rope", .heads = Heads::Keys}));
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_EQ(mixed[0].op, "cont");
  EXPECT_EQ(mixed[1].op, "reshape");
}

TEST(NodesOf, SaysWhereOnlyRequestedRowsAreComputed) {
  const auto requested = [](const char* module, Place place = Place::Output) {
    return nodes_of({.module = module, .place = place}, 4).at(0).requested_rows;
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

TEST(NodesOf, AcceptsWhatStandsBeforeTheModelAndNothingElse) {
  EXPECT_EQ(nodes_of({.module = "language_model.model.norm"}).size(), 1u);
  EXPECT_EQ(nodes_of({.module = "draft/model.layers.1.mlp.up_proj"}).size(), 1u);
  for (const char* module : {"", "supermodel.norm", "model.layers.x.mlp", "model.layers.1.mlp.up",
                             "model.layers..mlp", "model.layers.99999999999999999999.mlp"}) {
    EXPECT_TRUE(nodes_of({.module = module}).empty()) << module;
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
    for (const GraphNode& node : nodes_of(tensor)) {
      EXPECT_EQ(module_tensors_of(node.name, node.op).at(0), tensor);
    }
  }
}

TEST(NodesOf, KnowsWhatARouterAndItsExpertsMake) {
  const auto first = [](const char* module, ModulePlace place) {
    return nodes_of({.module = module, .place = place}, 4).at(0);
  };
  const GraphNode gate = first("model.layers.3.mlp.experts", ModulePlace::ExpertGate);
  EXPECT_EQ(gate.name, "ffn_moe_gate-3");
  EXPECT_EQ(gate.op, "mul_mat_id");
  EXPECT_TRUE(gate.requested_rows);  // of the last of four layers
  EXPECT_FALSE(first("model.layers.2.mlp.experts", ModulePlace::ExpertDown).requested_rows);
  EXPECT_EQ(first("model.layers.0.mlp.gate", ModulePlace::RouterChoices).name, "ffn_moe_topk-0");
  EXPECT_EQ(first("model.layers.0.mlp.gate", ModulePlace::Output).name, "ffn_moe_logits-0");
}

TEST(ParseNode, TakesNamesWithDotsAndMarksApart) {
  const auto node = parse_node("cache_k_l0 (view)::ggml.set_rows.12");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->name, "cache_k_l0 (view)");
  EXPECT_EQ(node->op, "set_rows");
  EXPECT_EQ(node->number, 12);
  EXPECT_EQ(parse_node("(blk.0.attn_output.weight)::ggml.mul_mat.0")->name,
            "(blk.0.attn_output.weight)");
  for (const char* text : {"", "model.norm", "model.norm::aten.mul.Tensor.1", "x::ggml.rope",
                           "x::ggml.rope.", "x::ggml.rope.one"})
    EXPECT_FALSE(parse_node(text)) << text;
}

}  // namespace
}  // namespace assay::engines::ggml
