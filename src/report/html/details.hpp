// SPDX-License-Identifier: Apache-2.0
// Where and how a pair of tensors differs, as the page holds it.   docs/formats/page.md, "Details"
#pragma once
#include "measure/pair_picture.hpp"
#include "report/html/page.hpp"

namespace assay::report::html {

/// One object a picture, of about 15 kB at most before compression (25 kB where three axes or more
/// are longer than 1).
[[nodiscard]] Json details_json(const measure::PairPicture& picture);

}  // namespace assay::report::html
