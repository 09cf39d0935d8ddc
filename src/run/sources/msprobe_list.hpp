// SPDX-License-Identifier: Apache-2.0
// One dump.json of msprobe, without the folders around it.   docs/formats/msprobe.md
#pragma once
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run::sources {

inline constexpr size_t kMaxMsprobeJsonDepth = 256;

/// What a key of dump.json or construct.json names.
struct MsprobeCall {
  std::string node;     // "layers.0.fc", "Functional.linear.forward"
  std::string op_type;  // "Linear", "linear"
  uint32_t call = 0;
  bool is_module = false;  // a module's forward, named by its path
};

/// "Module.layers.0.fc.Linear.forward.2", "Functional.linear.7.forward". A name of another form is
/// a node by itself.
[[nodiscard]] MsprobeCall parse_msprobe_call(std::string_view name);

/// Where a list belongs in its run.
struct MsprobePlace {
  std::string list_path;    // of the list itself
  std::string data_folder;  // with the files that data_name names
  std::string step_name = "0";
  int64_t step = 0;
  int rank = 0;
};

/// Appends the records of a list, numbered in the order in which the calls returned, and its task,
/// level and framework to the properties.
/// errors    Invalid | Truncated | TooLarge with byte offset: no JSON, or no object with "data"
[[nodiscard]] Status read_msprobe_list(std::string_view text, const MsprobePlace& place, Run* run);

}  // namespace assay::run::sources
