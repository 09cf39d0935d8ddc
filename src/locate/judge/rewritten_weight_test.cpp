// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/rewritten_weight.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

constexpr int64_t kRows = 12, kColumns = 20;

using Element = std::function<double(int64_t, int64_t)>;

/// Draws that look random: no row or column is like another.
double golden(int64_t row, int64_t column) {
  const double x =
      43758.5453 * std::sin(12.9898 * static_cast<double>(1 + row * kColumns + column));
  return x - std::floor(x) - 0.5;
}

Tensor matrix(const Element& at) {
  reference::Wide made(Dims{kRows, kColumns});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j)
      made.values[static_cast<size_t>(i * kColumns + j)] = at(i, j);
  }
  return reference::to_tensor(std::move(made));
}

/// Of two matrices, the largest difference between elements.
double distance(const Tensor& a, const Tensor& b) {
  const reference::Wide one = *reference::widen(a.view), other = *reference::widen(b.view);
  double largest = 0;
  for (size_t i = 0; i < one.values.size(); ++i)
    largest = std::fmax(largest, std::fabs(one.values[i] - other.values[i]));
  return largest;
}

struct Way {
  const char* name;
  Element written;
};

const Way kWays[] = {
    {"times 4", [](int64_t i, int64_t j) { return 4 * golden(i, j); }},
    {"a factor a column",
     [](int64_t i, int64_t j) { return (1 + 0.3 * double(j)) * golden(i, j); }},
    {"a factor a row", [](int64_t i, int64_t j) { return (1 - 0.4 * double(i)) * golden(i, j); }},
    {"a number a column", [](int64_t i, int64_t j) { return golden(i, j) + 0.2 * double(j); }},
    {"rows the other way round", [](int64_t i, int64_t j) { return golden(kRows - 1 - i, j); }},
    {"columns the other way round",
     [](int64_t i, int64_t j) { return golden(i, kColumns - 1 - j); }},
};

TEST(RewrittenWeight, IsFoundBehindOneWrongElement) {
  for (const Way& way : kWays) {
    // given a weight that is written otherwise, and wrong in one place
    const Tensor mine = matrix(
        [&](int64_t i, int64_t j) { return way.written(i, j) + (i == 5 && j == 7 ? 0.5 : 0); });
    // when
    const auto found = as_rewritten(matrix(golden), mine);
    // then golden's weight is written in the same way, without what is wrong
    ASSERT_TRUE(found.has_value()) << way.name;
    EXPECT_LT(distance(found->expected, matrix(way.written)), 1e-9) << way.name;
    EXPECT_NEAR(distance(found->expected, mine), 0.5, 1e-9) << way.name;
  }
}

TEST(RewrittenWeight, OfExchangedRowsAndAFactorTheFactorIsTheRewriting) {
  // given a weight times a quarter whose first two rows are exchanged
  const Tensor mine =
      matrix([](int64_t i, int64_t j) { return 0.25 * golden(i < 2 ? 1 - i : i, j); });
  // when
  const auto found = as_rewritten(matrix(golden), mine);
  // then the rows stay where they are in golden
  ASSERT_TRUE(found.has_value());
  EXPECT_LT(
      distance(found->expected, matrix([](int64_t i, int64_t j) { return 0.25 * golden(i, j); })),
      1e-9);
}

TEST(RewrittenWeight, OfAnotherShapeIsNothing) {
  EXPECT_FALSE(as_rewritten(matrix(golden), reference::to_tensor(reference::Wide(Dims{3}, 1.0))));
}

}  // namespace
}  // namespace assay::locate
