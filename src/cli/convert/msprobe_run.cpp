// SPDX-License-Identifier: Apache-2.0
// Gathers the records of each step and rank into calls, writing values as .pt files on the way,
// then writes dump.json, construct.json (who called whom) and stack.json of each folder.
#include "cli/convert/msprobe_run.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/interrupt.hpp"
#include "cli/tensor_files.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"

namespace assay::cli {
namespace {

using nlohmann::ordered_json;

/// Part of a name of msprobe, which is also one of a file.
std::string name_part(std::string_view text) {
  std::string part = printable(text);
  std::replace_if(part.begin(), part.end(), [](char c) { return c == '/' || c == '\\'; }, '_');
  return part;
}

/// Only modules of PyTorch are called by a class and a path; everything else is one api.
bool is_module_call(const run::Run& run, const run::TensorRecord& record) {
  return run.has(run::Trait::ModuleClasses) && !record.op_type.empty() &&
         record.op_type.find('.') == std::string::npos;
}

/// "root.model.norm" of a hook dump and "model.norm" of a native run are one module.
std::string module_path(const run::TensorRecord& record) {
  constexpr std::string_view kRoot = "root.";
  const std::string_view node = record.node;
  return name_part(node.starts_with(kRoot) ? node.substr(kRoot.size()) : node);
}

/// "model.norm" of the operator "model.norm::aten.mul.Tensor.1"; empty for other nodes.
std::string module_around(const run::TensorRecord& record) {
  return record.is_of_operator() ? name_part(module_of_node(record.node)) : std::string();
}

/// A value that is no tensor, by the type that its text shows; null for None, as msprobe writes it.
ordered_json value_entry(const std::string& text) {
  if (text == "None") return nullptr;
  if (text == "True" || text == "False") return {{"type", "bool"}, {"value", text == "True"}};
  if (const auto whole = parse_number<int64_t>(text)) return {{"type", "int"}, {"value", *whole}};
  if (const auto real = parse_number<double>(text); real && std::isfinite(*real))
    return {{"type", "float"}, {"value", *real}};
  return {{"type", "str"}, {"value", text}};
}

std::string call_name(const run::Run& run, const run::TensorRecord& record) {
  const std::string call = std::to_string(record.call);
  if (is_module_call(run, record))
    return "Module." + module_path(record) + "." + name_part(record.op_type) + ".forward." + call;
  std::string api = name_part(record.node);
  std::replace(api.begin(), api.end(), '.', '_');
  return "Functional." + api + "." + call + ".forward";
}

/// Puts the entry where a slot such as "1.0" or "mask.0" says: lists inside lists, dicts for words.
void place(std::string_view slot, ordered_json entry, ordered_json* into) {
  constexpr size_t kMaxIndex = 4096;
  for (const std::string_view part : split(slot, '.')) {
    const auto index = parse_number<size_t>(part);
    if (index && *index <= kMaxIndex && (into->is_null() || into->is_array())) {
      while (into->size() <= *index) into->push_back(nullptr);
      into = &(*into)[*index];
    } else {
      if (!into->is_object()) *into = ordered_json::object();
      into = &(*into)[name_part(part)];
    }
  }
  *into = std::move(entry);
}

/// Where a tensor stands in its call: inputs by place or by name, outputs in a list.
struct Place {
  std::string slot;  // for the name of its file
  std::string path;  // below the arguments, the keywords or the outputs
  bool is_keyword = false;
};

Place place_of(const run::TensorRecord& record) {
  constexpr std::string_view kKeywords = "kwargs.";
  const std::string slot = record.slot.empty() ? "0" : record.slot;
  const bool is_input = record.role == Role::Input;
  if (is_input && slot.starts_with(kKeywords)) return {slot, slot.substr(kKeywords.size()), true};
  const bool has_place = parse_number<size_t>(slot.substr(0, slot.find('.'))).has_value();
  if (has_place) return {slot, slot, false};
  // An operator's arguments have names; a module that returns a dict returns one thing.
  return is_input ? Place{slot, slot, true} : Place{"0." + slot, "0." + slot, false};
}

/// One call: what it took and gave.
struct Call {
  ordered_json args = ordered_json::array();
  ordered_json kwargs = ordered_json::object();
  ordered_json outputs = ordered_json::array();
  ordered_json parameters;
  std::string path;    // of a module
  std::string inside;  // of an operator: path of the module that called it
  uint64_t returned = 0;
};

/// What goes into one folder.
struct Rank {
  std::map<std::string, Call> calls;
  std::set<std::string> files;
};

ordered_json statistics_of(const stats::TensorStats& stats) {
  const auto number = [](double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
  };
  const stats::TensorStats all = stats.with_non_finite();
  return {{"Max", number(all.max)},
          {"Min", number(all.min)},
          {"Mean", number(all.mean)},
          {"Norm", number(all.l2_norm)}};
}

class Writer {
 public:
  Writer(const run::Run& run, const std::vector<size_t>& chosen, const std::string& out)
      : run_(run), chosen_(chosen), out_(out) {}

  Result<std::vector<std::string>> write() {
    for (const size_t i : chosen_) {
      const run::TensorRecord& record = run_.records[i];
      if (is_weight(record)) weights_[{record.rank, record.node}].push_back(i);
    }
    for (const size_t i : chosen_) {
      if (interrupted()) return fail(Errc::Interrupted, "interrupted");
      const run::TensorRecord& record = run_.records[i];
      if (!is_weight(record)) ASSAY_TRY_STATUS(add(record));
    }
    for (const auto& [key, rank] : ranks_) ASSAY_TRY_STATUS(write_lists(folder_of(key), rank));
    return std::move(problems_);
  }

 private:
  using Key = std::pair<int64_t, int>;  // step, rank

  static bool is_weight(const run::TensorRecord& record) {
    return record.role == Role::Weight || record.role == Role::Buffer;
  }

  [[nodiscard]] std::string folder_of(const Key& key) const {
    return run::join_path(
        out_, "step" + std::to_string(key.first) + "/rank" + std::to_string(key.second));
  }

  Status add(const run::TensorRecord& record) {
    const Key key{std::max<int64_t>(record.step, 0), record.rank};
    Rank& rank = ranks_[key];
    const std::string name = call_name(run_, record);
    Call& call = rank.calls[name];
    call.returned = std::max(call.returned, record.order);
    if (is_module_call(run_, record)) call.path = module_path(record);
    call.inside = module_around(record);
    const auto weights = weights_.find({record.rank, record.node});
    if (weights != weights_.end()) {
      for (const size_t i : weights->second) {
        const run::TensorRecord& weight = run_.records[i];
        ASSAY_TRY(ordered_json entry,
                  entry_of(weight, key, name + ".parameters." + name_part(weight.slot)));
        if (!entry.is_null()) call.parameters[name_part(weight.slot)] = std::move(entry);
      }
      weights_.erase(weights);
    }
    const bool is_input = record.role == Role::Input;
    const Place where = place_of(record);
    ASSAY_TRY(
        ordered_json entry,
        entry_of(record, key, name + (is_input ? ".input." : ".output.") + name_part(where.slot)));
    if (entry.is_null()) return {};
    place(where.path, std::move(entry),
          where.is_keyword ? &call.kwargs
          : is_input       ? &call.args
                           : &call.outputs);
    return {};
  }

  /// Null for a record that cannot be written, which is named among the problems.
  Result<ordered_json> entry_of(run::TensorRecord record, const Key& key, const std::string& name) {
    if (!record.value.empty()) return value_entry(record.value);
    ordered_json entry{{"type", "torch.Tensor"}};
    std::optional<stats::TensorStats> stats = record.stats;
    std::string data_name;
    if (record.bytes) {
      const Result<Tensor> tensor = run::load_tensor(record);
      if (!tensor) {
        problems_.push_back(tensor.error().describe());
        return ordered_json(nullptr);
      }
      record.dtype = tensor->view.dtype;
      record.shape = tensor->view.shape;
      stats = statistics_until_interrupted(tensor->view);
      data_name = file_name(name, &ranks_[key]);
      const std::string folder = run::join_path(folder_of(key), "dump_tensor_data");
      ASSAY_TRY_STATUS(make_directories(folder));
      if (Status written = write_tensor_file(run::join_path(folder, data_name),
                                             TensorFileFormat::Pth, tensor->view);
          !written) {
        if (written.error().code != Errc::Unsupported) return fail(std::move(written).error());
        problems_.push_back(written.error().describe());
        return ordered_json(nullptr);
      }
      has_data_ = true;
    }
    if (!record.dtype || !record.shape) {
      problems_.push_back(name + ": " +
                          (record.problem.empty() ? "has no dtype or shape" : record.problem));
      return ordered_json(nullptr);
    }
    entry["dtype"] = "torch." + std::string(assay::name(*record.dtype));
    entry["shape"] = std::vector<int64_t>(record.shape->begin(), record.shape->end());
    if (stats) entry.update(statistics_of(*stats));
    entry["requires_grad"] = false;
    if (!data_name.empty()) entry["data_name"] = data_name;
    return entry;
  }

  /// Unique within the folder, and no longer than a name may be.
  static std::string file_name(const std::string& name, Rank* rank) {
    constexpr size_t kMaxNameBytes = 200;
    std::string stem = name;
    if (stem.size() > kMaxNameBytes) stem = repair_utf8(stem.substr(0, kMaxNameBytes));
    std::string file = stem + ".pt";
    for (int n = 2; !rank->files.insert(file).second; ++n)
      file = stem + "_" + std::to_string(n) + ".pt";
    return file;
  }

  /// The call of the module around this one: that of an operator's module, of modules the longest
  /// other path that begins its path.
  static ordered_json parent_of(const Call& call,
                                const std::map<std::string, std::string>& by_path) {
    if (const auto found = by_path.find(call.inside); found != by_path.end()) return found->second;
    std::string path = call.path.empty() ? call.inside : call.path;
    for (size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.')) {
      path.resize(dot);
      if (const auto found = by_path.find(path); found != by_path.end()) return found->second;
    }
    return nullptr;
  }

  Status write_lists(const std::string& folder, const Rank& rank) const {
    std::vector<const std::pair<const std::string, Call>*> calls;
    std::map<std::string, std::string> by_path;  // the first call of each module
    bool only_modules = true;
    for (const auto& named : rank.calls) {
      calls.push_back(&named);
      only_modules &= !named.second.path.empty();
      if (!named.second.path.empty()) by_path.emplace(named.second.path, named.first);
    }
    std::sort(calls.begin(), calls.end(), [](const auto* a, const auto* b) {
      return std::pair(a->second.returned, a->first) < std::pair(b->second.returned, b->first);
    });
    const std::string data_folder = run::join_path(folder, "dump_tensor_data");
    ordered_json dump{{"task", has_data_ ? "tensor" : "statistics"},
                      {"level", only_modules ? "L0" : "mix"},
                      {"framework", "pytorch"},
                      {"dump_data_dir", nullptr},
                      {"data", ordered_json::object()}};
    if (has_data_) dump["dump_data_dir"] = run::real_path(data_folder);
    ordered_json construct = ordered_json::object();
    ordered_json names = ordered_json::array();
    for (const auto* named : calls) {
      const Call& call = named->second;
      ordered_json& entry = dump["data"][named->first];
      entry["input_args"] = call.args;
      entry["input_kwargs"] = call.kwargs;
      entry["output"] = call.outputs;
      if (!call.parameters.is_null()) entry["parameters"] = call.parameters;
      construct[named->first] = parent_of(call, by_path);
      names.push_back(named->first);
    }
    ordered_json stack = ordered_json::object();
    stack["0"] = {names, ordered_json::array()};
    ASSAY_TRY_STATUS(make_directories(folder));
    for (const auto& [name, json] : {std::pair<const char*, const ordered_json&>{"dump.json", dump},
                                     {"construct.json", construct},
                                     {"stack.json", stack}}) {
      const std::string text = json.dump(1, ' ', true, ordered_json::error_handler_t::replace);
      ASSAY_TRY_STATUS(write_file_atomically(run::join_path(folder, name), as_bytes(text)));
    }
    return {};
  }

  const run::Run& run_;
  const std::vector<size_t>& chosen_;
  const std::string& out_;
  std::map<std::pair<int, std::string>, std::vector<size_t>> weights_;  // by rank and node
  std::map<Key, Rank> ranks_;
  std::vector<std::string> problems_;
  bool has_data_ = false;
};

}  // namespace

Result<std::vector<std::string>> write_msprobe_run(const run::Run& run,
                                                   const std::vector<size_t>& chosen,
                                                   const std::string& out) {
  return Writer(run, chosen, out).write();
}

}  // namespace assay::cli
