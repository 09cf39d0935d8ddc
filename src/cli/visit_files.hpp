// SPDX-License-Identifier: Apache-2.0
// The files of a folder and of all folders in it.
#pragma once
#include <functional>
#include <string>

#include "run/folder.hpp"

namespace assay::cli {

/// What is met below a folder; `inside` is the path from there to the folder of the entry, without
/// a slash at its ends.
struct FolderVisitor {
  std::function<void(const run::FolderEntry& file, const std::string& inside)> file;
  std::function<void(const std::string& sentence)> unreadable;  // a folder
  std::function<void(const std::string& sentence)>
      skipped;  // links to folders, pipes; may be empty
};
/// The files of a folder and of the folders in it, at most 64 deep. Links to folders are not
/// followed.
void visit_files(const std::string& folder, const FolderVisitor& visitor);

}  // namespace assay::cli
