// SPDX-License-Identifier: Apache-2.0
// Lines that the probe leaves, one a report, and the table made of them:
//
//   [LinearOperation_4]:totalTime:188, kernelExecuteTime:41, ...      with kernelExecuteTime: of Execute
//   [LinearOperation_4]:totalTime:535, runnerSetupTime:115, ...       with runnerSetupTime: of Setup
//
//   opname,execute_kernelExecuteTime,execute_totalTime,...,setup_runnerSetupTime,...
//   LinearOperation_4,41,188,...,115,...
#include "formats/cpu_profiling.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.hpp"
#include "formats/csv.hpp"

namespace assay::formats {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/// "[name]:text" cut in two; nothing for any other line.
struct Report {
  std::string_view op_name;
  std::string_view text;
};
std::optional<Report> report_of(std::string_view line) {
  if (!line.starts_with('[')) return std::nullopt;
  const size_t close = line.find("]:");
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view name = line.substr(1, close - 1);
  if (!std::all_of(name.begin(), name.end(), is_name_character)) return std::nullopt;
  return Report{name, line.substr(close + 2)};
}

/// True when `key` is followed by a digit somewhere in the text.
bool has_number(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const size_t value = at + key.size();
    if (value < text.size() && is_digit(text[value])) return true;
  }
  return false;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// "totalTime:188, launchTime:60" as name and value; parts without a colon do not count.
std::map<std::string_view, std::string_view> pairs_of(std::string_view text) {
  std::map<std::string_view, std::string_view> pairs;
  for (const std::string_view part : split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) continue;
    pairs[trimmed(part.substr(0, colon))] = trimmed(part.substr(colon + 1));
  }
  return pairs;
}

std::map<std::string, std::string> cells_of(const CpuStatistic& statistic) {
  std::map<std::string, std::string> cells;
  for (const auto& [key, value] : pairs_of(statistic.execute))
    cells["execute_" + std::string(key)] = value;
  for (const auto& [key, value] : pairs_of(statistic.setup))
    cells["setup_" + std::string(key)] = value;
  return cells;
}

}  // namespace

std::vector<CpuStatistic> read_cpu_statistics(std::string_view text) {
  std::vector<CpuStatistic> statistics;
  std::map<std::string_view, size_t> place_of;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::optional<Report> report = report_of(line);
    if (!report) continue;
    const auto [place, is_new] = place_of.try_emplace(report->op_name, statistics.size());
    if (is_new) statistics.push_back({std::string(report->op_name), "", ""});
    CpuStatistic& statistic = statistics[place->second];
    if (has_number(report->text, "kernelExecuteTime:")) {
      statistic.execute = report->text;
    } else if (has_number(report->text, "runnerSetupTime:")) {
      statistic.setup = report->text;
    }
  }
  return statistics;
}

bool all_zero(const std::vector<CpuStatistic>& statistics) {
  bool has_value = false;
  for (const CpuStatistic& statistic : statistics) {
    for (const auto& [key, value] : cells_of(statistic)) {
      if (value.find_first_not_of('0') != std::string::npos) return false;
      has_value = has_value || !value.empty();
    }
  }
  return has_value;
}

Result<std::string> cpu_profiling_csv(std::string_view text) {
  const std::vector<CpuStatistic> statistics = read_cpu_statistics(text);
  if (statistics.empty())
    return fail(Errc::Invalid, "no line has the form [operation]:statistics", 0);
  std::set<std::string> columns;
  for (const CpuStatistic& statistic : statistics) {
    for (const auto& [column, value] : cells_of(statistic)) columns.insert(column);
  }
  const CsvOptions options{.line_end = "\n"};
  std::vector<std::string> row = {"opname"};
  row.insert(row.end(), columns.begin(), columns.end());
  std::string csv;
  append_csv_row(row, options, &csv);
  for (const CpuStatistic& statistic : statistics) {
    std::map<std::string, std::string> cells = cells_of(statistic);
    row = {statistic.op_name};
    for (const std::string& column : columns) row.push_back(cells[column]);
    append_csv_row(row, options, &csv);
  }
  return csv;
}

std::string cpu_profiling_text(std::string_view text) {
  std::string merged;
  for (const CpuStatistic& statistic : read_cpu_statistics(text)) {
    merged += statistic.op_name + ":\n[execute] " + statistic.execute + "\n[setup] " +
              statistic.setup + "\n\n";
  }
  return merged;
}

}  // namespace assay::formats
