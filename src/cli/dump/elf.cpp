// SPDX-License-Identifier: Apache-2.0
#include "cli/dump/elf.hpp"

#include <elf.h>

#include <cstring>
#include <string_view>

namespace assay::cli {
namespace {

template <typename T>
Result<T> read_at(ByteSpan file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T))
    return fail(Errc::Truncated, "the ELF file ends early", offset);
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

Result<Elf64_Ehdr> read_header(ByteSpan file) {
  if (file.size() < SELFMAG || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0)
    return fail(Errc::BadMagic, "no ELF file");
  ASSAY_TRY(const auto header, read_at<Elf64_Ehdr>(file, 0));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return fail(Errc::Unsupported, "an ELF file that is not 64-bit little-endian");
  return header;
}

}  // namespace

Result<ElfProgram> read_elf_program(ByteSpan file) {
  ASSAY_TRY(const Elf64_Ehdr header, read_header(file));
  ElfProgram program{header.e_machine, false};
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ASSAY_TRY(const auto segment,
              read_at<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr)));
    program.has_interpreter |= segment.p_type == PT_INTERP;
  }
  return program;
}

Result<ProbeSymbols> read_probe_symbols(ByteSpan file) {
  ASSAY_TRY(const Elf64_Ehdr header, read_header(file));
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    ASSAY_TRY(const auto section,
              read_at<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr)));
    if (section.sh_type != SHT_DYNSYM) continue;
    ASSAY_TRY(const auto names,
              read_at<Elf64_Shdr>(file, header.e_shoff + section.sh_link * sizeof(Elf64_Shdr)));
    if (names.sh_offset > file.size() || names.sh_size > file.size() - names.sh_offset)
      return fail(Errc::Truncated, "the ELF file ends early", names.sh_offset);
    const std::string_view table(reinterpret_cast<const char*>(file.data()) + names.sh_offset,
                                 names.sh_size);
    ProbeSymbols found;
    for (uint64_t symbol = 0; symbol < section.sh_size / sizeof(Elf64_Sym); ++symbol) {
      ASSAY_TRY(const auto entry,
                read_at<Elf64_Sym>(file, section.sh_offset + symbol * sizeof(Elf64_Sym)));
      if (entry.st_name >= table.size()) continue;
      const std::string_view rest = table.substr(entry.st_name);
      const std::string_view name = rest.substr(0, rest.find('\0'));
      found.any |= name.starts_with("_ZN3atb5Probe");
      found.cxx11 |= name.find("Probe") != std::string_view::npos &&
                     name.find("cxx11") != std::string_view::npos;
    }
    return found;
  }
  return fail(Errc::Invalid, "the ELF file has no dynamic symbol table");
}

uint16_t own_elf_machine() {
#if defined(__x86_64__)
  return EM_X86_64;
#elif defined(__aarch64__)
  return EM_AARCH64;
#else
  return EM_NONE;
#endif
}

}  // namespace assay::cli
