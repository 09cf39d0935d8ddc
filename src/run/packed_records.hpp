// SPDX-License-Identifier: Apache-2.0
// Records as columns of bytes, to be kept in a file or sent to another process: a fifth of the
// text of their lines, and read ten times as fast.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "run/payload_check.hpp"
#include "run/record.hpp"

namespace assay::run {

/// Everything that the records say, but for tensors that are made (TensorRecord::made) and known
/// choices. Which records share a check of their payload is kept; what a check has found is not.
///
///   u64 records
///   columns  in a fixed order: u8 bytes of a value (0, 1, 2, 4, 8), i64 smallest value, then
///            records times the difference to it, little-endian; texts and shapes by number
///   texts    u32 count, count times u32 size, then their bytes
///   shapes   u32 count, count times (u32 axes, axes times i64)
///   numbers  f64 minimum, maximum, mean, l2 of each record that has statistics;
///            i64 NaN, +inf, -inf of each that has some; u64 high, low of each that has a digest;
///            from a multiple of 64 on, f32 x 16 of each that has a sketch
///
class PackedChecks;

struct PackOptions {
  /// What a name of a file (of payloads and of statistics) is packed as; null: as it is.
  std::function<InternedText(InternedText file)> file;
  /// Of these and other records, which may share checks and are unpacked together; null: of these.
  const PackedChecks* checks = nullptr;
};

/// put   takes the bytes, piece by piece: all together need not be in memory
void pack_records(std::span<const TensorRecord> records, const PackOptions& options,
                  const std::function<void(std::string_view bytes)>& put);
[[nodiscard]] std::string pack_records(std::span<const TensorRecord> records,
                                       const PackOptions& options = {});

/// Numbers of the different checks of payloads, in the order in which they are met.
class PackedChecks {
 public:
  explicit PackedChecks(std::span<const TensorRecord> records);
  /// -1: it has no check.
  [[nodiscard]] int64_t number_of(const TensorRecord& record) const;

 private:
  [[nodiscard]] size_t place_of(const TensorRecord& record) const;

  // As many as records, so no table of nodes.
  std::vector<PayloadCheck> all_;
  std::vector<uint32_t> numbers_;
};

struct UnpackOptions {
  /// What a name of a file (of payloads and of statistics) becomes; called once for each.
  std::function<InternedText(InternedText file)> file;
  /// The checks of what was unpacked before from records that were packed together; not null.
  std::shared_ptr<PayloadChecks> checks;
  /// Sketches are left in `packed`, which then outlives the records, instead of being copied.
  bool borrow_sketches = false;
};

/// Appends the records to `out`, which has them as they were packed.
/// packed   aligned to 4 bytes when sketches are borrowed; nothing in it is trusted
/// errors   Invalid | Truncated, with the offset; `out` is then as it was
[[nodiscard]] Status unpack_records(ByteSpan packed, const UnpackOptions& options,
                                    std::vector<TensorRecord>* out);

}  // namespace assay::run
