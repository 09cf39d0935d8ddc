// SPDX-License-Identifier: Apache-2.0
// The values of an FX graph that was interpreted eagerly: docs/formats/fx-tree.md
//
//   {path}/worldsize8_global_rank3/graph_1/0/{node}-{target}.INPUT.0.{time}.npy    current
//   .../{node}-{target}.INPUT.{name}.{time}.npy, .../{node}-{target}.OUTPUT.0.{time}.pth    ours
//   data_dump/1/gm_{time}_dump/...                                                 token + 1
//   gm_{time}_dump/0/...                                                           the first versions
#include <map>
#include <set>
#include <tuple>

#include "run/ge_names.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/graph_folders.hpp"
#include "run/sources/graphs_json.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::string_view kTypedSuffix = ".pth";  // of types that NumPy does not have
constexpr std::string_view kKeyword = "kwargs.";
constexpr std::string_view kReducedSuffix = "_min_max";
constexpr size_t kMinTimeDigits = 14;

struct FxFileName {
  std::string node;  // "mm-aten.mm.default"
  std::string target;
  Role role = Role::Output;
  std::string slot;  // "0", "0.1", "kwargs.alpha"
  std::string time;  // "20240125031118787351"; empty when there is none
};

/// The name of a keyword argument.
bool is_identifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

/// {node}-{target}.INPUT.{i or name}[.{j}].{time}.npy or .pth; a script of the original's users
/// writes minimum and maximum to ..._min_max.npy.
std::optional<FxFileName> parse_fx_file_name(std::string_view name) {
  const bool typed = name.ends_with(kTypedSuffix);
  if (!typed && !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(typed ? kTypedSuffix.size() : kSuffix.size());
  if (name.ends_with(kReducedSuffix)) name.remove_suffix(kReducedSuffix.size());
  constexpr std::string_view kInput = ".INPUT.";
  constexpr std::string_view kOutput = ".OUTPUT.";
  const size_t input = name.rfind(kInput);
  const size_t output = name.rfind(kOutput);
  FxFileName out;
  size_t at = output;
  size_t behind = output + kOutput.size();
  if (output == std::string_view::npos || (input != std::string_view::npos && input > output)) {
    if (input == std::string_view::npos) return std::nullopt;
    out.role = Role::Input;
    at = input;
    behind = input + kInput.size();
  }
  out.node = name.substr(0, at);
  const size_t dash = out.node.find('-');
  if (dash != std::string::npos) out.target = out.node.substr(dash + 1);
  std::vector<std::string_view> numbers = split(name.substr(behind), '.');
  const bool keyword = out.role == Role::Input && is_identifier(numbers[0]);
  if (!std::all_of(numbers.begin() + (keyword ? 1 : 0), numbers.end(), is_digits))
    return std::nullopt;
  if (numbers.back().size() >= kMinTimeDigits) {
    out.time = numbers.back();
    numbers.pop_back();
  }
  if (numbers.empty() || numbers.size() > 2) return std::nullopt;
  // Only with its time is such a name one of a dump.
  if (keyword && out.time.empty()) return std::nullopt;
  out.slot = keyword ? std::string(kKeyword) : std::string();
  out.slot += numbers[0];
  if (numbers.size() == 2) out.slot += "." + std::string(numbers[1]);
  return out;
}

/// A folder that holds files of one token of one graph.
struct FxFolder {
  int rank = 0;
  int64_t token = 0;
  std::string token_name;  // as on disk; "0" when there is no folder for it
  std::string graph_name;
  bool counts_from_one = false;  // data_dump/1/gm_...: the first token is 1
  std::vector<std::pair<FxFileName, std::string>> files;  // name, path
};

FxFolder place_of(const std::string& real) {
  const std::vector<std::string_view> parts = components_of(real);
  FxFolder folder;
  folder.rank = rank_of(parts).value_or(0);
  folder.token_name = "0";
  if (parts.empty()) return folder;
  const std::string_view leaf = parts.back();
  const std::string_view parent = parts.size() > 1 ? parts[parts.size() - 2] : "";
  if (leaf.starts_with("gm_") && token_number(parent)) {
    folder.token = *token_number(parent);
    folder.token_name = parent;
    folder.graph_name = leaf;
    folder.counts_from_one = true;
  } else if (token_number(leaf)) {
    folder.token = *token_number(leaf);
    folder.token_name = leaf;
    folder.graph_name = parent;
  } else {
    folder.graph_name = leaf;
  }
  return folder;
}

class FxTree {
 public:
  explicit FxTree(const std::string& path) : path_(path), boundary_(real_path(path)) {}

  Run read() {
    visit_folders(
        path_, boundary_, 0, &run_.warnings,
        [this](const std::string& folder, const FolderEntries& entries) { take(folder, entries); });
    shift_tokens();
    run_.layout = Layout::FxTree;
    place_graphs();
    for (FxFolder& folder : folders_)
      append(folder, places_.at({scope_of(folder), folder.graph_name}));
    warn_about_counts();
    finish_coverage();
    return std::move(run_);
  }

 private:
  void take(const std::string& path, const FolderEntries& entries) {
    FxFolder folder = place_of(real_path(path));
    for (const FolderEntry& entry : entries) {
      if (entry.kind == FolderEntry::Kind::Folder) continue;
      if (entry.name == kGraphsFile && entry.kind == FolderEntry::Kind::File)
        has_graphs_file_ = add_graphs_file(entry.path, &run_) || has_graphs_file_;
      unfinished_ += is_unfinished_file(entry.name);
      std::optional<FxFileName> name = parse_fx_file_name(entry.name);
      if (!name) continue;
      if (entry.kind == FolderEntry::Kind::Unusable) {
        run_.warnings.push_back(entry.path + ": " + entry.problem);
      } else {
        folder.files.emplace_back(*std::move(name), entry.path);
      }
    }
    if (!folder.files.empty()) folders_.push_back(std::move(folder));
  }

  /// Folders of old dumps are numbered from 1 on, the tokens of GE from 0 on. A dump that does have
  /// a folder 0 is taken by its numbers.
  void shift_tokens() {
    for (const FxFolder& folder : folders_) {
      if (folder.counts_from_one && folder.token == 0) return;
    }
    for (FxFolder& folder : folders_) {
      if (folder.counts_from_one) --folder.token;
    }
  }

  /// Old dumps name the folder of a graph after the time, another one for each token: there the
  /// place is that among the token's folders.
  using GraphScope = std::tuple<int, bool, int64_t>;
  static GraphScope scope_of(const FxFolder& folder) {
    return {folder.rank, folder.counts_from_one, folder.counts_from_one ? folder.token : 0};
  }

  void place_graphs() {
    std::map<GraphScope, std::set<std::string, NaturalLess>> names;
    for (const FxFolder& folder : folders_) names[scope_of(folder)].insert(folder.graph_name);
    for (const auto& [scope, set] : names) {
      const std::vector<std::string> list(set.begin(), set.end());
      const std::vector<uint32_t> places = graph_places(list);
      for (size_t i = 0; i < list.size(); ++i) places_[{scope, list[i]}] = places[i];
    }
  }

  void append(FxFolder& folder, uint32_t graph) {
    std::sort(folder.files.begin(), folder.files.end(), [](const auto& a, const auto& b) {
      if (a.first.time != b.first.time) return natural_less(a.first.time, b.first.time);
      return natural_less(a.second, b.second);
    });
    // All files of one node carry the time of its execution.
    std::map<std::string, std::vector<std::string>> times;
    uint64_t order = 0;
    std::string last;
    for (const auto& [name, path] : folder.files) {
      std::vector<std::string>& seen = times[name.node];
      if (seen.empty() || seen.back() != name.time) seen.push_back(name.time);
      if (last != name.node + name.time) ++order;
      last = name.node + name.time;
      TensorRecord record;
      record.rank = folder.rank;
      record.step = folder.token;
      record.step_name = folder.counts_from_one ? std::to_string(folder.token) : folder.token_name;
      record.graph = graph;
      record.node = name.node;
      record.op_type = name.target;
      record.role = name.role;
      record.slot = name.slot;
      record.call = static_cast<uint32_t>(seen.size() - 1);
      record.order = order;
      ByteLocation location;
      location.file = path;
      record.bytes = std::move(location);
      run_.records.push_back(std::move(record));
      ++run_.coverage.captured;
    }
    // Graphs with numbers of their own run as often as they are called: a prompt's once, a
    // decoder's for each token.
    if (folder.counts_from_one) graphs_[{folder.rank, folder.token}].insert(graph);
  }

  /// Beside graphs.json nodes are counted, as its numbers of planned ones are.
  void finish_coverage() {
    if (unfinished_ > 0) {
      run_.coverage.complete = false;
      run_.warnings.push_back(path_ + ": " + std::to_string(unfinished_) +
                              " files are still being written, or their writer was killed");
    }
    if (!has_graphs_file_) return;
    std::set<std::tuple<int, uint32_t, std::string_view>> nodes;
    for (const TensorRecord& record : run_.records)
      nodes.insert({record.rank, record.graph, record.node});
    run_.coverage.captured = nodes.size();
  }

  void warn_about_counts() {
    std::set<size_t> counts;
    for (const auto& [place, graphs] : graphs_) counts.insert(graphs.size());
    if (counts.size() > 1)
      run_.warnings.push_back(path_ + ": tokens have between " + std::to_string(*counts.begin()) +
                              " and " + std::to_string(*counts.rbegin()) + " graphs");
  }

  const std::string path_;
  const std::string boundary_;
  std::vector<FxFolder> folders_;
  std::map<std::pair<GraphScope, std::string>, uint32_t> places_;
  std::map<std::pair<int, int64_t>, std::set<uint32_t>> graphs_;  // by rank and token
  size_t unfinished_ = 0;
  bool has_graphs_file_ = false;
  Run run_;
};

}  // namespace

Attempt read_fx_tree(const std::string& path) {
  const auto is_sign = [](std::string_view name) { return parse_fx_file_name(name).has_value(); };
  if (!is_folder(path) || !has_file_below(path, is_sign)) return std::nullopt;
  return Result<Run>(FxTree(path).read());
}

}  // namespace assay::run::sources
