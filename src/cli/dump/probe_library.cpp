// SPDX-License-Identifier: Apache-2.0
// The probe is the first of: --probe-library, ASSAY_PROBE_LIBRARY, the one installed with us, the
// toolkit's. A named one must export ATB's probe interface and fit this processor.
#include "cli/dump/probe_library.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "base/mapped_file.hpp"
#include "cli/command.hpp"
#include "cli/dump/elf.hpp"

namespace assay::cli {
namespace {

constexpr const char* kOwnProbe = "libatb_probe.so";

bool is_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  std::string out = real == nullptr ? path : std::string(real);
  std::free(real);
  return out;
}

/// A library that the loader takes apart at blanks and colons cannot be preloaded.
Result<ProbeLibrary> preloadable(const std::string& path, bool ours) {
  if (path.find_first_of(" :\t\n") != std::string::npos) {
    return fail(Error{
        Errc::Invalid, path, std::nullopt,
        "LD_PRELOAD cannot hold this path: it has blanks or colons; install assay elsewhere"});
  }
  return ProbeLibrary{path, ours};
}

/// The probe that `path` is, or for which it is another name. A library that the loader would
/// refuse, or that interposes nothing, is told apart before the program starts.
Result<std::string> probe_of(const std::string& path, bool follows_names = true) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(const ElfProgram program, in_file(path, read_elf_program(file.bytes())));
  if (program.machine != own_elf_machine())
    return fail(Error{Errc::Unsupported, path, std::nullopt, "is a library for another processor"});
  ASSAY_TRY(const ProbeSymbols symbols, in_file(path, read_probe_symbols(file.bytes())));
  if (follows_names && !symbols.filtee.empty() && !symbols.any) {
    const std::string real = real_path(path);  // it stands for one beside the file, not the link
    return probe_of(real.substr(0, real.rfind('/') + 1) + symbols.filtee, false);
  }
  if (!symbols.any) {
    return fail(Error{Errc::Invalid, path, std::nullopt,
                      "is no probe library: it does not export ATB's probe interface"});
  }
  return path;
}

Result<ProbeLibrary> named_library(const std::string& path, const char* source) {
  if (!is_file(path))
    return fail(Error{Errc::NotFound, path, std::nullopt,
                      std::string("no such probe library (") + source + ")"});
  ASSAY_TRY(const std::string probe, probe_of(path));
  return preloadable(real_path(probe), false);
}

Result<ProbeLibrary> toolkit_library(bool cxx11) {
  std::string root = environment("ASCEND_TOOLKIT_HOME");
  if (root.empty()) root = "/usr/local/Ascend/ascend-toolkit/latest";
  struct stat info{};
  if (::stat(root.c_str(), &info) != 0) {
    return fail(Error{
        Errc::NotFound, root, std::nullopt,
        "cann_path is invalid, please install cann-toolkit and set the environment variables."});
  }
  const std::string name = cxx11 ? "libatb_probe_abi1.so" : "libatb_probe_abi0.so";
  const std::string path = root + "/tools/ait_backend/dump/" + name;
  if (::lstat(path.c_str(), &info) != 0) {
    return fail(
        Error{Errc::NotFound, path, std::nullopt,
              name + " is not found in " + root + ". Try installing the latest cann-toolkit"});
  }
  const bool owned = ::geteuid() == 0 || info.st_uid == ::geteuid();
  if (!S_ISREG(info.st_mode) || !owned || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
      ::access(path.c_str(), R_OK) != 0) {
    return fail(Error{Errc::Permission, path, std::nullopt,
                      name + " is illegal, group or others writable file stat is not permitted"});
  }
  return preloadable(path, false);
}

}  // namespace

std::string own_library_folder() {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (size <= 0) return {};
  self[size] = '\0';
  std::string folder(self);
  folder.resize(folder.rfind('/'));
  folder.resize(std::min(folder.rfind('/'), folder.size()));
  folder += "/lib/assay";
  return is_file(folder + "/" + kOwnProbe) ? folder : std::string();
}

Result<ProbeLibrary> find_probe_library(const std::string& asked, bool cxx11) {
  if (!asked.empty()) return named_library(asked, "--probe-library");
  if (const std::string named = environment("ASSAY_PROBE_LIBRARY"); !named.empty())
    return named_library(named, "ASSAY_PROBE_LIBRARY");
  if (const std::string own = own_library_folder(); !own.empty())
    return preloadable(own + "/" + kOwnProbe, true);
  return toolkit_library(cxx11);
}

std::optional<bool> atb_uses_cxx11_strings() {
  const std::string home = environment("ATB_HOME_PATH");
  if (home.empty()) return std::nullopt;
  if (const Result<MappedFile> library = MappedFile::open(home + "/lib/libatb.so")) {
    if (const Result<ProbeSymbols> symbols = read_probe_symbols(library->bytes()))
      return symbols->cxx11;
  }
  if (home.find("cxx_abi_1") != std::string::npos) return true;
  if (home.find("cxx_abi_0") != std::string::npos) return false;
  return std::nullopt;
}

}  // namespace assay::cli
