// SPDX-License-Identifier: Apache-2.0
// Messages of the original are said under the old names only; all others under both.
#include "cli/dump/voice.hpp"

#include "cli/command.hpp"

namespace assay::cli {

void Voice::info(const std::string& message) const {
  if (old_) return log_.info(message);
  if (level_ <= vendor::msit::Level::Info) say("assay", message);
}

void Voice::old_info(const std::string& message) const {
  if (old_) log_.info(message);
}

void Voice::old_warning(const std::string& message) const {
  if (old_) log_.warning(message);
}

void Voice::warning(const std::string& message) const {
  if (old_) return log_.warning(message);
  if (level_ <= vendor::msit::Level::Warning) say("assay: warning", message);
}

void Voice::error(const Error& error) const {
  const std::string message = error.describe();
  if (old_) return log_.error(message);
  report_error(message);
}

}  // namespace assay::cli
