// SPDX-License-Identifier: Apache-2.0
// Which tokens a step computed, and which rows of two runs' steps are the same token at the same
// place of the same text: a prompt may be cut into several steps, and a step may hold several
// tokens (guessed ones among them).
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// A token in its place; positions are counted from the start of its sequence.
struct PlacedToken {
  int64_t position = -1;  // -1: not known
  int64_t token = -1;
  int64_t sequence = 0;
  friend bool operator==(const PlacedToken&, const PlacedToken&) = default;
};

/// What one step of a program, or one graph, computed.
struct StepTokens {
  int64_t step = 0;
  std::vector<PlacedToken> tokens = {};  // of a batch one sequence after the other
  bool ids = false;                      // the tokens are known, not only how many
  int64_t sequences = 1;                 // of a batch: as many tokens of each
  int64_t padding = 0;                   // hidden rows in front of them, of each sequence

  /// Of each sequence.
  [[nodiscard]] int64_t length() const {
    return static_cast<int64_t>(tokens.size()) / (sequences > 0 ? sequences : 1);
  }
};

/// Steps of a PyTorch run, by what its embedding was given, of one rank (its first). Without
/// captured positions the tokens of a step follow those of the step before.
[[nodiscard]] std::vector<StepTokens> torch_steps(const run::Run& run,
                                                  std::optional<int> rank = std::nullopt);

/// One number for each token of each step: equal where the token, its position and all tokens
/// before it in its sequence are equal. Guessed tokens that were refused are forgotten when their
/// positions are computed again.
struct TokenKeys {
  std::vector<std::vector<uint64_t>> steps;
  bool from_start = true;  // every token's predecessors are known
};
/// history  false: by token and position alone, for a capture that begins in the middle of a text
[[nodiscard]] TokenKeys token_keys(const std::vector<StepTokens>& steps, bool history = true);

/// True when a step or graph holds tokens of several sequences: positions go back, or leave some
/// out.
[[nodiscard]] bool hold_sequences(const std::vector<StepTokens>& steps);
/// The keys of graphs whose tokens do not say which sequence they belong to: of the sequence that
/// has come this far, one of `wanted` where there is a choice.
[[nodiscard]] TokenKeys sequence_keys(const std::vector<StepTokens>& graphs,
                                      const std::set<uint64_t>& wanted);

/// Tokens that a step of golden and a step of mine have in common. Of a batch these are the same
/// columns of all sequences.
struct StepRows {
  int64_t golden_step = 0;
  int64_t mine_step = 0;
  std::vector<int64_t> golden = {};  // ascending, and as many of mine
  std::vector<int64_t> mine = {};
  int64_t golden_count = 0;  // tokens of the whole step, of one sequence
  int64_t mine_count = 0;
  // tokens of the sequence so far, with those of the step; 0: not known
  int64_t golden_context = 0;
  int64_t mine_context = 0;
  int64_t sequences = 1;

  /// The step is the other's, token by token.
  [[nodiscard]] bool is_whole() const;
};

struct StepAlignment {
  /// Steps of one number hold the same tokens, or nothing better is known.
  bool by_number = true;
  std::vector<StepRows> rows = {};  // by golden's step, then by the other's; empty when `by_number`
  bool partial = false;             // golden has tokens that mine did not compute
  /// Kinds of modules, as run::layer_pattern() has them, that get rows chosen by values, such as
  /// the tokens of one expert.
  std::set<std::string, std::less<>> gathered = {};
  std::vector<std::string> notes = {};

  /// Its rows may be the step's tokens.
  [[nodiscard]] bool is_by_tokens(std::string_view module) const;
};
/// A token that a run computed several times (no cache) is taken where it was computed first.
/// The ranks are those whose tokens are looked at; nothing: the first of each run.
[[nodiscard]] StepAlignment align_steps(const run::Run& golden, const run::Run& mine,
                                        std::optional<int> golden_rank = std::nullopt,
                                        std::optional<int> mine_rank = std::nullopt);

/// How a tensor of golden's step becomes that of its tokens, and the other run's likewise.
struct RowSelection {
  bool known = false;  // which axis has the tokens; `reason` says why not
  bool none = false;   // none of the tensor's rows is one of the tokens in common
  bool whole = false;  // the tensors belong together as they stand
  size_t axis = 0;
  // the axis counts all tokens so far: its first `count` are the same on both sides
  bool keys = false;
  int64_t count = 0;
  std::vector<int64_t> golden = {};  // along the axis
  std::vector<int64_t> mine = {};
};
/// Of tensors with fewer rows than tokens (a head that computes the last positions only) the rows
/// are the last tokens.
[[nodiscard]] RowSelection select_rows(const StepRows& rows, const Dims& golden, const Dims& mine);

}  // namespace assay::pair
