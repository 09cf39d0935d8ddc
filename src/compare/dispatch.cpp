// SPDX-License-Identifier: Apache-2.0
// Looks at what the paths are, opens them as runs, and chooses levels, statistics, weights or
// graphs from what they hold.
#include "compare/dispatch.hpp"

#include <algorithm>
#include <iterator>

#include "base/file_changes.hpp"
#include "base/file_source.hpp"
#include "compare/weights.hpp"
#include "pair/torchair.hpp"
#include "run/documented_folder.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/pair.hpp"

namespace assay::compare {
namespace {

using run::Run;

bool is_folder(const std::string& path) {
  const Result<FileFacts> facts = file_facts(run::documented_folder(path));
  return facts && facts->kind == FileFacts::Kind::Folder;
}

// True when a side has statistics and no tensor at all, so that only statistics can be compared. A
// file that cannot be read, and a device's report, are no tensors.
bool has_statistics_only(const Run& run) {
  if (run.has(run::Trait::WithoutValues)) return true;
  bool any = false;
  for (const run::TensorRecord& record : run.records) {
    if (record.kind != run::RecordKind::Operand || !record.problem.empty()) continue;
    if (record.bytes) return false;
    any = any || record.stats.has_value();
  }
  return any;
}

constexpr std::string_view kLevelChoices[] = {"", "layer", "module", "api", "logits", "all"};

std::vector<pair::Level> wanted_levels(LevelChoice level, bool statistics) {
  if (level == LevelChoice::Default) level = statistics ? LevelChoice::Api : LevelChoice::All;
  switch (level) {
    case LevelChoice::Layer:
      return {pair::Level::Layer};
    case LevelChoice::Module:
      return {pair::Level::Module};
    case LevelChoice::All:
      return {pair::Level::Layer, pair::Level::Module, pair::Level::Api};
    default:
      return {pair::Level::Api};
  }
}

// Without the text of its graph an operator dump has names and values, and nobody knows which value
// of another dump is which.
void note_missing_graph_texts(const Run& golden, const Run& mine, std::vector<std::string>* notes) {
  if (golden.has(run::Trait::GeOperators) && mine.has(run::Trait::FxNodes)) {
    notes->push_back(
        "golden's operators are paired with nodes by their values; with the nodes as golden and "
        "the operators as the other path, the text of the graph pairs them");
  }
  if (!mine.has(run::Trait::GeOperators) || !mine.graph_files.empty()) return;
  if (!golden.has(run::Trait::GeOperators) && !golden.has(run::Trait::FxNodes)) return;
  notes->push_back(mine.path +
                   ": no text of a graph (dynamo_original_graph_*.txt) belongs to it, so tensors "
                   "are paired by the names of operators and by their values");
}

Result<ComparedPaths> compare_checkpoints(const std::string& golden_path,
                                          const std::string& my_path,
                                          const CompareOptions& options) {
  ComparedPaths out;
  ASSAY_TRY(Checkpoints sides, open_checkpoints(golden_path, my_path, options));
  out.golden = std::move(sides.golden);
  out.mine = std::move(sides.mine);
  ASSAY_TRY(out.comparison, compare_weights(out.golden, out.mine, options));
  return out;
}

Result<ComparedPaths> compare_named_pairs(const std::string& golden_path,
                                          const CompareOptions& options) {
  ASSAY_TRY(run::ManualMapping mapping, run::read_manual_mapping(golden_path));
  ComparedPaths out;
  ASSAY_TRY(out.comparison, compare_manual(mapping, options));
  out.golden = std::move(mapping.golden);
  out.mine = std::move(mapping.mine);
  out.notes.emplace_back("golden holds pairs named with dump_data(); the other path is not used");
  return out;
}

}  // namespace

bool have_only_statistics(const Run& golden, const Run& mine) {
  return has_statistics_only(golden) || has_statistics_only(mine);
}

std::string_view choice_name(LevelChoice level) {
  return kLevelChoices[static_cast<size_t>(level)];
}

std::optional<LevelChoice> level_choice(std::string_view name) {
  const auto found = std::ranges::find(kLevelChoices, name);
  if (found == std::end(kLevelChoices)) return std::nullopt;
  return static_cast<LevelChoice>(found - std::begin(kLevelChoices));
}

Result<ComparedPaths> compare_paths(const std::string& golden_path, const std::string& my_path,
                                    const PathOptions& wanted, CompareOptions options) {
  if (wanted.weights) return compare_checkpoints(golden_path, my_path, options);
  if (run::is_manual_mapping(golden_path)) return compare_named_pairs(golden_path, options);
  ComparedPaths out;
  const std::string& file = is_folder(golden_path) ? my_path : golden_path;
  // An npz is a folder of arrays in one file.
  if (is_folder(golden_path) != is_folder(my_path) && !file.ends_with(".npz") &&
      !run::is_fingerprint(file)) {
    for (const std::string& path : {golden_path, my_path}) ASSAY_TRY_STATUS(file_facts(path));
    return fail(Errc::WrongKind, "The golden_path and my_path must both be directory or file.");
  }
  ASSAY_TRY(
      run::RunPair pair,
      run::open_pair(golden_path, my_path, wanted.golden_weights, options.user.parallel,
                     options.conventions.trusting ? run::Names::AsTheyAre : run::Names::Common));
  out.golden = std::move(pair.golden);
  out.mine = std::move(pair.mine);
  out.notes = std::move(pair.notes);
  // A list of msprobe is a file, too, but stands for a whole run.
  out.two_files = out.golden.has(run::Trait::OneFile) && out.mine.has(run::Trait::OneFile);
  out.programs = !out.two_files && wanted.level != LevelChoice::Logits;
  if (!out.programs) options.when_paired = nullptr;
  if (!options.statistics && !options.conventions.trusting &&
      have_only_statistics(out.golden, out.mine)) {
    options.statistics = true;
    out.notes.emplace_back("a side holds statistics only, so statistics are compared (--stats)");
  }
  const bool levels =
      pair::have_levels(out.golden, out.mine) && !pair::is_torchair_pair(out.golden, out.mine);
  options.levels = levels ? wanted_levels(wanted.level, options.statistics)
                          : std::vector<pair::Level>{pair::Level::Api};
  const bool needs_levels = wanted.level == LevelChoice::Layer ||
                            wanted.level == LevelChoice::Module ||
                            wanted.level == LevelChoice::Logits;
  if (!levels && needs_levels && !out.two_files) {
    out.notes.push_back("--cmp-level " + std::string(choice_name(wanted.level)) +
                        " has no effect: it needs a tree of modules or operations on both sides");
  }
  note_missing_graph_texts(out.golden, out.mine, &out.notes);
  const ReadingScope reading;
  ASSAY_TRY(out.comparison, compare_runs(out.golden, out.mine, options));
  // Rows of what could not be fetched say nothing about the runs.
  if (is_url(golden_path) || is_url(my_path)) ASSAY_TRY_STATUS(reading.take_failure());
  return out;
}

}  // namespace assay::compare
