// SPDX-License-Identifier: Apache-2.0
// Takes "graph_1/" off the nodes' names, forgets what a dump file would not tell, counts coverage
// by operator, and reads graphs.json and the texts that lie beside the records.
//   docs/formats/native.md, "Compiled graphs"
#include "run/sources/native_graph.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/text.hpp"
#include "formats/cann_statistics.hpp"
#include "formats/native/schema.hpp"
#include "run/folder.hpp"
#include "run/sources/ge_files.hpp"
#include "run/sources/ge_texts.hpp"
#include "run/sources/graph_folders.hpp"
#include "run/sources/graphs_json.hpp"

namespace assay::run::sources {
namespace {

constexpr std::string_view kLevelProperty = "config.level";
constexpr std::string_view kGraphLevel = "graph";

class GraphRun {
 public:
  explicit GraphRun(Run* run) : run_(*run) {}

  void read(const std::vector<std::pair<int, std::string>>& ranks) {
    run_.layout = Layout::NativeGraph;
    for (TensorRecord& record : run_.records) take(&record);
    run_.coverage.planned = run_.coverage.captured = 0;
    for (const auto& [rank, folder] : ranks) read_folder(folder);
    add_graph_coverage(steps_, "has no record in some steps", &run_);
    std::vector<RankGraphs> graphs;
    for (const auto& [rank, places] : places_)
      graphs.push_back({rank, {places.begin(), places.end()}, true});
    assign_graph_texts(texts_, graphs, &run_);
    add_graph_topology(&run_);
  }

 private:
  void take(TensorRecord* record) {
    const std::string_view node = record->node.str();
    const size_t slash = std::min(node.find('/'), node.size());
    if (const auto number = graph_number(node.substr(0, slash))) {
      record->graph = *number - 1;
      record->node = std::string(node.substr(std::min(slash + 1, node.size())));
    }
    // A dump file would not tell which tensors are one value.
    record->value_id = record->storage_id = record->producer = -1;
    record->storage_offset = record->storage_version = 0;
    record->leaf = InternedText();
    if (!record->bytes && record->stats && record->dtype && record->shape)
      record->stats = table_statistics(*record);
    places_[record->rank].insert(record->graph);
    steps_[{record->rank, record->graph}][record->step].insert(record->node);
  }

  /// As a table of statistics has them: infinities take part.
  static stats::TensorStats table_statistics(const TensorRecord& record) {
    const stats::TensorStats all = *record.stats;
    stats::TensorStats stats = all;
    const auto or_unknown = [](std::optional<double> value) {
      return value.value_or(std::numeric_limits<double>::quiet_NaN());
    };
    const formats::CannStatisticsRow row =
        formats::cann_statistics_row(true, 0, *record.dtype, *record.shape, all);
    stats.min = or_unknown(row.min);
    stats.max = or_unknown(row.max);
    stats.mean = or_unknown(row.average);
    stats.l2_norm = or_unknown(row.l2_norm);
    return stats;
  }

  void read_folder(const std::string& folder) {
    const Result<FolderEntries> entries = list_folder(folder, real_path(folder));
    if (!entries) return;  // said already
    for (const FolderEntry& entry : *entries) {
      if (entry.kind != FolderEntry::Kind::File) continue;
      if (const auto kind = graph_text_kind(entry.name)) {
        texts_.push_back({*kind, entry.name, entry.path});
      } else if (entry.name == kGraphsFile) {
        (void)add_graphs_file(entry.path, &run_);
      }
    }
  }

  Run& run_;
  std::vector<GraphTextFile> texts_;
  std::map<int, std::set<uint32_t>> places_;  // of graphs, by rank
  GraphSteps steps_;
};

}  // namespace

std::optional<std::string> newest_graph_run(const std::string& path,
                                            std::vector<std::string>* warnings) {
  constexpr size_t kTimeDigits = 14;
  const Result<FolderEntries> entries = list_folder(path, real_path(path));
  if (!entries) return std::nullopt;
  std::vector<std::string> found;
  for (const FolderEntry& entry : *entries) {
    const bool is_time = entry.name.size() == kTimeDigits && is_digits(entry.name);
    if (is_time && entry.kind == FolderEntry::Kind::Folder &&
        is_file(join_path(entry.path, native::kManifestFile)))
      found.push_back(entry.path);
  }
  if (found.empty()) return std::nullopt;
  std::ranges::sort(found);
  const std::string newest = found.back();
  found.pop_back();
  for (const std::string& older : found) {
    warnings->push_back("the run of " + base_name(older) +
                        " is an earlier one and left out: open its folder to read it");
  }
  return newest;
}

bool is_of_graphs(const Run& run) {
  const auto level = run.properties.find(std::string(kLevelProperty));
  return level != run.properties.end() && level->second == kGraphLevel;
}

void become_graph_run(const std::vector<std::pair<int, std::string>>& ranks, Run* run) {
  GraphRun(run).read(ranks);
}

}  // namespace assay::run::sources
