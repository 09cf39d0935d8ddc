// SPDX-License-Identifier: Apache-2.0
// Which library is preloaded into the program, and which string ABI its ATB has.
#pragma once
#include <optional>
#include <string>

#include "base/result.hpp"

namespace assay::cli {

/// lib/assay beside our own bin/: probes, and what is put in front of Python's path. Empty when it
/// is not there.
[[nodiscard]] std::string own_library_folder();

struct ProbeLibrary {
  std::string path;  // absolute
  bool ours = true;
};

/// In this order: `asked` (the option), ASSAY_PROBE_LIBRARY, our own package, the CANN toolkit's
/// probe for `cxx11`.
/// errors   NotFound | Permission, with the original's sentences for the toolkit's library
/// source   Ascend/msit: msit_llm/dump/initial.py
[[nodiscard]] Result<ProbeLibrary> find_probe_library(const std::string& asked, bool cxx11);

/// Whether the installed ATB passes strings of libstdc++'s newer ABI, from its own library, else
/// from the folder's name (cxx_abi_0, cxx_abi_1); nothing when ATB_HOME_PATH is not set or tells
/// neither.
[[nodiscard]] std::optional<bool> atb_uses_cxx11_strings();

}  // namespace assay::cli
