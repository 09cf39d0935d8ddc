// SPDX-License-Identifier: Apache-2.0
#include "locate/measured.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/thread_pool.hpp"
#include "locate/error_model.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

constexpr int64_t kBlockElements = int64_t{1} << 15;  // 256 KiB of doubles a side
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// How much the L2 norm of independent errors moves, in units of their relative L2 times 1 / sqrt(N).
constexpr double kNormShare = 0.3;  // localisation 5
/// Keeps tensors of zeros from dividing by zero: the smallest normal float.
constexpr double kTiny = 0x1p-126;

bool has_values_of_interest(const TensorRecord& record, bool statistics) {
  if (!is_operand(record)) return false;
  if (record.role != run::Role::Input && record.role != run::Role::Output) return false;
  if (record.dtype && !is_float(*record.dtype)) return false;
  return record.bytes || (statistics && record.stats);
}

/// Positions where the two differ in being finite, or in which infinity they are, are not a matter of rounding.
bool same_pattern(double golden, double mine) {
  if (std::isnan(golden) || std::isnan(mine)) return std::isnan(golden) == std::isnan(mine);
  return golden == mine;
}

class Measurer {
 public:
  Measurer(const run::Run& golden, const run::Run& mine, bool statistics)
      : golden_(golden), mine_(mine), statistics_(statistics) {
    for (size_t i = 0; i < golden.records.size(); ++i) {
      if (is_operand(golden.records[i])) partners_.emplace(place_of(golden, golden.records[i]), i);
    }
  }

  [[nodiscard]] std::vector<Measured> list() const {
    std::vector<Measured> places;
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      if (!has_values_of_interest(mine_.records[i], statistics_)) continue;
      Measured one;
      one.mine_record = i;
      one.place = place_of(mine_, mine_.records[i]);
      const auto found = partners_.find(one.place);
      if (found == partners_.end()) {
        one.reason = "golden has no such value";
      } else {
        one.golden_record = found->second;
      }
      places.push_back(std::move(one));
    }
    return places;
  }

  void measure(Measured* one) const {
    if (one->golden_record == kNone) return;
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
    one->components = value_components(g->view, m->view);
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
    one->one_rounding = rounding_of(golden.dtype, mine.dtype);
    one->components = statistics_components(*g, *m);
    if (std::ranges::any_of(one->components, [](double c) { return std::isnan(c); })) {
      one->components.clear();
      one->reason = "statistics are not complete";
    }
  }

  const run::Run& golden_;
  const run::Run& mine_;
  const bool statistics_;
  std::unordered_map<std::string, size_t> partners_;
};

}  // namespace

std::string path_of(const run::Run& run, const std::string& node) {
  if (run.layout != "torch-tree") return node;
  if (node == "root") return "";
  return node.starts_with("root.") ? node.substr(5) : node;
}

std::string place_of(const run::Run& run, const TensorRecord& record) {
  const std::string path = path_of(run, record.node);
  std::string place = path.empty() ? "(root)" : path;
  if (record.graph > 0) place += " graph " + std::to_string(record.graph);
  place += " call " + std::to_string(record.call) + " step " +
           (record.step >= 0 ? std::to_string(record.step) : record.step_name) + " " +
           std::string(run::role_name(record.role));
  if (!record.slot.empty()) place += " " + record.slot;
  if (record.rank > 0) place += " rank " + std::to_string(record.rank);
  return place;
}

bool is_operand(const TensorRecord& record) {
  return record.kind == run::RecordKind::Operand && record.value.empty();
}

double rounding_of(const std::optional<DType>& golden, const std::optional<DType>& mine) {
  double roundoff = 0;
  for (const std::optional<DType>& dtype : {golden, mine}) {
    const std::optional<FloatGrid> grid = dtype ? float_grid(*dtype) : std::nullopt;
    if (grid) roundoff = std::max(roundoff, grid->roundoff());
  }
  return kRoundingL2 * (roundoff > 0 ? roundoff : 0x1p-24);
}

std::vector<double> value_components(const TensorView& golden, const TensorView& mine) {
  const int64_t count = mine.element_count();
  const auto values = static_cast<size_t>(
      std::min(values_per_element(golden.dtype), values_per_element(mine.dtype)));
  if (values_per_element(golden.dtype) != values_per_element(mine.dtype))
    return {kInfinity, kInfinity};
  std::vector<double> g(static_cast<size_t>(std::min(count, kBlockElements)) * values);
  std::vector<double> m(g.size());
  double error = 0;
  double size = 0;
  double peak = 0;
  double finite = 0;
  for (int64_t first = 0; first < count; first += kBlockElements) {
    const int64_t elements = std::min(kBlockElements, count - first);
    const size_t used = static_cast<size_t>(elements) * values;
    read_values(golden, first, elements, std::span(g).first(used));
    read_values(mine, first, elements, std::span(m).first(used));
    for (size_t i = 0; i < used; ++i) {
      if (!std::isfinite(g[i]) || !std::isfinite(m[i])) {
        if (!same_pattern(g[i], m[i])) return {kInfinity, kInfinity};
        continue;
      }
      const double difference = m[i] - g[i];
      error += difference * difference;
      size += g[i] * g[i];
      peak = std::max(peak, std::abs(difference));
      finite += 1;
    }
  }
  if (finite == 0) return {0, 0};
  const double norm = std::max(std::sqrt(size), std::sqrt(finite) * kTiny);
  return {std::sqrt(error) / norm, peak * std::sqrt(finite) / norm};
}

std::vector<double> statistics_components(const stats::TensorStats& golden,
                                          const stats::TensorStats& mine) {
  if (golden.nan_count != mine.nan_count || golden.positive_inf_count != mine.positive_inf_count ||
      golden.negative_inf_count != mine.negative_inf_count)
    return std::vector<double>(4, kInfinity);
  const int64_t finite = std::max(golden.finite_count(), mine.finite_count());
  if (golden.count > 0 && finite == 0) return {0, 0, 0, 0};
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(finite, 1)));
  const double l2 = std::max(golden.l2_norm, root * kTiny);
  const double largest = std::max({std::abs(golden.max), std::abs(golden.min), kTiny});
  return {std::abs(mine.l2_norm - golden.l2_norm) / l2 * root * kNormShare,
          std::abs(mine.mean - golden.mean) * root / l2, std::abs(mine.max - golden.max) / largest,
          std::abs(mine.min - golden.min) / largest};
}

Result<stats::TensorStats> statistics_of(const TensorRecord& record) {
  if (record.stats) return *record.stats;
  ASSAY_TRY(const Tensor tensor, run::load_tensor(record));
  return stats::compute_stats(tensor.view);
}

Result<std::vector<Measured>> measure_records(const run::Run& golden, const run::Run& mine,
                                              bool statistics, int jobs,
                                              const std::atomic<bool>* interrupted) {
  const Measurer measurer(golden, mine, statistics);
  std::vector<Measured> places = measurer.list();
  const auto stopped = [&] { return interrupted != nullptr && interrupted->load(); };
  parallel_for(places.size(), resolve_job_count(jobs), [&](size_t i) {
    if (!stopped()) measurer.measure(&places[i]);
  });
  if (stopped()) return fail(Errc::Usage, "interrupted");
  return places;
}

}  // namespace assay::locate
