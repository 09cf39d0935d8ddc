// SPDX-License-Identifier: Apache-2.0
// Reading module trees, finding layers in them, and the order of numbered names.
#include "topology/model_tree.hpp"

#include <gtest/gtest.h>

#include "run/layers.hpp"
#include "run/natural_sort.hpp"

namespace assay::run {
namespace {

using topology::read_model_tree;

TEST(NaturalLess, ComparesRunsOfDigitsAsNumbers) {
  EXPECT_TRUE(natural_less("layers.2", "layers.10"));
  EXPECT_FALSE(natural_less("layers.10", "layers.2"));
  EXPECT_TRUE(natural_less("a9", "b1"));
  EXPECT_TRUE(natural_less("root", "root.a"));
  EXPECT_TRUE(
      natural_less("x99999999999999999999998", "x99999999999999999999999"));  // beyond 64 bits
}

TEST(NaturalLess, OrdersNamesThatDifferOnlyInLeadingZeros) {
  EXPECT_TRUE(natural_less("a01", "a1"));
  EXPECT_FALSE(natural_less("a1", "a01"));
  EXPECT_FALSE(natural_less("a1", "a1"));
}

TEST(ReadModelTree, ReadsTheTreeOfATorchDump) {
  const auto tree = read_model_tree(
      R"({"name": "root", "type": "TinyLM", "children": [{"name": "root.embed", "type": "Embedding", "children": []},)"
      R"( {"name": "root.lm_head", "type": "Linear", "children": [], "exec_order": 7}]})");

  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_EQ(tree->name, "root");
  EXPECT_EQ(tree->type, "TinyLM");
  ASSERT_EQ(tree->children.size(), 2u);
  EXPECT_EQ(tree->children[0].name, "root.embed");
  EXPECT_EQ(tree->children[1].type, "Linear");
  EXPECT_FALSE(tree->children[0].exec_order);
  EXPECT_EQ(tree->children[1].exec_order, 7);
}

TEST(ReadModelTree, IgnoresTheTailOfALongerEarlierTree) {
  const auto tree = read_model_tree(
      R"({"name": "root", "type": "M", "children": []}ype": "Linear", "children": []}]})");
  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_EQ(tree->type, "M");
}

TEST(ReadModelTree, SkipsUnknownKeysWithNodesInside) {
  // `parameters` holds objects with a name of their own; they are no modules.
  const auto tree = read_model_tree(
      R"({"name":"","type":"M","parameters":[{"name":"weight","children":[{"name":"x"}]}],"children":[{"name":"a","type":"B"}]})");
  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_EQ(tree->name, "");
  ASSERT_EQ(tree->children.size(), 1u);
  EXPECT_EQ(tree->children[0].name, "a");
}

TEST(ReadModelTree, SaysWhereTheTextEnds) {
  const auto tree = read_model_tree(R"({"name": "root", "chil)");
  ASSERT_FALSE(tree);
  EXPECT_EQ(tree.error().code, Errc::Invalid);
  EXPECT_TRUE(tree.error().offset.has_value());
}

TEST(ReadModelTree, RejectsWhatIsNoTree) {
  for (const char* text : {"", "[]", "3", "\"root\"", "null"}) {
    const auto tree = read_model_tree(text);
    ASSERT_FALSE(tree) << text;
    EXPECT_EQ(tree.error().code, Errc::Invalid) << text;
  }
}

TEST(ReadModelTree, RefusesModulesNestedBeyondTheLimit) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += R"({"children":[)";
  const auto tree = read_model_tree(text);
  ASSERT_FALSE(tree);
  EXPECT_EQ(tree.error().code, Errc::TooLarge);
}

TEST(ReadModelTree, SurvivesDeepNestingUnderUnknownKeys) {
  const std::string text =
      R"({"x":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + R"(,"name":"root"})";
  const auto tree = read_model_tree(text);
  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_EQ(tree->name, "root");
}

TopologyNode node(std::string name, std::string type, std::vector<TopologyNode> children = {}) {
  return {std::move(name), std::move(type), std::move(children), std::nullopt};
}

TopologyNode model_with_layers(int count) {
  std::vector<TopologyNode> blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(node("root.layers." + std::to_string(i), "Block", {node("x", "Linear")}));
  }
  const TopologyNode embeddings = node(
      "root.embeddings", "Embeddings",
      {node("root.embeddings.word", "Embedding"), node("root.embeddings.position", "Embedding")});
  return node("root", "Model", {embeddings, node("root.layers", "ModuleList", std::move(blocks))});
}

TEST(LayerType, NeedsMoreThanTenChildrenAsTheOriginalDoes) {
  EXPECT_EQ(layer_type(model_with_layers(11)), "Block");
  EXPECT_EQ(layer_type(model_with_layers(10)), "");
}

TEST(LayerType, FindsTheLayersOfSmallModels) {
  // The two embeddings stand before the layers and have one type, but are no numbered list.
  EXPECT_EQ(layer_type(model_with_layers(2), kAnySizeLayerRule), "Block");
  EXPECT_EQ(layer_type(node("root", "Model", {node("root.a", "Linear")}), kAnySizeLayerRule), "");
}

TEST(LayerType, GivesUpBelowAWideNodeWithoutAFrequentType) {
  // Eleven children of eleven types: the search ends there, although a list of twelve blocks stands
  // inside one.
  std::vector<TopologyNode> parts;
  for (int i = 0; i < 10; ++i)
    parts.push_back(node("root." + std::to_string(i), "Type" + std::to_string(i)));
  parts.push_back(model_with_layers(12));
  EXPECT_EQ(layer_type(node("root", "Wide", std::move(parts))), "");
}

TEST(LayersOfType, DoesNotSearchInsideALayer) {
  const TopologyNode tree =
      node("root", "M", {node("a", "Block", {node("a.inner", "Block")}), node("b", "Block")});
  const auto layers = layers_of_type(tree, "Block");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0]->name, "a");
  EXPECT_EQ(layers[1]->name, "b");
}

TEST(ReadModelTree, TakesTheLineOfAModulesCode) {
  // A source of a parameter is none of the module; one that is no text counts as unknown.
  const auto tree = read_model_tree(
      R"({"name":"","type":"M","source":7,"children":[{"name":"a","type":"Norm","source":"x/norm.py:12",)"
      R"("parameters":[{"name":"weight","source":"no"}],"children":[{"name":"a.b","type":"X"}]}]})");
  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_EQ(tree->source, "");
  EXPECT_EQ(tree->children[0].source, "x/norm.py:12");
  EXPECT_EQ(tree->children[0].children[0].source, "");
  using Sources = std::map<std::string_view, std::string_view>;
  EXPECT_EQ(topology::module_sources(*tree), (Sources{{"a", "x/norm.py:12"}}));
}

TEST(ReadModelTree, TakesTheTypesOfParameters) {
  const auto tree = topology::read_model_tree(
      R"({"name":"","type":"M","parameters":[],"children":[{"name":"a","type":"Linear",)"
      R"("parameters":[{"name":"weight","dtype":"bfloat16","shape":[2,{"name":"no"}]},{"name":"bias","dtype":"float32"},)"
      R"({"name":"half"},[{"name":"deep","dtype":"int8"}],"text"],)"
      R"("children":[{"name":"a.b","type":"X","dtype":"int8"}]}]})");
  ASSERT_TRUE(tree) << tree.error().describe();
  EXPECT_TRUE(tree->parameter_types.empty());
  using Types = std::map<std::string, std::string>;
  EXPECT_EQ(tree->children[0].parameter_types,
            (Types{{"weight", "bfloat16"}, {"bias", "float32"}}));
  EXPECT_TRUE(tree->children[0].children[0].parameter_types.empty());
  EXPECT_EQ(tree->children[0].children[0].name, "a.b");
}

}  // namespace
}  // namespace assay::run
