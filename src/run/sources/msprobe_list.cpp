// SPDX-License-Identifier: Apache-2.0
// Calls stand in the list in the order in which they returned: what went into the n-th has place
// 2n, what came out 2n + 1. Lists and objects of a call are walked down to its tensors and plain
// values.   docs/formats/msprobe.md, "dump.json"
#include "run/sources/msprobe_list.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"
#include "topology/json_document.hpp"

namespace assay::run::sources {
namespace {

using topology::JsonDocument;
using topology::JsonKind;
using Value = JsonDocument::Value;

std::string joined(const std::vector<std::string_view>& parts, size_t first, size_t last) {
  std::string text;
  for (size_t i = first; i < last; ++i) {
    if (i > first) text += '.';
    text += parts[i];
  }
  return text;
}

// ---- values -------------------------------------------------------------------------------------

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

// ---- reading ----------------------------------------------------------------------------

class Reader {
 public:
  Reader(const MsprobePlace& place, const JsonDocument& json, Run* run)
      : place_(place), json_(json), run_(run) {}

  /// Calls stand in the order in which they returned.
  void read(Value data) {
    uint64_t position = 0;
    for (Value call = json_.first(data); call != JsonDocument::kNone; call = json_.next(call)) {
      read_call(parse_msprobe_call(json_.key(call)), call, position);
      position += 2;
    }
  }

 private:
  struct Slot {
    const MsprobeCall* call;
    Role role;
    uint64_t order;
    std::string name;
  };

  void read_call(const MsprobeCall& name, Value call, uint64_t position) {
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
    // A comparison takes equal digests for equal values unless the statistics count NaN or
    // infinities. msprobe's do not count them, so a tensor that may have some gets no digest.
    const auto is_finite = [&] {
      return std::isfinite(record.stats->max) && std::isfinite(record.stats->min);
    };
    if (!record.stats || is_finite()) record.digest = digest_of(json_, json_.find(tensor, "md5"));
    if (const Value file = json_.find(tensor, "data_name"); json_.is(file, JsonKind::String))
      set_file(json_.string(file), &record);
    if (record.stats && !record.bytes) record.stats_file = place_.list_path;
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
    location.file = join_path(place_.data_folder, name);
    record->bytes = std::move(location);
  }

  const MsprobePlace& place_;
  const JsonDocument& json_;
  Run* run_;
};

}  // namespace

MsprobeCall parse_msprobe_call(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '.');
  const size_t count = parts.size();
  const auto is_direction = [](std::string_view part) {
    return part == "forward" || part == "backward";
  };
  MsprobeCall call;
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

Status read_msprobe_list(std::string_view text, const MsprobePlace& place, Run* run) {
  ASSAY_TRY(const JsonDocument json, JsonDocument::parse(text, kMaxMsprobeJsonDepth));
  const Value data = json.find(0, "data");
  if (!json.is(data, JsonKind::Object)) {
    return fail(Errc::Invalid,
                "is no list of msprobe: an object with the key \"data\" was expected",
                json.offset(0));
  }
  for (const char* key : {"task", "level", "framework"}) {
    const Value value = json.find(0, key);
    if (json.is(value, JsonKind::String)) run->properties.try_emplace(key, json.string(value));
  }
  Reader(place, json, run).read(data);
  return {};
}

}  // namespace assay::run::sources
