// SPDX-License-Identifier: Apache-2.0
// The token that each of two rows of logits chooses, and how far the rows are apart.
#pragma once
#include <vector>

#include "locate/verdict/locate.hpp"
#include "measure/rounding.hpp"

namespace assay::locate {

/// Logits of one position, a value for each token, and the type that they were stored in.
struct TokenRow {
  std::vector<double> logits;
  measure::Rounding type;
};

/// The noise is the root of the mean square that the rows differ by, without their common shift,
/// and of what their types round the largest logit by. Tokens that both rows hide (less likely than
/// a double can tell: a mask, the padding of a vocabulary) count in neither noise nor divergence.
///
/// golden, mine  equally many logits
/// returns       without step, sequence, position and kind. Noise and divergence are NaN where a
///               token that one of the rows does not hide is not finite
[[nodiscard]] TokenChoice compare_token_rows(const TokenRow& golden, const TokenRow& mine);

}  // namespace assay::locate
