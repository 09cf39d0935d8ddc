// SPDX-License-Identifier: Apache-2.0
// A model's own results are the last lines of its step, so where they stand the step is there.
#include "run/requested_steps.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/native/schema.hpp"
#include "run/folder.hpp"
#include "run/native_damage.hpp"
#include "run/torch_names.hpp"

namespace assay::run {
namespace {

using StepRange = std::pair<int64_t, int64_t>;

/// "[0,2,3]" of a list, "0,2-4" of a text; empty when no end was asked for, or it is none of these.
std::vector<StepRange> requested_ranges(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<StepRange> ranges;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = parse_number<int64_t>(part.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : parse_number<int64_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) return {};
    ranges.emplace_back(*first, *last);
  }
  return ranges;
}

const TopologyNode* tree_of(const Run& run, int rank) {
  for (const Run::RankTree& one : run.rank_trees)
    if (std::ranges::find(one.ranks, rank) != one.ranks.end()) return &one.tree;
  return run.topology ? &*run.topology : nullptr;
}

std::set<std::string_view> models_of(const TopologyNode& tree) {
  if (tree.type != kModelsType) return {tree.name};
  std::set<std::string_view> models;
  for (const TopologyNode& model : tree.children) models.insert(model.name);
  return models;
}

bool are_closed(const std::string& folder, const std::string& boundary, const std::string& id) {
  const Result<FolderEntries> entries = list_folder(folder, boundary);
  if (!entries) return false;
  return std::ranges::all_of(*entries, [&](const FolderEntry& entry) {
    if (entry.kind != FolderEntry::Kind::File || !entry.name.ends_with(native::kStepFileSuffix))
      return true;
    const Result<StepFileHead> head = read_step_file_head(entry.path);
    return head && !head->run.empty() && head->run == id;
  });
}

}  // namespace

bool has_all_requested_steps(const std::string& folder, const std::string& boundary, int rank,
                             const Manifest& manifest, const Run& run) {
  const auto asked = manifest.properties.find("config.steps");
  const TopologyNode* tree = tree_of(run, rank);
  if (asked == manifest.properties.end() || tree == nullptr || !manifest.stopped.empty())
    return false;
  const std::vector<StepRange> ranges = requested_ranges(asked->second);
  std::map<std::string_view, std::set<int64_t>> returned;
  for (const std::string_view model : models_of(*tree)) returned[model];
  for (const TensorRecord& record : run.records) {
    if (record.rank != rank || record.role != Role::Output) continue;
    if (const auto model = returned.find(record.node); model != returned.end())
      model->second.insert(record.step);
  }
  const auto has_all = [&](const std::set<int64_t>& steps) {
    return std::ranges::all_of(ranges, [&](const StepRange& range) {
      const auto [first, last] = range;
      const auto count = std::distance(steps.lower_bound(first), steps.upper_bound(last));
      return count == last - first + 1;
    });
  };
  return !ranges.empty() && !returned.empty() &&
         std::ranges::all_of(returned, [&](const auto& model) { return has_all(model.second); }) &&
         are_closed(folder, boundary, manifest.id);
}

}  // namespace assay::run
