// SPDX-License-Identifier: Apache-2.0
// Lists of ranks and of steps are parsed here. Every option notes its own words, so that commands
// which are suggested later repeat them.
#include "cli/pair_options.hpp"

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/list_text.hpp"

namespace assay::cli {
namespace {

Result<int64_t> parse_integer(std::string_view text, std::string_view what) {
  const std::optional<int64_t> value = parse_number<int64_t>(text);
  if (!value || *value < 0) {
    return fail(Errc::Usage, quoted(text) + " is no " + std::string(what));
  }
  return *value;
}

Result<std::vector<pair::ExplicitPair>> read_map(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return in_file(path, pair::parse_explicit_pairs(as_text(file.bytes())));
}

/// The value where it belongs, and the option behind `words`.
Store noted(std::string_view option, std::string& words, Store store) {
  return [option, &words, store = std::move(store)](const Words& values) -> Status {
    ASSAY_TRY_STATUS(store(values));
    words += " " + std::string(option) + " " + shell_quote(values.front());
    return {};
  };
}

}  // namespace

Result<std::vector<int>> parse_ranks(std::string_view text) {
  constexpr int64_t kMaxRank = 1 << 20;
  std::vector<int> ranks;
  const std::string list = with_ascii_commas(text);
  for (const std::string_view part : split(list, ',')) {
    const size_t dash = part.find('-', 1);  // a dash in front is a negative number, not a range
    ASSAY_TRY(const int64_t first,
              parse_integer(part.substr(0, dash), "rank; expected a list such as 0,3-5"));
    int64_t last = first;
    if (dash != std::string_view::npos) {
      ASSAY_TRY(last, parse_integer(part.substr(dash + 1), "rank; expected a list such as 0,3-5"));
    }
    if (last < first || last > kMaxRank) {
      return fail(Errc::Usage, quoted(part) + " is no range of ranks");
    }
    for (int64_t rank = first; rank <= last; ++rank) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

Result<std::vector<std::pair<int64_t, int64_t>>> parse_token_map(std::string_view text) {
  std::vector<std::pair<int64_t, int64_t>> map;
  const std::string list = with_ascii_commas(text);
  for (const std::string_view part : split(list, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) {
      return fail(Errc::Usage,
                  quoted(part) + " is no pair of steps; expected GOLDEN:MINE, for example 0:1");
    }
    ASSAY_TRY(const int64_t golden, parse_integer(part.substr(0, colon), "step"));
    ASSAY_TRY(const int64_t mine, parse_integer(part.substr(colon + 1), "step"));
    map.emplace_back(golden, mine);
  }
  return map;
}

void add_pair_options(Command& command, pair::UserRules& rules, std::string& words) {
  command.in_group("Selection");
  command.add("--token-map LIST", "Pair step G of golden with step M of mine: G:M,...",
              noted("--token-map", words, parsed_into(rules.token_map, parse_token_map)));
  command.add("--ranks LIST", "Only these ranks: 0,3-5",
              noted("--ranks", words, parsed_into(rules.ranks, parse_ranks)));
  command.add(
      "--parallel SIZES",
      "Groups of mine's job, the fastest first: tp=8,pp=4,dp=2; default: as its manifests say",
      noted("--parallel", words, parsed_into(rules.parallel, run::parse_parallel)));
  command.add("--map FILE",
              "JSON list of {\"golden\": ..., \"my\": ...} pairs that win over every rule",
              noted("--map", words, parsed_into(rules.explicit_pairs, read_map)));
}

}  // namespace assay::cli
