// SPDX-License-Identifier: Apache-2.0
// Counts before it opens anything, so that a dump with other inputs is refused by the names of
// those that belong there.
#include "opcheck/operations/read_inputs.hpp"

#include <string>

#include "tensor/sentence.hpp"

namespace assay::opcheck {

Result<std::vector<Tensor>> read_inputs(const Case& one,
                                        const std::vector<std::string_view>& names) {
  return read_inputs(*one.operands, one.op_type, names);
}

Result<std::vector<Tensor>> read_inputs(const Operands& operands, std::string_view op_type,
                                        const std::vector<std::string_view>& names) {
  const size_t count = operands.input_count();
  if (count != names.size()) {
    std::string list;
    for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
    return fail(Errc::Invalid, op_type, " takes ", list, "; the dump has ", count,
                (count == 1 ? " input" : " inputs"));
  }
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < count; ++i) {
    ASSAY_TRY(Tensor input, operands.input(i));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace assay::opcheck
