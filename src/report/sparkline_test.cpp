// SPDX-License-Identifier: Apache-2.0
#include "report/sparkline.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/display.hpp"
#include "base/text.hpp"

namespace assay::report {
namespace {

using compare::Row;

LayerErrors stack(std::vector<double> errors, std::optional<size_t> marked = {}) {
  LayerErrors layers{"layers", std::vector<int64_t>(errors.size()), std::move(errors), marked};
  std::iota(layers.numbers.begin(), layers.numbers.end(), 0);
  return layers;
}

TEST(Sparkline, DrawsEightLevelsOfALogarithmicScale) {
  // 1e-8 to 1: a decade a level.
  std::vector<double> errors;
  for (int i = 0; i <= 8; ++i) errors.push_back(std::pow(10, i - 8) * (i < 8 ? 1.0001 : 1));
  EXPECT_EQ(sparkline({stack(errors)}, "relative L2", {}),
            "error by layer (relative L2, 1e-8 to 1)\n"
            "  layers  ▁▂▃▄▅▆▇██\n");
  EXPECT_EQ(sparkline({stack(errors)}, "relative L2", {.blocks = false}),
            "error by layer (relative L2, 1e-8 to 1)\n"
            "  layers  .:-=+*%##\n");
}

TEST(Sparkline, MarksTheFirstBadLayerByColourOrByACaret) {
  const LayerErrors layers = stack({3e-7, 3e-7, 2e-2, 2e-2}, 2);
  EXPECT_EQ(sparkline({layers}, "relative L2", {.blocks = false}),
            "error by layer (relative L2, 3e-7 to 2e-2)\n"
            "  layers  ..##\n"
            "            ^ 2\n");
  EXPECT_EQ(sparkline({layers}, "relative L2", {.colour = true, .blocks = false}),
            "error by layer (relative L2, 3e-7 to 2e-2)\n"
            "  layers  ..\033[31m#\033[0m#\n");
}

TEST(Sparkline, TellsEqualAndNotFiniteLayersApart) {
  EXPECT_EQ(sparkline({stack({0, 1e-3, HUGE_VAL, 0})}, "relative L2", {}),
            "error by layer (relative L2, 1e-3)\n"
            "  layers  ·█!·\n");
  EXPECT_EQ(sparkline({stack({0, HUGE_VAL})}, "relative L2", {.blocks = false}),
            "error by layer (relative L2, no finite difference)\n"
            "  layers  _!\n");
}

TEST(Sparkline, SaysTheScaleInAsManyDigitsAsTellItsEndsApart) {
  EXPECT_EQ(sparkline({stack({0.96, 1.04})}, "relative L2", {.blocks = false}),
            "error by layer (relative L2, 9.6e-1 to 1.0)\n"
            "  layers  .#\n");
}

TEST(Sparkline, SaysNothingWhereNothingDiffers) {
  EXPECT_EQ(sparkline({stack({0, 0, 0})}, "relative L2", {}), "");
  EXPECT_EQ(sparkline({}, "relative L2", {}), "");
}

TEST(Sparkline, PoolsMoreLayersThanColumnsAndKeepsTheWorst) {
  std::vector<double> errors(100, 1e-6);
  errors[61] = 1;
  const std::string text =
      sparkline({stack(errors, 61)}, "relative L2", {.width = 60, .blocks = false});
  const auto lines = split(text, '\n');
  // 60 columns, ten in front: 50 columns of two layers.
  EXPECT_EQ(std::string(lines[0]) + std::string(lines[1]),
            "error by layer (relative L2, 1e-6 to 1; the largest of up to  2 layers a column)");
  EXPECT_EQ(lines[2].substr(10), std::string(30, '.') + "#" + std::string(19, '.'));
  EXPECT_EQ(lines[3], std::string(40, ' ') + "^ 61");
}

TEST(Sparkline, IsNeverWiderThanTheTerminal) {
  for (const size_t width : {60u, 80u, 120u, 200u}) {
    for (const size_t layers : {2u, 59u, 60u, 61u, 333u}) {
      std::vector<double> errors(layers, 1e-6);
      errors.back() = 1e-2;
      LayerErrors one = stack(errors, layers - 1);
      one.name = "a.very.long.name.of.a.list.of.layers.0-" + std::to_string(layers - 1);
      const std::string text = sparkline({one}, "relative L2", {.width = width});
      for (const std::string_view line : split(text, '\n'))
        EXPECT_LE(display_columns(line), width) << line;
    }
  }
}

// ---- rows ----

Row row(const std::string& label, double error) {
  Row row;
  row.label = label;
  row.comparable = true;
  row.metrics.emplace();
  row.metrics->relative_euclidean_distance = error;
  return row;
}

compare::Comparison comparison_of(std::vector<Row> rows) {
  compare::Comparison comparison;
  comparison.sheets.emplace_back().rows = std::move(rows);
  return comparison;
}

TEST(ErrorsByLayer, TakesTheLargestOfALayerInTheOrderOfNumbers) {
  const auto stacks =
      errors_by_layer(comparison_of({row("m.layers.10.mlp output", 3), row("m.layers.2 input 0", 1),
                                     row("m.layers.2.norm output", 2), row("m.norm output", 9)}),
                      "m.layers.10.mlp::aten.mm.default.0");
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0].name, "m.layers.2,10");
  EXPECT_EQ(stacks[0].errors, (std::vector<double>{2, 3}));
  EXPECT_EQ(stacks[0].marked, 1u);
}

TEST(ErrorsByLayer, KeepsEncoderAndDecoderApart) {
  const auto stacks = errors_by_layer(
      comparison_of({row("encoder.block.0.x output", 1), row("encoder.block.1.x output", 2),
                     row("decoder.block.0.x output", 3), row("decoder.block.1.x output", 4)}),
      "decoder.block.0");
  ASSERT_EQ(stacks.size(), 2u);
  EXPECT_EQ(stacks[0].name, "encoder.block.0-1");
  EXPECT_EQ(stacks[0].marked, std::nullopt);
  EXPECT_EQ(stacks[1].errors, (std::vector<double>{3, 4}));
  EXPECT_EQ(stacks[1].marked, 0u);
}

TEST(ErrorsByLayer, CountsNewNanAsInfinite) {
  Row bad = row("l.1.x output", NAN);
  bad.patterns.emplace().nan_only_in_mine = 1;
  Row unreadable = row("l.0.x output", 5);
  unreadable.comparable = false;
  const auto stacks = errors_by_layer(comparison_of({row("l.0.x output", 1), unreadable, bad}), "");
  ASSERT_EQ(stacks.size(), 1u);
  EXPECT_EQ(stacks[0].errors, (std::vector<double>{1, HUGE_VAL}));
}

}  // namespace
}  // namespace assay::report
