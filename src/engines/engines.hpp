// SPDX-License-Identifier: Apache-2.0
// The engines whose runs have graphs of operators in words of their own. A new one is added to
// all().
#pragma once
#include "locate/program/engine.hpp"

namespace assay::engines {

[[nodiscard]] locate::Engines all();
/// The same, as pairing takes them.
[[nodiscard]] pair::Engines for_pairing();

}  // namespace assay::engines
