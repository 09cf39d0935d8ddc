// SPDX-License-Identifier: Apache-2.0
// Goes down the folders in the order of their listing. Links to folders are not followed, and depth
// is bounded, so that a loop cannot hold it.
#include "cli/visit_files.hpp"

namespace assay::cli {
namespace {

constexpr int kMaxFolderDepth = 64;

void visit(const std::string& folder, const std::string& boundary, const std::string& inside,
           int depth, const FolderVisitor& visitor) {
  const auto entries = run::list_folder(folder, boundary);
  if (!entries) return visitor.unreadable(entries.error().describe());
  const auto skip = [&](const run::FolderEntry& entry, const std::string& why) {
    if (visitor.skipped) visitor.skipped(entry.path + ": " + why);
  };
  for (const run::FolderEntry& entry : *entries) {
    if (entry.kind == run::FolderEntry::Kind::File) {
      visitor.file(entry, inside);
    } else if (entry.kind == run::FolderEntry::Kind::Unusable) {
      skip(entry, entry.problem);
    } else if (entry.is_link) {
      skip(entry, "linked folders are not followed");
    } else if (depth == kMaxFolderDepth) {
      skip(entry, "folders are nested deeper than 64");
    } else {
      visit(entry.path, boundary, inside + (inside.empty() ? "" : "/") + entry.name, depth + 1,
            visitor);
    }
  }
}

}  // namespace

void visit_files(const std::string& folder, const FolderVisitor& visitor) {
  visit(folder, run::real_path(folder), "", 0, visitor);
}

}  // namespace assay::cli
