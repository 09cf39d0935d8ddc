// SPDX-License-Identifier: Apache-2.0
// Asks the places in turn; the folder of the running program is that of /proc/self/exe.
#include "base/python_program.hpp"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <utility>

namespace assay {
namespace {

// "" when it cannot be told.
std::string folder_of_program() {
  char self[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof(self));
  if (size <= 0) return {};
  const std::string path(self, static_cast<size_t>(size));
  return path.substr(0, path.rfind('/') + 1);
}

std::string& own_python() {
  static std::string path;
  return path;
}

}  // namespace

void use_python_program(std::string path) { own_python() = std::move(path); }

std::string python_program() {
  if (const char* named = std::getenv("ASSAY_PYTHON"); named != nullptr && *named != '\0')
    return named;
  if (!own_python().empty()) return own_python();
  const std::string folder = folder_of_program();
  if (!folder.empty() && ::access((folder + "python3").c_str(), X_OK) == 0)
    return folder + "python3";
  return "python3";
}

}  // namespace assay
