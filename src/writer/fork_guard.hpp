// SPDX-License-Identifier: Apache-2.0
// Which process we are in, at the price of one relaxed load.
#pragma once
#include <cstdint>

namespace assay::writer {

/// A number that differs between a process and the children it forks (DataLoader workers, daemons).
/// Whoever owns a file or a thread stores it at the start and does nothing at all once it has
/// changed: in the child the writer thread does not exist, mutexes may be locked for ever, and the
/// files belong to the parent.
[[nodiscard]] uint32_t fork_generation() noexcept;

}  // namespace assay::writer
