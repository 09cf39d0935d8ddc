// SPDX-License-Identifier: Apache-2.0
// Every offset is checked against the file's size before it is read; no section is trusted.
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

/// A table of strings of the file.
Result<std::string_view> strings_at(ByteSpan file, const Elf64_Shdr& section) {
  if (section.sh_offset > file.size() || section.sh_size > file.size() - section.sh_offset)
    return fail(Errc::Truncated, "the ELF file ends early", section.sh_offset);
  return std::string_view(reinterpret_cast<const char*>(file.data()) + section.sh_offset,
                          section.sh_size);
}

/// The text at an offset of such a table; empty behind its end.
std::string_view text_at(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset);
  return rest.substr(0, rest.find('\0'));
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
  ProbeSymbols found;
  bool has_symbols = false;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section_at = [&](uint64_t index) {
      return read_at<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
    };
    ASSAY_TRY(const Elf64_Shdr section, section_at(i));
    if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_DYNAMIC) continue;
    ASSAY_TRY(const Elf64_Shdr strings, section_at(section.sh_link));
    ASSAY_TRY(const std::string_view table, strings_at(file, strings));
    if (section.sh_type == SHT_DYNAMIC) {
      for (uint64_t entry = 0; entry < section.sh_size / sizeof(Elf64_Dyn); ++entry) {
        ASSAY_TRY(const auto tag,
                  read_at<Elf64_Dyn>(file, section.sh_offset + entry * sizeof(Elf64_Dyn)));
        if (tag.d_tag == DT_FILTER) found.filtee = text_at(table, tag.d_un.d_val);
      }
      continue;
    }
    has_symbols = true;
    for (uint64_t symbol = 0; symbol < section.sh_size / sizeof(Elf64_Sym); ++symbol) {
      ASSAY_TRY(const auto entry,
                read_at<Elf64_Sym>(file, section.sh_offset + symbol * sizeof(Elf64_Sym)));
      const std::string_view name = text_at(table, entry.st_name);
      found.any |= name.starts_with("_ZN3atb5Probe");
      found.cxx11 |= name.find("Probe") != std::string_view::npos &&
                     name.find("cxx11") != std::string_view::npos;
    }
  }
  if (!has_symbols) return fail(Errc::Invalid, "the ELF file has no dynamic symbol table");
  return found;
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
