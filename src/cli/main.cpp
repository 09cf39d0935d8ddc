// SPDX-License-Identifier: Apache-2.0
// The native command `assay`: finds libassay.so, in which all of it is (cmake/offline_library.cmake),
// and calls it. Not linked with it: a wheel serves every Python, and only the name of the folder
// that pip puts packages into says which one it was.
#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

/// Of this program, links resolved; empty where /proc is missing.
std::string own_folder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string file(path, size > 0 ? static_cast<size_t>(size) : 0);
  return file.substr(0, file.rfind('/') + 1);
}

/// A path as a pattern that means it alone.
std::string escaped(const std::string& path) {
  std::string pattern;
  for (const char c : path) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

/// What was found on the way to the library.
struct Search {
  void* library = nullptr;  // of this program's version
  std::string problem;      // with the last one that was found and is none
};

/// Below a folder that has bin, in this order: a build folder, where pip puts packages, and where
/// `pip install --target` does. Two Pythons of one prefix may have two versions of the package.
Search find_library(const std::string& bin) {
  Search search;
  for (const char* pattern :
       {"../lib/assay/libassay.so", "../lib*/python3*/*-packages/assay/libassay.so",
        "../assay/libassay.so"}) {
    glob_t found{};
    if (::glob((escaped(bin) + pattern).c_str(), 0, nullptr, &found) != 0) found.gl_pathc = 0;
    for (size_t i = 0; i < found.gl_pathc && search.library == nullptr; ++i) {
      void* const library = ::dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        search.problem = ::dlerror();
        continue;
      }
      const auto* version = static_cast<const char*>(::dlsym(library, "assay_version"));
      if (version != nullptr && std::strcmp(version, ASSAY_VERSION) == 0) {
        search.library = library;
      } else {
        search.problem = std::string(found.gl_pathv[i]) + ": is of assay " +
                         (version != nullptr ? version : "?") + ", the command of " ASSAY_VERSION;
        ::dlclose(library);
      }
    }
    ::globfree(&found);
    if (search.library != nullptr) return search;
  }
  return search;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string bin = own_folder();
  const Search search = find_library(bin);
  if (search.library == nullptr) {
    std::string problem = search.problem;
    if (bin.empty()) problem = "/proc/self/exe cannot be read: is /proc mounted?";
    if (problem.empty())
      problem = bin +
                "../: no libassay.so in lib/assay or in any Python's packages; "
                "install assay-llm again";
    std::fprintf(stderr, "error: %s\n", problem.c_str());
    return 2;
  }
  using Main = int (*)(int, char**);
  return reinterpret_cast<Main>(::dlsym(search.library, "assay_main"))(argc, argv);
}
