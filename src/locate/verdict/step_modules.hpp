// SPDX-License-Identifier: Apache-2.0
// A run that cut its tokens into other steps than golden (a prompt in chunks, several guessed
// tokens in a step), with the tensors of its modules in golden's steps.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "locate/verdict/locate.hpp"
#include "pair/step_tokens.hpp"
#include "tensor/node.hpp"

namespace assay::locate {

class StepModules {
 public:
  /// mine   with golden's ranks
  /// pairs  whose steps do not correspond by number
  StepModules(const run::Run& golden, const run::Run& mine, const pair::Correspondence& pairs);

  /// The run under test's records where they stand, those of modules left aside, and behind them
  /// one record for each of golden's that mine has rows of, by golden's step and shape. Rows that
  /// mine did not compute are golden's.
  [[nodiscard]] const run::Run& run() const { return *run_; }
  void describe(Program* mine) const;
  /// Step, time and record as mine has them.
  void complete(Finding* finding) const;
  void put_back(Verdict* verdict) const;
  /// Some tokens of golden were not computed by mine, or which they are is not known.
  [[nodiscard]] bool is_partial() const { return partial_; }
  /// Which steps of golden they are in, as a clause; empty: it is not partial.
  [[nodiscard]] std::string missing() const;
  /// Steps of mine none of whose tokens golden has, ascending.
  [[nodiscard]] const std::vector<int64_t>& unpaired() const { return unpaired_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Place {
    std::vector<size_t> records;     // of mine, in order of their steps
    std::vector<int64_t> rows = {};  // of golden's tensor, that mine computed; empty: all
  };
  /// The rows of one record of golden.
  struct Rows {
    pair::Recipe recipe = {};
    std::vector<int64_t> golden = {};  // ascending
    size_t axis = 0;
    int64_t first = 0;  // of the next record, among all rows of the records so far
  };
  using RecordKey = std::tuple<int64_t, std::string, Role, uint32_t, std::string>;
  static RecordKey key_of(const run::Run& run, const run::TensorRecord& record, int64_t step);
  void add(const run::Run& golden, size_t index, const std::vector<const pair::StepRows*>& steps);
  [[nodiscard]] std::optional<Rows> rows_of(const run::Run& golden, const run::TensorRecord& record,
                                            const Dims& shape,
                                            const std::vector<const pair::StepRows*>& steps) const;

  std::unique_ptr<run::Run> run_;
  std::map<RecordKey, size_t> records_;  // of the run under test's modules
  std::map<size_t, Place> places_;       // by record behind the run under test's own
  std::vector<std::string> notes_;
  std::set<int64_t> missing_steps_;  // of golden
  std::vector<int64_t> unpaired_;
  uint64_t order_ = 0;
  bool partial_ = false;
};

}  // namespace assay::locate
