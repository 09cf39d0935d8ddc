// SPDX-License-Identifier: Apache-2.0
// The little of an ELF file that tells whether a library can be preloaded into a program.
// Layout: System V ABI, chapters 4 and 5 (<elf.h>); 64-bit little-endian files only.
#pragma once
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace assay::cli {

struct ElfProgram {
  uint16_t machine = 0;          // EM_X86_64 ...
  bool has_interpreter = false;  // false: statically linked, nothing can be preloaded
};

/// errors   BadMagic: no ELF file | Unsupported: 32 bits or big-endian | Truncated
[[nodiscard]] Result<ElfProgram> read_elf_program(ByteSpan file);

/// What the dynamic symbols of a library say about ATB's probe interface.
struct ProbeSymbols {
  bool any = false;  // a symbol of class atb::Probe
  // one of them passes strings of libstdc++'s newer ABI; the original looked for it with nm and
  // grep
  bool cxx11 = false;
  // The library for which this one is another name (DT_FILTER): it has the symbols.
  std::string filtee;
};

/// errors   those above; Invalid: no dynamic symbol table
[[nodiscard]] Result<ProbeSymbols> read_probe_symbols(ByteSpan file);

/// The machine that this program itself was built for (EM_X86_64 ...).
[[nodiscard]] uint16_t own_elf_machine();

}  // namespace assay::cli
