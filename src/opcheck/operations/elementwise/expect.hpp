// SPDX-License-Identifier: Apache-2.0
// What the operations of these families have in common: counts of tensors, and expectations of one
// candidate.
#pragma once
#include "opcheck/operations/expectations.hpp"

namespace assay::opcheck {

/// How many tensors an operation has, both ends included.
struct TensorCounts {
  size_t least_inputs = 1, most_inputs = 1;
  size_t least_outputs = 1, most_outputs = 1;
};
/// errors  Invalid "3 inputs in the dump, 1 or 2 expected"
[[nodiscard]] Status expect_counts(const Case& one, const TensorCounts& counts);

/// For operations to whom rows mean something.
/// errors  Unsupported "intensor0 is in FRACTAL_NZ"
[[nodiscard]] Status refuse_nz(const Case& one);

/// Results whose size follows from sizes of rows are not computed for tensors that have rows, but
/// no elements.
/// errors  Unsupported "intensor0 has no elements"
[[nodiscard]] Status refuse_empty(const Tensor& tensor, size_t index);

/// An optional input: nothing where the dump has none, or one without elements.
[[nodiscard]] Result<std::optional<Tensor>> optional_input(const Case& one, size_t index);

/// The only element of a tensor.
/// errors  Invalid "intensor3 has shape [2], one value expected" | of the reading functions
[[nodiscard]] Result<double> single_value(const Tensor& tensor, std::string_view what);

/// Outputs of quantisation, without rows that have no finite scale: what a kernel makes of 0 / 0 is
/// nowhere said.
struct QuantisedRows {
  Expectation values;  // golden rounded for the type of the dumped output
  Expectation scales;
  std::optional<Expectation> offsets;
};
/// values   [.., columns] widened; an output `index` holds the result, the next ones scales and
///          offsets
/// target   type that was quantised to, decides the limit of the scale
/// errors   of reference::dynamic_quantise(); of Operands::output()
[[nodiscard]] Result<QuantisedRows> expect_dynamic_quantised(const Case& one,
                                                             reference::Wide values,
                                                             bool asymmetric, DType target,
                                                             size_t index);

// The operations of this family.
Result<Evaluation> evaluate_activation(const Case& one);
Result<Evaluation> evaluate_elewise(const Case& one);
Result<Evaluation> evaluate_swiglu_quant(const Case& one);

}  // namespace assay::opcheck
