// SPDX-License-Identifier: Apache-2.0
// Operators of ggml in fp64: the table.   docs/reference-ggml.md
//
// A call is named "ggml." and ggml_op_name() in lower case ("ggml.mul_mat"); its arguments are
// those that a capture of a ggml program writes (docs/formats/native.md): the sources src0 ... src9
// as tensors in row-major shapes, the parameters by name ("eps", "n_dims") or as the 16 words
// "op_params", "ne" (the four sizes of the result), and "src0_type", ggml's name of the type in
// which the first source was stored ("q4_K", "f16"), which decides into what kernels convert the
// second. aten::evaluate(), class_of() and magnitudes() find these calls by their name.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/aten/magnitudes.hpp"
#include "reference/aten/registry.hpp"

namespace assay::reference::ggml {

using aten::Arguments;
using aten::EvaluateOptions;
using aten::Magnitudes;
using aten::OperatorClass;

/// All operators as rows of the table of aten's registry.
[[nodiscard]] std::span<const aten::Overload> overloads();
/// "ggml.add" ..., sorted.
[[nodiscard]] std::vector<std::string_view> known_operators();

[[nodiscard]] inline bool is_ggml(std::string_view name) { return name.starts_with("ggml."); }
/// errors  Unsupported (no such operator, or none that rounds more than once) | of the operator
[[nodiscard]] Result<Magnitudes> rounding(const aten::Call& call, int jobs = 1);
/// argsort or top_k as the operator of PyTorch that selects the same, which knows which answers are
/// right: places of equal values, and the order of top_k, are open. Its places are output `places`.
/// Nothing for any other call.
struct Selection {
  aten::Call call;
  size_t places = 0;
};
[[nodiscard]] std::optional<Selection> selection_of(const aten::Call& call);
[[nodiscard]] bool has_open_order(std::string_view name);
/// True when rounding() has an answer.
[[nodiscard]] bool has_rounding(std::string_view name);

}  // namespace assay::reference::ggml
