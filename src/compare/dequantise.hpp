// SPDX-License-Identifier: Apache-2.0
// Quantised weights as the numbers they stand for: (code - zero point) * scale.
// Layouts and their sources: docs/commands/compare-weights.md
#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "pair/weight_names.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::compare {

/// One quantised weight as its file has it.
struct QuantisedParts {
  pair::Coding coding = pair::Coding::Codes;
  TensorView codes;
  TensorView scale;
  std::optional<TensorView> zero;         // offset or zero point; packed where the codes are
  std::optional<TensorView> group_index;  // of each input channel (GPTQ with act-order)
  /// GPTQ files before format v2 store each zero point less one.
  bool zero_is_less_one = true;
  /// Coding::Levels: what each code stands for, as a part of the block's scale.
  std::span<const double> levels = {};
  double scale_factor = 1;  // of the stored scale: 1/127 where that is the largest value of a row
};

/// nf4's.
extern const std::array<double, 16> kNormalFloat4;

struct Dequantised {
  Tensor tensor;       // float32, C-contiguous
  std::string scheme;  // "int8 per channel", "int4 per group of 128, asymmetric"
  std::string dtype;   // "torch.float32"; like_torch: what torch's arithmetic returns
};

/// wanted      shape of the float weight it stands for: tells int4 pairs from int8, and the two
///             layouts of a `qweight` apart
/// like_torch  the original's arithmetic: torch broadcasting and rounding after each operation.
///             Otherwise exact in fp64 and rounded once, and scales may be per output channel as
///             [out], per group as [out, groups], per block of 128 x 128 as [rows, columns]
/// jobs        threads; never changes the result
/// errors      Invalid (a scale or zero point that does not fit) | Unsupported (layout) | NoSpace
[[nodiscard]] Result<Dequantised> dequantise(const QuantisedParts& parts, const Dims& wanted,
                                             bool like_torch, int jobs);

}  // namespace assay::compare
