// SPDX-License-Identifier: Apache-2.0
// Lines look as those of Python's logging in the original; values as Python's repr() shows them.
#include "vendor/msit/log.hpp"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/text.hpp"

namespace assay::vendor::msit {
namespace {

// Python's repr(str), for text in UTF-8.
std::string python_quote(std::string_view text) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"'
                                                                                            : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (byte < 0x20 || byte == 0x7F) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string value_text(const compare::AlgorithmValue& value) {
  if (const auto* number = std::get_if<double>(&value.value)) return python_repr(*number);
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value.value)) return python_quote(*text);
  return "None";
}

}  // namespace

Level level_of(std::string_view name) {
  if (name == "debug") return Level::Debug;
  if (name == "warn" || name == "warning") return Level::Warning;
  if (name == "error") return Level::Error;
  if (name == "fatal") return Level::Fatal;
  if (name == "critical") return Level::Critical;
  return Level::Info;
}

void Log::write(Level level, const std::string& message) const {
  if (level < threshold_) return;
  // Python's logging knows fatal only as another word for critical.
  static constexpr const char* kNames[] = {"DEBUG", "INFO",     "WARNING",
                                           "ERROR", "CRITICAL", "CRITICAL"};
  timeval now{};
  ::gettimeofday(&now, nullptr);
  std::tm parts{};
  ::localtime_r(&now.tv_sec, &parts);
  char time[32];
  std::strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &parts);
  std::string text = message;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '_';  // as the original has them
  }
  std::fprintf(stderr, "%s,%03d - %d - msit_llm_logger - %s - %s\n", time,
               static_cast<int>(now.tv_usec / 1000), static_cast<int>(::getpid()),
               kNames[static_cast<size_t>(level)], printable(text).c_str());
}

std::string metrics_text(const compare::Comparison& comparison, const compare::Row& row) {
  std::string text = "{";
  if (row.metrics && row.metrics->state == measure::PairState::Compared) {
    for (const auto& [name, field] : measure::kMetricFields)
      text += python_quote(name) + ": " + python_repr((*row.metrics).*field) + ", ";
  }
  for (size_t i = 0; i < row.custom.size() && i < comparison.algorithms.size(); ++i) {
    text += python_quote(comparison.algorithms[i]) + ": " + value_text(row.custom[i]) + ", ";
  }
  return text + "'cmp_fail_reason': " + python_quote(row.fail_reason) + "}";
}

}  // namespace assay::vendor::msit
