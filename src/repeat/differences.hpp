// SPDX-License-Identifier: Apache-2.0
// Two runs of one program, held against each other by the digests of what their operators read and
// made.   docs/commands/repeat.md
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "locate/program/program.hpp"

namespace assay::repeat {

/// Whether two values are equal bit for bit.
enum class Equal : uint8_t {
  Yes,
  No,
  Unseen,  // a side has no digest
};

/// Why an operator's output is another one.
enum class Cause : uint8_t {
  Operator,        // it read the same and made something else
  Random,          // the same, and values drawn at random are its work
  Uninitialised,   // it read memory that nobody had written
  Weight,          // it read a parameter or buffer that was another one from the start
  Input,           // it read another value, which no captured operator made
  OtherOperators,  // one of the runs has no such operator
};
/// "operator" "random" "uninitialised" "weight" "input" "other operators"
[[nodiscard]] std::string_view cause_name(Cause cause);

/// One execution of an operator.
struct Place {
  int rank = 0;
  int64_t step = 0;
  uint32_t call = 0;      // of the module in the step
  std::string node;       // "model.norm::aten.mul.Tensor.1"
  std::string operation;  // "aten.mul.Tensor"
  std::string module;     // "model.norm"
  std::string source;     // file and line of the module's code; empty when unknown
  size_t index = 0;       // in the order of execution of the first run
};

/// An operator whose output differs, and not because one before it does.
struct Difference {
  Cause cause = Cause::Operator;
  Place place;
  std::string slot;  // of the output that differs; of Uninitialised, Weight and Input of the input
  std::string leaf;  // of Weight: its name
  std::string result;               // digests of the outputs of the other run, as one text
  std::vector<std::string> unseen;  // inputs without a digest
};

/// What became of an operator's result in another run.
enum class State : uint8_t {
  Same,       // equal bit for bit
  Origin,     // it differs, and a Difference says why
  Inherited,  // it differs because something before it does
  Unseen,     // it has no digest in one of the runs
  Missing,    // the other run has no such operator
};

/// "same" "origin" "inherited" "unseen" "missing"
[[nodiscard]] std::string_view state_name(State state);

/// A run of the program with its operators by place.
class Execution {
 public:
  explicit Execution(std::shared_ptr<const run::Run> run);

  [[nodiscard]] const run::Run& run() const { return *run_; }
  [[nodiscard]] const locate::Program& program() const { return program_; }
  /// Index into program().operators; kNone: the run has no such operator.
  [[nodiscard]] size_t find(const locate::Operator& one) const;
  /// The same for a call of a module, in program().calls.
  [[nodiscard]] size_t find(const locate::ModuleCall& call) const;
  [[nodiscard]] Place place_of(size_t op) const;
  /// Whether a named leaf is a parameter or a buffer; an engine's graphs have inputs with names, too.
  [[nodiscard]] bool is_weight(const std::string& leaf) const;
  /// The arguments that are no tensors, as the host wrote them.
  [[nodiscard]] const std::string& arguments_of(size_t op) const;

 private:
  std::shared_ptr<const run::Run> run_;
  locate::Program program_;
  std::unordered_map<std::string, size_t> by_place_;
  std::unordered_map<std::string, size_t> calls_;
  std::vector<std::string> arguments_;  // by operator
  std::map<std::string, std::string, std::less<>> sources_;
  std::set<std::string, std::less<>> engine_weights_;
};

struct RunComparison {
  /// In the order of execution of the first run; empty: all that both made is equal bit for bit.
  std::vector<Difference> differences;
  std::vector<State> states;  // by operator of the first run
};

[[nodiscard]] RunComparison compare_runs(const Execution& first, const Execution& other);

/// Whether all inputs of an operator are equal, as far as they were seen; what it only overwrites
/// is none.
[[nodiscard]] Equal equal_inputs(const Execution& first, size_t op, const Execution& other,
                                 size_t other_op);

}  // namespace assay::repeat
