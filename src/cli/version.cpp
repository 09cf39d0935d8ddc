// SPDX-License-Identifier: Apache-2.0
// The short and the long text of `assay --version`: build, system, glibc, processor and components.
#include "cli/version.hpp"

#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <string_view>

#include "build_facts.hpp"

namespace assay::cli {
namespace {

/// The level of the x86-64 psABI that this processor has.
std::string_view processor_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
  if (__builtin_cpu_supports("x86-64-v2")) return "x86-64-v2 (SSE4.2)";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64 (NEON)";
#else
  return "unknown";
#endif
}

void add_line(std::string* text, std::string_view name, std::string_view value) {
  text->append(name).append(value.empty() ? "unknown" : value).append("\n");
}

}  // namespace

std::string version_text() { return "assay " ASSAY_VERSION "\n"; }

std::string long_version_text() {
  std::string text = version_text();
  add_line(&text, "commit:     ", kCommit);
  add_line(&text, "compiler:   ", kCompiler);
  struct utsname system{};
  ::uname(&system);
  add_line(&text, "system:     ",
           std::string(system.sysname) + " " + system.release + " " + system.machine);
  const std::string_view oldest = ASSAY_GLIBC;
  add_line(&text, "glibc:      ",
           std::string(::gnu_get_libc_version()) +
               (oldest.empty() ? "" : ", built for " + std::string(oldest) + " and later"));
  add_line(&text, "processor:  ", processor_level());
  std::string components;
  for (const std::string_view component : kComponents)
    components.append(components.empty() ? "" : ", ").append(component);
  add_line(&text, "components: ", components);
  return text;
}

}  // namespace assay::cli
