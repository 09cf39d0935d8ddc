// SPDX-License-Identifier: Apache-2.0
// The line is put together on the stack and written at once; errno is left as it was.
#include "base/log.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace assay {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("ASSAY_LOG");
  if (text == nullptr) return LogLevel::Info;
  if (std::strcmp(text, "debug") == 0) return LogLevel::Debug;
  if (std::strcmp(text, "warning") == 0) return LogLevel::Warning;
  if (std::strcmp(text, "error") == 0) return LogLevel::Error;
  return LogLevel::Info;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

constexpr std::string_view kPrefix[] = {
    "assay: debug: ", "assay: ", "assay: warning: ", "assay: error: "};

}  // namespace

void set_log_level(LogLevel level) { current_level().store(level, std::memory_order_relaxed); }
LogLevel log_level() { return current_level().load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view message) {
  if (level < log_level()) return;
  const int saved_errno = errno;
  char line[1024];
  const std::string_view prefix = kPrefix[static_cast<int>(level)];
  std::memcpy(line, prefix.data(), prefix.size());
  size_t size = prefix.size();
  for (const char c : message) {
    if (size == sizeof(line) - 1) break;
    line[size++] = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '_' : c;
  }
  line[size++] = '\n';
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line, size);
  errno = saved_errno;
}

}  // namespace assay
