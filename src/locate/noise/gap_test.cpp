// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/gap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "base/text.hpp"
#include "reference/wide.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

using reference::Wide;

Wide normal_values(const Dims& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Wide wide(shape);
  for (double& value : wide.values) value = normal(random);
  return wide;
}

/// R_c as measure_gap() defines it, of finite values.
double plain_columns(const Wide& t, const Wide& ref, const Wide& sim, const FloatGrid& grid) {
  const int64_t rows = t.shape[0], columns = t.shape[1];
  const auto at = [&](int64_t i, int64_t j) { return static_cast<size_t>(i * columns + j); };
  const auto x = [&](int64_t i, int64_t j) {
    const size_t k = at(i, j);
    const double unit = grid.ulp(std::max(std::abs(t.values[k]), std::abs(ref.values[k])));
    return std::max(std::pow(sim.values[k] - ref.values[k], 2), unit * unit / 12);
  };
  const auto sum = [](int64_t count, const std::function<double(int64_t)>& term) {
    double total = 0;
    for (int64_t i = 0; i < count; ++i) total += term(i);
    return total;
  };
  const auto row = [&](int64_t i) { return sum(columns, [&](int64_t j) { return x(i, j); }); };
  const auto v = [&](int64_t j) { return sum(rows, [&](int64_t i) { return x(i, j) / row(i); }); };
  std::vector<double> w;
  for (int64_t i = 0; i < rows; ++i)
    w.push_back(sum(columns, [&](int64_t j) { return x(i, j) / v(j); }));
  const auto expected = [&](int64_t j) {
    return sum(rows, [&](int64_t i) { return x(i, j) / w[static_cast<size_t>(i)]; });
  };
  std::vector<double> sorted;
  for (int64_t j = 0; j < columns; ++j) sorted.push_back(expected(j));
  std::ranges::sort(sorted);
  double largest = 0, mean = 0;
  for (int64_t j = 0; j < columns; ++j) {
    const double squares =
        sum(rows, [&](int64_t i) { return std::pow(x(i, j) / w[static_cast<size_t>(i)], 2); });
    const double error = sum(rows, [&](int64_t i) {
      return std::pow(t.values[at(i, j)] - ref.values[at(i, j)], 2) / w[static_cast<size_t>(i)];
    });
    const double s = error / std::max(expected(j), sorted[static_cast<size_t>(columns / 2)]);
    // The cube root of chi-square of k over k is nearly normal, with 1 - 2/9k and 2/9k.
    const double spread = 2 * squares / (9 * std::pow(expected(j), 2));
    largest = std::max(largest, std::sqrt(s) / std::pow(1 - spread + 5.2 * std::sqrt(spread), 1.5));
    mean += s / static_cast<double>(columns);
  }
  return std::max(largest, std::sqrt(mean));
}

/// The same of fewer rows, each by itself.
double plain_rows(const Wide& t, const Wide& ref, const Wide& sim, const FloatGrid& grid) {
  double largest = 0;
  for (int64_t i = 0; i < t.shape[0]; ++i) {
    double error = 0, sum = 0, squares = 0;
    for (int64_t j = 0; j < t.shape[1]; ++j) {
      const auto k = static_cast<size_t>(i * t.shape[1] + j);
      const double unit = grid.ulp(std::max(std::abs(t.values[k]), std::abs(ref.values[k])));
      const double x = std::max(std::pow(sim.values[k] - ref.values[k], 2), unit * unit / 12);
      error += std::pow(t.values[k] - ref.values[k], 2);
      sum += x;
      squares += x * x;
    }
    const double spread = 2 / (9 * sum * sum / squares);
    largest = std::max(
        largest, std::sqrt(error / sum) / std::pow(1 - spread + 5.2 * std::sqrt(spread), 1.5));
  }
  return largest;
}

/// As docs/localisation.md, "Cross substitution" defines it, of finite values.
Gap plain_gap(const Wide& t, const Wide& ref, const Wide& sim, const FloatGrid& grid) {
  const int64_t columns = t.shape[1];
  const int64_t rows = t.shape[0];
  std::vector<double> row(static_cast<size_t>(rows)), column(static_cast<size_t>(columns));
  double error = 0, noise = 0, steps = 0;
  const auto unit_of = [&](size_t i) {
    return grid.ulp(std::max(std::abs(t.values[i]), std::abs(ref.values[i])));
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<size_t>(i * columns + j);
      const double n = sim.values[at] - ref.values[at];
      error += std::pow(t.values[at] - ref.values[at], 2);
      noise += n * n;
      steps += unit_of(at) * unit_of(at) / 12;
      row[static_cast<size_t>(i)] += n * n / static_cast<double>(columns);
      column[static_cast<size_t>(j)] += n * n / static_cast<double>(rows);
    }
  }
  Gap gap;
  gap.r = std::sqrt(error / std::max(noise, steps));
  if (rows >= 8)
    gap.r_column = plain_columns(t, ref, sim, grid);
  else if (columns >= 16)
    gap.r_column = plain_rows(t, ref, sim, grid);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto at = static_cast<size_t>(i * columns + j);
      const double around =
          std::sqrt(std::max(row[static_cast<size_t>(i)], column[static_cast<size_t>(j)]));
      gap.r_element = std::max(gap.r_element, std::abs(t.values[at] - ref.values[at]) /
                                                  (4 * around + unit_of(at) / 2 + grid.tiny));
    }
  }
  return gap;
}

TEST(MeasureGap, IsTheDefinitionForAnyLengthOfRows) {
  const FloatGrid grid = *float_grid(DType::BFloat16);
  for (const Dims& shape :
       {Dims{5, 1}, Dims{5, 7}, Dims{5, 8}, Dims{5, 9}, Dims{5, 131}, Dims{8, 131}, Dims{20, 9}}) {
    const std::string columns = list_text(shape.span());
    const Wide ref = normal_values(shape, 1);
    Wide mine = ref;
    Wide simulated = ref;
    const Wide first = normal_values(shape, 2);
    const Wide second = normal_values(shape, 3);
    for (size_t i = 0; i < mine.values.size(); ++i) {
      mine.values[i] =
          reference::round_to(ref.values[i] * (1 + 0.02 * first.values[i]), DType::BFloat16);
      simulated.values[i] =
          reference::round_to(ref.values[i] * (1 + 0.01 * second.values[i]), DType::BFloat16);
    }
    const Gap expected = plain_gap(mine, ref, simulated, grid);
    const Gap found = measure_gap(reference::to_tensor(mine).view, reference::to_tensor(ref).view,
                                  reference::to_tensor(simulated).view, DType::BFloat16, false)
                          .value();
    EXPECT_NEAR(found.r, expected.r, 1e-9 * expected.r) << columns;
    EXPECT_NEAR(found.r_element, expected.r_element, 1e-9 * expected.r_element) << columns;
    EXPECT_NEAR(found.r_column, expected.r_column, 1e-9 * expected.r_column) << columns;
  }
}

TEST(MeasureGap, KnowsNaNOverflowAndMasks) {
  const Dims shape{2, 9};
  const Wide ref = normal_values(shape, 4);
  const auto gap_of = [&](const Wide& mine, const Wide& reference, bool masks) {
    const Tensor y = reference::to_tensor(reference);
    return measure_gap(reference::to_tensor(mine).view, y.view, y.view, DType::Float16, masks)
        .value();
  };
  // NaN on one side only, in the part of the row that fills no vector.
  Wide nan = ref;
  nan.values[8] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isinf(gap_of(nan, ref, false).r));
  EXPECT_EQ(gap_of(nan, nan, false).r, 0);
  // Float16 ends at 65504: infinity is what a conversion makes of more.
  Wide overflow = ref, beyond = ref;
  overflow.values[3] = std::numeric_limits<double>::infinity();
  beyond.values[3] = 1e6;
  EXPECT_EQ(gap_of(overflow, beyond, false).r, 0);
  // Fill values of one sign are one value only among masks.
  Wide filled = ref, other = ref;
  filled.values[17] = -60000;
  other.values[17] = -30000;
  EXPECT_EQ(gap_of(filled, other, true).r, 0);
  EXPECT_GT(gap_of(filled, other, false).r, 2);
  other.values[17] = 30000;
  EXPECT_GT(gap_of(filled, other, true).r, 2);
}

TEST(MeasureGap, ALargeRowOrColumnHidesNothingInTheOthers) {
  // Given  results of 32 rows and 64 columns, one of each a hundred times as large, with an error of
  //        0.2 % everywhere, and one of 2 % in an ordinary column or in all ordinary ones
  const Dims shape{32, 64};
  const auto gap_of = [&](const std::function<bool(int64_t column)>& is_wrong) {
    Wide ref = normal_values(shape, 31);
    Wide mine = ref, simulated = ref;
    const Wide first = normal_values(shape, 32), second = normal_values(shape, 33);
    for (int64_t i = 0; i < 32; ++i) {
      for (int64_t j = 0; j < 64; ++j) {
        const auto at = static_cast<size_t>(i * 64 + j);
        const double size = (i == 3 ? 100 : 1) * (j == 7 ? 100 : 1);
        ref.values[at] *= size;
        mine.values[at] = ref.values[at] * (is_wrong(j) && j != 7 && i != 3 ? 1.02 : 1) +
                          0.002 * size * first.values[at];
        simulated.values[at] = ref.values[at] + 0.002 * size * second.values[at];
      }
    }
    return measure_gap(reference::to_tensor(mine).view, reference::to_tensor(ref).view,
                       reference::to_tensor(simulated).view, DType::BFloat16, false)
        .value();
  };
  // When, then
  EXPECT_LT(gap_of([](int64_t) { return false; }).r_column, 1.5);
  for (const Gap& gap :
       {gap_of([](int64_t j) { return j == 20; }), gap_of([](int64_t) { return true; })}) {
    EXPECT_LT(gap.r, 2);
    EXPECT_LT(gap.r_element, 3);
    EXPECT_GT(gap.r_column, 2);
  }
}

TEST(NoiseDraws, GiveEachElementItsOwnNoise) {
  // Given  8 draws of the noise of 4 rows of 16 values: 0.01 everywhere and 1 in the element [2, 5]
  const Dims shape{4, 16};
  constexpr size_t kNoisy = 2 * 16 + 5;
  const Tensor reference = reference::to_tensor(normal_values(shape, 6));
  const Wide values = reference::widen(reference.view).value();
  NoiseDraws draws;
  for (uint32_t draw = 0; draw < 8; ++draw) {
    Wide simulated = values;
    for (size_t i = 0; i < simulated.values.size(); ++i)
      simulated.values[i] += (i == kNoisy ? 1 : 0.01) * (draw % 2 == 0 ? 1 : -1);
    ASSERT_TRUE(draws.add(reference, reference::to_tensor(std::move(simulated)), DType::Float32));
  }
  // Then  all that moves together is one source of noise,
  EXPECT_NEAR(draws.effective_count(), 1, 1e-9);
  // and an error of 3 is beyond 4 of its row's noise of 1/4, but not of its own; in another element
  // it stands out
  const auto gap_of = [&](size_t element, NoiseOf noise) {
    Wide mine = values;
    mine.values[element] += 3;
    return measure_gap(reference::to_tensor(mine).view, reference.view, draws.usual().view,
                       DType::Float32, false, noise)
        .value()
        .r_element;
  };
  EXPECT_NEAR(gap_of(kNoisy, NoiseOf::Draws), 3 / 4.0, 1e-3);
  EXPECT_GT(gap_of(kNoisy, NoiseOf::OneDraw), 1.4);  // of its column the rms is 1/2
  EXPECT_GT(gap_of(0, NoiseOf::Draws), 50);
}

TEST(NoiseDraws, CountTheSourcesOfTheNoise) {
  // Given  32 draws of 1024 values that are moved by 1, 4 or 1024 independent numbers
  const Tensor reference = reference::to_tensor(normal_values({8, 128}, 6));
  const Wide values = reference::widen(reference.view).value();
  const auto counted = [&](size_t sources) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    NoiseDraws draws;
    for (uint32_t draw = 0; draw < 32; ++draw) {
      std::vector<double> moves(sources);
      for (double& move : moves) move = 1e-3 * normal(random);
      Wide simulated = values;
      for (size_t i = 0; i < simulated.values.size(); ++i)
        simulated.values[i] += moves[i % sources];
      EXPECT_TRUE(draws.add(reference, reference::to_tensor(std::move(simulated)), DType::Float32));
    }
    return draws.effective_count();
  };
  EXPECT_LT(counted(1), 1.6);
  EXPECT_GT(counted(4), 1.8);
  EXPECT_LT(counted(4), 8);
  EXPECT_GT(counted(1024), 100);
}

}  // namespace
}  // namespace assay::locate
