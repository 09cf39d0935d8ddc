// SPDX-License-Identifier: Apache-2.0
// What of a run is wanted: the words of the environment and of the configuration file, and the
// answers to the library.
#include "capture/atb/selection.hpp"

#include <algorithm>
#include <climits>

#include "base/ascii.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::capture::atb {
namespace {

// Everything a path of the library is made of, and what its names may be.
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
constexpr size_t kMaxNameBytes = 200;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view stripped(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Empty tokens never match an id or a device, so they are left out.
std::vector<std::string> parse_list(std::string_view text) {
  std::vector<std::string> tokens;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view token = stripped(part);
    if (!token.empty()) tokens.emplace_back(token);
  }
  return tokens;
}

// Names are prefixes, and the empty one, as in "linear,", begins every name.
std::vector<std::string> parse_names(std::string_view text) {
  std::vector<std::string> names;
  if (stripped(text).empty()) return names;
  for (const std::string_view part : split(text, ',')) names.push_back(lower_case(stripped(part)));
  return names;
}

uint32_t parse_types(std::string_view text) {
  constexpr std::pair<std::string_view, uint32_t> kWords[] = {
      {"model", kModel},   {"layer", kLayer},   {"op", kOp},
      {"kernel", kKernel}, {"tensor", kTensor}, {"cpu_profiling", kCpuProfiling},
      {"onnx", kOnnx},     {"stats", kTensor}};
  uint32_t types = 0;
  for (const std::string_view word : split(text, '|')) {
    for (const auto& [name, bits] : kWords) {
      if (stripped(word) == name) types |= bits;
    }
  }
  return types;
}

/// Reads variables and collects what is wrong with them.
class Variables {
 public:
  Variables(const std::function<const char*(const char*)>& get, std::vector<std::string>* warnings)
      : get_(get), warnings_(warnings) {}

  [[nodiscard]] std::optional<std::string_view> text(const char* name) const {
    const char* value = get_(name);
    if (value == nullptr) return std::nullopt;
    return std::string_view(value);
  }
  [[nodiscard]] std::string text_or(const char* name, std::string_view otherwise) const {
    return std::string(text(name).value_or(otherwise));
  }
  [[nodiscard]] bool is(const char* name, std::string_view value) const {
    const auto found = text(name);
    return found && stripped(*found) == value;
  }
  [[nodiscard]] std::optional<int64_t> number(const char* name, int64_t low, int64_t high) const {
    const auto found = text(name);
    if (!found) return std::nullopt;
    const std::optional<int64_t> value = parse_number<int64_t>(stripped(*found));
    if (value && *value >= low && *value <= high) return value;
    warnings_->push_back(std::string(name) + " must be a number from " + std::to_string(low) +
                         " to " + std::to_string(high) + "; it is ignored");
    return std::nullopt;
  }

 private:
  const std::function<const char*(const char*)>& get_;
  std::vector<std::string>* warnings_;
};

// A folder's name from the environment: one component, nothing that leads out of the output folder.
std::string folder_name(std::string_view wanted, std::vector<std::string>* warnings) {
  std::string name(wanted.substr(0, kMaxNameBytes));
  for (char& c : name) {
    if (kNameCharacters.find(c) == std::string_view::npos) c = '_';
  }
  if (name == "." || name == "..") name = "_";
  if (name != wanted) {
    warnings->push_back("the dump folder is called " + name + ", because the name asked for has " +
                        "characters that folder names here may not have, or is too long");
  }
  return name;
}

std::string dump_name_from(const Variables& variables, std::vector<std::string>* warnings) {
  const std::string own = variables.text_or("ASSAY_ATB_DUMP_NAME", "");
  if (!own.empty()) return folder_name(own, warnings);
  const std::string timestamp = variables.text_or("ATB_TIMESTAMP", "");
  return timestamp.empty() ? "msit_dump" : folder_name("msit_dump_" + timestamp, warnings);
}

bool starts_with_any(std::string_view text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

// "12_Linear" -> 12 and "Linear"; no number: "" and the whole.
std::pair<std::string_view, std::string_view> numbered(std::string_view segment) {
  size_t digits = 0;
  while (digits < segment.size() && segment[digits] >= '0' && segment[digits] <= '9') ++digits;
  if (digits == 0 || digits == segment.size() || segment[digits] != '_') return {{}, segment};
  return {segment.substr(0, digits), segment.substr(digits + 1)};
}

// "{device}_{pid}/{count}/..." -> the segments from the layer on; nothing when there is none.
std::vector<std::string_view> node_segments(std::string_view directory) {
  std::vector<std::string_view> segments = split(directory, '/');
  std::erase(segments, std::string_view());
  if (segments.size() < 3) return {};
  segments.erase(segments.begin(), segments.begin() + 2);
  return segments;
}

bool directory_ids_match(const Settings& settings, std::span<const std::string_view> nodes) {
  std::string joined;
  for (const std::string_view node : nodes) {
    if (!joined.empty()) joined += '_';
    joined += numbered(node).first;
  }
  return matches_ids(settings, joined);
}

// msprobe's rule: the names of all levels joined by '/'.
bool directory_path_matches(const Settings& settings, std::span<const std::string_view> nodes) {
  std::string full;
  for (const std::string_view node : nodes) {
    if (!full.empty()) full += '/';
    full += lower_case(numbered(node).second);
  }
  if (!settings.child.value_or(false)) {
    return starts_with_any(std::string_view(full).substr(full.rfind('/') + 1), settings.names);
  }
  return starts_with_any(full, settings.names) ||
         std::any_of(settings.names.begin(), settings.names.end(), [&](const std::string& name) {
           return full.find("/" + name) != std::string::npos;
         });
}

struct FileParts {
  std::string_view folder;  // the last folder: "before", "after"
  std::string_view name;    // "intensor0.bin"
};

FileParts file_parts(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {{}, path};
  const std::string_view parent = path.substr(0, slash);
  return {parent.substr(parent.rfind('/') + 1), path.substr(slash + 1)};
}

bool names_input(std::string_view name) {
  return name.find("intensor") != std::string_view::npos ||
         name.find("inTensor") != std::string_view::npos;
}
bool names_output(std::string_view name) {
  return name.find("outtensor") != std::string_view::npos ||
         name.find("outTensor") != std::string_view::npos;
}

}  // namespace

bool RunRange::contains(uint64_t execute_count) const {
  if (all) return true;
  if (execute_count > static_cast<uint64_t>(INT64_MAX)) return false;
  const auto n = static_cast<int64_t>(execute_count);
  return std::any_of(pairs.begin(), pairs.end(),
                     [n](const auto& pair) { return pair.first <= n && n <= pair.second; });
}

RunRange parse_run_range(std::string_view text, std::vector<std::string>* warnings) {
  RunRange range;
  text = stripped(text);
  if (text == "all") {
    range.all = true;
    return range;
  }
  if (text.empty() || text == "none") return range;
  std::vector<int64_t> numbers;
  for (const std::string_view part : split(text, ',')) {
    const std::optional<int64_t> number = parse_number<int64_t>(stripped(part));
    const bool fits = number && *number >= INT_MIN && *number <= INT_MAX;
    if (!fits) {
      warnings->push_back("the execute range \"" + std::string(text) +
                          "\" has a part that is no number; 0 counts instead");
    }
    numbers.push_back(fits ? *number : 0);
  }
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
    range.pairs.emplace_back(numbers[i], numbers[i + 1]);
  }
  return range;
}

constexpr uint64_t kNativeQueueBytes = 64ull << 20;

Settings settings_from_environment(const std::function<const char*(const char*)>& variable) {
  Settings s;
  const Variables variables(variable, &s.warnings);
  s.types = parse_types(variables.text_or("ATB_DUMP_TYPE", ""));
  s.save_data = variables.is("ATB_SAVE_TENSOR", "1");
  s.statistics =
      s.has(kTensor) &&
      (variables.is("ATB_SAVE_TENSOR_STATISTICS", "1") ||
       ("|" + variables.text_or("ATB_DUMP_TYPE", "") + "|").find("|stats|") != std::string::npos);
  if (variables.is("ASSAY_PROBE_STATISTICS_TEXT", "f")) {
    s.statistics_text = StatisticsText::Decimals;
  }

  s.save_time = static_cast<int>(variables.number("ATB_SAVE_TENSOR_TIME", 0, 2).value_or(1));
  if (variables.text("ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER")) {
    s.in_before_out_after = variables.is("ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER", "1");
  }
  if (const auto part = variables.number("ATB_SAVE_TENSOR_PART", 0, 2)) {
    s.part = static_cast<int>(*part);
  }

  s.ids = parse_list(variables.text_or("ATB_SAVE_TENSOR_IDS", ""));
  s.names = parse_names(variables.text_or("ATB_SAVE_TENSOR_RUNNER", ""));
  if (variables.text("ATB_SAVE_CHILD")) s.child = variables.is("ATB_SAVE_CHILD", "1");
  s.range = parse_run_range(variables.text_or("ATB_SAVE_TENSOR_RANGE", ""), &s.warnings);
  s.devices = parse_list(variables.text_or("ATB_DEVICE_ID", ""));

  const auto tiling = variables.number("ATB_SAVE_TILING", INT_MIN, INT_MAX);
  s.tiling = tiling.value_or(0) != 0;
  s.link_identical = variables.is("ATB_SAVE_SYMLINK", "1");
  s.overflow_check = variables.text_or("ATB_CHECK_TYPE", "").find('1') != std::string::npos;
  s.overflow_stop = variables.is("ATB_EXIT", "1");
  s.filter_rows = variables.is("ASSAY_PROBE_FILTER_ROWS", "1");

  s.output_dir = variables.text_or("ATB_OUTPUT_DIR", "");
  s.dump_name = dump_name_from(variables, &s.warnings);
  s.subprocess_list =
      s.has(kOnnx) ? variables.text_or("ATB_DUMP_SUB_PROC_INFO_SAVE_PATH", "") : std::string();
  s.config_path = variables.text_or("ATB_DUMP_CONFIG", "");

  s.native = variables.is("ASSAY_PROBE_LAYOUT", "native");
  s.digest = variables.is("ASSAY_PROBE_DIGEST", "1");
  // One buffer, all of it touched at the start, in place of copies that come and go.
  if (s.native) s.queue_bytes = kNativeQueueBytes;
  s.queue_bytes = static_cast<uint64_t>(variables.number("ASSAY_PROBE_QUEUE_BYTES", 1, INT64_MAX)
                                            .value_or(static_cast<int64_t>(s.queue_bytes)));
  s.drop_when_full = variables.is("ASSAY_PROBE_ON_FULL", "drop");
  s.write_in_caller = variables.is("ASSAY_PROBE_SYNC", "1");
  s.disk_reserve_bytes =
      static_cast<uint64_t>(variables.number("ASSAY_PROBE_DISK_RESERVE", 0, INT64_MAX)
                                .value_or(static_cast<int64_t>(s.disk_reserve_bytes)));
  s.reload_ms = static_cast<uint32_t>(
      variables.number("ASSAY_PROBE_RELOAD_MS", 0, INT_MAX).value_or(s.reload_ms));
  // An invalid number means the default, as in the originals.
  s.log_level = static_cast<int>(variables.number("ATB_AIT_LOG_LEVEL", 0, 5).value_or(1));
  return s;
}

Settings with_config(Settings s, const std::optional<DynamicConfig>& config) {
  s.warnings = {};  // the file's own from here on
  s.enabled = config && config->enabled;
  if (!config) {
    s.range = {};
    return s;
  }
  s.range = parse_run_range(config->range, &s.warnings);
  s.ids = parse_list(config->ids);
  s.child = config->child;
  s.devices = parse_list(config->devices);
  s.warnings.insert(s.warnings.end(), config->warnings.begin(), config->warnings.end());
  if (!config->msprobe) return s;

  // msprobe has no command in front of it: the file alone says what is wanted.
  s.msprobe = true;
  s.native = false;  // its readers look for its files
  s.types |= kTensor | kLayer | kModel;
  s.names = parse_names(config->names);
  s.save_data = config->data;
  s.statistics = config->statistics;
  s.data_with_statistics = config->data && config->statistics;
  s.in_before_out_after = true;
  s.part = 2;
  s.tiling = false;
  s.link_identical = config->filter_level >= 1;
  s.without_kernel_data = config->filter_level >= 2;
  return s;
}

uint32_t gates_of(const Settings& s) {
  uint32_t gates = kGatesKnown;
  const auto open = [&gates](bool is_open, Gate gate) {
    if (is_open) gates |= gate;
  };
  // A configuration file may belong to msprobe, and then switches types on later.
  open(!s.config_path.empty(), kGateDynamic);
  open(s.overflow_check, kGateOverflowCheck);
  open(s.overflow_stop, kGateOverflowStop);
  if (!s.captures()) return gates;
  const bool tensor = s.has(kTensor);
  const bool both = s.in_before_out_after.value_or(true);
  open(tensor, kGateTensor);
  open(tensor || s.has(kOp) || s.has(kKernel), kGateDesc);
  open(tensor && (s.save_data || s.statistics), kGateData);
  open(s.save_time == 0 || s.save_time == 2 || both, kGateBefore);
  open(s.save_time == 1 || s.save_time == 2 || both, kGateAfter);
  open(tensor && s.tiling, kGateTiling);
  open(tensor, kGateParam);
  open(s.has(kLayer) || s.has(kModel), kGateGraph);
  open(s.has(kOp), kGateOperation);
  open(s.has(kKernel), kGateKernel);
  open(s.has(kCpuProfiling), kGateStatistic);
  open(s.has(kModel), kGateModel);
  open(s.child.value_or(false), kGateChild);
  open(s.part == 0 || s.part == 2, kGateInputs);
  open(s.part == 1 || s.part == 2, kGateOutputs);
  return gates;
}

bool matches_ids(const Settings& s, std::string_view joined_ids) {
  for (const std::string& id : s.ids) {
    if (joined_ids == id) return true;
    if (s.child.value_or(false) && joined_ids.size() > id.size() && joined_ids.starts_with(id) &&
        joined_ids[id.size()] == '_') {
      return true;
    }
  }
  return false;
}

std::string joined_ids(std::span<const int64_t> ids) {
  std::string joined;
  for (const int64_t id : ids) {
    if (!joined.empty()) joined += '_';
    joined += std::to_string(id);
  }
  return joined;
}

std::string unreached(const RunRange& range, uint64_t runs) {
  std::string text;
  for (const auto& [first, last] : range.pairs) {
    const int64_t begin = std::max(first, static_cast<int64_t>(runs));
    if (last < begin) continue;
    text += (text.empty() ? "" : ",") + std::to_string(begin) +
            (last == begin ? "" : "-" + std::to_string(last));
  }
  return text;
}

bool needs_save(const Settings& s, std::span<const int64_t> ids, std::string_view op_type) {
  if (!s.has(kTensor)) return false;
  // The library asks once and keeps the answer; the file may change, so the folder decides.
  if (!s.config_path.empty()) return true;
  if (s.ids.empty() && s.names.empty()) return s.child.value_or(true) || ids.size() == 1;
  return matches_ids(s, joined_ids(ids)) || starts_with_any(lower_case(op_type), s.names);
}

bool in_range(const Settings& s, uint64_t execute_count) {
  return s.enabled && s.range.contains(execute_count);
}

bool in_directory(const Settings& s, std::string_view directory) {
  if (!device_matches(s, directory)) return false;
  if (s.config_path.empty()) return true;
  if (!s.enabled) return false;
  const std::vector<std::string_view> nodes = node_segments(directory);
  if (nodes.empty()) return false;
  if (s.ids.empty() && s.names.empty()) return s.child.value_or(false) || nodes.size() == 1;
  if (directory_ids_match(s, nodes)) return true;
  if (s.msprobe) return directory_path_matches(s, nodes);
  return starts_with_any(lower_case(numbered(nodes.back()).second), s.names);
}

bool device_matches(const Settings& s, std::string_view path) {
  if (s.devices.empty()) return true;
  const std::string_view device = path.substr(0, path.find('_'));
  return std::any_of(s.devices.begin(), s.devices.end(),
                     [&](const std::string& wanted) { return wanted == device; });
}

bool row_matches(const Settings& s, uint64_t execute_count, std::string_view op_name) {
  if (!s.filter_rows) return true;
  if (!s.range.contains(execute_count)) return false;
  if (s.ids.empty() && s.names.empty()) return true;
  // "LinearOperation_2_0" -> "2_0": the numbers at the end.
  size_t begin = op_name.size();
  while (begin > 0) {
    const size_t underscore = op_name.rfind('_', begin - 1);
    if (underscore == std::string_view::npos || underscore + 1 == begin) break;
    const std::string_view part = op_name.substr(underscore + 1, begin - underscore - 1);
    if (part.find_first_not_of("0123456789") != std::string_view::npos) break;
    begin = underscore;
  }
  const std::string_view ids = begin < op_name.size() ? op_name.substr(begin + 1) : "";
  return matches_ids(s, ids) || starts_with_any(lower_case(op_name.substr(0, begin)), s.names);
}

bool wants_part(const Settings& s, std::string_view path) {
  const std::string_view name = file_parts(path).name;
  return s.part == 2 || (s.part == 0 && names_input(name)) || (s.part == 1 && names_output(name));
}

bool wants_time(const Settings& s, std::string_view path) {
  if (!s.in_before_out_after.value_or(false)) return true;
  const FileParts parts = file_parts(path);
  // Older libraries have other folders; there the word anywhere in the path decides.
  const bool known = parts.folder == "before" || parts.folder == "after";
  const std::string_view where = known ? parts.folder : path;
  return (where.find("before") != std::string_view::npos && names_input(parts.name)) ||
         (where.find("after") != std::string_view::npos && names_output(parts.name));
}

}  // namespace assay::capture::atb
