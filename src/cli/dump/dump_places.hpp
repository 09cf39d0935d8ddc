// SPDX-License-Identifier: Apache-2.0
// Where a dump goes and under which name, checked before the program starts.
#pragma once
#include <cstdint>
#include <ctime>
#include <string>

#include "base/result.hpp"
#include "cli/dump/dump_request.hpp"

namespace assay::cli {

inline constexpr uint64_t kLeastFreeBytes = 2147483648;  // as the original: 2 GB must be free

struct DumpPlaces {
  std::string output;  // absolute, resolved, without trailing slash
  // "msit_dump_20260105_100000", "ait_dump": the ATB dump root below `output`
  std::string dump_name;
  std::string timestamp;    // "20260105_100000"; empty under the name ait
  std::string config_path;  // absolute; empty without one
  std::string scratch;  // `output`/<our pid>: lists that post-processing reads; removed at the end
};

/// Resolves and checks the folder and the configuration file, and chooses a dump root that no other
/// run has.
///
/// errors   Usage never; NotFound | Permission | NoSpace | Invalid | Io with the path and a
///          sentence
/// source   Ascend/msit: msit_llm/dump/initial.py, components/utils/file_open_check.py
[[nodiscard]] Result<DumpPlaces> choose_places(const DumpRequest& request);

/// "20260105_100000": UTC; under the old names local time, as the original has it.
[[nodiscard]] std::string time_in_name(DumpName name, std::time_t time);

/// The path checks of the original: exists, is of the kind, not a link, ours, not writable by
/// others, and without `any_name` of plain characters.
enum class PathUse : uint8_t { WriteFolder, ReadFile };
[[nodiscard]] Status check_path(const std::string& path, PathUse use, bool any_name = false);

}  // namespace assay::cli
