// SPDX-License-Identifier: Apache-2.0
// Which records hold a model's logits, and what it chose by them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// How surely a record holds logits: 2 the model's output of that name, 1 the output of its head, 0
/// no.
[[nodiscard]] int logits_rank(const Run& run, const TensorRecord& record);

/// [batch, position, vocabulary] or [sequence, vocabulary]; 0: these are no logits.
[[nodiscard]] int64_t sequences_of(const TensorView& logits);

/// Values of the last position of one sequence, [vocabulary].
[[nodiscard]] std::vector<double> last_row(const TensorView& logits, int64_t sequence);

inline constexpr size_t kTopChoices = 32;
/// Nothing for what are no logits, or those of more than 64 sequences.
[[nodiscard]] std::optional<TopChoices> top_choices(const TensorView& logits);

}  // namespace assay::run
