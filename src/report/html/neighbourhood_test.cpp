// SPDX-License-Identifier: Apache-2.0
#include "report/html/neighbourhood.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "locate/program/test_program.hpp"

namespace assay::report::html {
namespace {

using locate::test::TestRun;
using locate::test::Value;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

/// "maker -> user slot" of every edge of a drawing.
Names edges_of(const DataFlow& flow, const Neighbourhood& around) {
  const json graph = json::parse(neighbourhood_json(flow, around, {}));
  std::map<std::string, std::string> names;
  for (const json& node : graph["nodes"]) names[node["id"]] = node["name"];
  Names edges;
  for (const json& edge : graph["edges"]) {
    edges.push_back(names.at(edge["from"]) + " -> " + names.at(edge["to"]) + " " +
                    edge["slot"].get<std::string>());
  }
  return edges;
}

std::optional<uint32_t> find(const DataFlow& flow, std::string_view name) {
  for (uint32_t i = 0; i < flow.nodes.size(); ++i) {
    if (flow.nodes[i].name == name) return i;
  }
  return std::nullopt;
}

Names edges_around(const DataFlow& flow, std::string_view name,
                   const NeighbourhoodLimits& limits = {}) {
  return edges_of(flow, neighbourhood(flow, find(flow, name), limits));
}

/// y = x * w + x, in module "norm".
struct NormRun : TestRun {
  Value x, w, product, sum;
  NormRun() {
    x = value(DType::Float32, {2}, {1, 2});
    w = leaf("norm.weight", DType::Float32, {2}, {3, 4});
    module_input("norm", "0", x);
    product = op("norm", "aten.mul.Tensor", {{"self", x}, {"other", w}}, "{}",
                 value(DType::Float32, {2}, {3, 8}));
    sum = op("norm", "aten.add.Tensor", {{"self", product}, {"other", x}}, "{}",
             value(DType::Float32, {2}, {4, 10}));
    module_output("norm", sum);
    module_input("head", "0", sum);
    op("head", "aten.neg.default", {{"self", sum}}, "{}", value(DType::Float32, {2}, {-4, -10}));
  }
};

// ---- operators ----------------------------------------------------------------------------------

TEST(Neighbourhood, FollowsTheMakersThatOperatorsName) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  EXPECT_EQ(flow.basis, FlowBasis::Operators);
  EXPECT_EQ(flow.reason, "");
  EXPECT_THAT(edges_around(flow, "norm::aten.add.Tensor.0"),
              UnorderedElementsAre("norm::aten.mul.Tensor.0 -> norm::aten.add.Tensor.0 self",
                                   "norm::aten.add.Tensor.0 -> head::aten.neg.default.0 self",
                                   "norm.weight -> norm::aten.mul.Tensor.0 other"));
}

}  // namespace
}  // namespace assay::report::html
