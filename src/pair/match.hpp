// SPDX-License-Identifier: Apache-2.0
// Which tensor of one run belongs to which tensor of the other, and what was left alone and why.
// Rules between two trees: policies.hpp and mapping_tables.json; what they leave: by_value.hpp.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pair/correspondence.hpp"
#include "pair/mapping_tables.hpp"
#include "pair/operand.hpp"
#include "pair/rule.hpp"
#include "pair/tokens.hpp"
#include "run/run.hpp"

namespace assay::pair {

enum class Level : uint8_t { Layer, Module, Api };
[[nodiscard]] std::string_view level_name(Level level);  // "layer" ...

struct LiteralRules;

struct MatchOptions {
  Level level = Level::Api;
  /// Another program's rules to the letter (literal_rules.hpp); null: ours. Ours make every pair
  /// that a rule names only at layer and module level; at api level every tensor is in at most one
  /// pair and every other one is listed.
  const LiteralRules* literal = nullptr;
  bool statistics = false;
  const MappingTables* tables = nullptr;  // nullptr: the shipped ones
  /// Look at values where names and tables say nothing. Reads tensors.
  bool by_value = true;
  int jobs = 0;
  const std::atomic<bool>* interrupted = nullptr;
};

/// In place of a token id: the step of mine's record.
inline constexpr int64_t kStepOfMine = INT64_MIN;

/// Indices into the records of the two runs.
struct RecordPair {
  size_t golden = 0;
  size_t mine = 0;
  /// How sure the rule is that the two belong together, (0, 1]; 1 for names and explicit pairs.
  double confidence = 1;
  int64_t data_id = -1;  // given by the user's metadata; -1: counted
  /// The row's token id, kWarmupToken for a warm-up run of ATB.
  int64_t token = kStepOfMine;
  /// Indices into Matching::recipes; -1: the record as it stands.
  int32_t golden_recipe = -1;
  int32_t mine_recipe = -1;
  // What the path columns say instead of the record's own path; empty: that one.
  InternedText golden_label = {};
  InternedText mine_label = {};
  Rule rule = Rule::None;
  /// The sides of this node had different numbers of tensors, so each was paired with each: a shape
  /// mismatch then says nothing, and the row is dropped.
  bool speculative = false;
  /// `golden` is a record of mine: an operator that changes layout or precision only is held
  /// against its own input.
  bool golden_in_mine = false;
};

enum class Side : uint8_t { Golden, Mine };

struct UnmatchedRecord {
  Side side = Side::Golden;
  size_t record = 0;
  std::string reason;  // "node exists only in mine"
};

struct Matching {
  std::vector<RecordPair> pairs;  // by rank, token, then execution order of mine
  std::vector<Recipe> recipes;    // that pairs refer to
  std::vector<UnmatchedRecord> unmatched;
  std::vector<int64_t> tokens;   // of mine, that were compared
  std::vector<int> ranks;        // of mine, that were compared
  size_t golden_candidates = 0;  // tensors that this level looks at
  size_t mine_candidates = 0;
  size_t golden_matched = 0;
  size_t mine_matched = 0;
  std::string golden_layer_type;  // empty when the tree has no repeated block
  std::string mine_layer_type;
  std::vector<std::string> warnings;
  /// What was left out or found out as a whole, one sentence each: a rank or token of one side
  /// only, a warm-up run, ranks that were put together.
  std::vector<std::string> notes;

  /// Share of both sides' candidates that are in a pair, [0, 100]; 100 when there is none.
  [[nodiscard]] double coverage_percent() const;
};

/// True when both runs are trees of modules or operations, so that levels mean something.
[[nodiscard]] bool have_levels(const run::Run& golden, const run::Run& mine);

/// pairs   of these runs
/// errors  Usage (the tokens or ranks of the two sides have nothing in common, an explicit pair
/// names
///         nothing)
[[nodiscard]] Result<Matching> match_runs(const run::Run& golden, const run::Run& mine,
                                          const Correspondence& pairs, const MatchOptions& options);
/// The pairs that the user named, nothing else.
/// errors  Usage (an explicit pair names nothing)
[[nodiscard]] Result<Matching> match_named(const run::Run& golden, const run::Run& mine,
                                           const Correspondence& pairs,
                                           const MatchOptions& options);

}  // namespace assay::pair
