// SPDX-License-Identifier: Apache-2.0
#include "cli/dump/voice.hpp"

#include <cstdio>

namespace assay::cli {

void Voice::info(const std::string& message) const {
  if (old_) return log_.info(message);
  if (level_ <= MsitLevel::Info) std::fprintf(stderr, "assay: %s\n", message.c_str());
}

void Voice::old_info(const std::string& message) const {
  if (old_) log_.info(message);
}

void Voice::old_warning(const std::string& message) const {
  if (old_) log_.warning(message);
}

void Voice::warning(const std::string& message) const {
  if (old_) return log_.warning(message);
  if (level_ <= MsitLevel::Warning) std::fprintf(stderr, "assay: warning: %s\n", message.c_str());
}

void Voice::error(const Error& error) const {
  const std::string message = error.describe();
  if (old_) return log_.error(message);
  std::fprintf(stderr, "error: %s\n", message.c_str());
}

}  // namespace assay::cli
