// SPDX-License-Identifier: Apache-2.0
// All that `assay repeat` found out.   docs/commands/repeat.md
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "repeat/elements.hpp"
#include "repeat/repetition.hpp"

namespace assay::repeat {

/// Runs with one number of threads.
struct ThreadGroup {
  int threads = 0;  // 0: as the program chose
  size_t runs = 0;
  /// The first run of this group against the first of all: what depends on the number of threads.
  std::vector<Finding> against_first;
};

/// Every operator in every run.
struct Grid {
  std::vector<Place> operators;  // of the first run of all
  /// Each against the first run with as many threads; that one against the first of all.
  std::vector<GridRun> runs;  // by number
  size_t left_out = 0;        // runs
};

struct Outcome {
  size_t runs = 0;
  size_t operators = 0;  // of the first run, and its steps
  size_t steps = 0;
  size_t unseen = 0;  // operators with an output that has no digest
  /// Runs against the first one with as many threads, in the order of execution.
  std::vector<Finding> findings;
  std::vector<ThreadGroup> threads;
  /// Of the first finding, when its values were kept and differed again.
  std::optional<Elements> elements;
  std::string elements_note;  // why they are not known; empty when nobody asked
  std::string next;           // a command
  Grid grid;
  std::shared_ptr<const run::Run> first_run;
  std::shared_ptr<const run::Run> different_run;  // the first one; null: none does

  [[nodiscard]] bool repeats() const { return findings.empty(); }
  [[nodiscard]] bool depends_on_threads() const;
};

/// One sentence, as "does not repeat: ...".
[[nodiscard]] std::string sentence_of(const Outcome& outcome);
/// The finding alone: "model.drop (aten.native_dropout.default, step 0) draws random numbers ...".
[[nodiscard]] std::string finding_text(const Finding& finding);
[[nodiscard]] std::string elements_text(const Elements& elements, const Finding& finding);

/// Groups by the number of threads, from the repetitions of each.
///
/// across  the first run of each group but the first, added to that of the first
[[nodiscard]] Outcome make_outcome(const std::vector<std::unique_ptr<Repetition>>& groups,
                                   const std::vector<int>& threads,
                                   const std::vector<std::unique_ptr<Repetition>>& across);

}  // namespace assay::repeat
