// SPDX-License-Identifier: Apache-2.0
// Pairs that the user named inside the golden model with dump_data(): golden_tensor/metadata.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

struct ManualMapping {
  struct Pair {
    size_t golden = 0;  // index into golden.records
    size_t mine = 0;
    int64_t data_id = 0;
  };
  Run golden;  // one record an entry, Layout::Manual; step is the token id
  Run mine;
  std::vector<Pair> pairs;  // in file order
};

/// True when `golden_path` is, or holds, a golden_tensor folder with metadata.json.
[[nodiscard]] bool is_manual_mapping(const std::string& golden_path);

/// A missing or unreadable file becomes a record with `problem`; an entry that is no list of two
/// paths a warning of `golden`. Paths of a dump that was moved are looked up beside metadata.json.
/// errors  Invalid (no JSON object), with the byte offset
[[nodiscard]] Result<ManualMapping> read_manual_mapping(const std::string& golden_path);

}  // namespace assay::run
