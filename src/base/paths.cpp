// SPDX-License-Identifier: Apache-2.0
// exists() also asks the source of a path that lies elsewhere; is_taken() looks at this machine
// alone and follows no link.
#include "base/paths.hpp"

#include <sys/stat.h>

#include "base/file_source.hpp"

namespace assay {

bool exists(const std::string& path) {
  if (const auto source = file_source(path)) return source->facts(path).has_value();
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_taken(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace assay
