// SPDX-License-Identifier: Apache-2.0
// The activations and element-wise operations: what each accepts and returns, as `assay opcheck
// --ops-list` prints it, and the function that evaluates it.   docs/opcheck/elementwise.md
#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

std::span<const OperationRow> elementwise_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"ActivationOperation",
       "relu, gelu (tanh, erf), fast gelu, faster gelu, swish, log, sigmoid, swiglu forward and "
       "backward",
       "activationType scale dim geluMode", "y", "FLOAT, VECTOR_FUSION", Original,
       evaluate_activation},
      {"ElewiseOperation",
       "cast, muls, cos, sin, neg, tanh, add, sub, mul, realdiv, logical not/and/or, less, "
       "greater, equal, quant, quant and dequant per channel, dynamic quant",
       "elewiseType quantParam.inputScale|quantInputScale|inputScale "
       "quantParam.inputOffset|quantInputOffset|inputOffset quantParam.asymmetric|asymmetric "
       "mulsParam.varAttr|varAttr outTensorType|OutTensorType",
       "y [, scale [, offset]]", "FLOAT, CAST, INTEGER, QUANT", Original, evaluate_elewise},
      {"SwigluQuantOperation", "int8 per token", "quantType", "y, scale", "QUANT", Ours,
       evaluate_swiglu_quant},
  };
  return kOperators;
}

}  // namespace assay::opcheck
