// SPDX-License-Identifier: Apache-2.0
// CRC-32 as zip and gzip use it (polynomial 0x04C11DB7, reflected, initial value and final xor
// 0xFFFFFFFF), at memory speed: a .pth file carries the CRC of its whole payload.
#pragma once
#include "base/bytes.hpp"

namespace assay::formats {

/// CRC of `bytes` appended to data whose CRC is `so_far` (0 for none): the contract of zlib's
/// crc32(). Folds with carry-less multiplication where the CPU has it, otherwise reads tables; the
/// same value either way.
[[nodiscard]] uint32_t crc32(ByteSpan bytes, uint32_t so_far = 0);

/// The same by table look-ups alone: what runs where the CPU has nothing better.
[[nodiscard]] uint32_t crc32_by_table(ByteSpan bytes, uint32_t so_far = 0);

/// The definition, one bit at a time: the twin that tests hold crc32() against.
[[nodiscard]] uint32_t crc32_plain(ByteSpan bytes, uint32_t so_far = 0);

}  // namespace assay::formats
