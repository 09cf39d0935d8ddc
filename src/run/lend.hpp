// SPDX-License-Identifier: Apache-2.0
// Values for a run that has only their digests, from where the same bytes are.
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// Parameters, buffers and other values that no operator made, of a run that holds digests instead
/// of them: each gets the place of a tensor of `lender` with the same digest, type and shape.
/// Nothing happens to runs that hold their values.
///
/// returns   sentences for people: how many were found
std::vector<std::string> lend_values(Run* borrower, const Run& lender);

/// A checkpoint: a folder or a file of weights; or a run that holds them.
/// errors  of open_checkpoint() and open_run()
[[nodiscard]] Result<Run> open_weights(const std::string& path);

/// Values from a checkpoint, whatever their names there.
/// errors  Usage (golden holds its values) | of opening the checkpoint
[[nodiscard]] Result<std::vector<std::string>> lend_weights(Run* golden,
                                                            const std::string& checkpoint);

}  // namespace assay::run
