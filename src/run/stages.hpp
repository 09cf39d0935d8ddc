// SPDX-License-Identifier: Apache-2.0
// The stages of a pipeline as one model.
#pragma once
#include <string>

#include "run/run.hpp"

namespace assay::run {

/// Where the stages of a pipeline (run::Run::parallel, pp) each number their layers from 0, the
/// layers of a stage are numbered on behind those of the stages before it, in the names of records
/// and operations. Stages that number through are left as they are.
///
/// returns  one sentence when that was done, else nothing
[[nodiscard]] std::string number_stages_on(Run* run);

}  // namespace assay::run
