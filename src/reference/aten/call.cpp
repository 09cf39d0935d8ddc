// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/call.hpp"

namespace assay::reference::aten {

std::string_view class_name(OperatorClass kind) {
  switch (kind) {
    case OperatorClass::Unknown:
      return "unknown";
    case OperatorClass::Move:
      return "move";
    case OperatorClass::Integer:
      return "integer";
    case OperatorClass::Cast:
      return "cast";
    case OperatorClass::Arithmetic:
      return "arithmetic";
    case OperatorClass::Product:
      return "product";
    case OperatorClass::Reduction:
      return "reduction";
    case OperatorClass::Function:
      return "function";
    case OperatorClass::Trigonometric:
      return "trigonometric";
    case OperatorClass::Softmax:
      return "softmax";
    case OperatorClass::Activation:
      return "activation";
    case OperatorClass::Norm:
      return "norm";
    case OperatorClass::Attention:
      return "attention";
    case OperatorClass::Fused:
      return "fused";
    case OperatorClass::Random:
      return "random";
    case OperatorClass::Allocation:
      return "allocation";
  }
  return "unknown";
}

}  // namespace assay::reference::aten
