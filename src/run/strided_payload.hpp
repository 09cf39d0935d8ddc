// SPDX-License-Identifier: Apache-2.0
// Records whose elements lie in the bytes of another tensor as they lay in the host's memory: a
// transposed weight, a slice. Their payload is no C order of theirs, so the place alone does not
// say what they hold.   docs/formats/native.md, "Views"
#pragma once
#include <string_view>

#include "run/record.hpp"

namespace assay::run {

/// TensorRecord::memory_format of a record whose element (i, j ...) lies `strides` times (i, j ...)
/// behind the begin of its bytes. load_tensor() gives it in C order as any other.
inline constexpr std::string_view kStrided = "strided";

[[nodiscard]] inline bool is_strided(const TensorRecord& record) {
  return record.memory_format == kStrided;
}

/// Nothing but dtype and shape is needed to understand what load_tensor() gives.
[[nodiscard]] inline bool has_plain_values(const TensorRecord& record) {
  return record.memory_format.empty() || is_strided(record);
}

/// Both have bytes at exact places, and these are the same bytes in the same order. Types and
/// shapes may differ.
[[nodiscard]] inline bool has_same_payload(const TensorRecord& a, const TensorRecord& b) {
  if (!a.bytes || !b.bytes || !a.bytes->raw || !b.bytes->raw) return false;
  if (is_strided(a) != is_strided(b)) return false;
  if (is_strided(a) && !(a.shape == b.shape && a.strides == b.strides)) return false;
  return a.bytes->file == b.bytes->file && a.bytes->offset == b.bytes->offset &&
         a.bytes->size_bytes == b.bytes->size_bytes;
}

}  // namespace assay::run
