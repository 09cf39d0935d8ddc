// SPDX-License-Identifier: Apache-2.0
// Shards of several ranks put together.
#include "pair/matcher.hpp"

#include <algorithm>

#include "pair/merge_ranks.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

void Matcher::merge_ranks() {
  if (!whole_.ranks.may_be_shards()) return;
  std::map<int, size_t> group_of;  // by rank of mine
  for (size_t i = 0; i < whole_.ranks.groups.size(); ++i)
    for (const int rank : whole_.ranks.groups[i].mine) group_of.emplace(rank, i);
  std::vector<std::vector<RecordPair*>> pairs(whole_.ranks.groups.size());
  for (RecordPair& pair : out_.pairs) {
    const auto found = group_of.find(mine_.run.records[pair.mine].rank);
    if (found != group_of.end()) pairs[found->second].push_back(&pair);
  }
  ShardFindings found;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const RankGroup& group = whole_.ranks.groups[i];
    if (group.golden.size() != group.mine.size()) merge_group(group, pairs[i], &found);
  }
  if (found.doubtful > 0) {
    out_.warnings.push_back(
        std::to_string(found.doubtful) +
        " tensors of several ranks do not fit together, the first: " + found.first_problem);
  }
}

void Matcher::merge_group(const RankGroup& group, const std::vector<RecordPair*>& pairs,
                          ShardFindings* found) {
  const auto is_sharded = [&](const RecordPair* pair) {
    const auto g = golden_.element_count_of(pair->golden);
    const auto m = mine_.element_count_of(pair->mine);
    return g && m && *g != *m;
  };
  if (std::none_of(pairs.begin(), pairs.end(), is_sharded)) return;
  const auto shards_of = [](const Run& run, const std::vector<int>& ranks) {
    return Shards(run, [&](const TensorRecord& record) {
      return is_tensor(record) && std::ranges::find(ranks, record.rank) != ranks.end();
    });
  };
  const Shards golden_shards = shards_of(golden_.run, group.golden);
  const Shards mine_shards = shards_of(mine_.run, group.mine);
  for (RecordPair* pair : pairs) {
    if (pair->golden_recipe >= 0 || pair->mine_recipe >= 0) continue;  // the user's own
    const std::vector<size_t>& golden = golden_shards.of(golden_.run.records[pair->golden]);
    const std::vector<size_t>& mine = mine_shards.of(mine_.run.records[pair->mine]);
    if (golden.empty() || mine.empty() || (golden.size() < 2 && mine.size() < 2)) continue;
    MergedPair merged = merge_shards(golden_.run, golden, mine_.run, mine);
    for (const size_t i : golden) golden_.used[i] = true;
    for (const size_t i : mine) mine_.used[i] = true;
    if (!merged.problem.empty()) {
      if (found->doubtful++ == 0) found->first_problem = merged.problem;
      merged.mine.note += (merged.mine.note.empty() ? "" : "; ") + merged.problem;
    }
    set_recipes(pair, std::move(merged.golden), std::move(merged.mine));
  }
}

}  // namespace assay::pair
