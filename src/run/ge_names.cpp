// SPDX-License-Identifier: Apache-2.0
// The part of 16 digits is the time; the numbers of task, stream and dump are counted back from it,
// since the name of an operator may hold dots and digits itself.
//   docs/formats/ge-tree.md, "File names"
#include "run/ge_names.hpp"

#include <algorithm>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/csv.hpp"
#include "run/sources/graph_folders.hpp"

namespace assay::run {
namespace {

constexpr size_t kTimestampDigits = 16;  // microseconds since 1970
constexpr size_t kMaxNumbersBehindName = 3;
constexpr std::string_view kStatisticsSuffix = ".csv";
constexpr std::string_view kException = "exception_info";
constexpr std::string_view kOverflowType = "Opdebug";
constexpr std::string_view kMappingHeader = "file,name";

std::string join(const std::vector<std::string_view>& parts, size_t first, size_t end) {
  std::string out;
  for (size_t i = first; i < end; ++i) out += (i > first ? "." : "") + std::string(parts[i]);
  return out;
}

/// Index of the last part with 16 digits, not before `first`; nothing without one.
std::optional<size_t> time_part(const std::vector<std::string_view>& parts, size_t first) {
  for (size_t i = parts.size(); i-- > first;) {
    if (sources::is_digits(parts[i]) && parts[i].size() == kTimestampDigits) return i;
  }
  return std::nullopt;
}

/// {kernel}.{stream}.{task}[.{core type}.{core id}].{time}; a kernel's name may have dots.
std::optional<GeFileName> parse_exception_name(const std::vector<std::string_view>& parts) {
  const auto time = time_part(parts, 3);
  if (!time || *time + 1 != parts.size()) return std::nullopt;
  const bool brief = *time == 3;
  if (!brief && *time < 5) return std::nullopt;
  const size_t stream = brief ? 1 : *time - 4;
  GeFileName out;
  out.kind = GeFileKind::Exception;
  out.op_type = kException;
  out.op_name = join(parts, 0, stream);
  out.stream = parse_number<uint64_t>(parts[stream]);
  out.task = parse_number<uint64_t>(parts[stream + 1]);
  out.time = parts[*time];
  if (!out.stream || !out.task) return std::nullopt;
  return out;
}

}  // namespace

std::optional<GeFileName> parse_ge_file_name(std::string_view name, bool in_exception_folder) {
  const bool statistics = name.ends_with(kStatisticsSuffix);
  if (statistics) name.remove_suffix(kStatisticsSuffix.size());
  if (name.ends_with(kReducedArrays)) name.remove_suffix(kReducedArrays.size());
  const std::vector<std::string_view> parts = split(name, '.');
  if (in_exception_folder || parts[0] == kException) {
    auto exception = parse_exception_name(parts);
    if (exception) exception->statistics = statistics;
    return exception;
  }
  GeFileName out;
  out.statistics = statistics;
  const auto time = time_part(parts, 3);
  size_t end = 0;  // of the operator's name
  if (time) {
    end = *time;
    while (end > 2 && *time - end < kMaxNumbersBehindName && sources::is_digits(parts[end - 1]))
      --end;
    if (end == *time) return std::nullopt;  // no task
    const size_t numbers = *time - end;
    out.task = parse_number<uint64_t>(parts[numbers == 1 ? end : *time - 2]);
    out.has_dump_number = numbers == 3;
    if (numbers > 1) out.stream = parse_number<uint64_t>(parts[*time - 1]);
    out.time = parts[*time];
    out.slice = join(parts, *time + 1, parts.size());
    if (parts.size() >= *time + 5) {
      out.context = parse_number<uint64_t>(parts[*time + 2]);
      out.thread = parse_number<uint64_t>(parts[*time + 3]);
    }
  } else if (parts.size() >= 5) {
    end = parts.size() - 3;
    out.time = parts.back();
  } else {
    return std::nullopt;
  }
  out.op_type = parts[0];
  out.op_name = join(parts, 1, end);
  if (out.op_type == kOverflowType) out.kind = GeFileKind::Overflow;
  return out;
}

bool is_ge_dump_name(std::string_view name) {
  if (is_other_file(name) || is_unfinished_file(name)) return false;
  const auto parsed = parse_ge_file_name(name);
  if (!parsed || !sources::is_digits(parsed->time)) return false;
  return name.ends_with(kReducedArrays) || parsed->time.size() == kTimestampDigits;
}

bool is_other_file(std::string_view name) {
  for (const std::string_view suffix : {".txt", ".npy", ".bin", ".json", ".jsonl", ".pbtxt", ".py",
                                        ".log", ".tmp", ".onnx", ".pt", ".pth", ".o", ".core"}) {
    if (name.ends_with(suffix)) return true;
  }
  if (!name.ends_with(kStatisticsSuffix)) return false;
  // Other tables: mapping.csv, statistic.csv.
  return !time_part(split(name, '.'), 3);
}

bool is_unfinished_file(std::string_view name) {
  constexpr std::string_view kMark = ".tmp";
  const size_t mark = name.rfind(kMark);
  return mark != std::string_view::npos && sources::is_digits(name.substr(mark + kMark.size()));
}

std::string sanitized(std::string name) {
  for (char& c : name) {
    if (c == ' ' || c == '.' || c == '/' || c == '\\') c = '_';
  }
  return name;
}

std::map<std::string, std::string> read_long_names(std::string_view text) {
  std::map<std::string, std::string> names;
  const auto add = [&names](std::string_view file, std::string_view name, bool whole) {
    // The last line may be cut off; its name counts only when the time at its end is whole.
    if (whole || is_ge_dump_name(name)) names[std::string(file)] = name;
  };
  const bool ends_with_line = text.ends_with('\n');
  if (text.starts_with(kMappingHeader)) {
    const formats::CsvTable table = formats::read_csv(text);
    for (size_t i = 1; i < table.rows.size(); ++i) {
      const auto& row = table.rows[i];
      const bool last = i + 1 == table.rows.size();
      if (row.size() == 2 && !(last && table.unterminated_quote))
        add(row[0], row[1], ends_with_line || !last);
    }
    return names;
  }
  const std::vector<std::string_view> lines = split(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t comma = line.find(',');
    if (comma != std::string_view::npos)
      add(line.substr(0, comma), line.substr(comma + 1), i + 1 < lines.size());
  }
  return names;
}

}  // namespace assay::run
