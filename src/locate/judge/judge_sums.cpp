// SPDX-License-Identifier: Apache-2.0
// Each row is cut into blocks of 64 columns. A block's elements, weighted by random factors and
// added up, are held against the same sum as product_sums() gives it, without the product.
//   docs/localisation.md, "Golden by sums and in parts"
#include "locate/judge/judge_sums.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "locate/noise/error_classes.hpp"
#include "reference/aten/product_sums.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::column_blocks;
using reference::column_factor;
using reference::kColumnBlock;
using reference::kColumnDraws;
using reference::aten::Call;
using reference::aten::ProductSums;
using simd::f64x8;
using simd::load;

constexpr int64_t kLanes = 8;
/// Below these the product costs no more than reading its operands, or its sums are too few to hide
/// 64 roundings in.
constexpr int64_t kFewestRows = 8;
constexpr int64_t kFewestTerms = 512;
constexpr int64_t kFewestColumns = 2 * kColumnBlock;
constexpr double kFewestMultiplications = 0x1p22;
/// The share of one element's w that a sum of errors may have.
constexpr double kAllowed = 0.5;
constexpr double kTiny = 0x1p-126;  // what is below may be flushed to zero
/// Mean square of a factor: spread over [0.75, 1.25).
constexpr double kFactorEnergy = 1 + 1.0 / 48;

/// The sums over one block of a captured row; behind the last column all are zero.
struct BlockSums {
  double weighted[kColumnDraws] = {};
  double energy = 0;  // sum of squares
};
ASSAY_CLONES BlockSums sum_block(const double* values, const double* first, const double* second) {
  f64x8 with_first{};
  f64x8 with_second{};
  f64x8 energy{};
  for (int64_t j = 0; j < kColumnBlock; j += kLanes) {
    const f64x8 value = load<f64x8>(values + j);
    with_first += value * load<f64x8>(first + j);
    with_second += value * load<f64x8>(second + j);
    energy += value * value;
  }
  BlockSums sums;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums.weighted[0] += with_first[lane];
    sums.weighted[1] += with_second[lane];
    sums.energy += energy[lane];
  }
  return sums;
}

struct RowSums {
  double e = 0;  // largest sum over what one element is allowed
  // mean square of the sums of each block, added up: the energy of its elements' errors
  double error2 = 0;
  double expected2 = 0;  // s_i^2 of its elements
  double reference2 = 0;
};

class SumJudge {
 public:
  SumJudge(const ProductSums& products, const TensorView& mine)
      : products_(products),
        mine_(mine),
        blocks_(column_blocks(products.columns)),
        factors_(static_cast<size_t>(kColumnDraws * blocks_ * kColumnBlock), 0.0) {
    for (int draw = 0; draw < kColumnDraws; ++draw) {
      for (int64_t j = 0; j < products.columns; ++j)
        factors_[static_cast<size_t>(draw * blocks_ * kColumnBlock + j)] = column_factor(draw, j);
    }
  }

  [[nodiscard]] RowSums judge_row(int64_t row) const {
    RowSums result;
    const double growth = std::sqrt(products_.terms) * kAccumulatorRoundoff;
    double values[kColumnBlock] = {};
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t first = block * kColumnBlock;
      const int64_t count = std::min(kColumnBlock, products_.columns - first);
      std::fill(values + count, values + kColumnBlock, 0.0);
      read_values(mine_, row * products_.columns + first, count,
                  std::span(values).first(static_cast<size_t>(count)));
      const double* factors = factors_.data() + first;
      const BlockSums sums = sum_block(values, factors, factors + blocks_ * kColumnBlock);
      const auto columns = static_cast<double>(count);
      const double c = products_.sizes.data()[row * blocks_ + block] / columns;
      // Half a ULP of every element; roundings are independent, so their squares add up.
      const double rounding = std::sqrt(sums.energy) * kAccumulatorRoundoff;
      const double allowed = 2 * growth * c + rounding + columns * kTiny;
      double error2 = 0;
      for (int draw = 0; draw < kColumnDraws; ++draw) {
        const double expected =
            products_.sums.data()[(row * kColumnDraws + draw) * blocks_ + block];
        const double error = std::fabs(sums.weighted[draw] - expected);
        error2 += error * error / kColumnDraws / kFactorEnergy;
        // Also true of NaN.
        if (!(error <= kAllowed * allowed)) result.e = INFINITY;
        if (error > 0) result.e = std::max(result.e, error / allowed);
      }
      result.error2 += error2;
      result.expected2 += (columns * growth * growth * c * c + 4 * rounding * rounding) / 12;
      result.reference2 += sums.energy;
    }
    return result;
  }

 private:
  const ProductSums& products_;
  const TensorView& mine_;
  int64_t blocks_;
  std::vector<double> factors_;  // [kColumnDraws, blocks, kColumnBlock]
};

}  // namespace

bool can_judge_by_sums(const Call& call, const TensorView& mine, double multiplications) {
  if (multiplications < kFewestMultiplications || mine.dtype != DType::Float32 ||
      mine.shape.size() < 2)
    return false;
  if (reference::aten::class_of(call.name) != reference::aten::OperatorClass::Product) return false;
  const int64_t columns = mine.shape[mine.shape.size() - 1];
  return columns >= kFewestColumns && mine.element_count() / columns >= kFewestRows;
}

Result<std::optional<OwnError>> judge_by_sums(const Call& call, const TensorView& mine, int jobs) {
  ASSAY_TRY(const ProductSums sums, reference::aten::product_sums(call, jobs));
  const int64_t rows = sums.sizes.shape[0];
  if (mine.element_count() != rows * sums.columns || sums.terms < kFewestTerms) return std::nullopt;
  const SumJudge judge(sums, mine);
  std::vector<RowSums> of_rows(static_cast<size_t>(rows));
  parallel_for(of_rows.size(), static_cast<unsigned>(std::max(1, jobs)),
               [&](size_t row) { of_rows[row] = judge.judge_row(static_cast<int64_t>(row)); });
  OwnError result;
  result.dtype = mine.dtype;
  result.by_sums = true;
  RowSums all;
  for (const RowSums& row : of_rows) {
    all.e = std::max(all.e, row.e);
    all.error2 += row.error2;
    all.expected2 += row.expected2;
    all.reference2 += row.reference2;
    if (row.expected2 > 0) result.zr = std::max(result.zr, std::sqrt(row.error2 / row.expected2));
  }
  if (!std::isfinite(all.e) || !std::isfinite(all.reference2)) return std::nullopt;
  result.e = result.e2 = all.e;
  if (all.expected2 > 0) result.z = std::sqrt(all.error2 / all.expected2);
  if (all.reference2 > 0) {
    result.relative_l2 = std::sqrt(all.error2 / all.reference2);
    result.floor_l2 = std::sqrt(all.expected2 / all.reference2);
  }
  result.state = all.error2 > 0 ? OwnError::State::Judged : OwnError::State::Exact;
  return result;
}

}  // namespace assay::locate
