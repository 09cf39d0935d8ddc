// SPDX-License-Identifier: Apache-2.0
// Which tokens of a text a graph computes, by the positions that the host has filled in.
#pragma once
#include <optional>

#include "capture/ggml/engine.hpp"

namespace assay::capture::ggml {

struct Positions {
  int64_t count = 0;
  int32_t first = 0;
  int32_t last = 0;
};

/// Of the leaf `inp_pos`, as llama.cpp names it. Nothing when there is none, or its memory is not
/// given yet.
[[nodiscard]] std::optional<Positions> positions_of(const Engine& engine, EngineGraph* graph);

/// llama.cpp computes two tokens, begin and end of a text, before the first prompt, and throws the
/// result away. A prompt of two tokens looks the same; the next graph of the same scheduler tells:
/// it begins at 0 again.
[[nodiscard]] bool may_be_warm_up(const Positions& positions);

}  // namespace assay::capture::ggml
