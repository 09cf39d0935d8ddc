// SPDX-License-Identifier: Apache-2.0
// What is compared with what: from two paths to the kind of comparison they are for.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/compare.hpp"

namespace assay::compare {

/// What the user wants besides the options of the engine.
enum class LevelChoice : uint8_t { Default, Layer, Module, Api, Logits, All };
[[nodiscard]] std::string_view choice_name(LevelChoice level);  // "" "layer" ...
/// Nothing for other names.
[[nodiscard]] std::optional<LevelChoice> level_choice(std::string_view name);

/// A side has statistics and no tensor, so that only statistics can be compared.
[[nodiscard]] bool have_only_statistics(const run::Run& golden, const run::Run& mine);

struct PathOptions {
  LevelChoice level = LevelChoice::Default;  // without a choice all levels that the runs have
  bool weights = false;                      // checkpoints instead of runs
  std::string golden_weights = {};           // a checkpoint, for a golden fingerprint
};

/// A comparison with the runs it is about, to which its lists of records refer.
struct ComparedPaths {
  run::Run golden;
  run::Run mine;
  Comparison comparison;
  bool two_files = false;          // each side is one tensor file
  bool programs = false;           // two whole runs: only those have a first operator
  std::vector<std::string> notes;  // what was decided for the user, one sentence each
};

/// In this order: checkpoints when asked for, pairs that dump_data() named, one file against one
/// file, dumps of graph mode, any other two runs.
///
/// options   `levels` is filled from PathOptions::level
/// errors    WrongKind (a file against a folder: "The golden_path and my_path must both be
///           directory or file.") | of opening and comparing the runs
[[nodiscard]] Result<ComparedPaths> compare_paths(const std::string& golden_path,
                                                  const std::string& my_path,
                                                  const PathOptions& wanted,
                                                  CompareOptions options);

}  // namespace assay::compare
