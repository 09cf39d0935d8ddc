// SPDX-License-Identifier: Apache-2.0
// The configuration file that steers a capture while its host runs, in both spellings: the dump
// command's (all values are strings) and msprobe's.   Keys: docs/commands/dump.md, rules:
// docs/design/atb-probe.md
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::capture {

/// The file's content as text; the selection gives it its meaning.
struct DynamicConfig {
  bool msprobe = false;
  bool enabled = false;
  std::string range = "0,0";
  std::string ids;
  std::string names;  // msprobe only
  bool child = true;
  std::string devices;
  bool data = true;  // msprobe only, by "task"
  bool statistics = false;
  int filter_level = 1;  // msprobe only
  std::vector<std::string> warnings;
  friend bool operator==(const DynamicConfig&, const DynamicConfig&) = default;
};

/// errors  Invalid: no JSON object, or a value of the command's own schema that is no string.
///         msprobe's keys of a wrong type keep their default and add a warning, as there.
[[nodiscard]] Result<DynamicConfig> parse_dynamic_config(std::string_view text);

/// Looks at a file now and then. One thread at a time.
class DynamicConfigFile {
 public:
  explicit DynamicConfigFile(std::string path) : path_(std::move(path)) {}

  /// The new content, when the file has changed since it was last read and can be used.
  /// Nothing when nothing changed; an error once for each state of a file that cannot be used.
  /// errors  NotFound | Permission (foreign, or writable by group or others) | Unsupported (no
  ///         regular file) | TooLarge (beyond 1 MiB) | Invalid
  [[nodiscard]] Result<std::optional<DynamicConfig>> reload();

 private:
  struct State {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = -1;
    int64_t changed_ns = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  std::string path_;
  std::optional<State> last_;
  bool told_missing_ = false;
};

/// Such a file, looked at as often as an interval allows, however often a program asks.
class WatchedConfig {
 public:
  static constexpr int64_t kDefaultMs = 5000;

  WatchedConfig(std::string path, int64_t interval_ms)
      : file_(std::move(path)), interval_ms_(interval_ms) {}

  /// Any thread; a few nanoseconds: the clock is the coarse one.
  [[nodiscard]] bool is_due() const noexcept {
    return now_ms() >= next_ms_.load(std::memory_order_relaxed);
  }
  /// The new content, if any. One thread at a time. A file that cannot be used is told, and changes
  /// nothing.
  [[nodiscard]] std::optional<DynamicConfig> read();

 private:
  static int64_t now_ms() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }
  DynamicConfigFile file_;
  const int64_t interval_ms_;
  std::atomic<int64_t> next_ms_{0};
};

}  // namespace assay::capture
