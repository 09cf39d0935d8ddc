// SPDX-License-Identifier: Apache-2.0
#include "run/layers.hpp"

#include <gtest/gtest.h>

#include "base/text.hpp"
#include "run/fold_layers.hpp"

namespace assay::run {
namespace {

std::string layer_name(std::string_view node) {
  const auto layer = layer_of_node(node);
  return layer ? layer->name() : "";
}

TEST(LayerOfNode, ReadsTheOutermostNumberOfAPath) {
  EXPECT_EQ(layer_name("model.layers.17.mlp.experts.3.down_proj"), "model.layers.17");
  EXPECT_EQ(layer_name("model.layers.17::aten.add.Tensor.4"), "model.layers.17");
  EXPECT_EQ(layer_name("decoder.block.0"), "decoder.block.0");
  EXPECT_EQ(layer_name("blk.3.attn_q.weight"), "blk.3");
  EXPECT_EQ(layer_name("model.norm"), "");
  EXPECT_EQ(layer_name("lm_head::aten.mm.default.0"), "");  // the number counts operators
}

TEST(LayerOfNode, KnowsLayersOfAtbByWhatTheyAre) {
  EXPECT_EQ(layer_name("3_Prefill_layer/1_Attention"), "3_Prefill_layer");
  EXPECT_EQ(layer_name("12_ChatGlmDecoderLayer"), "12_ChatGlmDecoderLayer");
  EXPECT_EQ(layer_name("0_WordEmbedding/0_GatherOperation"), "");
}

TEST(LayerOfNode, KnowsLayersOfProgramsWithoutModules) {
  for (const char* node : {"Qcur-5::ggml.mul_mat.0", "kqv-5 (permuted)::ggml.permute.0",
                           "cache_k_l5 (view)::ggml.set_rows.0", "(attn_out-5)::ggml.get_rows.0",
                           "(blk.5.attn_output.weight)::ggml.mul_mat.0"})
    EXPECT_EQ(layer_name(node), "layer 5") << node;
  EXPECT_EQ(layer_name("result_norm::ggml.mul.0"), "");
  EXPECT_EQ(layer_name("Qcur-5"), "");  // no operator: "-5" may be anything
}

TEST(LayerOfNode, RefusesNumbersThatFitNowhere) {
  EXPECT_EQ(layer_name("layers.99999999999999999999.mlp"), "");
  EXPECT_EQ(layer_name("-3_layer/x"), "");
}

// ---- folding ----

/// Lines as "path what", the path with dots.
std::vector<std::string> folded(const std::vector<std::string>& lines) {
  std::vector<ListedPart> parts;
  for (const std::string& line : lines) {
    const size_t blank = line.find(' ');
    const auto path = split(std::string_view(line).substr(0, blank), '.');
    parts.push_back({{path.begin(), path.end()}, line.substr(blank + 1)});
  }
  std::vector<std::string> out;
  for (const FoldedPart& part : fold_layers(parts)) {
    std::string text;
    for (const std::string& name : part.path) text += (text.empty() ? "" : ".") + name;
    out.push_back(text + " " + parts[part.index].what + " x" + std::to_string(part.times()));
  }
  return out;
}
using Lines = std::vector<std::string>;

TEST(FoldLayers, ShowsEqualLayersOnce) {
  EXPECT_EQ(folded({"embed E", "layers.0 L", "layers.0.mlp M", "layers.1 L", "layers.1.mlp M",
                    "layers.2 L", "layers.2.mlp M", "norm N"}),
            (Lines{"embed E x1", "layers.0-2 L x3", "layers.0-2.mlp M x3", "norm N x1"}));
}

TEST(FoldLayers, KeepsALayerThatDiffersAnywhereBelow) {
  EXPECT_EQ(folded({"l.0.mlp M", "l.1.mlp other", "l.2.mlp M", "l.3.mlp M", "l.3.extra X"}),
            (Lines{"l.0, 2.mlp M x2", "l.1.mlp other x1", "l.3.mlp M x1", "l.3.extra X x1"}));
}

TEST(FoldLayers, LeavesAloneWhatIsNamedDifferently) {
  const Lines lines = {"a.0.x M", "a.1.y M", "b.0.x M"};
  EXPECT_EQ(folded(lines), (Lines{"a.0.x M x1", "a.1.y M x1", "b.0.x M x1"}));
}

TEST(FoldLayers, MakesTwoGroupsOfAModelThatAlternates) {
  Lines lines;
  for (int i = 0; i < 10; ++i)
    lines.push_back("l." + std::to_string(i) + (i % 2 == 0 ? ".local A" : ".global B"));
  EXPECT_EQ(folded(lines), (Lines{"l.0, 2, 4, ... 8.local A x5", "l.1, 3, 5, ... 9.global B x5"}));
}

TEST(FoldLayers, FoldsStepsOfASequentialOnlyWhereTheyAreNeighbours) {
  EXPECT_EQ(folded({"0 Linear", "1 ReLU", "2 Linear", "3 Linear"}),
            (Lines{"0 Linear x1", "1 ReLU x1", "2-3 Linear x2"}));
}

TEST(FoldLayers, FoldsExpertsWithinALayer) {
  EXPECT_EQ(folded({"l.0.e.0.up U", "l.0.e.1.up U", "l.1.e.0.up U", "l.1.e.1.up U"}),
            (Lines{"l.0-1.e.0-1.up U x4"}));
}

TEST(FoldLayers, FoldsLayersOfAtbAndNotTheirOperations) {
  EXPECT_EQ(folded({"1_Prefill_layer.0_Linear L", "1_Prefill_layer.1_Linear L",
                    "2_Prefill_layer.0_Linear L", "2_Prefill_layer.1_Linear L"}),
            (Lines{"1-2_Prefill_layer.0_Linear L x2", "1-2_Prefill_layer.1_Linear L x2"}));
}

TEST(FoldLayers, TellsPathsApartThatOnlyJoinAlike) {
  // "0" with "a\0b" below it is not "0" with "a" and "b" below it.
  const std::vector<ListedPart> parts = {{{"l", "0", "a", "b"}, "M"}, {{"l", "1", "a"}, "bM"}};
  EXPECT_EQ(fold_layers(parts).size(), 2u);
  EXPECT_TRUE(fold_layers({}).empty());
}

TEST(ExpertOfNode, IsWhatAListOfExpertsNumbers) {
  const auto expert = expert_of_node("model.layers.3.mlp.local_experts.5.up.weight");
  ASSERT_TRUE(expert);
  EXPECT_EQ(expert->name(), "model.layers.3.mlp.local_experts.5");
  EXPECT_EQ(expert->number, 5);
  EXPECT_FALSE(expert_of_node("model.layers.3.mlp.shared_experts.0.up"));
  EXPECT_FALSE(expert_of_node("model.layers.3.mlp.experts.gate_up_proj"));
  EXPECT_FALSE(expert_of_node("model.layers.3.mlp.experts::aten.mm.default.5"));
}

}  // namespace
}  // namespace assay::run
