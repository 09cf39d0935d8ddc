// SPDX-License-Identifier: Apache-2.0
// Which own errors are faults: kernels that round once, and kernels that round more often.
//   docs/localisation.md, "Kernels that round once, and kernels that round more often"
#pragma once
#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// z and e of a kernel that rounds once never exceed sqrt(3) and 1.
inline constexpr double kOwnErrorLimit = 2;
/// Up to here e is explained by one rounding and the arithmetic of the test itself.
inline constexpr double kStrictError = 1.05;
inline constexpr double kStrictShare = 0.9;
inline constexpr size_t kFewestPeers = 3;
/// Times what the peers have.
inline constexpr double kPeerLimit = 2.5;
/// Of one element where its peers are strict.
inline constexpr double kLoneElementLimit = 3;
/// Without peers.
inline constexpr double kLoneLimit = 4;
inline constexpr double kLoneRowLimit = 6;
/// From this median on a group is named as coarse.
inline constexpr double kCoarseMedian = 1.5;

/// Fills `strict`, `findings`, `coarse` and `wrong` of the outputs.
void find_wrong_operators(const Program& program, OwnErrors* errors);

/// The measure that speaks most against an output: "own error 8.6x its rounding, largest element 37
/// ULP, allowed 1".
[[nodiscard]] std::string describe_own_error(const OwnError& error);

}  // namespace assay::locate
