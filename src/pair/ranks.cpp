// SPDX-License-Identifier: Apache-2.0
// The user's ranks, else a single process with a single process, else shards with shards, else
// equal numbers.
#include "pair/ranks.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "base/display.hpp"
#include "base/text.hpp"
#include "pair/first_inputs.hpp"
#include "pair/places.hpp"

namespace assay::pair {
namespace {

std::set<int> common_of(const std::set<int>& golden, const std::set<int>& mine) {
  std::set<int> common;
  std::ranges::set_intersection(golden, mine, std::inserter(common, common.end()));
  return common;
}

RankAlignment wanted_ranks(const std::set<int>& common, const std::vector<int>& wanted) {
  RankAlignment out;
  for (const int rank : wanted) {
    if (!common.contains(rank))
      return {.problem = "rank " + std::to_string(rank) + " is not present on both sides"};
    out.groups.push_back({{rank}, {rank}});
  }
  return out;
}

/// All ranks of both sides, as one group.
RankGroup whole_group(const std::set<int>& golden, const std::set<int>& mine) {
  return {{golden.begin(), golden.end()}, {mine.begin(), mine.end()}};
}

RankAlignment equal_ranks(const std::set<int>& golden, const std::set<int>& mine,
                          const std::set<int>& common) {
  if (common.empty()) return {.problem = "No common rank data in golden_path and my_path."};
  RankAlignment out;
  for (const int rank : common) out.groups.push_back({{rank}, {rank}});
  for (const auto& [ranks, side] : {std::pair(&golden, "golden"), std::pair(&mine, "mine")}) {
    std::string note = missing_ranks(*ranks, common, side);
    if (!note.empty()) out.notes.push_back(std::move(note));
  }
  return out;
}

}  // namespace

std::set<int> ranks_of(const run::Run& run) {
  std::set<int> ranks;
  for (const run::TensorRecord& record : run.records) ranks.insert(record.rank);
  return ranks;
}

int first_rank(const run::Run& run) {
  const auto first = std::ranges::find_if(run.records, is_operand);
  return first == run.records.end() ? 0 : first->rank;
}

std::string missing_ranks(const std::set<int>& ranks, const std::set<int>& compared,
                          const std::string& side) {
  std::set<int> missing;
  std::ranges::set_difference(ranks, compared, std::inserter(missing, missing.end()));
  return only_in(side, "rank", missing);
}

bool RankAlignment::has_replicas() const {
  return std::ranges::any_of(groups, &RankGroup::is_again);
}

bool RankAlignment::may_be_shards() const {
  return std::ranges::any_of(
      groups, [](const RankGroup& group) { return group.golden.size() != group.mine.size(); });
}

namespace {

/// The ranks of a job by replica (dp) and stage (pp).
struct Job {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> ranks;
  int64_t replicas = 1, stages = 1;
  bool is_known = false;

  [[nodiscard]] bool is_divided() const { return replicas > 1 || stages > 1; }
};

/// Of a job whose groups are not known all ranks are one replica's one stage.
Job job_of(const run::Run& run, const std::set<int>& ranks) {
  Job job;
  const bool is_known = job.is_known =
      std::ranges::all_of(ranks, [&](int rank) { return run.parallel.contains(rank); });
  for (const int rank : ranks) {
    const auto place = [&](const char* kind, int64_t* size) -> int64_t {
      if (!is_known) return 0;
      const auto& places = run.parallel.at(rank);
      const auto found = places.find(kind);
      if (found == places.end()) return 0;
      *size = std::max(*size, found->second.size);
      return found->second.rank;
    };
    const int64_t replica = place("dp", &job.replicas);
    job.ranks[{replica, place("pp", &job.stages)}].push_back(rank);
  }
  return job;
}

/// The stages of two sides that belong together: equal ones, or the only one with each.
std::vector<std::pair<int64_t, int64_t>> together(int64_t golden, int64_t mine) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < std::max(golden, mine); ++i)
    pairs.emplace_back(golden == 1 ? 0 : i, mine == 1 ? 0 : i);
  return pairs;
}

bool are_whole_shards(size_t golden, size_t mine) {
  return std::max(golden, mine) % std::min(golden, mine) == 0;
}

/// Which replicas of mine were given what golden's only one was given.
class Replicas {
 public:
  Replicas(const run::Run& golden_run, const Job& golden, const run::Run& mine_run, const Job& mine)
      : mine_(mine), golden_inputs_(golden_run), my_inputs_(mine_run) {
    golden_first_ = first_of(golden, 0);
    for (int64_t replica = 0; replica < mine.replicas; ++replica) work_.push_back(work_of(replica));
    // The first one is taken for golden's where none is known to be.
    const int64_t first = mine.ranks.begin()->first.first;
    Work& of_first = work_[static_cast<size_t>(first)];
    if (std::ranges::find(work_, Work::Same) == work_.end()) of_first = Work::Same;
    for (int64_t replica = first + 1; replica < mine.replicas; ++replica) {
      Work& work = work_[static_cast<size_t>(replica)];
      if (work == Work::Unknown && of_first == Work::Same)
        work = compare(my_inputs_, first_of(mine, first), replica, judge_equal);
    }
  }

  [[nodiscard]] std::vector<int64_t> compared() const {
    std::vector<int64_t> replicas;
    for (size_t i = 0; i < work_.size(); ++i)
      if (work_[i] == Work::Same) replicas.push_back(static_cast<int64_t>(i));
    return replicas;
  }

  /// One sentence for those that are compared besides the first, and for each reason to leave out.
  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    for (const Work work : {Work::Same, Work::Other, Work::Unknown}) {
      std::vector<int64_t> ranks, replicas;
      for (const auto& [place, of_place] : mine_.ranks) {
        if (work_[static_cast<size_t>(place.first)] != work) continue;
        if (work == Work::Same && place.first == compared().front()) continue;
        ranks.insert(ranks.end(), of_place.begin(), of_place.end());
        if (replicas.empty() || replicas.back() != place.first) replicas.push_back(place.first);
      }
      if (ranks.empty()) continue;
      std::ranges::sort(ranks);
      const bool is_one = ranks.size() == 1;
      const std::string named = (is_one ? "rank " : "ranks ") + number_ranges(ranks, ", ") +
                                " (dp " + number_ranges(replicas, ", ") + ")";
      const std::string has = named + (is_one ? " has " : " have ");
      notes.push_back(work == Work::Same ? has + "golden's inputs: compared with it, too"
                      : work == Work::Other
                          ? has + "other inputs than golden: not compared"
                          : "of " + named +
                                " no inputs were captured that golden has, too: not compared");
    }
    return notes;
  }

 private:
  /// Of the first stage, whose inputs are those of the model.
  static int first_of(const Job& job, int64_t replica) {
    const auto found = job.ranks.lower_bound({replica, 0});
    return found == job.ranks.end() || found->first.first != replica ? -1 : found->second.front();
  }

  [[nodiscard]] Work work_of(int64_t replica) const {
    return compare(golden_inputs_, golden_first_, replica, judge_across);
  }

  static Work judge_equal(const run::TensorRecord& a, const run::TensorRecord& b) {
    return have_equal_values(a, b) ? Work::Same : Work::Other;
  }
  /// Two programs give other numbers for the same work, but not other ids of tokens.
  static Work judge_across(const run::TensorRecord& a, const run::TensorRecord& b) {
    if (have_equal_values(a, b)) return Work::Same;
    const bool are_ids = a.dtype && b.dtype && is_integer(*a.dtype) && is_integer(*b.dtype);
    return are_ids ? Work::Other : Work::Unknown;
  }

  /// Same: in every step that both have.
  [[nodiscard]] Work compare(const FirstInputs& inputs, int rank, int64_t replica,
                             const Judgement& judge) const {
    const int my_rank = first_of(mine_, replica);
    Work work = Work::Unknown;
    for (const int64_t step : my_inputs_.steps_of(my_rank)) {
      const Work in_step = inputs.compare(rank, step, my_inputs_, my_rank, judge);
      if (in_step == Work::Other) return Work::Other;
      if (in_step == Work::Same) work = Work::Same;
    }
    return work;
  }

  const Job& mine_;
  FirstInputs golden_inputs_;
  FirstInputs my_inputs_;
  int golden_first_ = 0;
  std::vector<Work> work_;  // by replica
};

/// Stage by stage and replica by replica; nothing where that cannot be done.
///
/// replicas  (golden, mine)
std::optional<RankAlignment> divided_ranks(
    const Job& golden, const Job& mine, const std::vector<std::pair<int64_t, int64_t>>& replicas) {
  if (golden.stages != mine.stages && std::min(golden.stages, mine.stages) > 1) return std::nullopt;
  RankAlignment out;
  for (const auto& [golden_replica, my_replica] : replicas) {
    for (const auto& [golden_stage, my_stage] : together(golden.stages, mine.stages)) {
      const auto of_golden = golden.ranks.find({golden_replica, golden_stage});
      const auto of_mine = mine.ranks.find({my_replica, my_stage});
      if (of_golden == golden.ranks.end() || of_mine == mine.ranks.end()) continue;
      if (!are_whole_shards(of_golden->second.size(), of_mine->second.size())) return std::nullopt;
      const bool is_again = my_replica != replicas[0].second && golden_replica == replicas[0].first;
      if (of_golden->second.size() != of_mine->second.size()) {
        out.groups.push_back({of_golden->second, of_mine->second, is_again});
        continue;
      }
      for (size_t i = 0; i < of_mine->second.size(); ++i)
        out.groups.push_back({{of_golden->second[i]}, {of_mine->second[i]}, is_again});
    }
  }
  if (out.groups.empty()) return std::nullopt;
  const auto say = [&](const char* noun, int64_t of_golden, int64_t of_mine, const char* how) {
    if (of_golden == of_mine) return;
    out.notes.push_back("golden has " + counted(static_cast<uint64_t>(of_golden), noun) +
                        ", mine " + std::to_string(of_mine) + ": " + how);
  };
  say("stage", golden.stages, mine.stages, "the stages together are compared with the model");
  say("replica", golden.replicas, mine.replicas,
      golden.replicas == 1
          ? "those that were given golden's inputs are compared with it"
          : "those of equal numbers are compared, the others may have other requests");
  return out;
}

}  // namespace

RankAlignment align_ranks(const run::Run& golden_run, const run::Run& mine_run,
                          const std::vector<int>& wanted) {
  const std::set<int> golden = ranks_of(golden_run);
  const std::set<int> mine = ranks_of(mine_run);
  const std::set<int> common = common_of(golden, mine);
  if (!wanted.empty()) return wanted_ranks(common, wanted);
  if (golden.empty() || mine.empty()) return {};
  if (golden.size() == 1 && mine.size() == 1) return {.groups = {whole_group(golden, mine)}};
  const Job golden_job = job_of(golden_run, golden);
  const Job my_job = job_of(mine_run, mine);
  const bool is_divided_otherwise = golden_job.is_known && my_job.is_known &&
                                    std::pair(golden_job.replicas, golden_job.stages) !=
                                        std::pair(my_job.replicas, my_job.stages);
  if ((golden.size() != mine.size() || is_divided_otherwise) &&
      (golden_job.is_divided() || my_job.is_divided())) {
    std::vector<std::pair<int64_t, int64_t>> replicas;
    std::vector<std::string> notes;
    if (golden_job.replicas == 1 && my_job.replicas > 1) {
      const Replicas found(golden_run, golden_job, mine_run, my_job);
      for (const int64_t replica : found.compared()) replicas.emplace_back(0, replica);
      notes = found.notes();
    } else {
      for (int64_t i = 0; i < std::min(golden_job.replicas, my_job.replicas); ++i)
        replicas.emplace_back(i, i);
    }
    if (auto divided = divided_ranks(golden_job, my_job, replicas)) {
      divided->notes.insert(divided->notes.end(), notes.begin(), notes.end());
      return *std::move(divided);
    }
  }
  if (golden.size() != mine.size() && are_whole_shards(golden.size(), mine.size()))
    return {.groups = {whole_group(golden, mine)}};
  return equal_ranks(golden, mine, common);
}

}  // namespace assay::pair
