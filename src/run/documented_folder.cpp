// SPDX-License-Identifier: Apache-2.0
// A folder of the documents is known by its name (dump_*, data_dump, gm_*_dump) and replaced only
// where it is missing and today's folder lies in the same place.
#include "run/documented_folder.hpp"

#include <filesystem>

#include "base/file_source.hpp"
#include "base/paths.hpp"
#include "run/folder.hpp"

namespace assay::run {

std::string documented_folder(const std::string& path) {
  if (is_elsewhere(path) || exists(path)) return path;
  std::filesystem::path named(path);
  if (!named.has_filename()) named = named.parent_path();  // "dump/data_dump/"
  const std::string name = named.filename().string();
  const bool is_fx = name == "data_dump" || (name.starts_with("gm_") && name.ends_with("_dump"));
  if (!is_fx && !name.starts_with("dump_")) return path;
  const std::filesystem::path folder = is_fx ? "msit_fx_dump" : "msit_ge_dump";
  const std::filesystem::path parent = named.parent_path();
  const std::string found = (parent.filename() == folder ? parent : parent / folder).string();
  return is_folder(found) ? found : path;
}

}  // namespace assay::run
