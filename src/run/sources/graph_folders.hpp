// SPDX-License-Identifier: Apache-2.0
// What the two dumps of graph mode have in common: folders named after ranks, graphs and tokens, at
// depths that changed from version to version.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "run/folder.hpp"

namespace assay::run::sources {

inline constexpr int kMaxGraphFolderDepth = 16;
/// Folders looked into before a path is said to hold another layout.
inline constexpr size_t kMaxProbedFolders = 256;
inline constexpr size_t kMaxTokenDigits = 11;

[[nodiscard]] inline bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "7" -> 7; nothing for other names and for those too long to be a token, such as times.
[[nodiscard]] inline std::optional<int64_t> token_number(std::string_view name) {
  if (!is_digits(name) || name.size() > kMaxTokenDigits) return std::nullopt;
  return parse_number<int64_t>(name);
}

/// "worldsize8_global_rank3" -> 3.
[[nodiscard]] inline std::optional<int> worldsize_rank(std::string_view name) {
  if (!name.starts_with("worldsize")) return std::nullopt;
  const size_t rank = name.rfind("rank");
  if (rank == std::string_view::npos) return std::nullopt;
  return parse_number<int>(name.substr(rank + 4));
}

/// "graph_3" -> 3.
[[nodiscard]] inline std::optional<uint32_t> graph_number(std::string_view name) {
  constexpr std::string_view kPrefix = "graph_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto number = parse_number<uint32_t>(name.substr(kPrefix.size()));
  return number && *number > 0 ? number : std::nullopt;
}

/// The rank of the innermost worldsize folder.
[[nodiscard]] inline std::optional<int> rank_of(const std::vector<std::string_view>& components) {
  for (auto part = components.rbegin(); part != components.rend(); ++part) {
    if (const auto rank = worldsize_rank(*part)) return rank;
  }
  return std::nullopt;
}

/// Places of the graphs of one rank, by the name of their folder: graph_N is place N - 1 when all
/// are named so, otherwise they are counted in the order given.
[[nodiscard]] inline std::vector<uint32_t> graph_places(const std::vector<std::string>& names) {
  std::vector<uint32_t> places;
  for (const std::string& name : names) {
    const auto number = graph_number(name);
    if (!number || std::find(places.begin(), places.end(), *number - 1) != places.end()) break;
    places.push_back(*number - 1);
  }
  if (places.size() == names.size()) return places;
  places.clear();
  for (uint32_t place = 0; place < names.size(); ++place) places.push_back(place);
  return places;
}

/// True when a file below `path` is one that `is_sign` knows by its name. Breadth first, bounded.
template <typename IsSign>
[[nodiscard]] bool has_file_below(const std::string& path, IsSign is_sign) {
  std::deque<std::pair<std::string, int>> folders = {{path, 0}};
  const std::string boundary = real_path(path);
  for (size_t probed = 0; probed < kMaxProbedFolders && !folders.empty(); ++probed) {
    const auto [folder, depth] = std::move(folders.front());
    folders.pop_front();
    const Result<FolderEntries> entries = list_folder(folder, boundary);
    if (!entries) continue;
    for (const FolderEntry& entry : *entries) {
      if (entry.kind == FolderEntry::Kind::File && is_sign(entry.name)) return true;
      if (entry.kind == FolderEntry::Kind::Folder && !entry.is_link && depth < kMaxGraphFolderDepth)
        folders.emplace_back(entry.path, depth + 1);
    }
  }
  return false;
}

/// Calls visit(folder, entries) for `path` and every folder below it, in natural order. What cannot
/// be listed or followed becomes a warning.
template <typename Visit>
void visit_folders(const std::string& path, const std::string& boundary, int depth,
                   std::vector<std::string>* warnings, Visit visit) {
  const Result<FolderEntries> entries = list_folder(path, boundary);
  if (!entries) {
    warnings->push_back(entries.error().describe());
    return;
  }
  visit(path, *entries);
  for (const FolderEntry& entry : *entries) {
    if (entry.kind != FolderEntry::Kind::Folder) continue;
    if (entry.is_link) {
      warnings->push_back(entry.path + ": linked folders are not followed");
    } else if (depth == kMaxGraphFolderDepth) {
      warnings->push_back(entry.path + ": folders are nested deeper than 16");
    } else {
      visit_folders(entry.path, boundary, depth + 1, warnings, visit);
    }
  }
}

/// The components of a folder's real path, so that a path that starts inside a dump is understood
/// too. The result borrows `real`.
[[nodiscard]] inline std::vector<std::string_view> components_of(const std::string& real) {
  std::vector<std::string_view> parts = split(real, '/');
  std::erase(parts, std::string_view());
  return parts;
}

}  // namespace assay::run::sources
