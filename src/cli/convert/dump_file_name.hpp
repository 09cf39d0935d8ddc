// SPDX-License-Identifier: Apache-2.0
// Names of dump files that we make, and which files to look into; read by run/ge_names.hpp
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "run/folder.hpp"

namespace assay::cli {

/// Name of a file that we make ourselves: task and stream 0. What stands for something else in names becomes '_'.
[[nodiscard]] std::string dump_file_name(std::string_view op_type, std::string_view op_name,
                                         uint64_t time_us);

/// False for files that lie among dumps but are none, by their ending: .csv .txt .json .npy .tmp77 ...
[[nodiscard]] bool may_be_dump(std::string_view name);

/// What is met below a folder; `inside` is the path from there to the folder of the entry, without a slash at its ends.
struct FolderVisitor {
  std::function<void(const run::FolderEntry& file, const std::string& inside)> file;
  std::function<void(const std::string& sentence)> unreadable;  // a folder
  std::function<void(const std::string& sentence)>
      skipped;  // links to folders, pipes; may be empty
};
/// The files of a folder and of the folders in it, at most 64 deep. Links to folders are not followed.
void visit_files(const std::string& folder, const FolderVisitor& visitor);

}  // namespace assay::cli
