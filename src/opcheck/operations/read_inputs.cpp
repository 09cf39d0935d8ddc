// SPDX-License-Identifier: Apache-2.0
#include "opcheck/operations/read_inputs.hpp"
#include "tensor/sentence.hpp"

#include <string>

namespace assay::opcheck {

Result<std::vector<Tensor>> read_inputs(const Case& one,
                                        const std::vector<std::string_view>& names) {
  const size_t count = one.operands->input_count();
  if (count != names.size()) {
    std::string list;
    for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
    return fail(Errc::Invalid, one.op_type, " takes ", list, "; the dump has ", count,
                (count == 1 ? " input" : " inputs"));
  }
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < count; ++i) {
    ASSAY_TRY(Tensor input, one.operands->input(i));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace assay::opcheck
