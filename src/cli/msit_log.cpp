// SPDX-License-Identifier: Apache-2.0
#include "cli/msit_log.hpp"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "base/text.hpp"

namespace assay::cli {

MsitLevel msit_level_of(std::string_view name) {
  if (name == "debug") return MsitLevel::Debug;
  if (name == "warn" || name == "warning") return MsitLevel::Warning;
  if (name == "error") return MsitLevel::Error;
  if (name == "fatal") return MsitLevel::Fatal;
  if (name == "critical") return MsitLevel::Critical;
  return MsitLevel::Info;
}

void MsitLog::write(MsitLevel level, const std::string& message) const {
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

}  // namespace assay::cli
