// SPDX-License-Identifier: Apache-2.0
// What the tensors of a run are called, and which ones a name means.
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// node, role and slot joined by dots: "root.lm_head.output", "model.norm.input.0",
/// "root.norm.weight".
[[nodiscard]] std::string record_name(const TensorRecord& record);

/// Indices of the records of a node ("model.norm"); where no node has that name, of what it is the
/// record_name() of ("model.norm.input.0"), or all but the slot of one ("model.norm.input"); where
/// there are none either, in runs of files, of the tensors with that slot or key ("lm_head.weight").
[[nodiscard]] std::vector<size_t> records_named(const Run& run, const std::string& name);

}  // namespace assay::run
