// SPDX-License-Identifier: Apache-2.0
// What `assay compare` and `assay locate` share: what the user says corresponds.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pair/match.hpp"

namespace CLI {
class App;
}

namespace assay::cli {

/// The options as the user gave them; docs/commands/compare.md.
struct PairRequest {
  std::string token_map;  // "0:1,1:2": token of golden, token of mine
  std::string ranks;      // "0,3-5"
  std::string map_file;   // JSON list of explicit pairs
};

void add_pair_options(CLI::App& app, PairRequest& request);

/// Fills token_map, ranks and explicit_pairs.
/// errors  Usage (an option that says nothing) | of reading and parsing the map, with its path
[[nodiscard]] Status read_pair_options(const PairRequest& request, pair::UserRules* rules);

/// "0,3-5" -> 0 3 4 5. errors  Usage
[[nodiscard]] Result<std::vector<int>> parse_ranks(std::string_view text);
/// "0:1,2:3" -> (0,1) (2,3). errors  Usage
[[nodiscard]] Result<std::vector<std::pair<int64_t, int64_t>>> parse_token_map(
    std::string_view text);

}  // namespace assay::cli
