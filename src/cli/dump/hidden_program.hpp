// SPDX-License-Identifier: Apache-2.0
// Programs that our probes cannot get into, told by how they are started and by what is in their
// file.
#pragma once
#include <string>

#include "base/bytes.hpp"
#include "cli/dump/dump_request.hpp"

namespace assay::cli {

/// One sentence when the command takes our variables away from the program: "env -i", "python -I".
/// Empty otherwise.
[[nodiscard]] std::string hidden_from_probes(const DumpRequest& request);

/// Whether a program carries ggml in itself instead of loading it: its own calls pass nobody.
[[nodiscard]] bool holds_ggml(ByteSpan program);

}  // namespace assay::cli
