// SPDX-License-Identifier: Apache-2.0
// One list of engines, twice: as locate takes them and as pairing does.
#include "engines/engines.hpp"

#include <array>

#include "engines/ggml/engine.hpp"

namespace assay::engines {

namespace {

const ggml::Engine kGgml;
constexpr std::array<const locate::Engine*, 1> kAll = {&kGgml};
constexpr std::array<const pair::Engine*, 1> kForPairing = {&kGgml};

}  // namespace

locate::Engines all() { return kAll; }

pair::Engines for_pairing() { return kForPairing; }

}  // namespace assay::engines
