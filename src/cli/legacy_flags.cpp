// SPDX-License-Identifier: Apache-2.0
#include "cli/legacy_flags.hpp"

#include <algorithm>
#include <string_view>

namespace assay::cli {
namespace {

struct LegacyFlag {
  std::string_view old_name;
  std::string_view new_name;
};

// Every multi-letter short name of the original's commands that CLI11 parses; one-letter names parse as they are.
// dump and errcheck have a parser of their own (cli/argparse.hpp).
constexpr LegacyFlag kFlags[] = {
    // compare, and the logits tools
    {"-gp", "--golden-path"},
    {"-mp", "--my-path"},
    {"-cl", "--cmp-level"},
    {"-mf", "--op-mapping-file"},
    {"-alg", "--custom-algorithms"},
    {"-st", "--stats"},
    {"-cs", "--cosine-similarity"},
    {"-kl", "--kl-divergence"},
    {"-l1", "--l1-norm"},
    {"-bcr", "--bad-case-result"},
    {"-tr", "--token-range"},
    // opcheck
    {"-ids", "--operation-ids"},
    {"-opname", "--operation-name"},
    {"-metric", "--precision-metric"},
    {"-rerun", "--atb-rerun"},
    {"-pmode", "--precision-mode"},
    {"-opt", "--optimization-identify"},
};

// Long names that old documents spell with underscores. Only these: another program's arguments may
// look alike.
constexpr std::string_view kUnderscoreNames[] = {
    "--golden_path",       "--my_path",     "--cmp_level",   "--op_mapping_file", "--log_level",
    "--custom_algorithms", "--output_path", "--target_path", "--rank_id",         "--operation_ids",
    "--operation_name",    "--token_map",   "--max_memory",  "--exit_zero"};

std::string new_spelling(std::string_view name) {
  for (const LegacyFlag& flag : kFlags) {
    if (flag.old_name == name) return std::string(flag.new_name);
  }
  std::string text(name);
  if (std::find(std::begin(kUnderscoreNames), std::end(kUnderscoreNames), name) !=
      std::end(kUnderscoreNames)) {
    std::replace(text.begin() + 2, text.end(), '_', '-');
  }
  return text;
}

}  // namespace

std::vector<std::string> rewrite_legacy_flags(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with('-')) continue;
    const size_t equals = std::min(argument.find('='), argument.size());
    argument = new_spelling(std::string_view(argument).substr(0, equals)) + argument.substr(equals);
  }
  return arguments;
}

}  // namespace assay::cli
