// SPDX-License-Identifier: Apache-2.0
// The error of each operator against a reference on its own captured inputs.
//   docs/localisation.md, "Own error"
#pragma once
#include <atomic>
#include <functional>

#include "locate/noise/narrow_products.hpp"
#include "locate/program/finding.hpp"
#include "run/parts.hpp"

namespace assay::locate {

/// One output of one operator.
struct OwnError {
  enum class State : uint8_t {
    Judged,          // z and e hold
    Exact,           // judged, and no element has an error
    NoReference,     // unknown operator
    NotCaptured,     // inputs or outputs without bytes
    NotPredictable,  // random, allocation, undefined values
    Failed,          // the reference refused, see reason
  };
  size_t op = kNone;      // index into Program::operators; kNone: of ATB, see `record`
  size_t record = kNone;  // of ATB: the captured output, where it is known
  size_t output = 0;
  State state = State::NotCaptured;
  DType dtype = DType::Float32;  // of the captured output
  double z = 0;                  // dense test: root of mean square error over its expectation
  double e = 0;                  // element test: largest error over the largest allowed
  double e2 = 0;                 // the same for coarse kernels
  double zr = 0;                 // largest z of a row; 0 when rows are shorter than 16
  int64_t worst = -1;            // flat index of the element of `e`
  double worst_ulp = 0;          // its error in ULP
  double allowed_ulp = 0;        // what is allowed there
  double relative_l2 = 0;        // |m - y| / |y|
  double floor_l2 = 0;           // root of sum of s^2 / |y|: what rounding explains
  bool wrong = false;            // beyond what rounding explains, see strict_kernels.hpp
  bool sampled = false;          // a part was checked: rows of a large product or view
  bool by_sums = false;          // sums over blocks of its columns were checked, see judge_sums.hpp
  std::string reason;            // of the states that are no judgement
  bool reason_is_named = false;  // it names the operator
};

/// Operators of one kind whose errors are all above one rounding: information, no alarm.
///   docs/localisation.md, "Kernels that round once, and kernels that round more often"
struct CoarseGroup {
  std::string pattern;  // "model.layers.*.mlp aten.mm.default #0 bfloat16"
  size_t members = 0;
  double median_z = 0;
  double median_e2 = 0;
};

struct OwnErrors {
  std::vector<OwnError> outputs;  // in the order of operators
  // by storage type: at least 90 % of outputs with any error have e <= 1.05
  std::map<DType, bool> strict;
  std::vector<Finding> findings;  // hard, in execution order
  std::vector<CoarseGroup> coarse;
  /// What kernels round operands of float32 to, where that explains the products of a kind: the
  /// coarsest of all kinds.   narrow_kernels.hpp
  ProductType products = ProductType::Float32;
  std::string narrow_kinds;                // "36 aten.mm.default in bf16"
  size_t judged = 0;                       // operators that produce floats and were judged
  size_t judgeable = 0;                    // operators that produce floats
  std::map<std::string, size_t> unjudged;  // "aten.foo.bar: no reference" -> count
  std::map<size_t, std::string> unjudged_operators;  // the same, one by one
  std::map<std::string, size_t> failed_parts;        // why -> operators in them
  bool interrupted =
      false;  // with OwnErrorOptions::keeps_what_is_done: the others are in none of it
};

/// Which of evaluate()'s results an output is: slots of several outputs are their numbers.
[[nodiscard]] size_t result_of(const Use& use, size_t place);

struct OwnErrorOptions {
  int jobs = 0;                             // <= 0: one per core
  uint64_t max_memory = uint64_t{1} << 30;  // of working tensors; one operator may exceed it alone
  /// Products with more multiplications than this are checked on sampled rows; 0: never.
  uint64_t sample_above = 0;
  /// Large products of float32 are checked by sums over blocks of their columns, and large views on
  /// one row in 16; those in doubt as all others.
  bool by_sums = false;
  /// After Ctrl-C the operators that were judged until then, in place of the error Interrupted.
  bool keeps_what_is_done = false;
  /// Who judges the operators, in parts (operator_parts.hpp); null: the threads of this process.
  run::PartRunner* parts = nullptr;
  std::function<void(size_t done, size_t total)> progress;
  const std::atomic<bool>* interrupted = nullptr;
};

/// Results do not depend on jobs, max_memory or parts.
/// errors  Interrupted | of run::PartRunner::run()
[[nodiscard]] Result<OwnErrors> own_errors(const Program& program, const OwnErrorOptions& options);

/// All operators by their number, each by itself: before any is held against its peers.
/// errors  Interrupted
[[nodiscard]] Result<std::vector<std::vector<OwnError>>> judge_operators(
    const Program& program, const OwnErrorOptions& options);

/// The measures of one captured output against the reference result of `call`, before any
/// threshold. Used by own_errors(), by leaf modules of known type and by tests.
///
/// outputs  of evaluate(call)
/// mine     the captured output, its own type
/// probabilities  of fused attention: half a ULP of 1 in their type, where that is narrower
/// errors   Unsupported (types)
[[nodiscard]] Result<OwnError> judge_output(const reference::aten::Call& call,
                                            const std::vector<Tensor>& outputs, size_t output,
                                            const TensorView& mine, int jobs = 1,
                                            double probabilities = 0);

/// The operations of an ATB run, recomputed by opcheck and judged by its `atb` standard, as
/// findings.
[[nodiscard]] Result<OwnErrors> own_errors_of_operations(const run::Run& run,
                                                         const OwnErrorOptions& options);

}  // namespace assay::locate
