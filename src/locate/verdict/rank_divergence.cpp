// SPDX-License-Identifier: Apache-2.0
// Outputs of the first rank are held, in their order, against those of ranks that do the same work.
// The first that differs is named where golden shows that the ranks hold it alike.
#include "locate/verdict/rank_divergence.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/ascii.hpp"
#include "locate/noise/record_distance.hpp"
#include "locate/program/shards.hpp"
#include "pair/first_inputs.hpp"
#include "pair/merge_ranks.hpp"
#include "pair/ranks.hpp"
#include "reference/aten/call.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

/// Replicas that were each rounded once more may differ by this many roundings; ranks that only
/// copy are equal.
constexpr double kReplicaRoundings = 2;

/// Relative L2 of b against a, or of their statistics; nothing when they cannot be compared.
std::optional<double> distance(const TensorRecord& a, const TensorRecord& b) {
  if (a.digest && b.digest && a.digest == b.digest) return 0;
  if (a.bytes && b.bytes) {
    const Result<Tensor> first = run::load_tensor(a);
    const Result<Tensor> second = run::load_tensor(b);
    if (!first || !second || !is_float(first->view.dtype) || !is_float(second->view.dtype) ||
        !(first->view.shape == second->view.shape))
      return std::nullopt;
    return value_components(first->view, second->view)[0];
  }
  if (!a.stats || !b.stats || a.stats->count != b.stats->count) return std::nullopt;
  // Equal tensors have equal statistics; the largest component is no L2, but it is 0 when that is.
  return std::ranges::max(statistics_components(*a.stats, *b.stats));
}

bool is_communication(std::string_view type) {
  constexpr std::array<std::string_view, 7> kNames = {
      "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "linearparallel", "c10d"};
  std::string plain = lower_case(type);
  std::erase(plain, '_');
  return std::ranges::any_of(
      kNames, [&](std::string_view one) { return plain.find(one) != std::string::npos; });
}

using pair::Work;

/// Tells whether ranks compute the same by the groups of the job where they are known, and by what
/// they are given first.
class SharedWork {
 public:
  explicit SharedWork(const run::Run& run) : run_(run), inputs_(run) {}

  [[nodiscard]] Work of(int a, int b, int64_t step) {
    const auto [known, is_new] = known_.try_emplace({a, b, step}, Work::Unknown);
    if (is_new) known->second = find(a, b, step);
    return known->second;
  }

 private:
  [[nodiscard]] Work find(int a, int b, int64_t step) const {
    return are_apart(a, b) ? Work::Other : inputs_.compare(a, step, inputs_, b, judge);
  }

  /// In other stages of a pipeline, with other experts or other parts of the sequence. So are data
  /// parallel replicas: even of the same inputs each computes for itself, on hardware of its own.
  [[nodiscard]] bool are_apart(int a, int b) const {
    const auto first = run_.parallel.find(a);
    const auto second = run_.parallel.find(b);
    if (first == run_.parallel.end() || second == run_.parallel.end()) return false;
    return std::ranges::any_of(std::array{"pp", "ep", "cp", "dp"}, [&](const char* kind) {
      const auto of_first = first->second.find(kind);
      const auto of_second = second->second.find(kind);
      return of_first != first->second.end() && of_second != second->second.end() &&
             of_first->second.rank != of_second->second.rank;
    });
  }

  static Work judge(const TensorRecord& a, const TensorRecord& b) {
    if (pair::have_equal_values(a, b)) return Work::Same;
    if (!a.dtype || !is_float(*a.dtype) || !a.bytes || !b.bytes) return Work::Other;
    const std::optional<double> apart = distance(a, b);
    const double near = kReplicaRoundings * rounding_of(a.dtype, b.dtype);
    return apart && *apart <= near ? Work::Same : Work::Other;
  }

  const run::Run& run_;
  pair::FirstInputs inputs_;
  std::map<std::tuple<int, int, int64_t>, Work> known_;
};

class RankSearch {
 public:
  RankSearch(const run::Run& golden, const run::Run& mine)
      : golden_(golden),
        mine_(mine),
        work_(mine),
        golden_is_whole_(pair::ranks_of(golden).size() == 1),
        golden_outputs_(golden, is_output),
        // Ranks with other experts run other operators of one name; golden in one process tells
        // only what modules return.
        outputs_(mine, [this](const TensorRecord& record) {
          return is_output(record) && !(golden_is_whole_ && record.is_of_operator());
        }) {}

  Result<std::vector<Finding>> search(const std::atomic<bool>* interrupted) {
    const int first_rank = pair::first_rank(mine_);
    for (size_t i = 0; i < mine_.records.size(); ++i) {
      if (interrupted != nullptr && interrupted->load())
        return fail(Errc::Interrupted, "interrupted");
      if (mine_.records[i].rank != first_rank || mine_.records[i].role != Role::Output) continue;
      const std::vector<size_t>& ranks = outputs_.of(mine_.records[i]);
      if (ranks.size() < 2 || ranks.front() != i) continue;
      const size_t other = diverging(ranks);
      if (other != kNone) return std::vector{finding_at(i, other)};
    }
    return std::vector<Finding>();
  }

 private:
  /// What memory holds before anybody wrote it is no value, nor is a view of it.
  static bool is_output(const TensorRecord& record) {
    const std::string_view type = record.op_type;
    return pair::is_operand(record) && record.role == Role::Output &&
           !type.starts_with("aten.empty") && !type.starts_with("aten.new_empty") &&
           !reference::aten::is_view(type);
  }

  /// The first rank that holds something else than the first, of a tensor that is replicated.
  [[nodiscard]] size_t diverging(const std::vector<size_t>& ranks) {
    const TensorRecord& first = mine_.records[ranks.front()];
    for (const size_t index : ranks) {
      const TensorRecord& record = mine_.records[index];
      const Work work = work_.of(first.rank, record.rank, record.step);
      // Another request, or another part of the model, of which nothing is shared.
      if (work == Work::Other || (work == Work::Unknown && golden_is_whole_)) continue;
      const std::optional<double> apart = distance(first, record);
      if (apart && *apart > kReplicaRoundings * rounding_of(first.dtype, record.dtype))
        return is_replicated(ranks) ? index : kNone;
    }
    return kNone;
  }

  [[nodiscard]] bool is_replicated(const std::vector<size_t>& ranks) const {
    const TensorRecord& mine = mine_.records[ranks.front()];
    const std::vector<size_t>& golden = golden_outputs_.of(mine);
    if (golden.empty()) return false;
    const TensorRecord& first = golden_.records[golden.front()];
    if (golden_is_whole_) {
      return std::ranges::any_of(ranks, [&](size_t index) {
        const std::optional<double> apart = distance(first, mine_.records[index]);
        return apart && *apart <= kReplicaDifference;
      });
    }
    // Of another shape: cut otherwise than golden's, as along the sequence.
    return first.shape == mine.shape && golden.size() > 1 &&
           std::ranges::all_of(golden, [&](size_t index) {
             const TensorRecord& record = golden_.records[index];
             const std::optional<double> apart = distance(first, record);
             return apart && *apart <= kReplicaRoundings * rounding_of(first.dtype, record.dtype);
           });
  }

  Finding finding_at(size_t first, size_t other) const {
    const TensorRecord& record = mine_.records[other];
    const std::string path = run::module_path(mine_, record.node);
    Finding finding;
    finding.kind = FindingKind::RankDivergence;
    finding.hard = true;
    finding.confidence = Confidence::Medium;
    finding.rank = record.rank;
    finding.step = record.step;
    finding.module = module_of_node(path);
    finding.node = record.node;
    finding.op_type = record.op_type;
    finding.slot = record.slot;
    finding.time = record.order;
    finding.mine_record = other;
    finding.detail = "rank " + std::to_string(record.rank) + " holds other values than rank " +
                     std::to_string(mine_.records[first].rank) + " of a tensor that both share";
    if (const TensorRecord* last = last_communication(record)) {
      finding.also = run::module_path(mine_, last->node);
      finding.detail +=
          "; the last communication before it is " + last->node + " (" + last->op_type + ")";
    }
    return finding;
  }

  /// Up to and with the operation itself.
  const TensorRecord* last_communication(const TensorRecord& before) const {
    const TensorRecord* last = nullptr;
    for (const TensorRecord& record : mine_.records) {
      if (record.rank != before.rank || record.step != before.step || !is_output(record)) continue;
      if (record.order <= before.order && is_communication(record.op_type)) last = &record;
    }
    return last;
  }

  const run::Run& golden_;
  const run::Run& mine_;
  SharedWork work_;
  bool golden_is_whole_;
  pair::Shards golden_outputs_, outputs_;
};

}  // namespace

Result<std::vector<Finding>> find_rank_divergence(const run::Run& golden, const run::Run& mine,
                                                  const std::atomic<bool>* interrupted) {
  if (pair::ranks_of(mine).size() < 2) return std::vector<Finding>();
  return RankSearch(golden, mine).search(interrupted);
}

}  // namespace assay::locate
