// SPDX-License-Identifier: Apache-2.0
// What `assay compare` and `assay locate` share: what the user says corresponds.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/argparse.hpp"
#include "pair/match.hpp"

namespace assay::cli {

/// --token-map, --ranks, --parallel and --map. `words` gets them as they were given, quoted for a shell, with a
/// blank before each.
void add_pair_options(Command& command, pair::UserRules& rules, std::string& words);

/// "0,3-5" -> 0 3 4 5. errors  Usage
[[nodiscard]] Result<std::vector<int>> parse_ranks(std::string_view text);
/// "0:1,2:3" -> (0,1) (2,3). errors  Usage
[[nodiscard]] Result<std::vector<std::pair<int64_t, int64_t>>> parse_token_map(
    std::string_view text);

}  // namespace assay::cli
