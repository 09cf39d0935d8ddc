// SPDX-License-Identifier: Apache-2.0
// The log of the commands under their old names, and what stands in it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "compare/compare.hpp"

namespace assay::vendor::msit {

enum class Level : uint8_t { Debug, Info, Warning, Error, Fatal, Critical };

/// "debug" ... "critical" to its level; "warn" is a warning, anything else Info.
[[nodiscard]] Level level_of(std::string_view name);

class Log {
 public:
  explicit Log(Level threshold) : threshold_(threshold) {}

  /// "2026-01-01 08:00:00,123 - 4242 - msit_llm_logger - INFO - message", local time, to stderr;
  /// control characters as '_'.
  void write(Level level, const std::string& message) const;
  void info(const std::string& message) const { write(Level::Info, message); }
  void warning(const std::string& message) const { write(Level::Warning, message); }
  void error(const std::string& message) const { write(Level::Error, message); }

 private:
  Level threshold_;
};

/// The metrics of two files as Python prints a dictionary.
[[nodiscard]] std::string metrics_text(const compare::Comparison& comparison,
                                       const compare::Row& row);

}  // namespace assay::vendor::msit
