// SPDX-License-Identifier: Apache-2.0
#include "pair/engine.hpp"

#include <algorithm>

namespace assay::pair {

const Engine* engine_between(const run::Run& golden, const run::Run& mine, Engines engines) {
  const auto found = std::ranges::find_if(
      engines, [&](const Engine* engine) { return engine->made(golden) != engine->made(mine); });
  return found == engines.end() ? nullptr : *found;
}

}  // namespace assay::pair
