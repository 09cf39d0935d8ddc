// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

std::span<const Operator> elementwise_operators() {
  static constexpr std::array<Operator, 3> kOperators = {{
      {.name = "ActivationOperation",
       .variants = "relu, gelu (tanh, erf), fast gelu, faster gelu, swish, log, sigmoid, swiglu "
                   "forward and backward",
       .parameters = "activationType scale dim geluMode",
       .outputs = "y",
       .precision = "FLOAT, VECTOR_FUSION",
       .evaluate = evaluate_activation},
      {.name = "ElewiseOperation",
       .variants = "cast, muls, cos, sin, neg, tanh, add, sub, mul, realdiv, logical not/and/or, "
                   "less, greater, equal, quant, quant and dequant per channel, dynamic quant",
       .parameters = "elewiseType quantParam.inputScale|quantInputScale|inputScale "
                     "quantParam.inputOffset|quantInputOffset|inputOffset "
                     "quantParam.asymmetric|asymmetric mulsParam.varAttr|varAttr "
                     "outTensorType|OutTensorType",
       .outputs = "y [, scale [, offset]]",
       .precision = "FLOAT, CAST, INTEGER, QUANT",
       .evaluate = evaluate_elewise},
      {.name = "SwigluQuantOperation",
       .variants = "int8 per token",
       .parameters = "quantType",
       .outputs = "y, scale",
       .precision = "QUANT",
       .origin = Operator::Origin::Ours,
       .evaluate = evaluate_swiglu_quant},
  }};
  return kOperators;
}

}  // namespace assay::opcheck
