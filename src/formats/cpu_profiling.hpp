// SPDX-License-Identifier: Apache-2.0
// What ATB reports about the host side of its operations, as the probe leaves it
// (operation_statistic_<n>.txt) and as the dump command merges it afterwards.
// Lines and columns: docs/formats/cpu-profiling.md
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::formats {

/// The last report of each kind about one operation.
struct CpuStatistic {
  std::string op_name;  // "LinearOperation_4"
  std::string execute;  // "totalTime:188, streamSyncTime:0, ...": as reported; empty when none came
  std::string setup;
};

/// Lines "[name]:text"; of each operation the last text with kernelExecuteTime:<digits> and the
/// last with runnerSetupTime:<digits>. Operations in the order of their first line; other lines do
/// not count.
[[nodiscard]] std::vector<CpuStatistic> read_cpu_statistics(std::string_view text);

/// True when there is at least one number and every time and count is 0: some releases of the
/// library reset their statistics before they report them.
[[nodiscard]] bool all_zero(const std::vector<CpuStatistic>& statistics);

/// The table that replaces the text: opname, then execute_<key> and setup_<key> sorted by name;
/// missing cells empty; lines end with "\n".
/// errors    Invalid: no line of the text is a statistic
[[nodiscard]] Result<std::string> cpu_profiling_csv(std::string_view text);

/// The older form, which stays a .txt: "<op>:\n[execute] <text>\n[setup] <text>\n\n" an operation.
[[nodiscard]] std::string cpu_profiling_text(std::string_view text);

}  // namespace assay::formats
