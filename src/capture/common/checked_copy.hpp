// SPDX-License-Identifier: Apache-2.0
// Copies of memory that may not be there: the kernel reads it and says no where a load of ours
// would end the host.
#pragma once
#include <cstddef>
#include <cstdint>

namespace assay::capture {

/// False when not all of `size_bytes` can be read; `target` then has some of them.
bool copy_checked(const void* source, uint64_t size_bytes, std::byte* target);

/// The second way of copy_checked(), for where process_vm_readv() is forbidden (Docker before 19.03
/// and other sandboxes) or missing (qemu-user): through a pipe, a page at a time.
bool copy_through_pipe(const void* source, uint64_t size_bytes, std::byte* target);

}  // namespace assay::capture
