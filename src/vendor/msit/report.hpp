// SPDX-License-Identifier: Apache-2.0
// The report of msit 8.2.   docs/commands/msit-llm-compare.md
#pragma once
#include "report/style.hpp"

namespace assay::vendor::msit {

/// The first columns of ours alone.   source: Ascend/msit 8.2: msit_llm/common/constant.py
inline constexpr report::Style kStyle{.more_tensors = "",
                                      .more_statistics = "",
                                      .more_weights = "",
                                      .verdict = "",
                                      .to_the_letter = true};

}  // namespace assay::vendor::msit
