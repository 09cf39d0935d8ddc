// SPDX-License-Identifier: Apache-2.0
#include "formats/graph_text.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

std::vector<GraphText> read(std::string_view text) {
  auto graphs = read_graph_text(text);
  EXPECT_TRUE(graphs.has_value()) << graphs.error().describe();
  return graphs ? *graphs : std::vector<GraphText>{};
}
Error error_of(std::string_view text) {
  const auto graphs = read_graph_text(text);
  EXPECT_FALSE(graphs.has_value()) << text;
  return graphs ? Error{} : graphs.error();
}

TEST(ReadGraphText, ReadsAnOperatorOfADynamoGraph) {
  const auto graphs = read(R"(name: "graph_1"
op {
  name: "Add_1"
  type: "Add"
  input: "Add:0"
  input: "x_1:0"
  attr {
    key: "_output_name_key"
    value {
      list {
        s: "y"
        val_type: VT_LIST_STRING
      }
    }
  }
  id: 3
  input_desc {
    name: "x1"
    dtype: DT_FLOAT
    layout: "ND"
  }
  output_desc {
    name: "y"
    dtype: DT_FLOAT
    shape {
      dim: 2
      dim: -1
    }
    layout: "ND"
    attr {
      key: "_fx_tensor_name"
      value {
        s: "add_1-aten.add.Tensor.OUTPUT.0"
      }
    }
  }
}
)");
  ASSERT_EQ(graphs.size(), 1u);
  EXPECT_EQ(graphs[0].name, "graph_1");
  ASSERT_EQ(graphs[0].ops.size(), 1u);
  const GraphOp& op = graphs[0].ops[0];
  EXPECT_EQ(op.name, "Add_1");
  EXPECT_EQ(op.type, "Add");
  EXPECT_EQ(op.inputs, (std::vector<std::string>{"Add:0", "x_1:0"}));
  EXPECT_EQ(op.attributes.at("_output_name_key").texts, std::vector<std::string>{"y"});
  ASSERT_EQ(op.input_desc.size(), 1u);
  EXPECT_EQ(op.input_desc[0].name, "x1");
  ASSERT_EQ(op.output_desc.size(), 1u);
  EXPECT_EQ(op.output_desc[0].dtype, "DT_FLOAT");
  EXPECT_EQ(op.output_desc[0].shape, (Dims{2, -1}));
  EXPECT_EQ(op.output_desc[0].attributes.at("_fx_tensor_name").text,
            "add_1-aten.add.Tensor.OUTPUT.0");
}

TEST(ReadGraphText, ReadsTheGraphsOfAModel) {
  const auto graphs = read(R"(name: "model"  version: 1
      graph { name: "a" op { name: "x" } }
      graph: < name: "b"; op: < name: "y" >, op { name: 'z' } >)");
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[0].name, "a");
  EXPECT_EQ(graphs[1].name, "b");
  ASSERT_EQ(graphs[1].ops.size(), 2u);
  EXPECT_EQ(graphs[1].ops[1].name, "z");
}

TEST(ReadGraphText, ReadsEveryKindOfString) {
  const auto graphs = read(
      "op { name: \"a: {b} # \\\"c\\\"\" type: 'x' \"y\" # comment } \"\n \"z\" "
      "input: \"\\101\\x42\\u00e9\\n\\345\\220\\215\" }");
  const GraphOp& op = graphs.at(0).ops.at(0);
  EXPECT_EQ(op.name, "a: {b} # \"c\"");
  EXPECT_EQ(op.type, "xyz");
  EXPECT_EQ(op.inputs.at(0), "AB\xc3\xa9\n\xe5\x90\x8d");
}

TEST(ReadGraphText, ReadsEveryKindOfAttribute) {
  const auto graphs = read(R"(op { name: "x"
    attr { key: "i" value { i: -5 } }
    attr { key: "hex" value { i: 0x10 } }
    attr { key: "f" value { f: 1.5e-3f } }
    attr { key: "b" value { b: true } }
    attr { key: "list" value { list { i: [1, 2] i: 3 } } }
    attr { key: "empty" value { list { val_type: VT_LIST_STRING } } }
    attr { key: "t" value { t { desc { name: "w" } data: "\000\377" } } } })");
  const GraphAttributes& attributes = graphs.at(0).ops.at(0).attributes;
  EXPECT_EQ(attributes.at("i").number, -5);
  EXPECT_EQ(attributes.at("hex").number, 16);
  EXPECT_EQ(attributes.at("f").real, 1.5e-3);
  EXPECT_EQ(attributes.at("b").truth, true);
  EXPECT_EQ(attributes.at("list").numbers, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(attributes.at("empty").texts.empty());
  EXPECT_FALSE(attributes.at("t").text.has_value());
}

TEST(ReadGraphText, SkipsWhatItDoesNotKnow) {
  const auto graphs =
      read(R"([assay.extension] { a: 1 } future { deep { x: [ "1", "2" ] y: - inf } }
      op { name: "x" attr_groups { def { } } [type.googleapis.com/a] < > })");
  EXPECT_EQ(graphs.at(0).ops.at(0).name, "x");
}

TEST(ReadGraphText, SaysWhereTheTextIsWrong) {
  EXPECT_EQ(error_of("op { name: \"x\"").offset, 14u);
  EXPECT_EQ(error_of("op { name \"x\" }").offset, 10u);
  EXPECT_EQ(error_of("op }").offset, 3u);
  EXPECT_EQ(error_of("op { name: \"x }").code, Errc::Invalid);
  EXPECT_EQ(error_of("op { name: \"\\q\" }").code, Errc::Invalid);
  EXPECT_EQ(error_of("op { output_desc { shape { dim: two } } }").code, Errc::Invalid);
  EXPECT_EQ(error_of("op { input: [\"a\" \"b\" ").code, Errc::Invalid);
  EXPECT_EQ(error_of("PK\x03\x04").code, Errc::Invalid);
}

TEST(ReadGraphText, RefusesDeepNesting) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "a{";
  EXPECT_EQ(error_of(text).code, Errc::TooLarge);
}

TEST(SplitGraphEdge, TakesTheLastColon) {
  EXPECT_EQ(split_graph_edge("a:b:2"), (std::pair<std::string_view, int64_t>("a:b", 2)));
  EXPECT_EQ(split_graph_edge("Add:-1"), (std::pair<std::string_view, int64_t>("Add", -1)));
  EXPECT_EQ(split_graph_edge(""), (std::pair<std::string_view, int64_t>("", 0)));
}

}  // namespace
}  // namespace assay::formats
