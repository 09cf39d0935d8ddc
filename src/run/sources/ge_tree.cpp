// SPDX-License-Identifier: Apache-2.0
// Dumps of CANN's graph engine with the text of its graphs: docs/formats/ge-tree.md
//
//   {path}/dynamo_original_graph_1_rank_3_pid_77_ts_{time}.txt
//   {path}/[worldsize8_global_rank3/]20250102030405/0/graph_1/1/0/Add.Add_1.12.3.1735786845123456
//              rank                  time      device  model id token
#include <sys/stat.h>

#include <map>
#include <set>
#include <tuple>

#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/ge_files.hpp"
#include "run/sources/ge_texts.hpp"
#include "run/sources/graph_folders.hpp"
#include "run/sources/graphs_json.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

/// One graph of a rank: what its dump folders have in common.
struct Group {
  std::string device;  // empty unless the rank used several
  int64_t model_id = 0;
  std::string model_name;
  friend bool operator==(const Group&, const Group&) = default;
  friend bool operator<(const Group& a, const Group& b) {
    if (a.device != b.device) return natural_less(a.device, b.device);
    if (a.model_id != b.model_id) return a.model_id < b.model_id;
    return natural_less(a.model_name, b.model_name);
  }
};

/// Files of one operator in one token.
using OperatorKey =
    std::tuple<int, std::string, int64_t, std::string, int64_t, std::string, std::string>;
OperatorKey key_of(const GeFile& file) {
  const GeFolder& place = file.place;
  return {place.rank,  place.device,      place.model_id, place.model_name,
          place.token, file.name.op_name, file.name.slice};
}

class GeTree {
 public:
  explicit GeTree(const std::string& path) : path_(path), boundary_(real_path(path)) {}

  Run read() {
    run_.layout = Layout::GeTree;
    visit_folders(
        path_, boundary_, 0, &run_.warnings,
        [this](const std::string& folder, const FolderEntries& entries) { take(folder, entries); });
    std::sort(files_.begin(), files_.end(),
              [](const GeFile& a, const GeFile& b) { return natural_less(a.path, b.path); });
    keep_newest_run();
    count_calls();
    drop_duplicates();
    find_watched();
    if (texts_.empty()) look_for_texts_above();
    collect_groups();
    for (const GeFile& file : files_) append(file);
    add_ge_findings(files_, &run_);
    finish_coverage();
    assign_texts();
    add_graph_topology(&run_);
    return std::move(run_);
  }

 private:
  void take(const std::string& path, const FolderEntries& entries) {
    const GeFolder place = ge_place_of(real_path(path));
    const std::map<std::string, std::string> long_names = long_names_in(entries);
    for (const FolderEntry& entry : entries) {
      if (entry.kind == FolderEntry::Kind::Folder) continue;
      if (const auto kind = graph_text_kind(entry.name)) {
        if (entry.kind == FolderEntry::Kind::File)
          texts_.push_back({*kind, entry.name, entry.path});
      } else if (entry.name == kGraphsFile && entry.kind == FolderEntry::Kind::File) {
        has_graphs_file_ = add_graphs_file(entry.path, &run_) || has_graphs_file_;
      } else if (is_unfinished_file(entry.name)) {
        ++unfinished_;
      } else {
        const auto long_name = long_names.find(entry.name);
        take_file(place, entry, long_name == long_names.end() ? entry.name : long_name->second);
      }
    }
  }

  void take_file(GeFolder place, const FolderEntry& entry, const std::string& name) {
    if (is_other_file(name)) return;
    std::optional<GeFileName> parsed = parse_ge_file_name(name, place.is_exception);
    if (!parsed) {
      if (name.ends_with(".npz") || name.find(".custom.") != std::string::npos) return;
      run_.warnings.push_back("invalid file name: " + entry.path +
                              ", should contain at least 4 '.'");
      return;
    }
    if (entry.kind == FolderEntry::Kind::Unusable) {
      run_.warnings.push_back(entry.path + ": " + entry.problem);
      return;
    }
    // {path}/{device}/ of a dump without time: only these names have the number of the dump.
    if (place.time.empty() && parsed->has_dump_number && !place.is_exception) {
      const std::string real = real_path(entry.path);
      const std::vector<std::string_view> parts = components_of(real);
      place.device = parts.size() > 1 ? parts[parts.size() - 2] : "";
      place.has_model = false;
      place.model_id = place.token = 0;
    }
    const Result<FileFacts> facts = file_facts(entry.path);
    files_.push_back({place, *std::move(parsed), entry.path, facts ? facts->size_bytes : 0});
  }

  std::map<std::string, std::string> long_names_in(const FolderEntries& entries) {
    for (const FolderEntry& entry : entries) {
      if (entry.name != "mapping.csv" || entry.kind != FolderEntry::Kind::File) continue;
      const Result<MappedFile> file = MappedFile::open(entry.path);
      if (file) return read_long_names(as_text(file->bytes()));
      run_.warnings.push_back(file.error().describe());
    }
    return {};
  }

  /// A folder of a time or a rank: the texts stand beside these.
  static bool is_of_time_or_rank(const std::string& place) {
    const std::vector<std::string_view> parts = components_of(place);
    if (parts.empty()) return false;
    const std::string_view name = parts.back();
    const bool is_time = name.size() == 14 && is_digits(name);
    return is_time || name.starts_with("worldsize");
  }

  static std::string folder_above(const std::string& folder) {
    return folder.substr(0, folder.rfind('/'));
  }

  /// The texts above the folder of a time or a rank, and where they lie; a folder that cannot be
  /// listed has none.
  static std::pair<std::vector<GraphTextFile>, std::string> texts_above(std::string folder) {
    std::vector<GraphTextFile> texts;
    while (texts.empty() && is_of_time_or_rank(folder)) {
      folder = folder_above(folder);
      const Result<FolderEntries> entries = list_folder(folder, folder);
      if (!entries) return {};
      for (const FolderEntry& entry : *entries) {
        const auto kind = graph_text_kind(entry.name);
        if (kind && entry.kind == FolderEntry::Kind::File)
          texts.push_back({*kind, entry.name, entry.path});
      }
    }
    return {std::move(texts), folder};
  }

  /// Whoever opens the folder of a time or a rank has the texts above. Inside of one (device,
  /// model, number of the model, token) nobody knows which of the graphs it is, so the folder to
  /// open is said instead.
  void look_for_texts_above() {
    std::string folder = boundary_;
    constexpr int kLevelsBelowTime = 4;
    for (int level = 0; level < kLevelsBelowTime && !is_of_time_or_rank(folder); ++level)
      folder = folder_above(folder);
    auto [texts, place] = texts_above(folder);
    if (texts.empty()) return;
    if (folder != boundary_) {
      run_.warnings.push_back("the texts of its graphs are in " + place +
                              ", and which of them is its own is known in " + folder +
                              ": open that one");
      return;
    }
    texts_ = std::move(texts);
    run_.warnings.push_back("the texts of the graphs are from the folder above: " + place);
  }

  /// A run makes one time folder for a device of a rank; an older one is of an earlier run.
  void keep_newest_run() {
    std::map<std::pair<int, std::string>, std::set<std::string>> times;
    for (const GeFile& file : files_) {
      if (!file.place.time.empty())
        times[{file.place.rank, file.place.device}].insert(file.place.time);
    }
    const auto is_older = [&times](const GeFile& file) {
      const auto found = times.find({file.place.rank, file.place.device});
      return found != times.end() && !file.place.time.empty() &&
             file.place.time != *found->second.rbegin();
    };
    std::erase_if(files_, is_older);
    std::set<std::string> older;
    for (const auto& [place, list] : times) older.insert(list.begin(), std::prev(list.end()));
    for (const std::string& time : older) {
      run_.warnings.push_back("the dump of " + time +
                              " is of an earlier run and left out: open its folder to read it");
    }
  }

  /// An operator that was launched by itself may have run several times: all files count, in time.
  void count_calls() {
    std::map<std::pair<OperatorKey, bool>, std::vector<GeFile*>> launches;
    for (GeFile& file : files_) {
      const bool repeats = (!file.place.has_model || file.name.kind != GeFileKind::Operator);
      if (repeats) launches[{key_of(file), file.name.statistics}].push_back(&file);
    }
    for (auto& [key, list] : launches) {
      std::stable_sort(list.begin(), list.end(), [](const GeFile* a, const GeFile* b) {
        return natural_less(a->name.time, b->name.time);
      });
      for (uint32_t call = 0; call < list.size(); ++call) list[call]->call = call;
    }
  }

  /// Of two files of one operator in one token the larger is kept; a table beside a dump belongs to
  /// it.
  void drop_duplicates() {
    std::map<std::tuple<OperatorKey, uint32_t, bool>, size_t> kept;
    std::vector<bool> dropped(files_.size(), false);
    for (size_t i = 0; i < files_.size(); ++i) {
      const GeFile& file = files_[i];
      const auto [at, is_new] =
          kept.emplace(std::tuple(key_of(file), file.call, file.name.statistics), i);
      if (is_new) continue;
      const size_t existing = at->second;
      const bool larger = file.size_bytes > files_[existing].size_bytes;
      at->second = larger ? i : existing;
      dropped[larger ? existing : i] = true;
      run_.warnings.push_back("duplicated op name: " + file.name.op_name + ". [" +
                              base_name(file.path) + ", " + base_name(files_[existing].path) +
                              "]. Will keep the larger one " + base_name(files_[at->second].path) +
                              ".");
    }
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!files_[i].name.statistics || dropped[i]) continue;
      const auto dump = kept.find({key_of(files_[i]), files_[i].call, false});
      if (dump == kept.end()) continue;
      files_[dump->second].statistics_path = files_[i].path;
      dropped[i] = true;
    }
    std::vector<GeFile> rest;
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!dropped[i]) rest.push_back(std::move(files_[i]));
    }
    files_ = std::move(rest);
  }

  /// {L}_To_{W} beside a file of W, and of its type: W's outputs when L had run.
  void find_watched() {
    constexpr std::string_view kMark = "_To_";
    std::map<OperatorKey, const GeFile*> by_key;
    for (const GeFile& file : files_) by_key.emplace(key_of(file), &file);
    for (GeFile& file : files_) {
      const std::string& name = file.name.op_name;
      for (size_t at = name.find(kMark); at != std::string::npos; at = name.find(kMark, at + 1)) {
        OperatorKey own = key_of(file);
        std::get<5>(own) = name.substr(at + kMark.size());
        const auto found = by_key.find(own);
        if (at == 0 || found == by_key.end() || found->second->name.op_type != file.name.op_type)
          continue;
        file.watched = std::get<5>(own);
        file.after = name.substr(0, at);
        break;
      }
    }
  }

  static bool is_operator(const GeFile& file) {
    return file.name.kind == GeFileKind::Operator && file.watched.empty();
  }

  Group group_of(const GeFile& file) const {
    const auto devices = devices_.find(file.place.rank);
    const bool several = devices != devices_.end() && devices->second.size() > 1;
    return {several ? file.place.device : "", file.place.model_id, file.place.model_name};
  }

  void collect_groups() {
    for (const GeFile& file : files_) {
      has_ranks_ = has_ranks_ || file.place.has_rank;
      if (is_operator(file)) devices_[file.place.rank].insert(file.place.device);
    }
    std::map<int, std::set<Group>> groups;
    for (const GeFile& file : files_) {
      if (is_operator(file)) groups[file.place.rank].insert(group_of(file));
    }
    for (const auto& [rank, set] : groups) {
      // Operators launched outside of graphs stand behind them.
      std::vector<Group> order(set.begin(), set.end());
      std::stable_partition(order.begin(), order.end(),
                            [](const Group& group) { return !group.model_name.empty(); });
      std::vector<std::string> names;
      for (const Group& group : order) {
        if (!group.model_name.empty() || order.front().model_name.empty())
          names.push_back(group.model_name);
      }
      const std::vector<uint32_t> places = graph_places(names);
      RankGraphs graphs{rank, {}, true};
      for (size_t i = 0; i < order.size(); ++i) {
        const auto number = graph_number(order[i].model_name);
        const uint32_t place = i < places.size() ? places[i] : graphs.places.back() + 1;
        if (i < places.size()) graphs.named = graphs.named && number && *number == place + 1;
        graphs_[{rank, order[i]}] = place;
        graphs.places.push_back(place);
        std::sort(graphs.places.begin(), graphs.places.end());
      }
      ranks_.push_back(std::move(graphs));
    }
  }

  void append(const GeFile& file) {
    // A report stands in the folder of a graph, or in one of its own.
    const auto graph = graphs_.find({file.place.rank, group_of(file)});
    const auto fill = [&](TensorRecord record, const std::string& node) {
      record.rank = file.place.rank;
      record.step = file.place.token;
      record.step_name = std::to_string(file.place.token);
      record.graph = graph == graphs_.end() ? 0 : graph->second;
      record.node = node;
      record.op_type = file.name.op_type;
      record.call = file.call;
      record.kind = kind_of(file);
      record.order = parse_number<uint64_t>(file.name.time).value_or(0);
      run_.records.push_back(std::move(record));
    };
    if (is_operator(file)) {
      ++run_.coverage.captured;
      if (graph != graphs_.end())
        steps_[{file.place.rank, graph->second}][file.place.token].insert(file.name.op_name);
    }
    Result<std::vector<TensorRecord>> members = list_ge_members(file, &run_.warnings);
    if (!members) {
      TensorRecord unreadable;
      unreadable.problem =
          in_file(file.path, Result<void>(fail(members.error()))).error().describe();
      ByteLocation location;
      location.file = file.path;
      unreadable.bytes = std::move(location);
      fill(std::move(unreadable), file.name.op_name);
      return;
    }
    for (TensorRecord& record : *members) {
      // The header has the name as it is in the graph.
      const bool same = sanitized(record.node) == sanitized(file.name.op_name) ||
                        (file.name.kind == GeFileKind::Exception && !record.node.empty());
      const std::string node = same ? record.node.str() : file.name.op_name;
      fill(std::move(record), node);
    }
  }

  static RecordKind kind_of(const GeFile& file) {
    if (file.name.kind == GeFileKind::Overflow) return RecordKind::OverflowReport;
    if (file.name.kind == GeFileKind::Exception) return RecordKind::Exception;
    return file.watched.empty() ? RecordKind::Operand : RecordKind::WatchedAgain;
  }

  /// Beside graphs.json nodes are counted, as its numbers of planned operators are; a graph that
  /// was dumped in several steps must have the same operators in each.
  void finish_coverage() {
    if (unfinished_ > 0) {
      run_.coverage.complete = false;
      run_.warnings.push_back(path_ + ": " + std::to_string(unfinished_) +
                              " files are still being written, or their writer was killed");
    }
    if (!has_graphs_file_) return;
    run_.coverage.captured = 0;
    add_graph_coverage(steps_, "has no file in some steps", &run_);
  }

  void assign_texts() {
    if (!has_ranks_ || ranks_.empty()) {
      RankGraphs all = ranks_.empty() ? RankGraphs{} : ranks_.front();
      all.rank = -1;
      ranks_ = {all};
    }
    assign_graph_texts(texts_, ranks_, &run_);
  }

  const std::string path_;
  const std::string boundary_;
  std::vector<GeFile> files_;
  std::vector<GraphTextFile> texts_;
  std::map<int, std::set<std::string>> devices_;  // by rank
  std::map<std::pair<int, Group>, uint32_t> graphs_;
  std::vector<RankGraphs> ranks_;  // ascending
  GraphSteps steps_;               // of operators with a file
  size_t unfinished_ = 0;
  bool has_graphs_file_ = false;
  bool has_ranks_ = false;
  Run run_;
};

}  // namespace

Attempt read_ge_tree(const std::string& path) {
  const auto is_sign = [](std::string_view name) {
    return graph_text_kind(name).has_value() || is_ge_dump_name(name);
  };
  if (!is_folder(path) || !has_file_below(path, is_sign)) return std::nullopt;
  return Result<Run>(GeTree(path).read());
}

}  // namespace assay::run::sources
