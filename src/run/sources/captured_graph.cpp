// SPDX-License-Identifier: Apache-2.0
// Values of a captured graph, saved one by one: docs/formats/captured-graph.md
//
//   {path}/worldsize8_global_rank3/add_1_device_0_12.pt      node, device, which run of the graph
//   {path}/t_device_0_0.pt                                   saved by a call in the model
#include <sys/stat.h>

#include <map>
#include <set>

#include "base/file_source.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/graph_folders.hpp"
#include "run/sources/graphs_json.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

struct CapturedFileName {
  std::string node;
  int device = 0;
  int64_t count = 0;
};

/// {node}_device_{device}_{count}.pt; a node's name may have _device_ in it.
std::optional<CapturedFileName> parse_captured_file_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".pt";
  constexpr std::string_view kMark = "_device_";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const std::vector<std::string_view> numbers = split(name.substr(mark + kMark.size()), '_');
  if (numbers.size() != 2 || !is_digits(numbers[0])) return std::nullopt;
  const auto device = parse_number<int>(numbers[0]);
  const auto count = token_number(numbers[1]);
  if (!device || !count) return std::nullopt;
  return CapturedFileName{std::string(name.substr(0, mark)), *device, *count};
}

class CapturedGraph {
 public:
  explicit CapturedGraph(const std::string& path) : path_(path), boundary_(real_path(path)) {}

  Run read() {
    run_.layout = Layout::CapturedGraph;
    run_.order_known = false;  // times of files are all there is, and copies have their own
    visit_folders(
        path_, boundary_, 0, &run_.warnings,
        [this](const std::string& folder, const FolderEntries& entries) { take(folder, entries); });
    // Without folders of ranks a device is the process that used it.
    const bool by_device = !has_ranks_ && devices_.size() > 1;
    for (TensorRecord& record : run_.records) {
      if (by_device) record.rank = static_cast<int>(record.graph);
      record.graph = 0;
    }
    return std::move(run_);
  }

 private:
  void take(const std::string& path, const FolderEntries& entries) {
    const std::string real = real_path(path);
    const auto rank = rank_of(components_of(real));
    for (const FolderEntry& entry : entries) {
      if (entry.kind == FolderEntry::Kind::Folder) continue;
      if (entry.name == kGraphsFile && entry.kind == FolderEntry::Kind::File)
        add_graphs_file(entry.path, &run_);
      const auto name = parse_captured_file_name(entry.name);
      if (!name) continue;
      if (entry.kind == FolderEntry::Kind::Unusable) {
        run_.warnings.push_back(entry.path + ": " + entry.problem);
        continue;
      }
      has_ranks_ = has_ranks_ || rank.has_value();
      devices_.insert(name->device);
      append(*name, rank.value_or(0), entry.path);
    }
  }

  void append(const CapturedFileName& name, int rank, const std::string& path) {
    TensorRecord record;
    record.rank = rank;
    record.step = name.count;
    record.step_name = std::to_string(name.count);
    record.node = name.node;
    record.graph = static_cast<uint32_t>(name.device);  // until all devices are known
    record.order = modified_ns(path);
    ByteLocation location;
    location.file = path;
    record.bytes = std::move(location);
    run_.records.push_back(std::move(record));
    ++run_.coverage.captured;
  }

  /// A file is written when its node has run, and nothing else says in which order they did. A copy
  /// has other times.
  static uint64_t modified_ns(const std::string& path) {
    const Result<FileFacts> facts = file_facts(path);
    return facts ? static_cast<uint64_t>(facts->modified_ns) : 0;
  }

  const std::string path_;
  const std::string boundary_;
  std::set<int> devices_;
  bool has_ranks_ = false;
  Run run_;
};

}  // namespace

Attempt read_captured_graph(const std::string& path) {
  const auto is_sign = [](std::string_view name) {
    return parse_captured_file_name(name).has_value();
  };
  if (!is_folder(path) || !has_file_below(path, is_sign)) return std::nullopt;
  return Result<Run>(CapturedGraph(path).read());
}

}  // namespace assay::run::sources
