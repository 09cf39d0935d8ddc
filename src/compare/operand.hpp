// SPDX-License-Identifier: Apache-2.0
// What a side of a pair is made of when it is not one record as it stands: shards of several ranks put
// together, a part of a tensor, another order of its columns.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::compare {

enum class Merge : uint8_t {
  None,        // the first record alone
  Concat,      // along `axis`, in the order of `records`
  Interleave,  // each shard is cut into `blocks` equal pieces along `axis`; piece j of all shards,
               // then piece j + 1 of all: shards of a fused q-k-v or gate-up
  Sum,         // partial sums of a row-parallel product; added in fp64, stored as float32
  Pick,        // replicas: the first, after the others were checked against it
};
[[nodiscard]] std::string_view merge_name(Merge merge);  // "none" "cat" "interleave" "sum" "pick"

/// One change of a tensor's shape or order; applied in the order of Recipe::steps.
struct Step {
  enum class Kind : uint8_t {
    Select,   // index `first` of `axis`; the axis goes
    Range,    // [first, last) of `axis`
    Permute,  // element i of `axis` becomes old element `order[i]`
    Reshape,  // to `shape`; equal element count
  };
  Kind kind = Kind::Range;
  int axis = 0;
  int64_t first = 0;
  int64_t last = 0;
  std::vector<int64_t> order = {};
  std::vector<int64_t> shape = {};
};

struct Recipe {
  std::vector<size_t> records;  // of one side, in numeric order of their ranks; [0] is the pair's
  Merge merge = Merge::None;
  int axis = 0;
  int blocks = 1;
  std::vector<Step> steps;
  std::string note;  // what the report says beside the row: "cat:1 of ranks 0,1"
};

/// The tensor that a recipe makes. Without merging and with steps that are only selections the result
/// borrows the file; otherwise it is built in memory, or in an unlinked temporary file when it is
/// larger than 64 MiB, so that its pages can leave memory.
///
/// errors  of run::load_tensor() | Invalid (shards that do not fit, an axis or index out of range) |
///         Unsupported (Sum of integers of 64 bits, of text) | NoSpace
[[nodiscard]] Result<Tensor> load_operand(const run::Run& run, const Recipe& recipe);

}  // namespace assay::compare
