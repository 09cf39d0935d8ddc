// SPDX-License-Identifier: Apache-2.0
// The log of the commands under their old names.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace assay::cli {

enum class MsitLevel : uint8_t { Debug, Info, Warning, Error, Fatal, Critical };

/// "debug" ... "critical" to its level; "warn" is a warning, anything else Info.
[[nodiscard]] MsitLevel msit_level_of(std::string_view name);

class MsitLog {
 public:
  explicit MsitLog(MsitLevel threshold) : threshold_(threshold) {}

  /// "2026-01-01 08:00:00,123 - 4242 - msit_llm_logger - INFO - message", local time, to stderr; control characters
  /// as '_'.
  void write(MsitLevel level, const std::string& message) const;
  void info(const std::string& message) const { write(MsitLevel::Info, message); }
  void warning(const std::string& message) const { write(MsitLevel::Warning, message); }
  void error(const std::string& message) const { write(MsitLevel::Error, message); }

 private:
  MsitLevel threshold_;
};

}  // namespace assay::cli
