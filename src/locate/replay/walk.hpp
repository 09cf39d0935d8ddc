// SPDX-License-Identifier: Apache-2.0
// Cross substitution: golden's program replayed in fp64 on the run under test's values.
//   docs/localisation.md, "Cross substitution"
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "locate/program/pairing.hpp"

namespace assay::locate {

/// One recorded value of mine that golden's program was replayed for.
struct WalkStep {
  size_t call = kNone;  // index into the run under test's calls
  size_t use = 0;       // index into its inputs or outputs
  bool input = false;
  double r = 0;            // |t - ref| / floor
  double r_element = 0;    // largest element over its own limit
  double r_column = 0;     // with rows and columns in units of what is expected of them
  double err_own = 0;      // |t - ref| / |ref|
  double noise_floor = 0;  // floor / |ref|
  bool suspicious = false;
  bool by_product = false;  // of float32: golden's products or fused attention stand in front of it
  double likeness = NAN;    // cosine of its error and the simulated one; where products are narrow
  size_t operators = 0;     // that were replayed; of a suspicious one with those of earlier steps
  std::string owner = {};   // module path
  std::string reason = {};  // why it was not judged; empty when it was
  bool on_path = false;     // the model's outputs are made of it
  bool unknown_to_golden = false;  // golden has no such value
  DType type = DType::Float32;     // the narrowest that rounding is forgiven in
  std::string narrowed = {};       // of a table: the buffer whose narrower type moved it the most
};

/// A parameter or buffer of mine that is not golden's.
struct OtherLeaf {
  std::string name;                 // of mine
  std::string module;               // of mine
  std::vector<std::string> golden;  // names that golden has for its own
  size_t mine_record = kNone;
  bool buffer = false;
  bool other_shape = false;
};

/// An operator whose arguments are not golden's.
struct OtherArgument {
  size_t mine = kNone, golden = kNone;  // operators
};

struct WalkOptions {
  CaptureLevel level =
      CaptureLevel::Leaves;    // what of mine is walked over: Leaves, Modules, Layers
  double r_limit = 0;          // 0: 2, at level Layers 1.5
  double r_element_limit = 0;  // 0: 3, at level Layers 1.75
  int jobs = 0;
  uint64_t max_memory = uint64_t{2} << 30;
  bool padded = false;  // tensors of mine may have more columns than golden's, which are nothing
  /// Stops where most values behind products are beyond what float32 explains: Walk::are_narrow.
  bool stops_at_narrow_products = false;
  /// Only these of Walk::steps, ascending, each in one way: for Walk::are_explained. Empty: all.
  std::vector<size_t> probes;
  /// What pair tests found to be others.
  std::vector<OtherLeaf> other_leaves;
  std::vector<OtherArgument> other_arguments;
  std::function<void(size_t done, size_t total)> progress;
  const std::atomic<bool>* interrupted = nullptr;
  [[nodiscard]] bool stopped() const { return interrupted != nullptr && interrupted->load(); }
};

struct Walk {
  std::vector<WalkStep> steps;    // in order of production
  std::vector<Finding> findings;  // kind Gap or Edge, in that order; hard: they are confirmed
  /// Of values inside a module that computes golden's function all the same, written otherwise.
  std::vector<Finding> closed;
  /// By record of mine. Of the first findings: what golden's program makes of mine's values there;
  /// of weights that are written otherwise and wrong besides: golden's, written so.
  std::map<size_t, Tensor> references;
  std::set<std::string> closed_leaves;  // names of WalkOptions::other_leaves
  std::set<size_t> closed_arguments;    // of them, mine's operators
  /// Others: with them in golden's program most of what is wrong in a value behind them is gone.
  std::set<size_t> telling_arguments;
  std::set<std::string> idle_leaves;        // others, whose effect is below what could be seen
  std::map<std::string, size_t> closed_by;  // modules: how many of `closed` are inside them
  size_t judged = 0, judgeable = 0;         // values
  size_t operators_covered = 0,
         operators = 0;       // of golden, that produce floats: replayed for some value | all
  std::vector<bool> covered;  // by operator of golden: replayed for some value that was judged
  std::map<std::string, size_t> unjudged;  // reason -> count
  /// Outputs of golden's model in the steps of mine that mine has no judgeable value for: "logits,
  /// step 0".
  std::vector<std::string> missing_outputs;
  /// "output 1 of model.layers.1.mlp.gate has shape [17, 1] against golden's [17, 2]": results of
  /// another shape although the module was given golden's shapes; another program, however well
  /// what is made of them fits.
  std::vector<std::string> other_shapes;
  double limit = 0;            // of WalkStep::r
  bool are_narrow = false;     // most values behind products of float32 are beyond the limit
  bool are_explained = false;  // Program::products of mine explains them, and no more than them
  /// Of golden's operators that make floats those without partner in the other program: judged by the values around them | not at all
  size_t seen_from_outside = 0, unseen = 0;

  /// Everything that the model's outputs are made of is what golden's program makes of it, whatever
  /// the run under test's program is.
  [[nodiscard]] bool is_whole_path_judged() const;
};

/// For every value of mine at the boundary of a module call: what golden's operators make of the
/// run under test's values recorded before it, in fp64 and in a simulation of the run under test's
/// rounding, and how far mine is from that (value_judge.hpp). A value is judged on the run under
/// test's own values, so nothing is inherited and every value is judged independently of the
/// others.
///
/// level Leaves   inputs and outputs of all captured modules. An input that is a value recorded
///                before must be equal to it, up to a cast (else an Edge finding). Level Operators
///                is walked like this
/// level Modules  outputs of all captured modules
/// level Layers   outputs of `x.<number>` and of the root
///
/// errors  Interrupted | Invalid (golden has no operators)
[[nodiscard]] Result<Walk> walk(const Program& golden, const Program& mine, const Pairing& pairing,
                                const WalkOptions& options);

}  // namespace assay::locate
