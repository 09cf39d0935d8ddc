// SPDX-License-Identifier: Apache-2.0
// Layers and experts that each rank of a job numbers from 0 for itself, as parts of one model.
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// Where the stages of a pipeline (run::Run::parallel, pp) each number their layers from 0, the
/// layers of a stage are numbered on behind those of the stages before it, in the names of records,
/// operations and trees. Stages that number through are left as they are.
///
/// returns  one sentence when that was done, else nothing
[[nodiscard]] std::string number_stages_on(Run* run);

/// Where the ranks of an expert-parallel job (ep) each number their experts from 0, expert i of
/// place e becomes expert e * k + i, of k experts a place. Two runs of equal ranks and places that
/// both number from 0 are left as they are. Of a run that looks numbered so, but whose places are
/// not known, the experts of the first rank only stay operands.
///
/// returns  one sentence for each run of which that holds
[[nodiscard]] std::vector<std::string> number_experts_on(Run* golden, Run* mine);

/// Makes the trees of ranks (run::Run::rank_trees) one, that of the whole model.
void join_trees(Run* run);

}  // namespace assay::run
