// SPDX-License-Identifier: Apache-2.0
// Many runs of one program against the first: where they differ, and how often.
//   docs/commands/repeat.md
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "repeat/differences.hpp"

namespace assay::repeat {

/// A place where runs differ from the first one.
struct Finding {
  Difference difference;     // of the first of these runs
  std::vector<size_t> runs;  // those that differ, ascending
  size_t results = 1;        // different results among them
};

/// The operators of the first run in another one.
struct GridRun {
  size_t number = 0;
  int threads = 0;
  /// By operator of the first run. Runs that are alike share them.
  std::shared_ptr<const std::vector<State>> states;
};

/// Findings that differ in the number of the layer, of the step and of the call only.
struct Alike {
  Cause cause = Cause::Operator;
  std::string pattern;    // "model.layers.*.mlp", of operators without a module their own name
  std::string operation;  // "aten.mm.default"
  size_t places = 0;
  std::vector<size_t> runs;
};

/// A table with more columns tells nobody more.
inline constexpr size_t kGridRuns = 200;

/// The runs come one after the other; the first is kept, and the first that differs.
class Repetition {
 public:
  /// number  of the first run, as findings call it
  explicit Repetition(std::shared_ptr<const run::Run> first, size_t number = 0);

  /// Returns false when the run is equal to the first one bit for bit.
  bool add(std::shared_ptr<const run::Run> run, size_t number);

  [[nodiscard]] size_t run_count() const { return 1 + later_; }
  [[nodiscard]] size_t first_number() const { return first_number_; }
  [[nodiscard]] const Execution& first() const { return first_; }
  [[nodiscard]] size_t step_count() const;
  /// Operators of the first run, and those of them that have an output without a digest.
  [[nodiscard]] size_t operator_count() const { return first_.program().operators.size(); }
  [[nodiscard]] size_t unseen_count() const;

  /// All but the first, in the order in which they came; of those that differ no more than
  /// kGridRuns.
  [[nodiscard]] const std::vector<GridRun>& grid() const { return grid_; }
  [[nodiscard]] size_t left_out() const { return later_ - grid_.size(); }
  /// The first one that differs, or null.
  [[nodiscard]] const std::shared_ptr<const run::Run>& different_run() const { return different_; }
  [[nodiscard]] const std::shared_ptr<const run::Run>& first_run() const { return first_run_; }

  /// In the order of execution; empty: the program repeats.
  [[nodiscard]] std::vector<Finding> findings() const;

 private:
  using Key = std::pair<size_t, std::string>;  // of a place, in the order of execution

  void add_to_grid(std::vector<State> states, bool is_equal, size_t number);

  std::shared_ptr<const run::Run> first_run_;
  Execution first_;
  std::shared_ptr<const run::Run> different_;
  std::vector<GridRun> grid_;
  std::shared_ptr<const std::vector<State>> of_equal_runs_;
  size_t different_count_ = 0;
  size_t first_number_;
  size_t later_ = 0;
  struct Seen {
    Difference difference;
    std::map<size_t, std::string> results;  // by run
  };
  std::map<Key, Seen> seen_;
};

/// Each pattern once, in the order of their first places.
[[nodiscard]] std::vector<Alike> alike(const std::vector<Finding>& findings);

}  // namespace assay::repeat
