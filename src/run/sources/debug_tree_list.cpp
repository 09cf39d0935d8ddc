// SPDX-License-Identifier: Apache-2.0
// The tree is walked in the order of the calls. A clock goes on behind the inputs and behind the
// outputs of each module, so that outputs stand behind everything inside it.
#include "run/sources/debug_tree_list.hpp"

#include <cmath>
#include <map>
#include <span>

#include "base/numbers.hpp"
#include "run/folder.hpp"
#include "run/torch_names.hpp"
#include "topology/json_document.hpp"

namespace assay::run::sources {
namespace {

using topology::JsonDocument;
using topology::JsonKind;
using Value = JsonDocument::Value;

/// A string, or the strings of a list one after the other: how a printed tensor is stored.
std::string text_of(const JsonDocument& json, Value value) {
  if (json.is(value, JsonKind::String)) return json.string(value);
  std::string text;
  if (!json.is(value, JsonKind::Array)) return text;
  for (Value line = json.first(value); line != JsonDocument::kNone; line = json.next(line)) {
    if (json.is(line, JsonKind::String)) text += json.string(line) + '\n';
  }
  return text;
}

/// The one number of "tensor(1.2345e-01, dtype=torch.bfloat16)"; NaN for other text.
double printed_number(const JsonDocument& json, Value value) {
  const auto numbers = printed_numbers(text_of(json, value));
  return numbers && numbers->size() == 1 ? numbers->front() : NAN;
}

/// The root of the sum of squares, from the mean and the standard deviation that torch gives (over
/// count - 1).
double norm_of(double mean, double deviation, int64_t count) {
  const auto n = static_cast<double>(count);
  if (count <= 1) return n * std::fabs(mean);
  return std::sqrt((n - 1) * deviation * deviation + n * mean * mean);
}

/// What is written beside a tensor; of types without it, what its printed numbers make.
std::optional<stats::TensorStats> stats_of(const JsonDocument& json, Value tensor, int64_t count) {
  if (json.find(tensor, "mean") != JsonDocument::kNone) {
    stats::TensorStats stats;
    stats.count = count;
    stats.mean = printed_number(json, json.find(tensor, "mean"));
    stats.min = printed_number(json, json.find(tensor, "min"));
    stats.max = printed_number(json, json.find(tensor, "max"));
    stats.l2_norm = norm_of(stats.mean, printed_number(json, json.find(tensor, "std")), count);
    return stats;
  }
  const auto numbers = printed_numbers(text_of(json, json.find(tensor, "value")));
  if (!numbers || static_cast<int64_t>(numbers->size()) != count) return std::nullopt;
  const auto view =
      make_view(DType::Float64, Dims{count}, std::as_bytes(std::span<const double>(*numbers)));
  if (!view) return std::nullopt;
  return stats::compute_stats(*view);
}

/// "model.layers" and 12 of "model.layers.12".
std::optional<std::pair<std::string, int64_t>> layer_of(const std::string& node) {
  const size_t dot = node.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto number = parse_number<uint32_t>(std::string_view(node).substr(dot + 1));
  if (!number) return std::nullopt;
  return std::pair(node.substr(0, dot), int64_t{*number});
}

class Reader {
 public:
  Reader(const DebugTreePlace& place, const JsonDocument& json, ModuleTree* modules, Run* run)
      : place_(place), json_(json), modules_(modules), run_(run) {}

  DebugTreeModel read() {
    model_.model_class = string_at(0, "module_path");
    read_module(0);
    model_.end = clock_;
    return model_;
  }

 private:
  /// A module's call, and which of its values.
  struct Slot {
    const std::string* node;
    uint32_t call = 0;
    Role role = Role::Input;
    std::string name;
  };

  [[nodiscard]] std::string string_at(Value object, std::string_view key) const {
    const Value value = json_.find(object, key);
    return json_.is(value, JsonKind::String) ? json_.string(value) : std::string();
  }

  /// The path without the model's class, which stands in front of every one.
  [[nodiscard]] std::string node_of(Value module) const {
    std::string path = string_at(module, "module_path");
    if (module == 0) return {};
    const std::string& front = model_.model_class;
    if (path.starts_with(front) && path.substr(front.size()).starts_with('.'))
      path.erase(0, front.size() + 1);
    return path;
  }

  /// What goes in stands before the calls inside, what comes out behind them.
  void read_module(Value module) {
    const std::string node = node_of(module);
    const uint32_t call = calls_[node]++;
    modules_->add(node, "");
    const Value inputs = json_.find(module, "inputs");
    read_value({&node, call, Role::Input, ""}, json_.find(inputs, "args"));
    read_value({&node, call, Role::Input, "kwargs"}, json_.find(inputs, "kwargs"));
    ++clock_;
    read_children(module);
    const Value outputs = json_.find(module, "outputs");
    if (module == 0) model_.has_output = outputs != JsonDocument::kNone && !is_null(outputs);
    read_value({&node, call, Role::Output, ""}, outputs);
    ++clock_;
  }

  void read_children(Value module) {
    const Value children = json_.find(module, "children");
    if (!json_.is(children, JsonKind::Array)) return;
    std::string before;
    for (Value child = json_.first(children); child != JsonDocument::kNone;
         child = json_.next(child)) {
      if (!json_.is(child, JsonKind::Object)) continue;
      read_module(child);
      const bool is_block = json_.is(json_.find(child, "children"), JsonKind::Array);
      std::string node = is_block ? node_of(child) : std::string();
      say_what_is_left_out(before, node);
      before = std::move(node);
    }
  }

  /// do_prune_layers, its default, keeps the first and the last of the repeated blocks.
  void say_what_is_left_out(const std::string& before, const std::string& node) {
    const auto last = layer_of(before);
    const auto next = layer_of(node);
    if (!last || !next || last->first != next->first || next->second <= last->second + 1) return;
    const int64_t count = next->second - last->second - 1;
    std::string names = last->first + "." + std::to_string(last->second + 1);
    if (count > 1) names += " to " + std::to_string(next->second - 1);
    run_->coverage.missed.push_back({names, "left out when the tree was written (do_prune_layers)",
                                     static_cast<uint64_t>(count)});
  }

  [[nodiscard]] bool is_null(Value value) const { return json_.is(value, JsonKind::Null); }

  [[nodiscard]] bool is_tensor(Value value) const {
    return string_at(value, "shape").starts_with("torch.Size(") &&
           string_at(value, "dtype").starts_with("torch.");
  }

  void read_value(const Slot& slot, Value value) {
    if (value == JsonDocument::kNone) return;
    if (json_.is(value, JsonKind::String)) {
      read_text(slot, json_.string(value));
    } else if (json_.is(value, JsonKind::Array)) {
      size_t index = 0;
      for (Value item = json_.first(value); item != JsonDocument::kNone; item = json_.next(item))
        read_value(inner(slot, std::to_string(index++)), item);
    } else if (json_.is(value, JsonKind::Object) && is_tensor(value)) {
      read_tensor(slot, value);
    } else if (json_.is(value, JsonKind::Object)) {
      for (Value item = json_.first(value); item != JsonDocument::kNone; item = json_.next(item))
        read_value(inner(slot, json_.key(item)), item);
    }
  }

  static Slot inner(const Slot& slot, const std::string& name) {
    Slot found = slot;
    found.name += (found.name.empty() ? "" : ".") + name;
    return found;
  }

  [[nodiscard]] TensorRecord record_of(const Slot& slot) const {
    TensorRecord record;
    record.step_name = "0";
    record.node = *slot.node;
    if (record.node.empty()) record.op_type = model_.model_class;
    record.call = slot.call;
    record.role = slot.role;
    record.slot = slot.name;
    record.order = clock_;
    return record;
  }

  void read_text(const Slot& slot, std::string text) {
    if (text == "None") return;
    TensorRecord record = record_of(slot);
    record.value = std::move(text);
    run_->records.push_back(std::move(record));
  }

  void read_tensor(const Slot& slot, Value tensor) {
    TensorRecord record = record_of(slot);
    record.dtype = dtype_from_name(string_at(tensor, "dtype"));
    record.shape = parse_shape_text(string_at(tensor, "shape"));
    if (const auto count = record.shape ? element_count(*record.shape) : std::nullopt)
      record.stats = stats_of(json_, tensor, *count);
    if (const Value file = json_.find(tensor, "value"); json_.is(file, JsonKind::String))
      set_file(json_.string(file), &record);
    if (record.stats && !record.bytes) record.stats_file = place_.tree_path;
    run_->records.push_back(std::move(record));
  }

  /// "./LlamaForCausalLM.model.norm_outputs.safetensors". A module that is called again writes to
  /// the same name.
  void set_file(std::string name, TensorRecord* record) {
    model_.has_files = true;
    if (name.starts_with("./")) name.erase(0, 2);
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      record->problem = "the tree names '" + name + "', which is no tensor file of its folder";
      return;
    }
    const auto [earlier, is_new] = files_.try_emplace(name, run_->records.size());
    if (!is_new) {
      TensorRecord& overwritten = run_->records[earlier->second];
      overwritten.bytes.reset();
      overwritten.problem = name + " was written again by a later call of the module";
      earlier->second = run_->records.size();
    }
    ByteLocation location;
    location.file = join_path(place_.folder, name);
    location.member = "data";
    record->bytes = std::move(location);
  }

  const DebugTreePlace& place_;
  const JsonDocument& json_;
  ModuleTree* modules_;
  Run* run_;
  DebugTreeModel model_;
  uint64_t clock_ = 0;
  std::map<std::string, uint32_t> calls_;
  std::map<std::string, size_t> files_;  // name -> the record that its bytes belong to
};

}  // namespace

std::optional<std::vector<double>> printed_numbers(std::string_view text) {
  constexpr std::string_view kFront = "tensor(";
  constexpr std::string_view kBetween = " \n,[";
  if (!text.starts_with(kFront)) return std::nullopt;
  text.remove_prefix(kFront.size());
  std::vector<double> numbers;
  size_t open = 0;  // brackets
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') ++open;
    if (text[at] == ']' && (open == 0 || --open == 0)) return numbers;
    if (text[at] == ')') return open == 0 ? std::optional(numbers) : std::nullopt;
    if (text[at] == ']' || kBetween.find(text[at]) != std::string_view::npos) continue;
    const std::string_view word = text.substr(at, text.find_first_of(" \n,])", at) - at);
    const bool is_word = word == "True" || word == "False";
    const auto number =
        parse_number<double>(word.ends_with('.') ? word.substr(0, word.size() - 1) : word);
    if (!number && !is_word) return std::nullopt;  // "...", or what is no tensor of numbers
    numbers.push_back(is_word ? static_cast<double>(word == "True") : *number);
    if (open == 0) return numbers;  // a tensor without axes; its type and device may follow
    at += word.size() - 1;
  }
  return std::nullopt;
}

Result<DebugTreeModel> read_debug_tree(std::string_view text, const DebugTreePlace& place,
                                       ModuleTree* modules, Run* run) {
  ASSAY_TRY(const JsonDocument json, JsonDocument::parse(text, kMaxDebugTreeDepth));
  if (!json.is(0, JsonKind::Object) || !json.is(json.find(0, "module_path"), JsonKind::String)) {
    return fail(Errc::Invalid,
                "is no tree of model_addition_debugger: an object with the key \"module_path\" was "
                "expected",
                json.offset(0));
  }
  return Reader(place, json, modules, run).read();
}

}  // namespace assay::run::sources
