// SPDX-License-Identifier: Apache-2.0
// One captured output against its reference: the measures of localisation 2, before any limit.
//
// The size of the terms of a sum (C) costs as much as the sum itself, so it is computed only where an answer depends on
// it: in rows with an element beyond one rounding (e > 1) or with z above kRowInQuestion, and everywhere when z of the
// whole is above kTotalInQuestion. Elsewhere z is given with v = 0, from above: what is reported as at most 1.5 is at
// most that, and no limit of 2.1 lies lower.
#include "locate/judge_output.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/simd.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "locate/error_model.hpp"
#include "reference/aten/magnitudes.hpp"
#include "reference/aten/selection.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::BroadcastValues;
using reference::kBlock;
using reference::Wide;
using reference::aten::Call;
using reference::aten::Magnitudes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRowInQuestion = 2;
constexpr double kTotalInQuestion = 1.5;
/// Rows of shorter last axes tell nothing apart.   localisation 2, zr
constexpr int64_t kShortestRow = 16;
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

/// 2^floor(log2 x) of a normal number.
[[gnu::always_inline]] inline double power_below(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7FF0000000000000u);
}

/// Error, its expected square and both tests of every element; NaN in both, and both below the smallest normal number:
/// no error and nothing expected. Values are clamped to the range of the type first.
ASSAY_CLONES void judge_values(const FloatGrid& grid, int64_t count, Block* block) {
  const double one_ulp = std::ldexp(1.0, -grid.fraction_bits);
  const double max = grid.max;
  const double min_normal = grid.min_normal;
  const double unit = grid.unit;
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
  /// parts  of a sampled product: the rows of the whole that reference and mine hold; empty: they are the whole
  OutputJudge(const Call& call, const TensorView& reference, size_t output, const TensorView& mine,
              ErrorRow row, const FloatGrid& grid, int jobs, std::span<const int64_t> parts = {})
      : call_(call),
        reference_(reference),
        output_(output),
        mine_(mine),
        row_(std::move(row)),
        grid_(grid),
        jobs_(jobs),
        parts_(parts) {}

  Status judge(OwnError* result) {
    count_ = mine_.element_count();
    const size_t rank = mine_.shape.size();
    const int64_t last = rank == 0 ? 1 : mine_.shape[rank - 1];
    has_rows_ = last >= kShortestRow;
    row_length_ = has_rows_ ? last : std::max<int64_t>(count_, 1);
    rows_.resize(static_cast<size_t>(count_ / row_length_));
    if (row_.side) {
      ASSAY_TRY(side_, BroadcastValues::make(row_.side->view, mine_.shape));
    }
    const bool by_terms = row_.scale == ErrorScale::Terms;
    parallel_for(rows_.size(), static_cast<unsigned>(std::max(1, jobs_)), [&](size_t row) {
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
    reference::aten::MagnitudeOptions options{.jobs = jobs_, .rows = {}};
    std::vector<int64_t> numbers = wanted;
    if (!parts_.empty()) {
      for (int64_t& number : numbers) number = parts_[static_cast<size_t>(number)];
    }
    if (has_rows_ && (!parts_.empty() || wanted.size() < rows_.size()))
      options.rows = std::span<const int64_t>(numbers);
    Result<Magnitudes> terms = reference::aten::magnitudes(call_, output_, options);
    if (!terms) return fail(terms.error());
    const auto expected = static_cast<int64_t>(wanted.size()) * row_length_;
    if (terms->c.size() != expected || (row_.attention && terms->variance.size() != expected))
      return fail(Errc::Internal, call_.name + ": sizes of terms for another result");
    const auto bounds = static_cast<int64_t>(terms->score_bound.values.size());
    parallel_for(wanted.size(), static_cast<unsigned>(std::max(1, jobs_)), [&](size_t i) {
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

  /// terms  null: not known yet, the row is judged with v = w = 0
  [[nodiscard]] RowSums judge_row(int64_t row, const Terms* terms, Block* block) const {
    RowSums sums;
    const int64_t begin = row * row_length_;
    for (int64_t done = 0; done < row_length_; done += kBlock) {
      const int64_t first = begin + done;
      const int64_t count = std::min(kBlock, row_length_ - done);
      const auto length = static_cast<size_t>(count);
      read_values(reference_, first, count, std::span(block->reference, length));
      read_values(mine_, first, count, std::span(block->mine, length));
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
      block->terms[i] = std::min(std::fabs(block->reference[i]), grid_.max);
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
      w_factor = grid_.unit + a;
      v_factor = a * a / 12;
    }
    for (int64_t i = 0; i < count; ++i) {
      block->w[i] = w_factor * block->scale[i];
      block->v[i] = v_factor * block->scale[i] * block->scale[i];
    }
    if (!row_.attention) return;
    const double rounding = kRoundingL2 * kRoundingL2 * grid_.unit * grid_.unit;
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
      const double ulp = power_below(all.worst_size) * std::ldexp(1.0, -grid_.fraction_bits);
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

  const Call& call_;
  const TensorView& reference_;
  const size_t output_;
  const TensorView& mine_;
  const ErrorRow row_;
  const FloatGrid& grid_;
  const int jobs_;
  const std::span<const int64_t> parts_;
  int64_t count_ = 0;
  int64_t row_length_ = 1;
  bool has_rows_ = false;
  BroadcastValues side_;
  std::vector<RowSums> rows_;
};

/// Equal bytes of equal types, without arithmetic.
bool has_equal_bytes(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || info(a.dtype).element_bits < 8 || a.negative != b.negative ||
      a.conjugate != b.conjugate)
    return false;
  const int64_t count = a.element_count();
  const size_t element_bytes = info(a.dtype).element_bits / 8;
  if (a.is_contiguous() && b.is_contiguous() && !a.negative && !a.conjugate) {
    const ByteSpan left = a.contiguous_bytes();
    const ByteSpan right = b.contiguous_bytes();
    return left.data() == right.data() || left.empty() ||
           std::memcmp(left.data(), right.data(), left.size()) == 0;
  }
  constexpr int64_t kElements = 4096;
  std::vector<std::byte> left(static_cast<size_t>(std::min(count, kElements)) * element_bytes);
  std::vector<std::byte> right(left.size());
  for (int64_t first = 0; first < count; first += kElements) {
    const int64_t length = std::min(kElements, count - first);
    const size_t bytes = static_cast<size_t>(length) * element_bytes;
    gather_bytes(a, first, length, std::span(left).first(bytes));
    gather_bytes(b, first, length, std::span(right).first(bytes));
    if (std::memcmp(left.data(), right.data(), bytes) != 0) return false;
  }
  return true;
}

void set_wrong(int64_t worst, std::string reason, OwnError* result) {
  result->state = OwnError::State::Judged;
  result->z = result->e = result->e2 = kInfinity;
  result->worst = worst;
  result->reason = std::move(reason);
}

/// Results that are integers or truth values: equal or wrong.
Status judge_integers(const Call& call, const std::vector<Tensor>& outputs, size_t output,
                      const TensorView& mine, OwnError* result) {
  const TensorView& reference = outputs[output].view;
  const int64_t count = mine.element_count();
  int64_t first_wrong = -1;
  int64_t wrong = 0;
  const auto compare = [&](const auto& right, const auto& found) {
    for (int64_t i = 0; i < count; ++i) {
      if (right.values[static_cast<size_t>(i)] == found.values[static_cast<size_t>(i)]) continue;
      if (wrong++ == 0) first_wrong = i;
    }
  };
  if (is_float(reference.dtype)) {
    ASSAY_TRY(const Wide right, reference::widen(reference));
    ASSAY_TRY(const Wide found, reference::widen(mine));
    compare(right, found);
  } else {
    ASSAY_TRY(const reference::Whole right, reference::whole(reference));
    ASSAY_TRY(const reference::Whole found, reference::whole(mine));
    compare(right, found);
  }
  result->state = OwnError::State::Exact;
  if (wrong == 0) return {};
  if (reference::aten::has_open_order(call.name)) {
    ASSAY_TRY(const bool right,
              reference::aten::indices_select_same_values(call, outputs, output, mine));
    if (right) return {};
  }
  set_wrong(first_wrong,
            std::to_string(wrong) + (wrong == 1 ? " integer differs" : " integers differ"), result);
  return {};
}

/// Results that no rounding explains: the values of operands, moved; a scalar that was put among them is rounded once.
Status judge_exact(const TensorView& reference, const TensorView& mine, OwnError* result) {
  const std::optional<FloatGrid> grid = grid_of(mine.dtype);
  if (!grid || values_per_element(reference.dtype) != 1)
    return fail(Errc::Unsupported, std::string(name(mine.dtype)) + " values differ");
  const bool rounds = !holds_all_values(mine.dtype, reference.dtype);
  const int64_t count = mine.element_count();
  std::vector<double> right(static_cast<size_t>(std::min(count, kBlock)));
  std::vector<double> found(right.size());
  int64_t wrong = 0;
  bool pattern_differs = false;
  double error2 = 0;
  double reference2 = 0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t length = std::min(kBlock, count - first);
    const auto size = static_cast<size_t>(length);
    read_values(reference, first, length, std::span(right).first(size));
    read_values(mine, first, length, std::span(found).first(size));
    for (size_t i = 0; i < size; ++i) {
      if (std::isnan(right[i]) && std::isnan(found[i])) continue;
      const double y = std::clamp(right[i], -grid->max, grid->max);
      const double m = std::clamp(found[i], -grid->max, grid->max);
      if (!std::isnan(y)) reference2 += y * y;
      if (m == y || (rounds && m == reference::round_to(y, mine.dtype))) continue;
      const double larger = std::max(std::fabs(y), std::fabs(m));
      if (larger < grid->min_normal) continue;
      const double ulp = power_below(larger) * std::ldexp(1.0, -grid->fraction_bits);
      const double error = std::fabs(m - y);
      // A scalar may be rounded twice on its way, by way of float: a tie to the other side.
      const bool representable = reference::round_to(y, mine.dtype) == y;
      if (rounds && !representable && error <= ulp / 2 * (1 + 0x1p-12)) continue;
      if (std::isnan(error)) {
        pattern_differs = true;
      } else {
        error2 += error * error;
      }
      if (wrong++ == 0 || error / ulp > result->worst_ulp) {
        result->worst = first + static_cast<int64_t>(i);
        result->worst_ulp = std::isnan(error) ? 0 : error / ulp;
      }
    }
  }
  result->state = OwnError::State::Exact;
  if (reference2 > 0) result->relative_l2 = std::sqrt(error2 / reference2);
  if (wrong == 0) return {};
  set_wrong(result->worst,
            pattern_differs ? "NaN in other places than the reference has it"
                            : "values are moved, and " + std::to_string(wrong) +
                                  (wrong == 1 ? " differs" : " differ"),
            result);
  return {};
}

/// Type and shape text of a result that is not the expected one.
std::string shape_difference(const TensorView& reference, const TensorView& mine) {
  return "shape " + list_text(mine.shape.span()) + ", expected " +
         list_text(reference.shape.span());
}

}  // namespace

Result<OwnError> judge_output(const Call& call, const std::vector<Tensor>& outputs, size_t output,
                              const TensorView& mine, int jobs) {
  OwnError result;
  result.output = output;
  result.dtype = mine.dtype;
  if (output >= outputs.size())
    return fail(Errc::Invalid, call.name + " has no output " + std::to_string(output));
  const Tensor& tensor = outputs[output];
  const TensorView& reference = tensor.view;
  if (!reference::aten::is_predictable(tensor)) {
    result.state = OwnError::State::NotPredictable;
    result.reason = "values that nobody can predict";
    return result;
  }
  if (!(reference.shape == mine.shape)) {
    set_wrong(-1, shape_difference(reference, mine), &result);
    return result;
  }
  if (has_equal_bytes(reference, mine)) {
    result.state = OwnError::State::Exact;
    return result;
  }
  if (is_integer(mine.dtype) || mine.dtype == DType::Bool) {
    ASSAY_TRY_STATUS(judge_integers(call, outputs, output, mine, &result));
    return result;
  }
  const ErrorModel model = error_model(call, output, reference.dtype, mine.dtype);
  if (model.kind == ErrorModel::Kind::None) {
    result.state = OwnError::State::NoReference;
    result.reason = model.reason;
    return result;
  }
  if (model.kind == ErrorModel::Kind::Exact) {
    ASSAY_TRY_STATUS(judge_exact(reference, mine, &result));
    return result;
  }
  const std::optional<FloatGrid> grid = grid_of(mine.dtype);
  OutputJudge judge(call, reference, output, mine, model.row, *grid, jobs);
  ASSAY_TRY_STATUS(judge.judge(&result));
  return result;
}

std::vector<int64_t> sample_rows(const TensorView& mine, int64_t count) {
  const int64_t last = mine.shape.empty() ? 1 : mine.shape[mine.shape.size() - 1];
  if (last == 0) return {};
  const int64_t rows = mine.element_count() / last;
  std::vector<int64_t> chosen;
  count = std::clamp<int64_t>(count, 1, std::max<int64_t>(rows, 1));
  for (int64_t i = 0; i < std::min(count, rows); ++i)
    chosen.push_back(count == 1 ? rows - 1 : i * (rows - 1) / (count - 1));
  std::vector<double> values(static_cast<size_t>(std::min(last, kBlock)));
  double largest = -1;
  int64_t row_of_largest = -1;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t done = 0; done < last; done += kBlock) {
      const auto part = std::span(values).first(static_cast<size_t>(std::min(kBlock, last - done)));
      read_values(mine, row * last + done, static_cast<int64_t>(part.size()), part);
      for (const double value : part) {
        const double size = std::isnan(value) ? kInfinity : std::fabs(value);
        if (size <= largest) continue;
        largest = size;
        row_of_largest = row;
      }
    }
  }
  if (row_of_largest >= 0) chosen.push_back(row_of_largest);
  std::ranges::sort(chosen);
  const auto [first, end] = std::ranges::unique(chosen);
  chosen.erase(first, end);
  return chosen;
}

Result<OwnError> judge_product_rows(const Call& call, const TensorView& mine,
                                    std::span<const int64_t> rows, int jobs) {
  if (mine.shape.empty() || mine.shape[mine.shape.size() - 1] < kShortestRow)
    return fail(Errc::Unsupported, "rows too short to stand for others");
  ASSAY_TRY(Wide reference, reference::aten::product_rows(call, rows, jobs));
  const int64_t last = mine.shape[mine.shape.size() - 1];
  const auto count = static_cast<int64_t>(rows.size());
  if (reference.size() != count * last)
    return fail(Errc::Unsupported, "rows of another length than the reference's");
  Wide found(Dims{count, last});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    if (row < 0 || row >= mine.element_count() / last)
      return fail(Errc::Invalid, "row " + std::to_string(row) + " of a result without it");
    read_values(mine, row * last, last,
                std::span(found.data() + i * last, static_cast<size_t>(last)));
  }
  const ErrorModel model = error_model(call, 0, DType::Float64, mine.dtype);
  const std::optional<FloatGrid> grid = grid_of(mine.dtype);
  if (model.kind != ErrorModel::Kind::Rounded || !grid)
    return fail(Errc::Unsupported, "not a product of floats");
  reference.shape = found.shape;
  const Tensor right = reference::to_tensor(std::move(reference));
  const Tensor wrong = reference::to_tensor(std::move(found));
  OwnError result;
  result.dtype = mine.dtype;
  result.sampled = true;
  OutputJudge judge(call, right.view, 0, wrong.view, model.row, *grid, jobs, rows);
  ASSAY_TRY_STATUS(judge.judge(&result));
  if (result.worst >= 0)
    result.worst = rows[static_cast<size_t>(result.worst / last)] * last + result.worst % last;
  return result;
}

}  // namespace assay::locate
