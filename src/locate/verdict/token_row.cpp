// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/token_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "measure/kl_divergence.hpp"

namespace assay::locate {
namespace {

using Row = std::vector<double>;

constexpr double kHidden = 745;  // exp(-745) is the smallest positive double

size_t largest(const Row& row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

double largest_but(const Row& row, size_t best) {
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < row.size(); ++i)
    if (i != best) second = std::max(second, row[i]);
  return second;
}

/// The tokens that either row gives a chance. A NaN is among them.
std::pair<Row, Row> without_hidden(const Row& golden, const Row& mine) {
  const double golden_end = golden[largest(golden)] - kHidden;
  const double mine_end = mine[largest(mine)] - kHidden;
  std::pair<Row, Row> kept;
  for (size_t i = 0; i < golden.size(); ++i) {
    if (golden[i] < golden_end && mine[i] < mine_end) continue;
    kept.first.push_back(golden[i]);
    kept.second.push_back(mine[i]);
  }
  return kept;
}

bool is_finite(const Row& row) {
  return std::ranges::all_of(row, [](double value) { return std::isfinite(value); });
}

/// Mean square of mine - golden around its mean.
double mean_square_of_difference(const Row& golden, const Row& mine) {
  const auto count = static_cast<double>(golden.size());
  double mean = 0;
  for (size_t i = 0; i < golden.size(); ++i) mean += (mine[i] - golden[i]) / count;
  double square = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference = mine[i] - golden[i] - mean;
    square += difference * difference / count;
  }
  return square;
}

/// Mean square of what storing a value of this size rounds it by.
double square_of_rounding(const measure::Rounding& type, double value) {
  const double unit = type.unit(value);
  return unit * unit / 12;
}

}  // namespace

TokenChoice compare_token_rows(const TokenRow& golden, const TokenRow& mine) {
  const size_t g = largest(golden.logits);
  const size_t m = largest(mine.logits);
  TokenChoice choice;
  choice.golden_token = static_cast<int64_t>(g);
  choice.mine_token = static_cast<int64_t>(m);
  choice.margin = golden.logits[g] - largest_but(golden.logits, g);
  choice.gap = golden.logits[g] - golden.logits[m];
  choice.difference = std::max(std::abs(mine.logits[g] - golden.logits[g]),
                               std::abs(mine.logits[m] - golden.logits[m]));
  const auto [theirs, ours] = without_hidden(golden.logits, mine.logits);
  if (!is_finite(theirs) || !is_finite(ours)) return choice;
  choice.noise = std::sqrt(mean_square_of_difference(theirs, ours) +
                           square_of_rounding(golden.type, golden.logits[g]) +
                           square_of_rounding(mine.type, mine.logits[m]));
  choice.divergence = measure::kl_divergence(theirs, ours);
  return choice;
}

}  // namespace assay::locate
