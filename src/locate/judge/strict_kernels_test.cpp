// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/strict_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace assay::locate {
namespace {

/// A program of `layers` layers with one product and one norm each, and their measures.
struct Layers {
  Program program;
  OwnErrors errors;

  explicit Layers(int layers, double z = 1, double e = 0.9, double e2 = 0.8, double zr = 1.2) {
    for (int layer = 0; layer < layers; ++layer) {
      add("model.layers." + std::to_string(layer) + ".mlp", "aten.mm.default", z, e, e2, zr);
      add("model.layers." + std::to_string(layer) + ".norm", "aten.rms_norm.default", z, e, e2, zr);
    }
  }
  OwnError& add(const std::string& module, const std::string& name, double z, double e, double e2,
                double zr) {
    Operator one;
    one.module = module;
    one.name = name;
    one.time = program.operators.size();
    one.outputs.push_back({});
    program.operators.push_back(one);
    OwnError error;
    error.op = program.operators.size() - 1;
    error.state = OwnError::State::Judged;
    error.dtype = DType::BFloat16;
    error.z = z;
    error.e = e;
    error.e2 = e2;
    error.zr = zr;
    errors.outputs.push_back(error);
    return errors.outputs.back();
  }
  const OwnErrors& judge() {
    find_wrong_operators(program, &errors);
    return errors;
  }
};

TEST(FindWrongOperators, OfAStrictRunAnythingBeyondTwoRoundings) {
  Layers layers(12);
  layers.errors.outputs[7].z = 2.01;
  layers.errors.outputs[16].e = 2.01;
  layers.errors.outputs[18].e = 1.99;
  const OwnErrors& errors = layers.judge();
  EXPECT_TRUE(errors.strict.at(DType::BFloat16));
  ASSERT_EQ(errors.findings.size(), 2u);
  EXPECT_EQ(errors.findings[0].mine_operator, 7u);
  EXPECT_EQ(errors.findings[1].mine_operator, 16u);
  EXPECT_EQ(errors.findings[0].confidence, Confidence::High);
  EXPECT_DOUBLE_EQ(errors.findings[0].ratio, 2.01);
}

TEST(FindWrongOperators, StrictnessIsCountedAmongOutputsWithAnError) {
  // Given  20 outputs of which 17 are exact; 1 of the other 3 has e above 1.05
  Layers layers(10);
  for (size_t i = 0; i < 17; ++i) {
    layers.errors.outputs[i].state = OwnError::State::Exact;
    layers.errors.outputs[i].z = layers.errors.outputs[i].e = 0;
  }
  layers.errors.outputs[19].e = 1.06;
  EXPECT_FALSE(layers.judge().strict.at(DType::BFloat16));
  layers.errors.outputs[19].e = 1.05;
  EXPECT_TRUE(layers.judge().strict.at(DType::BFloat16));
}

TEST(FindWrongOperators, ACoarseRunIsJudgedByItsOtherLayers) {
  // Given  kernels that round more than once everywhere
  Layers layers(12, 2.2, 300, 1.4, 3);
  EXPECT_TRUE(layers.judge().findings.empty());
  EXPECT_FALSE(layers.errors.strict.at(DType::BFloat16));
  // and systematic groups are said
  ASSERT_EQ(layers.errors.coarse.size(), 2u);
  EXPECT_EQ(layers.errors.coarse[0].pattern, "model.layers.*.mlp aten.mm.default #0 bfloat16");
  EXPECT_EQ(layers.errors.coarse[0].members, 12u);
  EXPECT_DOUBLE_EQ(layers.errors.coarse[0].median_z, 2.2);

  const auto found = [](auto change) {
    Layers some(12, 2.2, 300, 1.4, 3);
    change(some.errors.outputs[8]);
    return some.judge().findings.size();
  };
  // 2.5 times the median of the others: z 5.5, e2 3.5, zr 7.5
  EXPECT_EQ(found([](OwnError& error) { error.z = 5.4; }), 0u);
  EXPECT_EQ(found([](OwnError& error) { error.z = 5.6; }), 1u);
  EXPECT_EQ(found([](OwnError& error) { error.e2 = 3.4; }), 0u);
  EXPECT_EQ(found([](OwnError& error) { error.e2 = 3.6; }), 1u);
  EXPECT_EQ(found([](OwnError& error) { error.zr = 7.4; }), 0u);
  EXPECT_EQ(found([](OwnError& error) { error.zr = 7.6; }), 1u);
  EXPECT_EQ(found([](OwnError& error) { error.e = 3000; }), 0u);
}

TEST(FindWrongOperators, AStrictOperatorOfACoarseRunMayNotHaveALoneWrongElement) {
  Layers layers(12, 2.2, 300, 1.4, 3);
  for (size_t i = 1; i < 24; i += 2) {  // the norms round once
    layers.errors.outputs[i].z = 1;
    layers.errors.outputs[i].e = 0.98;
    layers.errors.outputs[i].e2 = 0.5;
    layers.errors.outputs[i].zr = 1.1;
  }
  layers.errors.outputs[9].e = 3.1;
  const OwnErrors& errors = layers.judge();
  ASSERT_EQ(errors.findings.size(), 1u);
  EXPECT_EQ(errors.findings[0].mine_operator, 9u);
  EXPECT_EQ(errors.findings[0].confidence, Confidence::Medium);
  EXPECT_DOUBLE_EQ(errors.findings[0].ratio, 3.1);
}

TEST(FindWrongOperators, WithoutOtherLayersAllOfTheSameOperatorArePeers) {
  // Given  the product of `head` with none at its place elsewhere, and 12 other products
  Layers layers(12, 2.2, 300, 1.4, 3);
  layers.add("head", "aten.mm.default", 5.4, 300, 1.4, 3);
  EXPECT_TRUE(layers.judge().findings.empty());
  layers.errors.findings.clear();
  layers.errors.outputs.back().z = 5.6;
  EXPECT_EQ(layers.judge().findings.size(), 1u);
}

TEST(FindWrongOperators, WithoutAnyPeerLimitsAreFixed) {
  const auto found = [](double z, double e2, double zr) {
    Layers layers(12, 2.2, 300, 1.4, 3);
    layers.add("head", "aten.topk.default", z, 300, e2, zr);
    return layers.judge().findings.size();
  };
  EXPECT_EQ(found(3.9, 3.9, 5.9), 0u);
  EXPECT_EQ(found(4.1, 1, 1), 1u);
  EXPECT_EQ(found(3, 4.1, 1), 1u);
  EXPECT_EQ(found(3, 1, 6.1), 1u);
}

TEST(FindWrongOperators, PeersAreOtherLayersOfTheSameStep) {
  // Given  a coarse run of 12 layers and 3 steps, in which the product of layer 3 is wrong in every
  //        step
  Layers layers(0);
  for (int64_t step = 0; step < 3; ++step) {
    for (int layer = 0; layer < 12; ++layer) {
      const bool wrong = layer == 3;
      layers.add("layers." + std::to_string(layer), "aten.mm.default", wrong ? 9 : 2.2, 300, 1.4,
                 3);
      layers.program.operators.back().step = step;
    }
  }
  const OwnErrors& errors = layers.judge();
  ASSERT_EQ(errors.findings.size(), 3u);
  for (const Finding& finding : errors.findings) EXPECT_EQ(finding.module, "layers.3");
}

TEST(FindWrongOperators, WhatNoRoundingExplainsIsWrongInAnyRun) {
  Layers layers(12, 2.2, 300, 1.4, 3);
  for (size_t i = 0; i < 24; i += 2) {  // NaN in all layers
    layers.errors.outputs[i].z = layers.errors.outputs[i].e = layers.errors.outputs[i].e2 =
        std::numeric_limits<double>::infinity();
  }
  EXPECT_EQ(layers.judge().findings.size(), 12u);
}

TEST(FindWrongOperators, AnOperatorIsNamedOnceByItsWorstOutput) {
  Layers layers(12);
  OwnError second = layers.errors.outputs[5];
  second.output = 1;
  second.z = 9;
  layers.program.operators[5].outputs.emplace_back().slot = "1";
  layers.errors.outputs[5].z = 4;
  layers.errors.outputs.push_back(second);
  const OwnErrors& errors = layers.judge();
  ASSERT_EQ(errors.findings.size(), 1u);
  EXPECT_EQ(errors.findings[0].slot, "1");
  EXPECT_DOUBLE_EQ(errors.findings[0].ratio, 9);
}

TEST(DescribeOwnError, SaysHowMuch) {
  OwnError error;
  error.z = 8.637;
  error.worst_ulp = 37.2;
  error.allowed_ulp = 1;
  EXPECT_EQ(describe_own_error(error),
            "own error 8.64x its rounding, largest element 37.2 ULP, allowed 1");
  error.z = error.e = std::numeric_limits<double>::infinity();
  error.reason = "3 integers differ";
  EXPECT_EQ(describe_own_error(error), "3 integers differ");
}

}  // namespace
}  // namespace assay::locate
