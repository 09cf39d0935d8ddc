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

#include "base/mapped_file.hpp"
#include "run/container.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/graph_folders.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr size_t kTimestampDigits = 16;   // microseconds since 1970
constexpr size_t kFolderTimeDigits = 14;  // 20250102030405
constexpr size_t kMaxNumbersBehindName = 3;
constexpr std::string_view kReducedSuffix = "_min_max.npz";

// ---- names ---------------------------------------------------------------------------------------

struct GeFileName {
  std::string op_type;
  std::string op_name;
  std::string time;  // as in the name: microseconds since 1970
};

/// {type}.{name}.[{dump}.]{task}.[{stream}.]{time}[.{kind}.{context}.{thread}.{device}], counted from
/// the 16 digits of the time; without them the name ends before the last three parts.
std::optional<GeFileName> parse_ge_file_name(std::string_view name) {
  if (name.ends_with(kReducedSuffix)) name.remove_suffix(kReducedSuffix.size());
  const std::vector<std::string_view> parts = split(name, '.');
  size_t time = parts.size() - 1;
  while (time > 2 && !(is_digits(parts[time]) && parts[time].size() == kTimestampDigits)) --time;
  size_t end = time;  // of the operator's name
  if (time > 2) {
    while (end > 2 && time - end < kMaxNumbersBehindName && is_digits(parts[end - 1])) --end;
    if (end == time) return std::nullopt;  // no task
  } else if (parts.size() >= 5) {
    end = parts.size() - 3;
    time = parts.size() - 1;
  } else {
    return std::nullopt;
  }
  GeFileName out;
  out.op_type = parts[0];
  out.time = parts[time];
  for (size_t i = 1; i < end; ++i) out.op_name += (i > 1 ? "." : "") + std::string(parts[i]);
  return out;
}

/// As the writer replaces characters of type and name in a file's name.
std::string sanitized(std::string name) {
  for (char& c : name) {
    if (c == ' ' || c == '.' || c == '/' || c == '\\') c = '_';
  }
  return name;
}

enum class GraphTextKind : uint8_t { Original, Optimized, Build };

/// Which text of a graph a file is; nothing for other files.
std::optional<GraphTextKind> graph_text_kind(std::string_view name) {
  if (!name.ends_with(".txt") || name.find_first_of("0123456789") == std::string_view::npos)
    return std::nullopt;
  if (name.starts_with("dynamo_original_graph_")) return GraphTextKind::Original;
  if (name.starts_with("dynamo_optimized_graph_")) return GraphTextKind::Optimized;
  if (name.starts_with("ge_proto_") && name.ends_with("_Build.txt")) return GraphTextKind::Build;
  return std::nullopt;
}

/// The first number in a name: of a dynamo text that of the graph.
int64_t first_number(std::string_view name) {
  const size_t start = std::min(name.find_first_of("0123456789"), name.size());
  const size_t end = std::min(name.find_first_not_of("0123456789", start), name.size());
  return parse_number<int64_t>(name.substr(start, end - start)).value_or(0);
}

/// "..._rank_3_pid_77_..." -> 3.
std::optional<int> rank_in_name(std::string_view name) {
  constexpr std::string_view kMark = "rank_";
  const size_t at = name.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kMark.size());
  return parse_number<int>(rest.substr(0, rest.find('_')));
}

bool is_other_file(std::string_view name) {
  for (const std::string_view suffix : {".txt", ".npy", ".bin", ".csv", ".json", ".jsonl", ".pbtxt",
                                        ".py", ".log", ".tmp", ".onnx"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

bool is_dump_name(std::string_view name) {
  if (is_other_file(name)) return false;
  const bool reduced = name.ends_with(kReducedSuffix);
  const auto parsed = parse_ge_file_name(name);
  return parsed && (reduced || parsed->time.size() == kTimestampDigits) && is_digits(parsed->time);
}

// ---- the tree ------------------------------------------------------------------------------------

/// Where a folder with dump files stands.
struct GeFolder {
  int rank = 0;
  bool has_rank = false;
  std::string device;
  std::string model_name;
  int64_t model_id = 0;
  int64_t token = 0;
};

GeFolder place_of(const std::string& real) {
  const std::vector<std::string_view> parts = components_of(real);
  GeFolder folder;
  if (const auto rank = rank_of(parts)) {
    folder.rank = *rank;
    folder.has_rank = true;
  }
  if (parts.empty()) return folder;
  const auto is_time = [](std::string_view part) {
    return is_digits(part) && part.size() == kFolderTimeDigits;
  };
  const auto time = std::find_if(parts.rbegin(), parts.rend(), is_time);
  // What stands behind the time: device, model name, model id, token, as far as the writer knew them.
  const std::vector<std::string_view> behind(time.base(), parts.end());
  const bool anchored = time != parts.rend();
  if (anchored && !behind.empty()) folder.device = behind.front();
  if (anchored && behind.size() < 2) return folder;
  folder.token = token_number(parts.back()).value_or(0);
  if (parts.size() < 2 || (anchored && behind.size() < 3)) return folder;
  folder.model_id = token_number(parts[parts.size() - 2]).value_or(0);
  if (anchored && behind.size() >= 4) folder.model_name = parts[parts.size() - 3];
  return folder;
}

struct GeFile {
  GeFolder place;
  GeFileName name;
  std::string path;
  uint64_t size_bytes = 0;
};

struct GraphTextFile {
  GraphTextKind kind;
  std::string name;
  std::string path;
};

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

class GeTree {
 public:
  explicit GeTree(const std::string& path) : path_(path), boundary_(real_path(path)) {}

  Run read() {
    run_.layout = "ge-tree";
    visit_folders(path_, boundary_, 0, &run_.warnings,
                  [this](const std::string& folder, const std::vector<FolderEntry>& entries) {
                    take(folder, entries);
                  });
    drop_duplicates();
    collect_groups();
    for (const GeFile& file : files_) append(file);
    assign_graph_texts();
    return std::move(run_);
  }

 private:
  void take(const std::string& path, const std::vector<FolderEntry>& entries) {
    const std::string real = real_path(path);
    const GeFolder place = place_of(real);
    const std::map<std::string, std::string> long_names = read_long_names(entries);
    for (const FolderEntry& entry : entries) {
      if (entry.kind == FolderEntry::Kind::Folder) continue;
      if (const auto kind = graph_text_kind(entry.name)) {
        if (entry.kind == FolderEntry::Kind::File)
          texts_.push_back({*kind, entry.name, entry.path});
        continue;
      }
      if (is_other_file(entry.name)) continue;
      const auto long_name = long_names.find(entry.name);
      const std::string& name = long_name == long_names.end() ? entry.name : long_name->second;
      std::optional<GeFileName> parsed = parse_ge_file_name(name);
      if (!parsed) {
        if (entry.name.ends_with(".npz")) continue;
        run_.warnings.push_back("invalid file name: " + entry.path +
                                ", should contain at least 4 '.'");
      } else if (entry.kind == FolderEntry::Kind::Unusable) {
        run_.warnings.push_back(entry.path + ": " + entry.problem);
      } else {
        struct stat info{};
        const uint64_t size =
            ::stat(entry.path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
        files_.push_back({place, *std::move(parsed), entry.path, size});
      }
    }
  }

  /// mapping.csv: "{hash},{original name}" for names that the file system refused.
  std::map<std::string, std::string> read_long_names(const std::vector<FolderEntry>& entries) {
    std::map<std::string, std::string> names;
    for (const FolderEntry& entry : entries) {
      if (entry.name != "mapping.csv" || entry.kind != FolderEntry::Kind::File) continue;
      const Result<MappedFile> file = MappedFile::open(entry.path);
      if (!file) {
        run_.warnings.push_back(file.error().describe());
        continue;
      }
      for (std::string_view line : split(as_text(file->bytes()), '\n')) {
        if (line.ends_with('\r')) line.remove_suffix(1);
        const size_t comma = line.find(',');
        if (comma != std::string_view::npos)
          names[std::string(line.substr(0, comma))] = line.substr(comma + 1);
      }
    }
    return names;
  }

  /// Of two files of one operator in one token the larger is kept.
  void drop_duplicates() {
    using Key = std::tuple<int, std::string, int64_t, std::string, int64_t, std::string>;
    std::map<Key, size_t> kept;
    std::vector<bool> dropped(files_.size(), false);
    std::sort(files_.begin(), files_.end(),
              [](const GeFile& a, const GeFile& b) { return natural_less(a.path, b.path); });
    for (size_t i = 0; i < files_.size(); ++i) {
      const GeFile& file = files_[i];
      const GeFolder& place = file.place;
      const auto [at, is_new] = kept.emplace(Key(place.rank, place.device, place.model_id,
                                                 place.model_name, place.token, file.name.op_name),
                                             i);
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
    std::vector<GeFile> rest;
    for (size_t i = 0; i < files_.size(); ++i) {
      if (!dropped[i]) rest.push_back(std::move(files_[i]));
    }
    files_ = std::move(rest);
  }

  Group group_of(const GeFile& file) const {
    const auto devices = devices_.find(file.place.rank);
    const bool several = devices != devices_.end() && devices->second.size() > 1;
    return {several ? file.place.device : "", file.place.model_id, file.place.model_name};
  }

  void collect_groups() {
    for (const GeFile& file : files_) {
      devices_[file.place.rank].insert(file.place.device);
      has_ranks_ = has_ranks_ || file.place.has_rank;
    }
    std::map<int, std::set<Group>> groups;
    for (const GeFile& file : files_) groups[file.place.rank].insert(group_of(file));
    for (const auto& [rank, set] : groups) {
      std::vector<std::string> names;
      for (const Group& group : set) names.push_back(group.model_name);
      const std::vector<uint32_t> places = graph_places(names);
      size_t next = 0;
      bool named = true;
      for (const Group& group : set) {
        const auto number = graph_number(group.model_name);
        named = named && number && *number == places[next] + 1;
        graphs_[{rank, group}] = places[next++];
      }
      named_[rank] = named;
    }
  }

  void append(const GeFile& file) {
    const auto graph = graphs_.at({file.place.rank, group_of(file)});
    const auto fill = [&](TensorRecord record, const std::string& node) {
      record.rank = file.place.rank;
      record.step = file.place.token;
      record.step_name = std::to_string(file.place.token);
      record.graph = graph;
      record.node = node;
      record.op_type = file.name.op_type;
      record.order = parse_number<uint64_t>(file.name.time).value_or(0);
      run_.records.push_back(std::move(record));
    };
    ++run_.coverage.captured;
    Result<std::vector<TensorRecord>> members = list_members(file.path);
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
      const std::string node =
          sanitized(record.node) == sanitized(file.name.op_name) ? record.node : file.name.op_name;
      fill(std::move(record), node);
    }
  }

  /// Records with role and slot, of a dump or of what a script reduced it to.
  static Result<std::vector<TensorRecord>> list_members(const std::string& path) {
    ASSAY_TRY(const std::shared_ptr<const Container> container, open_container(path));
    if (path.ends_with(".npz")) return list_reduced(path, *container);
    ASSAY_TRY(std::vector<TensorRecord> records, container->list());
    for (TensorRecord& record : records) {
      const bool is_operand = record.role == Role::Input || record.role == Role::Output;
      if (is_operand) record.slot = record.slot.substr(record.slot.find('.') + 1);
    }
    return records;
  }

  /// Arrays `inputs` and `outputs`, [operands, 2]: minimum and maximum of each.
  static Result<std::vector<TensorRecord>> list_reduced(const std::string& path,
                                                        const Container& container) {
    std::vector<TensorRecord> records;
    for (const auto& [name, role] : {std::pair("inputs", Role::Input), {"outputs", Role::Output}}) {
      const Result<Tensor> array = container.tensor(name);
      if (!array && array.error().code == Errc::NotFound) continue;
      if (!array) return fail(array.error());
      const Dims& shape = array->view.shape;
      if (shape.empty()) return fail(Errc::Invalid, std::string(name) + " is no list of operands");
      for (int64_t i = 0; i < shape[0]; ++i) {
        TensorRecord record;
        record.role = role;
        record.slot = std::to_string(i);
        record.dtype = array->view.dtype;
        record.shape = Dims(shape.span().subspan(1));
        ByteLocation location;
        location.file = path;
        location.member = std::string(name) + "." + std::to_string(i);
        record.bytes = std::move(location);
        records.push_back(std::move(record));
      }
    }
    return records;
  }

  // ---- texts of the graphs ----

  /// The i-th text of a rank belongs to its i-th graph, or graph_N to the text of that number.
  void assign_graph_texts() {
    std::set<int> ranks;
    for (const GeFile& file : files_) ranks.insert(file.place.rank);
    if (!has_ranks_ || ranks.empty()) ranks = {-1};
    for (const int rank : ranks) {
      for (const GraphTextKind kind :
           {GraphTextKind::Original, GraphTextKind::Optimized, GraphTextKind::Build})
        assign_graph_texts(rank, kind);
    }
  }

  void assign_graph_texts(int rank, GraphTextKind kind) {
    std::vector<const GraphTextFile*> texts;
    for (const GraphTextFile& text : texts_) {
      if (text.kind != kind) continue;
      const bool fits = rank == -1 || kind == GraphTextKind::Build
                            ? rank == -1 || rank_of_build(text).value_or(rank) == rank
                            : rank_in_name(text.name) == rank;
      if (fits) texts.push_back(&text);
    }
    std::stable_sort(texts.begin(), texts.end(),
                     [](const GraphTextFile* a, const GraphTextFile* b) {
                       const int64_t first = first_number(a->name);
                       const int64_t second = first_number(b->name);
                       return first != second ? first < second : natural_less(a->path, b->path);
                     });
    std::vector<uint32_t> places;
    for (const auto& [key, place] : graphs_) {
      if (key.first == std::max(rank, 0)) places.push_back(place);
    }
    std::sort(places.begin(), places.end());
    const auto named = named_.find(std::max(rank, 0));
    const bool by_number = kind != GraphTextKind::Build && named != named_.end() && named->second;
    for (size_t i = 0; i < texts.size(); ++i) {
      std::optional<uint32_t> place;
      if (by_number) {
        const int64_t number = first_number(texts[i]->name);
        for (const uint32_t known : places) {
          if (int64_t{known} == number - 1) place = known;
        }
      } else if (i < places.size()) {
        place = places[i];
      }
      if (place) {
        run_.graph_files.push_back({rank, *place, texts[i]->path});
      } else {
        run_.warnings.push_back(texts[i]->path + ": there is no dump of this graph");
      }
    }
  }

  /// The engine writes its texts into a folder of their own; one inside a rank's folder is that rank's.
  static std::optional<int> rank_of_build(const GraphTextFile& text) {
    const std::string real = real_path(text.path);
    return rank_of(components_of(real));
  }

  const std::string path_;
  const std::string boundary_;
  std::vector<GeFile> files_;
  std::vector<GraphTextFile> texts_;
  std::map<int, std::set<std::string>> devices_;  // by rank
  std::map<std::pair<int, Group>, uint32_t> graphs_;
  std::map<int, bool> named_;  // by rank: all graphs are called graph_N
  bool has_ranks_ = false;
  Run run_;
};

}  // namespace

Attempt read_ge_tree(const std::string& path) {
  const auto is_sign = [](std::string_view name) {
    return graph_text_kind(name).has_value() || is_dump_name(name);
  };
  if (!is_folder(path) || !has_file_below(path, is_sign)) return std::nullopt;
  return Result<Run>(GeTree(path).read());
}

}  // namespace assay::run::sources
