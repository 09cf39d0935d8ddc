// SPDX-License-Identifier: Apache-2.0
// The interface between the checker and one operation of the library: what was captured of an
// execution goes in, what its outputs should have been comes out.   docs/opcheck.md
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/standards.hpp"
#include "opcheck/parameters.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::opcheck {

using measure::Accuracy;
using measure::Precision;

/// The tensors that a dump holds of one execution on one rank. Nothing is opened before it is asked
/// for; a view is valid as long as the Tensor that came with it.
class Operands {
 public:
  virtual ~Operands() = default;
  /// One more than the highest number in the dump (or what the list of operations says).
  [[nodiscard]] virtual size_t input_count() const = 0;
  [[nodiscard]] virtual size_t output_count() const = 0;
  [[nodiscard]] virtual bool has_input(size_t index) const = 0;
  [[nodiscard]] virtual bool has_output(size_t index) const = 0;

  /// The input before the operation where that was captured, otherwise after it (has_before()).
  /// FRACTAL_NZ tensors keep their stored shape, see is_nz().
  /// errors  NotFound "intensor1 is not in the dump" | of run::load_tensor()
  [[nodiscard]] virtual Result<Tensor> input(size_t index) const = 0;
  /// errors  the same
  [[nodiscard]] virtual Result<Tensor> output(size_t index) const = 0;
  /// The input as the operation left it.
  /// errors  the same
  [[nodiscard]] virtual Result<Tensor> input_after(size_t index) const = 0;
  /// True when inputs are known as they were before the operation.
  [[nodiscard]] virtual bool has_before() const = 0;
  /// True when the header says FRACTAL_NZ: dims [..., columns / c0, rows, c0].
  [[nodiscard]] virtual bool is_nz_input(size_t index) const = 0;
  [[nodiscard]] virtual bool is_nz_output(size_t index) const = 0;
};

/// One execution of one operation on one rank.
struct Case {
  std::string_view op_type;  // "RmsNormOperation"
  Parameters parameters;
  const Operands* operands = nullptr;
  /// The same execution on all ranks, in the order of the parameter `rank`, this one included.
  /// errors  NotFound "Cannot find data on rank 1! ..."
  struct Peer {
    Parameters parameters;
    const Operands* operands = nullptr;
  };
  std::function<Result<std::vector<Peer>>(int64_t rank_count)> peers;
  /// Threads that a large product may use. Never changes a result.
  int jobs = 1;
};

/// What an output may be. Most outputs have one candidate; where the parameters in the dump do not
/// determine the result there are several, each with a label.
struct Candidate {
  std::string label;  // "geluMode tanh"; empty for the only one
  /// Float64, Int64, or the element type of the output where values are only moved; any strides.
  /// Element count of the output; a shape that differs from the dumped one is named in the row.
  std::function<Result<Tensor>()> golden;
  /// CvFusion: a model of the kernel in its own precision, for this reading; its errors are the
  /// denominators of the ratio rule. Empty: the element rule alone decides.
  std::function<Result<Tensor>()> second = {};
};

/// What one output should have been.
struct Expectation {
  size_t index = 0;       // number of the output; of the input when in_place
  bool in_place = false;  // "mine" is the input as the operation left it
  /// Judged in place of the dumped tensor: values picked from it (written rows of a cache,
  /// x[indices] of a sort).
  std::optional<Tensor> mine = {};
  Accuracy accuracy = {};
  /// At least one. The first that passes decides; `try_all`: the one with the smallest error.
  std::vector<Candidate> candidates = {};
  bool try_all = false;
  /// Quantised outputs: fp64 values before rounding, so that an output one off can be told from a
  /// tie.
  std::optional<Tensor> before_rounding = {};
  /// Added to the row whatever the verdict: "written part only", "2 of 64 rows: tie".
  std::string note = {};
  /// Not all of the output could be judged; a pass then says so.
  bool partial = false;
};

struct Evaluation {
  std::string variant;  // "prenorm, quantised": what parameters and tensors were taken for
  std::vector<Expectation> outputs;
};

/// NOT_SUPPORTED, with that reason.
[[nodiscard]] inline Error not_supported(std::string reason) {
  return {Errc::Unsupported, {}, std::nullopt, std::move(reason)};
}
/// "transposeC 7 is none of 0 (a), 1 (b)": NOT_SUPPORTED.
[[nodiscard]] inline Error unknown_value(std::string_view key, int64_t value,
                                         std::string_view known) {
  return not_supported(std::string(key) + " " + std::to_string(value) + " is none of " +
                       std::string(known));
}

/// One row of the table of operations.
struct OperationRow {
  std::string_view name;        // "RmsNormOperation"
  std::string_view variants;    // for people: "norm, prenorm, postnorm; int8 static and dynamic"
  std::string_view parameters;  // known paths, separated by blanks; spellings "a|b"
  std::string_view outputs;     // "y [, rstd]", "key cache and value cache in place"
  std::string_view precision;   // "VECTOR_FUSION, QUANT"
  enum class Origin : uint8_t {
    Original,  // in the table of msit 8.2
    Older,     // in ait 0.2 only
    Ours,
  } origin = Origin::Original;
  /// errors  Unsupported: NOT_SUPPORTED with that reason. Anything else: ERROR with that reason.
  ///         Goldens may fail later, in Candidate::golden, in the same two ways.
  Result<Evaluation> (*evaluate)(const Case& one) = nullptr;
};

}  // namespace assay::opcheck
