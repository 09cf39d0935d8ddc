// SPDX-License-Identifier: Apache-2.0
// What the dump command asks of the probe: one JSON object in ASSAY_GGML_DUMP.
//   Keys: docs/design/ggml-probe.md
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::capture::ggml {

/// First and last compute call of a range, both captured.
using StepRange = std::pair<uint64_t, uint64_t>;

struct Settings {
  std::string output;  // folder of the run, absolute
  bool all_steps = false;
  std::vector<StepRange> steps;  // used without all_steps
  bool first_only = false;       // the first graph that is no warm-up, too, and warm-ups before it
  std::vector<std::string> names;    // shell patterns of node names; empty: all
  std::vector<std::string> exclude;  // shell patterns of node names
  std::vector<std::string> types;    // beginnings of operator names in lower case; empty: all
  bool full = true;
  bool statistics = false;
  bool digest = false;
  bool inputs = true;         // content of the inputs that the host fills
  bool outputs = true;        // content of results
  bool weights = false;       // once, as step -1; from plain buffers
  bool caches = false;        // what nodes read and write of caches
  std::string report_folder;  // where ggml_<pid>.json goes; empty: nowhere
  std::string config_path;    // read again while the program runs; empty: none
  uint64_t queue_bytes = 64ull << 20;
  bool drop_when_full = false;
  bool synchronous = false;

  /// Bytes, statistics or digests: something that tensors are read for.
  [[nodiscard]] bool wants_content() const { return full || statistics || digest; }
  [[nodiscard]] bool wants_step(uint64_t step) const;
  [[nodiscard]] bool wants_node(std::string_view name, std::string_view op) const;
};

/// errors   Invalid: no JSON object, or no output folder
[[nodiscard]] Result<Settings> settings_from_json(std::string_view text);

/// "0,0,3,5" (pairs first,last), "all" or "none", as a configuration file gives it.
void set_range(std::string_view range, Settings* settings);

}  // namespace assay::capture::ggml
