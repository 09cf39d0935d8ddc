// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/dump_file_name.hpp"

#include <algorithm>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::cli {
namespace {

constexpr size_t kTimeDigits = 16;
constexpr size_t kMaxNumbers = 3;  // of the dump, the task and the stream

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::optional<DumpFileName> parse_dump_file_name(std::string_view name) {
  const std::vector<std::string_view> parts = split(name, '.');
  if (parts.size() < 4) return std::nullopt;
  size_t time = parts.size() - 1;
  while (time > 2 && !(is_digits(parts[time]) && parts[time].size() == kTimeDigits)) --time;
  const bool has_time = time > 2;
  if (!has_time) time = parts.size() - 1;
  size_t first = time;  // of the numbers in front of the time
  while (first > 2 && time - first < kMaxNumbers && is_digits(parts[first - 1])) --first;
  if (first == time) return std::nullopt;

  DumpFileName out;
  out.op_type = parts[0];
  for (size_t i = 1; i < first; ++i) out.op_name += (i > 1 ? "." : "") + std::string(parts[i]);
  if (has_time) out.time = parts[time];
  // One number is the task of a version that knew no streams.
  const size_t task = time - first == 1 ? first : time - 2;
  out.task_id = parse_number<uint64_t>(parts[task]);
  if (task + 1 < time) out.stream_id = parse_number<uint64_t>(parts[task + 1]);
  if (has_time && parts.size() >= time + 5) {
    out.context_id = parse_number<uint64_t>(parts[time + 2]);
    out.thread_id = parse_number<uint64_t>(parts[time + 3]);
  }
  return out;
}

std::string dump_file_name(std::string_view op_type, std::string_view op_name, uint64_t time_us) {
  constexpr size_t kMaxPartBytes = 110;  // of two parts, so that numbers and endings fit into 255
  const auto part = [](std::string_view text) {
    std::string out(text.substr(0, kMaxPartBytes));
    for (char& c : out) {
      const bool stands_for_more = c == ' ' || c == '.' || c == '/' || c == '\\';
      if (stands_for_more || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '_';
    }
    return out.empty() ? std::string("_") : out;
  };
  return part(op_type) + "." + part(op_name) + ".0.0." + std::to_string(time_us);
}

bool is_overflow_name(std::string_view name) { return name.starts_with("Opdebug.Node_OpDebug."); }

bool may_be_dump(std::string_view name) {
  for (const std::string_view suffix :
       {".csv", ".txt", ".json", ".jsonl", ".npy", ".npz", ".pt", ".pth", ".bin", ".pbtxt", ".py",
        ".log", ".onnx", ".safetensors", ".md", ".xlsx", ".html"}) {
    if (name.ends_with(suffix)) return false;
  }
  return name.find(".tmp") == std::string_view::npos && !name.starts_with('.');
}

}  // namespace assay::cli
