// SPDX-License-Identifier: Apache-2.0
// Runs of msprobe's PyTorch and MindSpore debuggers: docs/formats/msprobe.md
//
//   {dump_path}/step0/rank0/dump.json                  what each call took and gave, statistics
//                           construct.json             which call happened inside which
//                           dump_tensor_data/Module.head.Linear.forward.0.output.0.pt
//
// The reader starts at any of these folders, or at the dump.json itself.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/sources.hpp"
#include "topology/json_document.hpp"

namespace assay::run::sources {
namespace {

using topology::JsonDocument;
using topology::JsonKind;
using Value = JsonDocument::Value;

constexpr size_t kMaxJsonDepth = 256;
constexpr const char* kListNames[] = {"dump.json", "debug.json"};

// ---- where are the lists? ------------------------------------------------------------------------

/// One dump.json and what its folders say.
struct ListFile {
  std::string path;
  std::string folder;
  std::string step_name = "0";
  int64_t step = 0;
  int rank = 0;
};

/// The number behind "step", "rank", "proc" or "pid"; nothing for other names.
std::optional<int64_t> number_behind(std::string_view word, std::string_view name) {
  if (!name.starts_with(word)) return std::nullopt;
  return parse_number<int64_t>(name.substr(word.size()));
}

std::string list_in(const std::string& folder) {
  for (const char* name : kListNames) {
    if (is_file(join_path(folder, name))) return join_path(folder, name);
  }
  return {};
}

/// Folders of ranks, those known by their rank first; a process whose rank was not known gets the
/// next free number, in the order of the process ids.
std::vector<std::pair<int, std::string>> rank_folders(const std::string& path) {
  std::vector<std::pair<int, std::string>> ranks;
  std::vector<std::string> processes;
  const Result<std::vector<FolderEntry>> entries = list_folder(path, real_path(path));
  if (!entries) return {};
  for (const FolderEntry& entry : *entries) {
    const std::optional<int64_t> rank = number_behind("rank", entry.name);
    const bool is_rank = rank && *rank >= 0 && *rank <= INT32_MAX;
    const bool is_process = number_behind("proc", entry.name) || number_behind("pid", entry.name);
    if (!is_rank && !is_process) continue;
    if (entry.kind != FolderEntry::Kind::Folder || list_in(entry.path).empty()) continue;
    if (is_rank) {
      ranks.emplace_back(static_cast<int>(*rank), entry.path);
    } else {
      processes.push_back(entry.path);
    }
  }
  int next = 0;
  for (const auto& [rank, folder] : ranks) next = std::max(next, rank + 1);
  for (const std::string& folder : processes) ranks.emplace_back(next++, folder);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void find_in_step(const std::string& path, ListFile place, std::vector<ListFile>* files) {
  if (const std::string list = list_in(path); !list.empty()) {
    place.path = list;
    place.folder = path;
    files->push_back(place);
    return;
  }
  for (const auto& [rank, folder] : rank_folders(path)) {
    place.path = list_in(folder);
    place.folder = folder;
    place.rank = rank;
    files->push_back(place);
  }
}

/// What the names of the folders above say when the user named one of the inner folders.
ListFile place_of(const std::string& path) {
  ListFile place;
  std::string real = real_path(path);
  for (int level = 0; level < 2; ++level) {
    const std::string name = base_name(real);
    if (const std::optional<int64_t> rank = number_behind("rank", name); rank && *rank >= 0) {
      place.rank = static_cast<int>(std::min<int64_t>(*rank, INT32_MAX));
    } else if (const std::optional<int64_t> step = number_behind("step", name)) {
      place.step_name = name;
      place.step = std::max(*step, int64_t{-1});
      break;
    }
    real = real_path(join_path(real, ".."));
  }
  return place;
}

std::vector<ListFile> find_lists(const std::string& path) {
  std::vector<ListFile> files;
  if (is_file(path)) {
    const std::string name = base_name(path);
    if (std::find(std::begin(kListNames), std::end(kListNames), name) == std::end(kListNames))
      return files;
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    ListFile place = place_of(folder);
    place.path = path;
    place.folder = folder;
    files.push_back(std::move(place));
    return files;
  }
  find_in_step(path, place_of(path), &files);
  if (!files.empty()) return files;
  const Result<std::vector<FolderEntry>> entries = list_folder(path, real_path(path));
  if (!entries) return files;
  for (const FolderEntry& entry : *entries) {
    const std::optional<int64_t> step = number_behind("step", entry.name);
    if (entry.kind != FolderEntry::Kind::Folder || !step) continue;
    ListFile place;
    place.step_name = entry.name;
    place.step = std::max(*step, int64_t{-1});
    find_in_step(entry.path, place, &files);
  }
  return files;
}

// ---- names ---------------------------------------------------------------------------------------

/// What a key of dump.json names.
struct CallName {
  std::string node;     // "layers.0.fc", "Functional.linear.forward"
  std::string op_type;  // "Linear", "linear"
  uint32_t call = 0;
  bool is_module = false;  // a module's forward, named by its path
};

std::string joined(const std::vector<std::string_view>& parts, size_t first, size_t last) {
  std::string text;
  for (size_t i = first; i < last; ++i) {
    if (i > first) text += '.';
    text += parts[i];
  }
  return text;
}

/// "Module.layers.0.fc.Linear.forward.2", "Functional.linear.7.forward". A name of another form is
/// a node by itself.
CallName parse_call_name(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '.');
  const size_t count = parts.size();
  const auto is_direction = [](std::string_view part) {
    return part == "forward" || part == "backward";
  };
  CallName call;
  if (count >= 5 && (parts[0] == "Module" || parts[0] == "Cell") &&
      is_direction(parts[count - 2])) {
    if (const auto number = parse_number<uint32_t>(parts[count - 1])) {
      call.node = joined(parts, 1, count - 3);
      call.op_type = parts[count - 3];
      call.call = *number;
      call.is_module = parts[count - 2] == "forward";
      if (!call.is_module) call.node += ".backward";
      return call;
    }
  }
  if (count >= 4 && is_direction(parts[count - 1])) {
    if (const auto number = parse_number<uint32_t>(parts[count - 2])) {
      call.node = joined(parts, 0, count - 2) + "." + std::string(parts[count - 1]);
      call.op_type = parts[count - 3];
      call.call = *number;
      return call;
    }
  }
  call.node = name;
  return call;
}

// ---- values --------------------------------------------------------------------------------------

/// A number, also Python's NaN and Infinity; NaN for everything else.
double real_value(const JsonDocument& json, Value value) {
  if (value == JsonDocument::kNone) return NAN;
  if (const std::optional<double> number = json.number(value)) return *number;
  // MindSpore and the overflow task write them as strings.
  std::string_view text = json.text(value);
  if (json.is(value, JsonKind::String)) text = text.substr(1, text.size() - 2);
  if (text == "Infinity" || text == "inf") return HUGE_VAL;
  if (text == "-Infinity" || text == "-inf") return -HUGE_VAL;
  return NAN;
}

std::optional<Dims> dims_of(const JsonDocument& json, Value value) {
  if (!json.is(value, JsonKind::Array)) return std::nullopt;
  Dims dims;
  for (Value item = json.first(value); item != JsonDocument::kNone; item = json.next(item)) {
    const std::optional<int64_t> size = json.integer(item);
    if (!size || *size < 0) return std::nullopt;
    dims.push_back(*size);
  }
  return dims;
}

/// "torch.float16"; MindSpore writes "Float16" and "BFloat16".
std::optional<DType> dtype_of(const JsonDocument& json, Value value) {
  if (!json.is(value, JsonKind::String)) return std::nullopt;
  std::string text = json.string(value);
  if (const auto dtype = dtype_from_name(text)) return dtype;
  std::transform(text.begin(), text.end(), text.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return dtype_from_name(text);
}

/// `md5` is the CRC-32 of the bytes in eight hex digits. The mark in the upper half keeps it apart
/// from digests of other writers. A check sum of another form identifies too little: the words of
/// the xor mode may stand in any order.
std::optional<stats::Digest> digest_of(const JsonDocument& json, Value value) {
  constexpr uint64_t kCrc32Mark = 0x6372633332000000;  // "crc32"
  if (!json.is(value, JsonKind::String)) return std::nullopt;
  const std::string text = json.string(value);
  uint32_t crc = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return stats::Digest{kCrc32Mark, crc};
}

std::optional<stats::TensorStats> stats_of(const JsonDocument& json, Value tensor,
                                           const std::optional<Dims>& shape) {
  stats::TensorStats stats;
  stats.max = real_value(json, json.find(tensor, "Max"));
  stats.min = real_value(json, json.find(tensor, "Min"));
  stats.mean = real_value(json, json.find(tensor, "Mean"));
  stats.l2_norm = real_value(json, json.find(tensor, "Norm"));
  bool written = false;
  for (const char* key : {"Max", "Min", "Mean", "Norm"}) {
    const Value value = json.find(tensor, key);
    // null is what msprobe writes for what it could not compute; NaN is a result.
    written = written || (value != JsonDocument::kNone && json.text(value) != "null");
  }
  if (!written) return std::nullopt;
  if (shape) stats.count = element_count(*shape).value_or(0);
  return stats;
}

/// Python's text of a value that is no tensor.
std::string value_text(const JsonDocument& json, Value value) {
  switch (json.kind(value)) {
    case JsonKind::Null:
      return "None";
    case JsonKind::False:
      return "False";
    case JsonKind::True:
      return "True";
    case JsonKind::String:
      return json.string(value);
    default:
      std::string text;
      json.append_compact(value, &text);
      return text;
  }
}

// ---- reading one list ----------------------------------------------------------------------------

class Reader {
 public:
  Reader(const ListFile& place, const JsonDocument& json, Run* run)
      : place_(place), json_(json), run_(run) {
    data_folder_ = join_path(place.folder, "dump_tensor_data");
    // What graph mode calls it.
    if (!is_folder(data_folder_) && is_folder(join_path(place.folder, "tensor_data")))
      data_folder_ = join_path(place.folder, "tensor_data");
  }

  /// Calls stand in the order in which they returned.
  void read(Value data) {
    uint64_t position = 0;
    for (Value call = json_.first(data); call != JsonDocument::kNone; call = json_.next(call)) {
      read_call(parse_call_name(json_.key(call)), call, position);
      position += 2;
    }
  }

 private:
  struct Slot {
    const CallName* call;
    Role role;
    uint64_t order;
    std::string name;
  };

  void read_call(const CallName& name, Value call, uint64_t position) {
    const auto field = [&](const char* key, Role role, const char* prefix) {
      const Value value = json_.find(call, key);
      if (value == JsonDocument::kNone) return false;
      const bool enters = role != Role::Output;
      read_value({&name, role, position + (enters ? 0 : 1), prefix}, value);
      return true;
    };
    bool known = field("input_args", Role::Input, "");
    known |= field("input_kwargs", Role::Input, "kwargs");
    known |= field("input", Role::Input, "");  // of a backward call
    known |= field("output", Role::Output, "");
    known |= field("parameters", Role::Weight, "");
    // A value saved by itself, or the gradients of parameters.
    if (!known) read_value({&name, Role::Output, position + 1, ""}, call);
  }

  void read_value(const Slot& slot, Value value) {
    if (json_.is(value, JsonKind::Array)) {
      size_t index = 0;
      for (Value item = json_.first(value); item != JsonDocument::kNone; item = json_.next(item)) {
        read_value(inner(slot, std::to_string(index++)), item);
      }
      return;
    }
    if (!json_.is(value, JsonKind::Object)) return;  // null: None, or not supported by msprobe
    if (json_.find(value, "dtype") != JsonDocument::kNone &&
        json_.find(value, "shape") != JsonDocument::kNone) {
      read_tensor(slot, value);
      return;
    }
    if (json_.is(json_.find(value, "type"), JsonKind::String)) {
      TensorRecord record = record_of(slot);
      const Value content = json_.find(value, "value");
      record.value = content == JsonDocument::kNone ? json_.string(json_.find(value, "type"))
                                                    : value_text(json_, content);
      run_->records.push_back(std::move(record));
      return;
    }
    for (Value item = json_.first(value); item != JsonDocument::kNone; item = json_.next(item)) {
      read_value(inner(slot, json_.key(item)), item);
    }
  }

  static Slot inner(const Slot& slot, const std::string& name) {
    return {slot.call, slot.role, slot.order, slot.name.empty() ? name : slot.name + "." + name};
  }

  TensorRecord record_of(const Slot& slot) const {
    TensorRecord record;
    record.rank = place_.rank;
    record.step_name = place_.step_name;
    record.step = place_.step;
    record.node = slot.call->node;
    record.op_type = slot.call->op_type;
    record.call = slot.call->call;
    record.role = slot.role;
    record.slot = slot.name;
    record.order = slot.order;
    return record;
  }

  void read_tensor(const Slot& slot, Value tensor) {
    TensorRecord record = record_of(slot);
    record.dtype = dtype_of(json_, json_.find(tensor, "dtype"));
    record.shape = dims_of(json_, json_.find(tensor, "shape"));
    record.stats = stats_of(json_, tensor, record.shape);
    // Of equal bytes the readers of a run take the statistics for all there is to know, and these
    // do not say where NaN and infinities stand.
    const auto is_finite = [&] {
      return std::isfinite(record.stats->max) && std::isfinite(record.stats->min);
    };
    if (!record.stats || is_finite()) record.digest = digest_of(json_, json_.find(tensor, "md5"));
    if (const Value file = json_.find(tensor, "data_name"); json_.is(file, JsonKind::String))
      set_file(json_.string(file), &record);
    run_->records.push_back(std::move(record));
  }

  void set_file(const std::string& name, TensorRecord* record) const {
    // Joined to the folder, the name must not lead out of it. "-1" is a tensor that was not saved.
    if (name.empty() || name == "-1") return;
    if (name.find('/') != std::string::npos || name.find('\0') != std::string::npos ||
        name == "." || name == "..") {
      record->problem = "dump.json names '" + name + "', which is no file of its folder";
      return;
    }
    ByteLocation location;
    location.file = join_path(data_folder_, name);
    record->bytes = std::move(location);
  }

  const ListFile& place_;
  const JsonDocument& json_;
  Run* run_;
  std::string data_folder_;
};

// ---- the modules ---------------------------------------------------------------------------------

/// Modules in the order in which they were entered; a module stands below the longest other path
/// that begins its own.
class ModuleTree {
 public:
  void add(const CallName& call) {
    if (call.is_module && types_.try_emplace(call.node, call.op_type).second)
      order_.push_back(call.node);
  }

  [[nodiscard]] std::optional<TopologyNode> build() const {
    if (order_.empty()) return std::nullopt;
    std::map<std::string, std::vector<std::string>> children;
    for (const std::string& name : order_) children[parent_of(name)].push_back(name);
    TopologyNode root;
    add_children(children, &root);
    return root;
  }

 private:
  [[nodiscard]] std::string parent_of(std::string name) const {
    for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) {
      name.resize(dot);
      if (types_.contains(name)) return name;
    }
    return {};
  }

  // As deep as a name has dots; names of a file are cut by the depth that topologies allow.
  void add_children(const std::map<std::string, std::vector<std::string>>& children,
                    TopologyNode* node, size_t depth = 0) const {
    const auto found = children.find(node->name);
    if (found == children.end() || depth >= topology::kMaxTreeDepth) return;
    for (const std::string& name : found->second) {
      TopologyNode child;
      child.name = name;
      child.type = types_.at(name);
      add_children(children, &child, depth + 1);
      node->children.push_back(std::move(child));
    }
  }

  std::map<std::string, std::string> types_;
  std::vector<std::string> order_;
};

void add_modules(const std::string& path, ModuleTree* modules, Run* run) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    if (file.error().code != Errc::NotFound) run->warnings.push_back(file.error().describe());
    return;
  }
  const Result<JsonDocument> json =
      in_file(path, JsonDocument::parse(as_text(file->bytes()), kMaxJsonDepth));
  if (!json) {
    run->warnings.push_back(json.error().describe());
    return;
  }
  if (!json->is(0, JsonKind::Object)) return;
  for (Value call = json->first(0); call != JsonDocument::kNone; call = json->next(call))
    modules->add(parse_call_name(json->key(call)));
}

Status read_list(const ListFile& place, ModuleTree* modules, Run* run) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(place.path));
  ASSAY_TRY(const JsonDocument json,
            in_file(place.path, JsonDocument::parse(as_text(file.bytes()), kMaxJsonDepth)));
  const Value data = json.find(0, "data");
  if (!json.is(data, JsonKind::Object)) {
    return fail(Error{Errc::Invalid, place.path, json.offset(0),
                      "is no list of msprobe: an object with the key \"data\" was expected"});
  }
  for (const char* key : {"task", "level", "framework"}) {
    const Value value = json.find(0, key);
    if (json.is(value, JsonKind::String)) run->properties.try_emplace(key, json.string(value));
  }
  Reader(place, json, run).read(data);
  add_modules(join_path(place.folder, "construct.json"), modules, run);
  return {};
}

}  // namespace

Attempt read_msprobe(const std::string& path) {
  const std::vector<ListFile> files = find_lists(path);
  if (files.empty()) return std::nullopt;
  Run run;
  run.layout = "msprobe";
  ModuleTree modules;
  std::optional<Error> first_failure;
  size_t failures = 0;
  for (const ListFile& file : files) {
    if (const Status status = read_list(file, &modules, &run); !status) {
      ++failures;
      run.warnings.push_back(status.error().describe());
      run.coverage.complete = false;  // a host that was killed leaves half a list, or none
      if (!first_failure) first_failure = status.error();
    }
  }
  if (failures == files.size()) return Result<Run>(fail(*first_failure));
  run.topology = modules.build();
  std::set<std::string_view> nodes;
  for (const TensorRecord& record : run.records) nodes.insert(record.node);
  run.coverage.captured = nodes.size();
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
