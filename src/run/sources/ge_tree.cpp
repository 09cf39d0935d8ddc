// SPDX-License-Identifier: Apache-2.0
#include "run/sources/sources.hpp"

namespace assay::run::sources {

Attempt read_ge_tree(const std::string&) { return std::nullopt; }

}  // namespace assay::run::sources
