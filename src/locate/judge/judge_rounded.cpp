// SPDX-License-Identifier: Apache-2.0
// Rows are judged in blocks, eight elements at a time. Where the error model needs the size of the
// terms (C), all rows are judged with v = w = 0 first, and those in question again with C.
//   docs/localisation.md, "Own error"
#include "locate/judge/judge_rounded.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numbers.hpp"
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

/// z of a row, and of all, above which C may change an answer.
constexpr double kRowInQuestion = 2;
constexpr double kTotalInQuestion = 1.5;
/// Fraction bits of the widest 16-bit type, Float16.
constexpr int kHalfFractionBits = 10;
/// Limit of e. The error at which e reaches it is what the sentence says is allowed.
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
  alignas(64) double e[kBlock];
};

/// What a block adds to the measures of its row, and a row to those of the whole.
struct Sums {
  double error2 = 0;
  double expected2 = 0;
  double expected4 = 0;  // squares of the expected squares
  double reference2 = 0;
  double e = 0;
  double e2 = 0;
  bool pattern_differs = false;  // NaN here and not there

  /// All but e, whose place counts.
  void add(const Sums& more) {
    error2 += more.error2;
    expected2 += more.expected2;
    expected4 += more.expected4;
    reference2 += more.reference2;
    e2 = std::max(e2, more.e2);
    pattern_differs |= more.pattern_differs;
  }
};

using simd::f64x8;
using simd::i64x8;
using simd::load;
using simd::store;
constexpr int64_t kLanes = 8;
static_assert(kBlock % kLanes == 0);

[[gnu::always_inline]] inline f64x8 absolute(f64x8 values) {
  return (f64x8)((i64x8)values & ~(int64_t{1} << 63));
}
/// Both as std::max() and std::min() with NaN: the first operand is kept.
[[gnu::always_inline]] inline f64x8 larger(f64x8 a, f64x8 b) { return a < b ? b : a; }
[[gnu::always_inline]] inline f64x8 smaller(f64x8 a, f64x8 b) { return b < a ? b : a; }

/// Error, its expected square and both tests of every element; NaN in both, and both below the
/// smallest normal number: no error and nothing expected. Values are clamped to the range of the
/// type first. Sums are those of eight lanes, so that every clone adds in the same order.
ASSAY_CLONES void judge_values(const FloatGrid& grid, int64_t count, Block* block, Sums* sums) {
  const f64x8 zero{};
  const f64x8 one_ulp = zero + std::ldexp(1.0, -grid.fraction_bits);
  const f64x8 max = zero + grid.largest;
  const f64x8 min_normal = zero + grid.smallest_normal();
  const f64x8 unit = zero + grid.roundoff();
  const f64x8 tiny = zero + grid.tiny;
  const f64x8 finite_max = zero + std::numeric_limits<double>::max();
  const i64x8 lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  f64x8 error2{};
  f64x8 expected2{};
  f64x8 expected4{};
  f64x8 reference2{};
  f64x8 largest_e{};
  f64x8 largest_e2{};
  i64x8 differs{};
  for (int64_t i = 0; i < count; i += kLanes) {
    // Behind the end the arrays hold older values.
    const i64x8 inside = lanes < count - i;
    const f64x8 raw = load<f64x8>(block->reference + i);
    const f64x8 found = load<f64x8>(block->mine + i);
    const f64x8 y = smaller(larger(raw, -max), max);
    const f64x8 m = smaller(larger(found, -max), max);
    differs |= inside & ((raw != raw) ^ (found != found));
    const f64x8 size = larger(absolute(y), absolute(m));
    // Also false for NaN.
    const i64x8 counts = (size >= min_normal) & inside;
    // An infinite result has no terms to round.
    const i64x8 finite = absolute(raw) <= finite_max;
    const f64x8 v = finite ? load<f64x8>(block->v + i) : zero;
    const f64x8 w = finite ? load<f64x8>(block->w + i) : zero;
    const f64x8 c = finite ? load<f64x8>(block->terms + i) : zero;
    const f64x8 ulp = (f64x8)((i64x8)size & int64_t{0x7FF0000000000000}) * one_ulp;
    const f64x8 error = counts ? absolute(m - y) : zero;
    const f64x8 expected = counts ? ulp * ulp / 12 + v : zero;
    const f64x8 allowed = ulp / 2 + w + tiny;
    const f64x8 e = counts ? error / allowed : zero;
    const f64x8 e2 = counts ? error / (allowed + unit * c) : zero;
    store(block->error + i, error);
    store(block->e + i, e);
    store(block->reference + i, y);
    largest_e = larger(largest_e, e);
    largest_e2 = larger(largest_e2, e2);
    expected2 += expected;
    expected4 += expected * expected;
    error2 += error * error;
    const f64x8 real = inside & (y == y) ? y : zero;
    reference2 += real * real;
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums->error2 += error2[lane];
    sums->expected2 += expected2[lane];
    sums->expected4 += expected4[lane];
    sums->reference2 += reference2[lane];
    sums->e = std::max(sums->e, largest_e[lane]);
    sums->e2 = std::max(sums->e2, largest_e2[lane]);
    sums->pattern_differs |= differs[lane] != 0;
  }
}

/// |y|, clamped.
ASSAY_CLONES void clamp_sizes(const double* values, double max, int64_t count, double* sizes) {
  for (int64_t i = 0; i < count; i += kLanes)
    store(sizes + i, smaller(absolute(load<f64x8>(values + i)), f64x8{} + max));
}

/// w and v of a block.
ASSAY_CLONES void scale_allowed(double w_factor, double v_factor, int64_t count, Block* block) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const f64x8 scale = load<f64x8>(block->scale + i);
    store(block->w + i, w_factor * scale);
    store(block->v + i, v_factor * scale * scale);
  }
}

double largest_of(const double* values, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, values[i]);
  return largest;
}

struct RowSums : Sums {
  int64_t worst = -1;  // of e, in the whole
  double worst_error = 0, worst_allowed = 0, worst_size = 0;

  [[nodiscard]] double z() const {
    if (pattern_differs) return kInfinity;
    return expected2 > 0 ? std::sqrt(error2 / expected2) : 0;
  }
  /// How many elements have most of the expected error: all of them where they have the same.
  [[nodiscard]] double effective_count() const {
    return expected4 > 0 ? expected2 * expected2 / expected4 : 0;
  }
};

/// C, and what belongs to it, of a run of elements.
struct Terms {
  const double* c = nullptr;
  const double* variance = nullptr;
  const double* allowed = nullptr;
  const double* addend = nullptr;  // of a product in 16 bits
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
    const bool by_terms = row_.scale == ErrorScale::Terms || row_.scale == ErrorScale::Given;
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
    reference::aten::MagnitudeOptions options{.jobs = static_cast<int>(jobs_),
                                              .rows = {},
                                              .addend = grid_.fraction_bits <= kHalfFractionBits};
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
    const bool is_given = row_.scale == ErrorScale::Given;
    if (terms->c.size() != expected ||
        ((row_.attention || is_given) && terms->variance.size() != expected) ||
        (is_given && terms->allowed.size() != expected))
      return fail(Errc::Internal, what_.call.name + ": sizes of terms for another result");
    const auto bounds = static_cast<int64_t>(terms->score_bound.values.size());
    parallel_for(wanted.size(), jobs_, [&](size_t i) {
      thread_local Block block;
      const auto first = static_cast<int64_t>(i) * row_length_;
      Terms of_row;
      of_row.c = terms->c.data() + first;
      of_row.count = terms->terms;
      if (terms->addend.size() == expected) of_row.addend = terms->addend.data() + first;
      if (is_given) {
        of_row.variance = terms->variance.data() + first;
        of_row.allowed = terms->allowed.data() + first;
      }
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
      fill_allowed(first, done, count, terms, block);
      Sums of_block;
      judge_values(grid_, count, block, &of_block);
      add_block(first, count, *block, of_block, &sums);
    }
    return sums;
  }

  static void add_block(int64_t first, int64_t count, const Block& block, const Sums& added,
                        RowSums* sums) {
    if (added.e > sums->e) {
      const double* place = std::find(block.e, block.e + count, added.e);
      const auto i = place - block.e;
      sums->e = added.e;
      sums->worst = first + i;
      sums->worst_error = block.error[i];
      sums->worst_allowed = block.error[i] / added.e;
      sums->worst_size = std::max(std::fabs(block.reference[i]), std::fabs(block.mine[i]));
    }
    sums->add(added);
  }

  /// v, w and c of a block.
  void fill_allowed(int64_t first, int64_t in_row, int64_t count, const Terms* terms,
                    Block* block) const {
    clamp_sizes(block->reference, grid_.largest, count, block->terms);
    if (terms == nullptr) {
      std::fill_n(block->v, count, 0.0);
      std::fill_n(block->w, count, 0.0);
      return;
    }
    switch (row_.scale) {
      case ErrorScale::Given:
        std::copy_n(terms->c + in_row, count, block->terms);
        std::copy_n(terms->allowed + in_row, count, block->w);
        std::copy_n(terms->variance + in_row, count, block->v);
        return;
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
      w_factor = roundoff_of_probabilities() + a;
      v_factor = a * a / 12;
    }
    scale_allowed(w_factor, v_factor, count, block);
    if (terms->addend != nullptr) allow_rounded_product(terms->addend + in_row, count, block);
    if (!row_.attention) return;
    const double rounding = kRoundingL2 * roundoff_of_probabilities();
    for (int64_t i = 0; i < count; ++i)
      block->v[i] += rounding * rounding * terms->variance[in_row + i];
  }

  [[nodiscard]] double roundoff_of_probabilities() const {
    return std::max(grid_.roundoff(), row_.probabilities);
  }

  /// Kernels that add a bias to a product of 16 bits may round the product first: oneDNN and BLAS
  /// add it in Float32 or behind that, by the layout of the operands. Where both nearly cancel its
  /// rounding is larger than the result's.
  void allow_rounded_product(const double* addend, int64_t count, Block* block) const {
    for (int64_t i = 0; i < count; ++i) {
      const double ulp = grid_.ulp(std::fabs(block->reference[i] - addend[i]));
      block->w[i] += ulp / 2;
      block->v[i] += ulp * ulp / 12;
    }
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
      all.add(row);
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
    // One rounding is at most sqrt(3) of its deviation, but a sum of several is not: with a few
    // results, or a few that have most of the error, z is no average, and their bounds alone judge.
    const bool few = all.effective_count() < static_cast<double>(kShortestRow);
    const bool within = few && all.e <= 1 && !all.pattern_differs;
    result->z = within ? std::min(all.z(), std::sqrt(3.0)) : all.z();
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
