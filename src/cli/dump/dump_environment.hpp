// SPDX-License-Identifier: Apache-2.0
// What the program's environment carries to the probes inside it.   Table: docs/commands/dump.md
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/dump/child_process.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/dump_request.hpp"

namespace assay::cli {

struct DumpLibraries {
  std::string probe;            // the ATB probe library; empty: none is preloaded
  std::string python_folder;    // holds sitecustomize.py; empty: PyTorch is not captured
  std::string ggml_probe = {};  // the probe library of ggml schedulers; empty: none is preloaded
};

/// Every variable that is set or removed. Variables of an earlier run that this request does not
/// ask for are removed, so that they cannot survive into it.
/// preload, python_path   values of LD_PRELOAD and PYTHONPATH now, kept behind ours
[[nodiscard]] std::vector<EnvironmentChange> dump_environment(const DumpRequest& request,
                                                              const DumpPlaces& places,
                                                              const DumpLibraries& libraries,
                                                              std::string_view preload,
                                                              std::string_view python_path);

/// "debug" ... "critical" as the probe's number, 0 to 5.
[[nodiscard]] std::string probe_log_level(std::string_view name);

/// `library` in front of what is preloaded already.
[[nodiscard]] std::string preload_value(std::string_view library, std::string_view before);

}  // namespace assay::cli
