// SPDX-License-Identifier: Apache-2.0
#include "locate/judge_rounded.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "reference/aten/magnitudes.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::BroadcastValues;
using reference::kBlock;
using reference::aten::Magnitudes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRowInQuestion = 2;
constexpr double kTotalInQuestion = 1.5;
/// What is allowed in the sentence: the error at which e reaches its limit of 2.
constexpr double kElementLimit = 2;

/// Values of a block, one array a quantity. Inputs first, then what the kernel makes of them.
struct Block {
  alignas(64) double reference[kBlock];
  alignas(64) double mine[kBlock];
  alignas(64) double scale[kBlock];  // of v and w
  alignas(64) double terms[kBlock];  // c of the test for coarse kernels
  alignas(64) double v[kBlock];
  alignas(64) double w[kBlock];
  alignas(64) double error[kBlock];
  alignas(64) double expected[kBlock];  // s^2
  alignas(64) double e[kBlock];
  alignas(64) double e2[kBlock];
};

/// Error, its expected square and both tests of every element; NaN in both, and both below the smallest normal number:
/// no error and nothing expected. Values are clamped to the range of the type first.
ASSAY_CLONES void judge_values(const FloatGrid& grid, int64_t count, Block* block) {
  const double one_ulp = std::ldexp(1.0, -grid.fraction_bits);
  const double max = grid.largest;
  const double min_normal = grid.smallest_normal();
  const double unit = grid.roundoff();
  const double tiny = grid.tiny;
  for (int64_t i = 0; i < count; ++i) {
    const double raw = block->reference[i];
    const double y = std::min(std::max(raw, -max), max);
    const double m = std::min(std::max(block->mine[i], -max), max);
    const double size = std::max(std::fabs(y), std::fabs(m));
    // Also false for NaN.
    const bool counts = size >= min_normal;
    // An infinite result has no terms to round.
    const bool finite = std::fabs(raw) <= std::numeric_limits<double>::max();
    const double v = finite ? block->v[i] : 0.0;
    const double w = finite ? block->w[i] : 0.0;
    const double c = finite ? block->terms[i] : 0.0;
    const double ulp = power_below(size) * one_ulp;
    const double error = counts ? std::fabs(m - y) : 0.0;
    block->error[i] = error;
    block->expected[i] = counts ? ulp * ulp / 12 + v : 0.0;
    const double allowed = ulp / 2 + w + tiny;
    block->e[i] = counts ? error / allowed : 0.0;
    block->e2[i] = counts ? error / (allowed + unit * c) : 0.0;
    block->reference[i] = y;
  }
}

ASSAY_CLONES void add_up(const double* values, int64_t count, double* sum, double* largest) {
  // Eight sums, always the same ones, so that every clone adds in the same order.
  double sums[8] = {};
  double maxima[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      sums[lane] += values[i + lane];
      maxima[lane] = std::max(maxima[lane], values[i + lane]);
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    sums[lane] += values[i];
    maxima[lane] = std::max(maxima[lane], values[i]);
  }
  for (int64_t lane = 0; lane < 8; ++lane) {
    *sum += sums[lane];
    *largest = std::max(*largest, maxima[lane]);
  }
}

double sum_of(const double* values, int64_t count) {
  double sum = 0;
  double largest = 0;
  add_up(values, count, &sum, &largest);
  return sum;
}
double largest_of(const double* values, int64_t count) {
  double sum = 0;
  double largest = 0;
  add_up(values, count, &sum, &largest);
  return largest;
}
double sum_of_squares(const double* values, int64_t count, double* squares) {
  for (int64_t i = 0; i < count; ++i) squares[i] = values[i] * values[i];
  return sum_of(squares, count);
}

/// What one row adds to the measures.
struct RowSums {
  double error2 = 0;
  double expected2 = 0;
  double reference2 = 0;
  double e = 0;
  double e2 = 0;
  int64_t worst = -1;  // of e, in the whole
  double worst_error = 0, worst_allowed = 0, worst_size = 0;
  bool pattern_differs = false;  // NaN here and not there

  [[nodiscard]] double z() const {
    if (pattern_differs) return kInfinity;
    return expected2 > 0 ? std::sqrt(error2 / expected2) : 0;
  }
};

/// C, and what belongs to it, of a run of elements.
struct Terms {
  const double* c = nullptr;
  const double* variance = nullptr;
  double score_bound = 0;
  double count = 1;  // K or n
};

class OutputJudge {
 public:
  OutputJudge(const RoundedOutput& what, int jobs)
      : what_(what),
        row_(what.row),
        grid_(what.grid),
        jobs_(static_cast<unsigned>(std::max(1, jobs))) {}

  Status judge(OwnError* result) {
    count_ = what_.mine.element_count();
    const size_t rank = what_.mine.shape.size();
    const int64_t last = rank == 0 ? 1 : what_.mine.shape[rank - 1];
    has_rows_ = last >= kShortestRow;
    row_length_ = has_rows_ ? last : std::max<int64_t>(count_, 1);
    rows_.resize(static_cast<size_t>(count_ / row_length_));
    if (row_.side) {
      ASSAY_TRY(side_, BroadcastValues::make(row_.side->view, what_.mine.shape));
    }
    const bool by_terms = row_.scale == ErrorScale::Terms;
    parallel_for(rows_.size(), jobs_, [&](size_t row) {
      thread_local Block block;
      rows_[row] = judge_row(static_cast<int64_t>(row), by_terms ? nullptr : &kNoTerms, &block);
    });
    if (by_terms) ASSAY_TRY_STATUS(judge_with_terms());
    sum_up(result);
    return {};
  }

 private:
  static constexpr Terms kNoTerms{};

  /// The rows in which C may change an answer, again with C.
  Status judge_with_terms() {
    std::vector<int64_t> wanted;
    const bool all = !has_rows_ ? total().z() > kTotalInQuestion || total().e > 1
                                : total().z() > kTotalInQuestion;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (all || rows_[row].e > 1 || rows_[row].z() > kRowInQuestion)
        wanted.push_back(static_cast<int64_t>(row));
    }
    if (wanted.empty()) return {};
    reference::aten::MagnitudeOptions options{.jobs = static_cast<int>(jobs_), .rows = {}};
    std::vector<int64_t> numbers = wanted;
    if (!what_.parts.empty()) {
      for (int64_t& number : numbers) number = what_.parts[static_cast<size_t>(number)];
    }
    if (has_rows_ && (!what_.parts.empty() || wanted.size() < rows_.size()))
      options.rows = std::span<const int64_t>(numbers);
    Result<Magnitudes> terms = reference::aten::magnitudes(what_.call, what_.output, options);
    const auto kind = reference::aten::class_of(what_.call.name);
    const bool may_cancel = kind != reference::aten::OperatorClass::Reduction &&
                            kind != reference::aten::OperatorClass::Softmax;
    if (!terms && terms.error().code == Errc::Unsupported && !may_cancel)
      return judge_by_results(wanted);
    if (!terms) return fail(terms.error());
    const auto expected = static_cast<int64_t>(wanted.size()) * row_length_;
    if (terms->c.size() != expected || (row_.attention && terms->variance.size() != expected))
      return fail(Errc::Internal, what_.call.name + ": sizes of terms for another result");
    const auto bounds = static_cast<int64_t>(terms->score_bound.values.size());
    parallel_for(wanted.size(), jobs_, [&](size_t i) {
      thread_local Block block;
      const auto first = static_cast<int64_t>(i) * row_length_;
      Terms of_row;
      of_row.c = terms->c.data() + first;
      of_row.count = terms->terms;
      if (row_.attention) {
        of_row.variance = terms->variance.data() + first;
        // Short rows are judged together: by the largest bound.
        if (has_rows_ && static_cast<int64_t>(i) < bounds)
          of_row.score_bound = terms->score_bound.values[i];
        else
          of_row.score_bound = largest_of(terms->score_bound.data(), bounds);
      }
      rows_[static_cast<size_t>(wanted[i])] = judge_row(wanted[i], &of_row, &block);
    });
    return {};
  }

  /// Sums without cancellation, such as norms: their terms are as large as their results.
  Status judge_by_results(const std::vector<int64_t>& wanted) {
    row_ = {.w_factor = 16 * kAccumulatorRoundoff,
            .v_factor = 16 * 16 * kAccumulatorRoundoff * kAccumulatorRoundoff / 12};
    parallel_for(wanted.size(), jobs_, [&](size_t i) {
      thread_local Block block;
      rows_[static_cast<size_t>(wanted[i])] = judge_row(wanted[i], &kNoTerms, &block);
    });
    return {};
  }

  /// terms  null: not known yet, the row is judged with v = w = 0
  [[nodiscard]] RowSums judge_row(int64_t row, const Terms* terms, Block* block) const {
    RowSums sums;
    const int64_t begin = row * row_length_;
    for (int64_t done = 0; done < row_length_; done += kBlock) {
      const int64_t first = begin + done;
      const int64_t count = std::min(kBlock, row_length_ - done);
      const auto length = static_cast<size_t>(count);
      read_values(what_.reference, first, count, std::span(block->reference, length));
      read_values(what_.mine, first, count, std::span(block->mine, length));
      for (int64_t i = 0; i < count; ++i)
        sums.pattern_differs |= std::isnan(block->reference[i]) != std::isnan(block->mine[i]);
      fill_allowed(first, done, count, terms, block);
      judge_values(grid_, count, block);
      add_block(first, count, block, &sums);
    }
    return sums;
  }

  static void add_block(int64_t first, int64_t count, Block* block, RowSums* sums) {
    const double largest = largest_of(block->e, count);
    if (largest > sums->e) {
      const double* place = std::find(block->e, block->e + count, largest);
      const auto i = place - block->e;
      sums->e = largest;
      sums->worst = first + i;
      sums->worst_error = block->error[i];
      sums->worst_allowed = block->error[i] / largest;
      sums->worst_size = std::max(std::fabs(block->reference[i]), std::fabs(block->mine[i]));
    }
    sums->e2 = std::max(sums->e2, largest_of(block->e2, count));
    sums->expected2 += sum_of(block->expected, count);
    sums->error2 += sum_of_squares(block->error, count, block->v);
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(block->reference[i])) block->reference[i] = 0;
    }
    sums->reference2 += sum_of_squares(block->reference, count, block->v);
  }

  /// v, w and c of a block.
  void fill_allowed(int64_t first, int64_t in_row, int64_t count, const Terms* terms,
                    Block* block) const {
    for (int64_t i = 0; i < count; ++i)
      block->terms[i] = std::min(std::fabs(block->reference[i]), grid_.largest);
    if (terms == nullptr) {
      std::fill_n(block->v, count, 0.0);
      std::fill_n(block->w, count, 0.0);
      return;
    }
    switch (row_.scale) {
      case ErrorScale::Result:
        std::copy_n(block->terms, count, block->scale);
        break;
      case ErrorScale::One:
        std::fill_n(block->scale, count, 1.0);
        std::fill_n(block->terms, count, 1.0);
        break;
      case ErrorScale::LargerInput:
        read_side(first, count, block->scale);
        for (int64_t i = 0; i < count; ++i)
          block->scale[i] = std::max(block->terms[i], block->scale[i]);
        std::copy_n(block->scale, count, block->terms);
        break;
      case ErrorScale::PlusSide:
        read_side(first, count, block->scale);
        for (int64_t i = 0; i < count; ++i) block->scale[i] += block->terms[i];
        break;
      case ErrorScale::Terms:
        std::copy_n(terms->c + in_row, count, block->scale);
        std::copy_n(block->scale, count, block->terms);
        break;
    }
    const double growth = row_.by_terms ? std::sqrt(terms->count) : 1;
    double w_factor = row_.w_factor * growth;
    double v_factor = row_.v_factor * growth * growth;
    if (row_.attention) {
      const double a = 4 * kAccumulatorRoundoff * (1 + terms->score_bound);
      w_factor = grid_.roundoff() + a;
      v_factor = a * a / 12;
    }
    for (int64_t i = 0; i < count; ++i) {
      block->w[i] = w_factor * block->scale[i];
      block->v[i] = v_factor * block->scale[i] * block->scale[i];
    }
    if (!row_.attention) return;
    const double rounding = kRoundingL2 * kRoundingL2 * grid_.roundoff() * grid_.roundoff();
    for (int64_t i = 0; i < count; ++i) block->v[i] += rounding * terms->variance[in_row + i];
  }

  void read_side(int64_t first, int64_t count, double* out) const {
    if (!row_.side) {
      std::fill_n(out, count, row_.side_constant);
      return;
    }
    side_.read(first, count, out);
    for (int64_t i = 0; i < count; ++i) out[i] = std::fabs(out[i]) * row_.side_factor;
  }

  [[nodiscard]] RowSums total() const {
    RowSums all;
    for (const RowSums& row : rows_) {
      all.error2 += row.error2;
      all.expected2 += row.expected2;
      all.reference2 += row.reference2;
      all.pattern_differs |= row.pattern_differs;
      all.e2 = std::max(all.e2, row.e2);
      if (row.e <= all.e) continue;
      all.e = row.e;
      all.worst = row.worst;
      all.worst_error = row.worst_error;
      all.worst_allowed = row.worst_allowed;
      all.worst_size = row.worst_size;
    }
    return all;
  }

  void sum_up(OwnError* result) const {
    const RowSums all = total();
    result->z = all.z();
    result->e = all.pattern_differs ? kInfinity : all.e;
    result->e2 = all.pattern_differs ? kInfinity : all.e2;
    if (has_rows_) {
      for (const RowSums& row : rows_) result->zr = std::max(result->zr, row.z());
    }
    result->worst = all.worst;
    if (all.worst >= 0) {
      const double ulp = grid_.ulp(all.worst_size);
      result->worst_ulp = all.worst_error / ulp;
      result->allowed_ulp = kElementLimit * all.worst_allowed / ulp;
    }
    if (all.reference2 > 0) {
      result->relative_l2 = std::sqrt(all.error2 / all.reference2);
      result->floor_l2 = std::sqrt(all.expected2 / all.reference2);
    }
    if (all.pattern_differs) result->reason = "NaN in other places than the reference has it";
    result->state =
        all.pattern_differs || all.error2 > 0 ? OwnError::State::Judged : OwnError::State::Exact;
  }

  const RoundedOutput& what_;
  ErrorRow row_;
  const FloatGrid& grid_;
  const unsigned jobs_;
  int64_t count_ = 0;
  int64_t row_length_ = 1;
  bool has_rows_ = false;
  BroadcastValues side_;
  std::vector<RowSums> rows_;
};

}  // namespace

Status judge_rounded(const RoundedOutput& what, int jobs, OwnError* result) {
  return OutputJudge(what, jobs).judge(result);
}

}  // namespace assay::locate
