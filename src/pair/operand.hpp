// SPDX-License-Identifier: Apache-2.0
// What a side of a pair is made of when it is not one record as it stands: shards of several ranks
// put together, a part of a tensor, another order of its columns.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::pair {

enum class Merge : uint8_t {
  None,        // the first record alone
  Concat,      // along `axis`, in the order of `records`
  Interleave,  // each shard is cut into `blocks` equal pieces along `axis`; piece j of all shards,
               // then piece j + 1 of all: shards of a fused q-k-v or gate-up
  Sum,         // partial sums of a row-parallel product; added in fp64, stored as float32
  Pick,        // replicas: the first, after the others were checked against it
};
[[nodiscard]] std::string_view merge_name(Merge merge);  // "none" "cat" "interleave" "sum" "pick"

/// One change of a tensor's shape or order; applied in the order of Recipe::steps. Axes are counted
/// from 0, or from -1 for the last one backwards.
struct RecipeStep {
  enum class Kind : uint8_t {
    Select,  // index `first` of `axis`; the axis goes
    Range,   // [first, last) of `axis`
    // element i of `axis` becomes old element `order[i]`; indices may repeat or be left out
    Permute,
    Reshape,    // to `shape`; equal element count
    Transpose,  // axis i becomes old axis `order[i]`; every axis once
  };
  Kind kind = Kind::Range;
  int axis = 0;
  int64_t first = 0;
  int64_t last = 0;
  std::vector<int64_t> order = {};
  std::vector<int64_t> shape = {};
};

struct Recipe {
  /// Of one side, in numeric order of their ranks; [0] is the pair's.
  std::vector<size_t> records = {};
  Merge merge = Merge::None;
  int axis = 0;
  int blocks = 1;
  std::vector<RecipeStep> steps = {};
  std::string note = {};  // what the report says beside the row: "cat:1 of ranks 0,1"
  bool flat = false;      // the records are merged as lists of values, whatever their shapes
};

/// The tensor that a recipe makes. Without merging and with steps that are only selections the
/// result borrows the file; otherwise it is built in memory, or in an unlinked temporary file in
/// $TMPDIR when it is larger than 64 MiB, so that its pages can leave memory.
///
/// Concat and Interleave keep the element type and copy bytes. Sum gives float64 for float64,
/// float32 for other floats, complex128 or complex64 likewise, and exact int64 for integers.
///
/// errors  of run::load_tensor() | Invalid (shards that do not fit, an axis or index out of range)
///         | Unsupported (Sum of bits or booleans, an integer sum beyond 64 bits, packed 4-bit
///         values cut inside a byte) | NoSpace | Io
[[nodiscard]] Result<Tensor> load_operand(const run::Run& run, const Recipe& recipe);

/// A FRACTAL_NZ tensor in plain order: nd[h, n, c] = nz[h, c / C0, n, c % C0], padding cut off.
///
/// stored   [..., C1, N1, N0, C0] or [..., C1, N, C0] as in memory; a shape equal to `logical` is
///          taken for a payload without padding, with C0 = 32 bytes
/// logical  [..., N, C], not empty; memory has as many tiles as that needs
/// errors   Invalid (the shapes do not fit) | Unsupported (types of less than a byte)
[[nodiscard]] Result<Tensor> to_nd(const Tensor& stored, const Dims& logical);

/// A record's tensor in plain order.
struct PlainTensor {
  Tensor tensor;
  std::string note;  // what was done, for the report; empty when the file has plain order already
};

/// run::load_tensor(), and of a FRACTAL_NZ record the values in plain order when its true extents
/// are known: from the file's header, or else from the other side. Otherwise as stored, with a
/// note.
///
/// other   shape of the tensor it will be compared with; null when there is none
/// errors  of run::load_tensor() | NoSpace | Io
[[nodiscard]] Result<PlainTensor> load_plain(const run::TensorRecord& record, const Dims* other);
/// The same by run::load_unchecked().
[[nodiscard]] Result<PlainTensor> load_plain_unchecked(const run::TensorRecord& record,
                                                       const Dims* other);

}  // namespace assay::pair
