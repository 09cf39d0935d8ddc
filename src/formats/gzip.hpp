// SPDX-License-Identifier: Apache-2.0
// Gzip files of one member (RFC 1952): the same bytes for the same content, and reading that is
// bounded.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace assay::formats {

/// True when the bytes begin as a gzip file does.
[[nodiscard]] bool is_gzip(ByteSpan file);

/// Without name and time stamp.
/// errors  Internal (no memory for zlib)
[[nodiscard]] Result<std::string> gzip(std::string_view content);

/// errors  BadMagic | Truncated | Invalid (damaged data, another check sum, something behind the
///         member) | TooLarge (more than max_bytes come out)
[[nodiscard]] Result<std::string> gunzip(ByteSpan file, uint64_t max_bytes);

}  // namespace assay::formats
