// SPDX-License-Identifier: Apache-2.0
// The little of an ELF file that tells whether a library can be preloaded into a program.
// Layout: System V ABI, chapters 4 and 5 (<elf.h>); 64-bit little-endian files only.
#pragma once
#include <cstdint>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace assay::cli {

struct ElfProgram {
  uint16_t machine = 0;          // EM_X86_64 ...
  bool has_interpreter = false;  // false: statically linked, nothing can be preloaded
};

/// errors   BadMagic: no ELF file | Unsupported: 32 bits or big-endian | Truncated
[[nodiscard]] Result<ElfProgram> read_elf_program(ByteSpan file);

/// Whether a dynamic symbol's name holds both "Probe" and "cxx11": the mark of libstdc++'s newer string ABI, which the
/// original looked for with nm and grep.
/// errors   those above; Invalid: no dynamic symbol table
[[nodiscard]] Result<bool> probe_uses_cxx11_strings(ByteSpan file);

}  // namespace assay::cli
