// SPDX-License-Identifier: Apache-2.0
// One line to stderr with one write(2): safe on any thread of a host, never interleaved, never
// allocating.
#pragma once
#include <string_view>

namespace assay {

enum class LogLevel { Debug, Info, Warning, Error };

/// Lines below this level are dropped. Default Info; ASSAY_LOG=debug|info|warning|error sets it at
/// first use.
void set_log_level(LogLevel level);
[[nodiscard]] LogLevel log_level();
/// Prints "assay: warning: message" and a newline. Control characters become '_'; longer lines are
/// cut at 1 KiB.
void log_line(LogLevel level, std::string_view message);

}  // namespace assay
