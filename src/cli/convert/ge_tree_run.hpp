// SPDX-License-Identifier: Apache-2.0
// A native run of compiled graphs as the layout of a file an operator would have left it:
// docs/formats/ge-tree.md
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::cli {

/// Writes {out}/worldsize{W}_global_rank{R}/{time}/{device}/graph_{N}/{N}/{step}/ with a dump file
/// or a table for each operator, and the texts and graphs.json of each rank. The bytes are those
/// that the capture would have written, but for the time stamps.
///
/// chosen    indices of records
/// returns   a sentence for each operator that could not be written; the others are
/// errors    Usage (no run of compiled graphs, or without its texts) | Interrupted | NoSpace |
///           Permission | Io
[[nodiscard]] Result<std::vector<std::string>> write_ge_tree_run(const run::Run& run,
                                                                 const std::vector<size_t>& chosen,
                                                                 const std::string& out);

}  // namespace assay::cli
