// SPDX-License-Identifier: Apache-2.0
// The user's ranks, else a single process with a single process, else shards with shards, else
// equal numbers.
#include "pair/ranks.hpp"

#include <algorithm>
#include <iterator>

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

RankAlignment align_ranks(const run::Run& golden_run, const run::Run& mine_run,
                          const std::vector<int>& wanted) {
  const std::set<int> golden = ranks_of(golden_run);
  const std::set<int> mine = ranks_of(mine_run);
  const std::set<int> common = common_of(golden, mine);
  if (!wanted.empty()) return wanted_ranks(common, wanted);
  if (golden.empty() || mine.empty()) return {};
  if (golden.size() == 1 && mine.size() == 1) return {.groups = {whole_group(golden, mine)}};
  const size_t more = std::max(golden.size(), mine.size());
  const size_t less = std::min(golden.size(), mine.size());
  if (more != less && more % less == 0)
    return {.groups = {whole_group(golden, mine)}, .may_be_shards = true};
  return equal_ranks(golden, mine, common);
}

}  // namespace assay::pair
