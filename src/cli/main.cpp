// SPDX-License-Identifier: Apache-2.0
// The native command `assay`: finds libassay.so, in which all of it is (cmake/offline_library.cmake),
// and calls it. Not linked with it: a wheel serves every Python, and only the name of the folder
// that pip puts packages into says which one it was.
#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
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

/// Below a folder that has bin, in this order: a build folder, where pip puts packages, and where
/// `pip install --target` does.
std::string find_library(const std::string& bin) {
  for (const char* pattern :
       {"../lib/assay/libassay.so", "../lib*/python3*/*-packages/assay/libassay.so",
        "../assay/libassay.so"}) {
    glob_t found{};
    std::string first;
    if (::glob((escaped(bin) + pattern).c_str(), 0, nullptr, &found) == 0)
      first = found.gl_pathv[0];
    ::globfree(&found);
    if (!first.empty()) return first;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string bin = own_folder();
  const std::string path = find_library(bin);
  if (path.empty()) {
    std::fprintf(stderr,
                 bin.empty()
                     ? "error: %s/proc/self/exe cannot be read: is /proc mounted?\n"
                     : "error: %s../: no libassay.so in lib/assay or in any Python's packages; "
                       "install assay-llm again\n",
                 bin.c_str());
    return 2;
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  using Main = int (*)(int, char**);
  const auto run =
      library == nullptr ? nullptr : reinterpret_cast<Main>(::dlsym(library, "assay_main"));
  if (run == nullptr) {
    std::fprintf(stderr, "error: %s\n", ::dlerror());
    return 2;
  }
  return run(argc, argv);
}
