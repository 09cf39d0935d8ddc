// SPDX-License-Identifier: Apache-2.0
// Where the parts of an ATB dump are, for every version of its layout.   docs/formats/atb-tree.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace assay::run::sources {

/// Tensors of one process: {device}_{pid}/{run count}/{id}_{operation}/...
struct AtbProcess {
  int64_t device = -1;
  int64_t process = -1;
  std::string path;       // of the folder {device}_{pid}
  std::string only_step;  // the user named this run count; empty: all
};

struct AtbLocation {
  std::string root;  // manifest.json, probe_summary_*.json; empty when the dump has no such folder
  std::string boundary;                   // real path that links may not leave
  std::vector<AtbProcess> processes;      // by device, then process
  std::vector<std::string> list_folders;  // that hold layer/, model/, operation_io_tensors/
  bool named_below_root = false;  // the user named a part of the dump: the rest stays unread
};

/// Nothing: `path` is no ATB dump, no part of one, and holds none.
/// errors  Usage: holds several runs, name one of them
[[nodiscard]] std::optional<Result<AtbLocation>> find_atb_tree(const std::string& path);

}  // namespace assay::run::sources
