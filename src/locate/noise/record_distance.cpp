// SPDX-License-Identifier: Apache-2.0
// Records of the run under test are paired with golden's by their places, together with how many of
// their tokens can still be compared behind a router; then all pairs are measured in parallel.
#include "locate/noise/record_distance.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/interruption.hpp"
#include "base/numbers.hpp"
#include "base/thread_pool.hpp"
#include "locate/noise/error_classes.hpp"
#include "locate/noise/expert_choices.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"
#include "stats/whole_tensor.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr int64_t kBlockElements = int64_t{1} << 15;  // 256 KiB of doubles a side
/// How much the L2 norm of independent errors moves, in units of their relative L2 times 1 /
/// sqrt(N).
constexpr double kNormShare = 0.3;  // docs/formats/floor-profile.md, "Numbers"
/// Keeps tensors of zeros from dividing by zero: the smallest normal float.
constexpr double kTiny = 0x1p-126;

/// Weights by their statistics: what a conversion may move the extremes by, in half ULP
/// (truncation: 2).
constexpr double kWeightHalfUlps = 2.1;
/// Standard deviations that sums of independent errors may be off by; the bound for the norm is
/// some two of them.
constexpr double kMeanSpreads = 6;
constexpr double kNormSpreads = 6;
/// Distance of two sketches in roundings to nearest: truncation gives 2, and sixteen sums tell it
/// to 18 %. Healthy weights of the laboratory reach 1.6, faults begin at 7.
constexpr double kWeightSketchRoundings = 4;
/// Elements of a weight that are rounded independently: all of so many, of more one in four, as
/// there are few distinct values in a weight that was quantised once.
constexpr int64_t kIndependentElements = 1024;
constexpr int64_t kElementsPerValue = 4;
/// Rows so short may all be the same one, as the states' rates of Mamba are: log 1, log 2 ... log
/// 16.
constexpr int64_t kShortWeightRow = 64;
/// Statistics of the same values from two kernels: sums in float32, numbers as text.
constexpr double kStatisticsPrecision = 1e-5;

/// The one with fewer bits of the fraction; that of float32 where neither type has a fraction.
FloatGrid coarser_grid(const std::optional<DType>& golden, const std::optional<DType>& mine) {
  std::optional<FloatGrid> coarser;
  for (const std::optional<DType>& dtype : {golden, mine}) {
    const std::optional<FloatGrid> grid = dtype ? float_grid(*dtype) : std::nullopt;
    if (grid && (!coarser || grid->fraction_bits < coarser->fraction_bits)) coarser = grid;
  }
  return coarser ? *coarser : *float_grid(DType::Float32);
}

bool has_values_of_interest(const TensorRecord& record, bool statistics) {
  if (!pair::is_operand(record)) return false;
  if (record.role != Role::Input && record.role != Role::Output) return false;
  if (record.dtype && !is_float(*record.dtype)) return false;
  return record.bytes || (statistics && record.stats);
}

/// Of two values that are not both finite: both are NaN, or the same infinity. Anything else is no
/// matter of rounding.
bool same_pattern(double golden, double mine) {
  if (std::isnan(golden) || std::isnan(mine)) return std::isnan(golden) == std::isnan(mine);
  return golden == mine;
}

constexpr size_t kShortestRow = 16;

/// What the components of two tensors are made of.
struct ErrorSums {
  double error = 0;    // of squares of m - g
  double size = 0;     // of squares of g
  double product = 0;  // of (m - g) g
  double peak = 0;     // largest |m - g|
  double finite = 0;   // positions that are finite on both sides
  double largest_row = 0;

  [[nodiscard]] std::vector<double> components(size_t columns, double largest_column) const {
    if (finite == 0) return std::vector<double>(kValueComponents, 0.0);
    const double norm = std::max(std::sqrt(size), std::sqrt(finite) * kTiny);
    const auto width = static_cast<double>(columns);
    const double rows = std::max(finite / width, 1.0);
    // A short row says no more than one of its elements does.
    const double row = columns >= kShortestRow ? std::sqrt(largest_row * rows) : std::sqrt(error);
    return {std::sqrt(error) / norm, peak * std::sqrt(finite) / norm, row / norm,
            std::sqrt(largest_column * width) / norm,
            std::abs(product) / (norm * norm) * std::sqrt(finite) * kNormShare};
  }
};

double sketch_distance(const stats::Sketch& golden, const stats::Sketch& mine) {
  double squares = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference = static_cast<double>(mine[i]) - static_cast<double>(golden[i]);
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

class Measurer {
 public:
  Measurer(const run::Run& golden, const run::Run& mine, bool statistics)
      : golden_(golden), mine_(mine), statistics_(statistics), places_(golden) {}

  [[nodiscard]] std::vector<Measured> list() const {
    std::vector<Measured> places;
    ExpertChoices choices;
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      const TensorRecord& record = mine_.records[i];
      std::string place = pair::place_of(mine_, record);
      const size_t found = places_.golden_at(place);
      const TensorRecord* partner = found == kNone ? nullptr : &golden_.records[found];
      see_choices(i, &choices);
      if (partner != nullptr) choices.see(*partner, record);
      if (!has_values_of_interest(record, statistics_)) continue;
      Measured one;
      one.mine_record = i;
      one.place = std::move(place);
      if (partner == nullptr) {
        one.reason = "golden has no such value";
      } else {
        one.golden_record = found;
        one.elements = choices.comparable_elements(record);
        one.partial = one.elements != std::numeric_limits<int64_t>::max();
        // Statistics are of all tokens: healthy pairs that went elsewhere, too, tell how far apart
        // they may be.
        if (statistics_) one.elements = std::numeric_limits<int64_t>::max();
        if (one.elements == 0) one.reason = "a router before it chose otherwise, as rounding may";
      }
      places.push_back(std::move(one));
    }
    return places;
  }

  /// The choices among the results of the call that record `first` is the first result of.
  void see_choices(size_t first, ExpertChoices* choices) const {
    const auto is_result_of_call = [&](size_t i) {
      const TensorRecord& a = mine_.records[first];
      const TensorRecord& b = mine_.records[i];
      return b.role == Role::Output && a.node == b.node && a.call == b.call && a.step == b.step &&
             a.rank == b.rank;
    };
    if (!is_result_of_call(first) || (first > 0 && is_result_of_call(first - 1))) return;
    for (size_t i = first; i < mine_.records.size() && is_result_of_call(i); ++i) {
      if (!ExpertChoices::is_choice(mine_.records[i])) continue;
      const size_t golden = places_.golden_of(mine_, mine_.records[i]);
      if (golden != kNone) choices->see_ahead(golden_.records[golden], mine_.records[i]);
    }
  }

  void measure(Measured* one) const {
    if (one->golden_record == kNone || one->elements == 0) return;
    const TensorRecord& golden = golden_.records[one->golden_record];
    const TensorRecord& mine = mine_.records[one->mine_record];
    if (statistics_) {
      measure_statistics(golden, mine, one);
    } else {
      measure_values(golden, mine, one);
    }
  }

 private:
  static void measure_values(const TensorRecord& golden, const TensorRecord& mine, Measured* one) {
    if (!golden.bytes || !mine.bytes) {
      one->reason = "only statistics were captured";
      return;
    }
    const Result<Tensor> g = run::load_tensor(golden);
    const Result<Tensor> m = run::load_tensor(mine);
    if (!g || !m) {
      one->reason = (g ? m : g).error().describe();
      return;
    }
    if (!is_float(g->view.dtype) || !is_float(m->view.dtype)) {
      one->reason = "not floating on both sides";
      return;
    }
    if (g->view.element_count() != m->view.element_count()) {
      one->shape_differs = true;
      one->reason = "shapes differ";
      return;
    }
    one->one_rounding = rounding_of(g->view.dtype, m->view.dtype);
    one->components = value_components(g->view, m->view, one->elements);
  }

  static void measure_statistics(const TensorRecord& golden, const TensorRecord& mine,
                                 Measured* one) {
    const Result<stats::TensorStats> g = statistics_of(golden);
    const Result<stats::TensorStats> m = statistics_of(mine);
    if (!g || !m) {
      one->reason = (g ? m : g).error().describe();
      return;
    }
    // Statistics of some layouts come without a count; then shapes say nothing here.
    if (g->count > 0 && m->count > 0 && g->count != m->count) {
      one->shape_differs = true;
      one->reason = "shapes differ";
      return;
    }
    one->count = m->count;
    one->one_rounding = rounding_of(golden.dtype, mine.dtype);
    one->components = statistics_components(*g, *m);
    // Some of its values are of tokens that went elsewhere: nothing bounds how far apart these are.
    if (one->partial) one->components.resize(kPlainStatistics);
    if (std::ranges::any_of(one->components, [](double c) { return std::isnan(c); })) {
      one->components.clear();
      one->reason = "statistics are not complete";
    }
  }

  const run::Run& golden_;
  const run::Run& mine_;
  const bool statistics_;
  const pair::Places places_;
};

}  // namespace

double rounding_of(const std::optional<DType>& golden, const std::optional<DType>& mine) {
  return kRoundingL2 * coarser_grid(golden, mine).roundoff();
}

std::vector<double> value_components(const TensorView& golden, const TensorView& mine,
                                     int64_t elements) {
  const int64_t count = std::min(elements, mine.element_count());
  const auto values = static_cast<size_t>(
      std::min(values_per_element(golden.dtype), values_per_element(mine.dtype)));
  if (values_per_element(golden.dtype) != values_per_element(mine.dtype))
    return std::vector<double>(kValueComponents, kInfinity);
  const size_t columns =
      (mine.shape.empty() ? 1
                          : static_cast<size_t>(std::max<int64_t>(mine.shape.span().back(), 1))) *
      values;
  std::vector<double> g(static_cast<size_t>(std::min(count, kBlockElements)) * values);
  std::vector<double> m(g.size());
  std::vector<double> column_errors(columns);
  ErrorSums sums;
  size_t column = 0;
  double row_error = 0;
  for (int64_t first = 0; first < count; first += kBlockElements) {
    const int64_t block = std::min(kBlockElements, count - first);
    const size_t used = static_cast<size_t>(block) * values;
    read_values(golden, first, block, std::span(g).first(used));
    read_values(mine, first, block, std::span(m).first(used));
    for (size_t i = 0; i < used; ++i) {
      if (std::isfinite(g[i]) && std::isfinite(m[i])) {
        const double difference = m[i] - g[i];
        const double error = difference * difference;
        sums.error += error;
        sums.size += g[i] * g[i];
        sums.product += difference * g[i];
        sums.peak = std::max(sums.peak, std::abs(difference));
        sums.finite += 1;
        row_error += error;
        column_errors[column] += error;
      } else if (!same_pattern(g[i], m[i])) {
        return std::vector<double>(kValueComponents, kInfinity);
      }
      if (++column == columns) {
        sums.largest_row = std::max(sums.largest_row, row_error);
        row_error = 0;
        column = 0;
      }
    }
  }
  return sums.components(columns, std::ranges::max(column_errors));
}

std::vector<double> statistics_components(const stats::TensorStats& golden,
                                          const stats::TensorStats& mine) {
  if (golden.nan_count != mine.nan_count || golden.positive_inf_count != mine.positive_inf_count ||
      golden.negative_inf_count != mine.negative_inf_count)
    return std::vector<double>(kPlainStatistics, kInfinity);
  const int64_t finite = std::max(golden.finite_count(), mine.finite_count());
  if (golden.count > 0 && finite == 0) return std::vector<double>(kPlainStatistics, 0.0);
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(finite, 1)));
  const double l2 = std::max(golden.l2_norm, root * kTiny);
  const double largest = std::max({std::abs(golden.max), std::abs(golden.min), kTiny});
  std::vector<double> components = {
      std::abs(mine.l2_norm - golden.l2_norm) / l2 * root * kNormShare,
      std::abs(mine.mean - golden.mean) * root / l2, std::abs(mine.max - golden.max) / largest,
      std::abs(mine.min - golden.min) / largest};
  if (golden.sketch && mine.sketch)
    components.push_back(sketch_distance(*golden.sketch, *mine.sketch) / l2);
  return components;
}

double weight_statistics_ratio(const stats::TensorStats& golden, const stats::TensorStats& mine,
                               const std::optional<DType>& golden_dtype,
                               const std::optional<DType>& mine_dtype, int64_t columns) {
  if (golden.nan_count != mine.nan_count || golden.positive_inf_count != mine.positive_inf_count ||
      golden.negative_inf_count != mine.negative_inf_count || golden.count != mine.count)
    return kInfinity;
  const int64_t finite = mine.finite_count();
  if (finite == 0) return 0;
  const FloatGrid grid = coarser_grid(golden_dtype, mine_dtype);
  const bool converted = golden_dtype != mine_dtype;
  const double root = std::sqrt(static_cast<double>(finite));
  const double l2 = std::max(golden.l2_norm, root * kTiny);
  const double norm = (mine.l2_norm - golden.l2_norm) / l2;
  const double mean = (mine.mean - golden.mean) * root / l2;  // in golden's root mean square
  // Elements keep their order when they are rounded, so the extremes are the same elements.
  double ratio = 0;
  for (const auto& [g, m] : {std::pair(golden.min, mine.min), std::pair(golden.max, mine.max)}) {
    const double ulp = grid.ulp(std::max(std::abs(g), std::abs(m)));
    const double limit = converted ? kWeightHalfUlps * ulp / 2 : kStatisticsPrecision * std::abs(g);
    ratio = std::max(ratio, std::abs(m - g) / std::max(limit, kTiny));
  }
  if (golden.sketch && mine.sketch && golden.min != golden.max) {
    const double rounding = kRoundingL2 * (grid.roundoff() * l2 + grid.ulp(0) * root);
    const double limit = converted ? kWeightSketchRoundings * rounding : kStatisticsPrecision * l2;
    ratio = std::max(ratio, sketch_distance(*golden.sketch, *mine.sketch) / limit);
  }
  const int64_t distinct =
      columns > 0 && columns <= kShortWeightRow
          ? std::min(columns, finite)
          : std::max(std::min(finite, kIndependentElements), finite / kElementsPerValue);
  const auto independent = static_cast<double>(distinct);
  double mean_limit = kStatisticsPrecision;
  double norm_limit = kStatisticsPrecision;
  if (converted && golden.min == golden.max) {  // one error for all elements
    mean_limit = norm_limit = kWeightHalfUlps * grid.roundoff();
  } else if (converted) {
    // An element's error is a share of its size. sqrt(sum w^4) <= max |w| l2 bounds what few large
    // ones do to the norm.
    const double spread = kRoundingL2 * grid.roundoff() / std::sqrt(independent);
    const double largest = std::max(std::abs(golden.min), std::abs(golden.max)) * root / l2;
    mean_limit = std::max(mean_limit, kMeanSpreads * spread);
    norm_limit = std::max(norm_limit, kNormSpreads * spread * largest);
  }
  const double nearest = std::max(std::abs(norm) / norm_limit, std::abs(mean) / mean_limit);
  if (nearest <= 1 || !converted) return std::max(ratio, nearest);
  // Truncation makes every element smaller, by 2/3 of the largest rounding when mantissas are
  // spread evenly: the norm, a mean in proportion, and neither extreme larger.
  const double shrink = -norm / grid.roundoff();
  const double golden_mean = golden.mean * root / l2;
  const bool truncated = shrink > 0.6 && shrink < 0.76 &&
                         std::abs(mine.min) <= std::abs(golden.min) &&
                         std::abs(mine.max) <= std::abs(golden.max) &&
                         std::abs(mean - norm * golden_mean) <=
                             2 * mean_limit + 0.2 * grid.roundoff() * std::abs(golden_mean);
  return truncated ? ratio : std::max(ratio, nearest);
}

Result<stats::TensorStats> statistics_of(const TensorRecord& record) {
  if (record.stats) return *record.stats;
  ASSAY_TRY(const Tensor tensor, run::load_tensor(record));
  return stats::statistics_of(tensor.view);
}

Result<std::vector<Measured>> measure_records(const run::Run& golden, const run::Run& mine,
                                              bool statistics, int jobs,
                                              const std::atomic<bool>* interrupted) {
  const Measurer measurer(golden, mine, statistics);
  std::vector<Measured> places = measurer.list();
  const auto stopped = [&] { return interrupted != nullptr && interrupted->load(); };
  parallel_for(places.size(), resolve_job_count(jobs), [&](size_t i) {
    try {
      const InterruptScope scope(interrupted);
      throw_if_interrupted();
      measurer.measure(&places[i]);
    } catch (const Interrupted&) {  // stopped() below
    }
  });
  if (stopped()) return fail(Errc::Interrupted, "interrupted");
  return places;
}

}  // namespace assay::locate
