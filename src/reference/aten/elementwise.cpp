// SPDX-License-Identifier: Apache-2.0
#include "reference/aten/registry.hpp"

namespace assay::reference::aten {

std::span<const Overload> elementwise_overloads() { return {}; }

}  // namespace assay::reference::aten
