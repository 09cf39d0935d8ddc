// SPDX-License-Identifier: Apache-2.0
// ATB's tensor files: a text header of name=value lines, then raw bytes; also the records without data (description
// only, statistics).   Bytes: docs/formats/atb-bin.md
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "tensor/dims.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

struct AtbAttribute {
  std::string_view name;
  std::string_view value;
};

/// The text in front of the payload: $Version, $Object.Count, $Object.Length, the attributes in the order given,
/// $Object.data when there is a payload, $End.
/// payload_bytes   nothing for a record without object: description only, statistics
[[nodiscard]] std::string atb_bin_header(std::span<const AtbAttribute> attributes,
                                         std::optional<uint64_t> payload_bytes);

}  // namespace assay::formats
