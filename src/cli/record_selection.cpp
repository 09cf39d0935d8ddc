// SPDX-License-Identifier: Apache-2.0
// A name selects the records that it matches exactly; only where there are none, those whose name
// ends with it. Where nothing matches, names that are near are guessed.
#include "cli/record_selection.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>

#include "base/suggest.hpp"
#include "base/text.hpp"
#include "cli/list_text.hpp"

namespace assay::cli {

std::string record_label(const run::TensorRecord& record) {
  std::string label = record.node.empty() ? "(model)" : record.node;
  if (record.role == Role::Weight || record.role == Role::Buffer) {
    return label + '.' + record.slot + ' ' + std::string(role_name(record.role));
  }
  label += ' ';
  label += role_name(record.role);
  if (!record.slot.empty()) label += ' ' + record.slot;
  if (record.call > 0) label += " call " + std::to_string(record.call);
  return label;
}

std::string record_label(const run::Run& run, const run::TensorRecord& record) {
  if (!run.has(run::Trait::Files)) return record_label(record);
  if (record.role != Role::Output) return record_name(record);
  return record.node + (record.slot.empty() ? "" : " " + record.slot);
}

bool NumberSet::contains(int64_t number) const {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [number](const auto& range) {
           return range.first <= number && number <= range.second;
         });
}

Result<NumberSet> parse_number_set(const std::string& text) {
  NumberSet set;
  if (text.empty() || text == "all") return set;
  const std::string list = with_ascii_commas(text);
  for (const std::string_view part : split(list, ',')) {
    std::pair<int64_t, int64_t> range;
    const char* const end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, range.first);
    range.second = range.first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, range.second);
    }
    if (parsed.ec != std::errc() || parsed.ptr != end || range.first < 0 ||
        range.second < range.first) {
      return fail(Errc::Usage, "expected numbers from 0 up, such as 0,2-4, not " + quoted(part));
    }
    set.ranges.push_back(range);
  }
  return set;
}

namespace {

/// Components end at a dot, in ATB's names at a slash.
bool ends_with_component(const std::string& name, const std::string& tail) {
  if (name.size() <= tail.size() || !name.ends_with(tail)) return false;
  const char before = name[name.size() - tail.size() - 1];
  return before == '.' || before == '/';
}

/// 2: node or record exactly; 1: ends with it; 0: neither.
int match_quality(const run::TensorRecord& record, const std::string& name, bool is_pattern) {
  const std::string full = record_name(record);
  if (is_pattern) {
    return ::fnmatch(name.c_str(), record.node.c_str(), 0) == 0 ||
                   ::fnmatch(name.c_str(), full.c_str(), 0) == 0
               ? 2
               : 0;
  }
  if (record.node == name || full == name || record.slot == name) return 2;
  if (record.bytes && !record.bytes->member.empty() && record.bytes->member == name) return 2;
  if (record.bytes && record.bytes->file == name) return 2;
  return ends_with_component(record.node, name) || ends_with_component(full, name) ? 1 : 0;
}

}  // namespace

std::vector<size_t> select_records(const run::Run& run, const RecordFilter& filter) {
  const bool is_pattern = filter.name.find_first_of("*?[") != std::string::npos;
  std::vector<size_t> chosen;
  int best = 1;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const run::TensorRecord& record = run.records[i];
    const bool is_weight = record.role == Role::Weight || record.role == Role::Buffer;
    if (is_weight ? !filter.weights : !filter.steps.contains(record.step)) continue;
    if (!filter.ranks.contains(record.rank)) continue;
    if (!filter.name.empty()) {
      const int quality = match_quality(record, filter.name, is_pattern);
      if (quality < best) continue;
      if (quality > best) chosen.clear();
      best = quality;
    }
    chosen.push_back(i);
  }
  return chosen;
}

std::string guess(const run::Run& run, const std::string& name) {
  constexpr size_t kMost = 3;
  const std::string wanted = name.substr(name.rfind('.') + 1);
  std::vector<std::string> nodes, similar;
  for (const run::TensorRecord& record : run.records) {
    if (nodes.empty() || nodes.back() != record.node.str()) nodes.push_back(record.node);
  }
  if (std::string nearest = nearest_word(name, nodes); !nearest.empty())
    return "; did you mean " + printable(nearest) + "?";
  for (const std::string& node : nodes) {
    if (similar.size() == kMost || wanted.empty()) break;
    if (node.find(wanted) != std::string::npos && std::ranges::find(similar, node) == similar.end())
      similar.push_back(node);
  }
  std::string text;
  for (const std::string& node : similar)
    text += (text.empty() ? "; did you mean " : " or ") + printable(node);
  return text.empty() ? text : text + "?";
}

}  // namespace assay::cli
