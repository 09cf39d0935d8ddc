// SPDX-License-Identifier: Apache-2.0
// The weights of a GGUF file as the checkpoint has them that it was converted from, and whether
// rounding to its blocks explains the difference. docs/commands/compare-weights.md
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::compare {

/// What the converter did to one weight, beside rounding.
struct GgufWeight {
  std::string name;  // in the file: "blk.0.attn_q.weight"
  int64_t rope_heads =
      0;              // > 0: the rows of so many heads were put in the order of rope's neighbours
  int64_t heads = 0;  // of Q and K, whether they were put in that order or not
  int64_t fused_heads = 0;  // > 0: Q, K and V of so many heads, in the checkpoint head by head
  bool plus_one = false;    // norms of Gemma are stored as weight + 1
  [[nodiscard]] std::string note() const;
};

/// A GGUF side whose records have the checkpoint's names.
struct GgufSide {
  run::Run run;
  std::map<size_t, GgufWeight> weights;  // by record, of all that were renamed or changed
};

/// Takes the stacked experts of both sides apart, so that one matrix meets one:
/// `blk.3.ffn_up_exps.weight` of 8 experts becomes `blk.3.ffn_up.0.weight` to `.7.weight`, and
/// `experts.gate_up_proj` of a checkpoint `experts.0.gate_proj.weight` ... where its shape fits.
/// Records point into the same bytes; the others stay in their order.
void take_experts_apart(run::Run* gguf, run::Run* other);

/// gguf    run::open_checkpoint() of a .gguf file
/// other   the checkpoint: which of several possible names of a weight is meant
[[nodiscard]] GgufSide as_checkpoint(const run::Run& gguf, const run::Run& other);

/// Takes back what the converter did; the values are the file's.
/// errors    Invalid: rows that do not fit the heads | Unsupported
[[nodiscard]] Result<Tensor> in_checkpoint_order(Tensor tensor, const GgufWeight& weight);

/// For Q and K that are far from golden: whether the rows fit in the other order, because the
/// converter forgot to put them in rope's, or did it for an architecture whose rope pairs halves. A
/// sentence, or nothing.
///
/// stored    the values as the file has them
[[nodiscard]] Result<std::optional<std::string>> other_order(const Tensor& stored,
                                                             const GgufWeight& weight,
                                                             const TensorView& golden);

/// How far the values of a file are from the numbers that they were rounded from.
struct RoundingCheck {
  std::string type;  // "q8_0", "float16"
  int64_t value_count = 0;
  int64_t beyond_half_step = 0;  // farther than half a step of their block
  int64_t unexplained = 0;       // farther than any quantiser of the type goes, or not finite
  double worst_steps = 0;        // largest distance, in steps
  // of the unexplained, the farthest in steps; counted from the tensor's start
  int64_t worst_block = -1;
  int64_t worst_row = -1;  // of the file
  int64_t bad_blocks = 0;  // blocks with unexplained values
  /// "q8_0, within half a step", "q4_0, within rounding (12 of 4096 clipped)",
  /// "q8_0, 32 of 4096 values unexplained in 1 block; worst: block 17 (row 4), 250 steps"
  [[nodiscard]] std::string text() const;
};

/// Nothing when the record's type does not round (float32, integers), or golden has the same type.
///
/// record    of a GGUF file
/// weight    what else was done to it
/// golden    the numbers in the checkpoint's order, shape as the record's
/// jobs      threads; never changes the result
[[nodiscard]] Result<std::optional<RoundingCheck>> check_rounding(const run::TensorRecord& record,
                                                                  const GgufWeight& weight,
                                                                  const TensorView& golden,
                                                                  int jobs);

}  // namespace assay::compare
