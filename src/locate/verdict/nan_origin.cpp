// SPDX-License-Identifier: Apache-2.0
// Outputs with NaN or infinities that golden does not have are asked where these come from: moved
// there, out of an input, out of an origin inside the module; those that none explains are origins.
#include "locate/verdict/nan_origin.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/thread_pool.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/noise/record_distance.hpp"
#include "reference/aten/registry.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// Masks are filled with the lowest value of a type; a narrower type has infinity there.
constexpr double kMaskedBelow = -1e30;

struct Counts {
  int64_t nan = 0;
  int64_t positive_inf = 0;
  int64_t negative_inf = 0;
  double min = NAN;

  [[nodiscard]] bool any() const { return nan + positive_inf + negative_inf > 0; }
};

std::optional<Counts> counts_of(const TensorRecord& record) {
  if (record.dtype && !is_float(*record.dtype)) return Counts{};
  const Result<stats::TensorStats> stats = statistics_of(record);
  if (!stats) return std::nullopt;
  return Counts{stats->nan_count, stats->positive_inf_count, stats->negative_inf_count, stats->min};
}

/// Memory that nobody wrote yet may hold anything. Who reads it before it is written inherits that.
bool is_allocation(const TensorRecord& record) {
  return reference::aten::class_of(record.op_type) == reference::aten::OperatorClass::Allocation;
}

/// Mine has NaN or infinities that golden has not. Without golden only NaN is surely wrong.
bool is_wrong(const Counts& mine, const std::optional<Counts>& golden) {
  if (!golden) return mine.nan > 0;
  if (mine.nan > 0 && golden->nan == 0) return true;
  if (mine.positive_inf > 0 && golden->positive_inf == 0) return true;
  return mine.negative_inf > 0 && golden->negative_inf == 0 && !(golden->min <= kMaskedBelow);
}

/// Of one execution of one node.
struct Execution {
  std::vector<size_t> inputs, outputs;  // records
  uint64_t begin = 0, end = 0;
};
using ExecutionKey =
    std::tuple<int, int64_t, std::string_view, uint32_t, std::string_view, uint32_t>;

class NanSearch {
 public:
  NanSearch(const run::Run& golden, const run::Run& mine) : golden_(golden), mine_(mine) {}

  Result<NanOrigins> search(int jobs, const std::atomic<bool>* interrupted,
                            const SeenValues* seen) {
    const bool is_seen = seen != nullptr && seen->run == &mine_;
    const auto stopped = [&] { return interrupted != nullptr && interrupted->load(); };
    std::vector<size_t> outputs;
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      const TensorRecord& record = mine_.records[i];
      if (is_seen && seen->finite[i]) continue;
      if (pair::is_operand(record) && record.role == Role::Output && !is_allocation(record))
        outputs.push_back(i);
    }
    std::vector<std::optional<Counts>> counts(outputs.size());
    parallel_for(outputs.size(), resolve_job_count(jobs), [&](size_t i) {
      if (!stopped()) counts[i] = counts_of(mine_.records[outputs[i]]);
    });
    if (stopped()) return fail(Errc::Interrupted, "interrupted");
    std::vector<std::pair<size_t, Counts>> suspects;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (counts[i] && counts[i]->any()) suspects.emplace_back(outputs[i], *counts[i]);
    if (!suspects.empty()) judge(suspects);
    return std::move(found_);
  }

 private:
  void judge(const std::vector<std::pair<size_t, Counts>>& suspects) {
    index_runs();
    for (const auto& [record, counts] : suspects) {
      const std::optional<Counts> golden = golden_counts(mine_.records[record]);
      if (!is_wrong(counts, golden)) continue;
      if (passes_on(record, counts)) continue;
      if (inherits(record, counts) || lies_around_origin(record)) {
        found_.inherited.push_back(record);
      } else {
        add(record, counts, golden);
      }
    }
  }

  void index_runs() {
    places_.emplace(golden_);
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      const TensorRecord& record = mine_.records[i];
      if (!pair::is_operand(record) || (record.role != Role::Input && record.role != Role::Output))
        continue;
      const auto [found, is_new] = executions_.try_emplace(key_of(record));
      Execution& one = found->second;
      if (is_new) one.begin = record.order;
      one.begin = std::min(one.begin, record.order);
      one.end = std::max(one.end, record.order);
      (record.role == Role::Input ? one.inputs : one.outputs).push_back(i);
    }
  }

  static ExecutionKey key_of(const TensorRecord& record) {
    return {record.rank, record.step, record.step_name, record.graph, record.node, record.call};
  }

  std::optional<Counts> golden_counts(const TensorRecord& record) const {
    const size_t partner = places_->golden_of(mine_, record);
    return partner == kNone ? std::nullopt : counts_of(golden_.records[partner]);
  }

  /// An input with NaN, or with infinities that golden's does not have. An infinity that belongs
  /// there is no excuse.
  bool has_wrong_input(size_t output) const {
    const Execution& one = executions_.at(key_of(mine_.records[output]));
    return std::ranges::any_of(one.inputs, [&](size_t input) {
      const std::optional<Counts> counts = counts_of(mine_.records[input]);
      return counts && counts->any() && is_wrong(*counts, golden_counts(mine_.records[input]));
    });
  }

  /// NaN made of wrong infinities is inherited only where something was found to have made these:
  /// where they were only moved there, this is the origin.
  bool inherits(size_t output, const Counts& counts) const {
    if (!has_wrong_input(output)) return false;
    return counts.nan == 0 || !found_.findings.empty() || has_nan_input(output);
  }

  bool has_nan_input(size_t output) const {
    return std::ranges::any_of(executions_.at(key_of(mine_.records[output])).inputs, [&](size_t i) {
      const std::optional<Counts> counts = counts_of(mine_.records[i]);
      return counts && counts->nan > 0;
    });
  }

  /// An operator that only moves values makes none: `where` puts the infinity of a mask that it was
  /// given, and so does a sum with one. Whether that belongs there is a matter of its condition: a
  /// static cache has empty slots to hide where golden's has none, and a mask is added where
  /// golden's fused attention reads it.
  bool passes_on(size_t output, const Counts& moved) const {
    const TensorRecord& record = mine_.records[output];
    if (reference::aten::class_of(record.op_type) != reference::aten::OperatorClass::Move &&
        base_name(record.op_type) != "add")
      return false;
    Counts given;
    for (const size_t input : executions_.at(key_of(record)).inputs) {
      const std::optional<Counts> counts = counts_of(mine_.records[input]);
      if (!counts || is_wrong(*counts, golden_counts(mine_.records[input]))) return false;
      given.nan += counts->nan;
      given.positive_inf += counts->positive_inf;
      given.negative_inf += counts->negative_inf;
    }
    return (moved.nan == 0 || given.nan > 0) &&
           (moved.positive_inf == 0 || given.positive_inf > 0) &&
           (moved.negative_inf == 0 || given.negative_inf > 0);
  }

  /// A module whose inner operator made the NaN did not make it itself.
  bool lies_around_origin(size_t output) const {
    const Execution& one = executions_.at(key_of(mine_.records[output]));
    const int rank = mine_.records[output].rank;
    return std::ranges::any_of(found_.findings, [&](const Finding& origin) {
      return origin.rank == rank && origin.step == mine_.records[output].step &&
             origin.time >= one.begin && origin.time <= one.end;
    });
  }

  void add(size_t index, const Counts& counts, const std::optional<Counts>& golden) {
    const TensorRecord& record = mine_.records[index];
    const Execution& one = executions_.at(key_of(record));
    const std::string path = run::module_path(mine_, record.node);
    const size_t mark = path.find(kOperatorMark);
    const bool is_atb = mine_.has(run::Trait::AtbOperations);
    const bool is_operation = mark != std::string::npos || is_atb;
    Finding finding;
    finding.kind = FindingKind::NanOrigin;
    finding.hard = true;
    finding.confidence = Confidence::High;
    finding.rank = record.rank;
    finding.step = record.step;
    finding.module = path.substr(0, std::min(is_atb ? path.rfind('/') : mark, path.size()));
    finding.node = record.node;
    (is_operation ? finding.op_type : finding.module_type) = record.op_type;
    finding.slot = record.slot;
    finding.time = record.order;
    finding.mine_record = index;
    finding.detail = what(counts) + (one.inputs.empty() ? " in its output" : made_of(one)) +
                     (golden ? " where golden has none" : "") + weights_with_nan(record);
    found_.findings.push_back(std::move(finding));
    if (counts.nan == 0) found_.only_infinite.insert(index);
  }

  static std::string what(const Counts& counts) {
    const int64_t infinities = counts.positive_inf + counts.negative_inf;
    std::string text;
    if (counts.nan > 0) text = std::to_string(counts.nan) + " NaN";
    if (infinities > 0)
      text += (text.empty() ? "" : " and ") + std::to_string(infinities) +
              (infinities == 1 ? " infinity" : " infinities");
    return text;
  }

  std::string made_of(const Execution& one) const {
    const bool finite = std::ranges::none_of(one.inputs, [&](size_t input) {
      const std::optional<Counts> counts = counts_of(mine_.records[input]);
      return counts && counts->any();
    });
    return finite ? " out of finite inputs" : " out of inputs whose infinities belong there";
  }

  /// Parameters are no inputs of a module, but they are where such a value can come from.
  std::string weights_with_nan(const TensorRecord& output) const {
    for (const TensorRecord& record : mine_.records) {
      if (record.role != Role::Weight && record.role != Role::Buffer) continue;
      if (record.node != output.node || record.rank != output.rank || !pair::is_operand(record))
        continue;
      const std::optional<Counts> counts = counts_of(record);
      if (counts && counts->any()) return "; " + record.slot + " holds " + what(*counts);
    }
    return {};
  }

  const run::Run& golden_;
  const run::Run& mine_;
  std::map<ExecutionKey, Execution> executions_;
  std::optional<pair::Places> places_;  // of golden
  NanOrigins found_;
};

}  // namespace

Result<NanOrigins> find_nan_origins(const run::Run& golden, const run::Run& mine, int jobs,
                                    const std::atomic<bool>* interrupted, const SeenValues* seen) {
  return NanSearch(golden, mine).search(jobs, interrupted, seen);
}

}  // namespace assay::locate
