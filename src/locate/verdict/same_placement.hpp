// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of two runs hold a model in the same way. Where golden's are cut otherwise than
// those of the run under test, no value of a rank has a partner, and no difference is a fault.
#pragma once
#include <optional>
#include <string>

#include "locate/program/pairing.hpp"

namespace assay::locate {

/// Looks at weights, and at what modules return: shapes, and where the ranks of one run hold alike
/// what those of the other one only add up to.
///
/// returns  nothing where golden is of one rank, whose tensors are whole (program/shards.hpp), or
///          where no difference is seen
[[nodiscard]] std::optional<std::string> find_other_placement(const Program& golden,
                                                              const Program& mine,
                                                              const Pairing& pairing);

}  // namespace assay::locate
