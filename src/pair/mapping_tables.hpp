// SPDX-License-Identifier: Apache-2.0
// Which operations of ATB correspond to which modules of PyTorch, as data: a table that is shipped
// (mapping_tables.json) and the user's own (`-mf`).   docs/commands/mapping-files.md
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::pair {

/// A test of a name. Empty lists test nothing; a pattern that tests nothing matches every name.
struct NamePattern {
  std::vector<std::string> all;   // substrings that must all occur
  std::vector<std::string> any;   // one of these must
  std::vector<std::string> none;  // none of these may
  std::string glob;               // the whole name: * any text, ? one character, # digits
  bool ignore_case = false;

  [[nodiscard]] bool matches(std::string_view name) const;
};

/// Which tensors of a node: "inputs", "outputs", or a file's name without its ending ("outtensor0",
/// "output_0", "input_0").
using Location = std::string;

struct PairRule {
  NamePattern mine;
  NamePattern golden;
  Location mine_at = "outputs";
  Location golden_at = "outputs";
};

/// An operation type and the module types that correspond to it.
struct TypeRule {
  std::string mine;
  Location mine_at = "outputs";
  std::vector<std::pair<std::string, Location>> golden;
  bool from_user = false;
};

struct QkvFileRule {
  std::string golden;             // "q_proj"
  std::vector<std::string> mine;  // ends of paths
};

struct MappingTables {
  std::map<std::string, std::string, std::less<>> float_types;  // quantised type -> float type
  std::vector<PairRule> layer_special;                          // names of operations and modules
  std::vector<PairRule> module_match;                           // paths of the children of layers
  std::vector<TypeRule> leaf_types;                             // exact types
  std::vector<TypeRule> types;                                  // substrings of types
  PairRule rope;
  std::vector<PairRule> enhanced_name;  // lower-cased paths
  NamePattern qwen_mine;
  std::vector<std::string> qwen_golden;
  std::vector<QkvFileRule> qkv_files;
  std::vector<PairRule> rules;  // of the user: paths or types within a pair of layers

  [[nodiscard]] std::string_view float_type(std::string_view type) const;
};

/// The table that is shipped.
[[nodiscard]] const MappingTables& builtin_tables();

/// The built-in table changed by the user's: the original's form {"Type": "ModuleType"} or {"Type":
/// ["A", "B_output_0"]} updates `types`, exact names included; a list under the key "rules" adds
/// pairs of the form {"my": PATTERN, "golden": PATTERN, "my_location": ..., "golden_location":
/// ...}, where PATTERN is a glob or an object as in the shipped table.
/// path     a folder with op_mapping_file.json, or such a file
/// errors   NotFound | Invalid ("Invalid op_mapping file: P", with what is wrong)
[[nodiscard]] Result<MappingTables> tables_with_user_file(const std::string& path);

}  // namespace assay::pair
