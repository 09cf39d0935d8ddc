// SPDX-License-Identifier: Apache-2.0
// Calls of ggml: sources with four axes, parameters by name or as words, and operators of aten that
// mean the same.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "reference/aten/values.hpp"
#include "reference/ggml/operators.hpp"

namespace assay::reference::ggml {

using aten::Arguments;
using aten::Call;
using aten::EvaluateOptions;
using aten::Magnitudes;
using aten::OperatorClass;
using aten::Values;

/// Rounding errors of accumulators, float16 and bfloat16: half the distance of two values,
/// relative.
inline constexpr double kFloat32Roundoff = 0x1p-24;
inline constexpr double kFloat16Roundoff = 0x1p-11;
inline constexpr double kBFloat16Roundoff = 0x1p-8;
/// Root mean square of a rounding in units of the roundoff, for spread-out values.
inline constexpr double kMeanRounding = 0.425;

// ---- Rows of the table --------------------------------------------------------------------------

/// Fills in the arguments of the operator of aten that means the same, and its name where the row
/// has none.
using Translate = Status (*)(const Arguments& arguments, Call* same);

/// What C of an operator is whose kernels err by w = factor u sqrt(terms) C, with w^2/12 on
/// average.
enum class Size : uint8_t {
  Nothing,  // kernels round the result once or not at all
  Result,   // |y|
  One,
  Terms,  // magnitudes() of the operator of aten; 0 where that is a mere move
};
struct Roundoff {
  Size size = Size::Nothing;
  double factor = 0;
};

/// What kernels of ggml's CPU back end may err, element by element of the result: `allowed` (w),
/// `variance` (v) and `c`, all of the shape of the result. Other back ends err less, as they
/// convert less.
using RoundingOf = Result<Magnitudes> (*)(const Arguments& arguments, int jobs);

/// Either the operator of aten that means the same, or functions of our own.
struct DialectRow {
  std::string_view name;  // "ggml.mul_mat"
  OperatorClass kind;
  std::string_view same_as = {};  // "aten.sqrt.default"
  Translate translate = nullptr;
  Roundoff roundoff = {};
  bool view = false;  // the result is bytes of a source
  aten::Evaluator evaluate = nullptr;
  RoundingOf rounding = nullptr;
};

/// A row of functions of our own.
constexpr DialectRow own(std::string_view name, OperatorClass kind, aten::Evaluator evaluate,
                         RoundingOf rounding = nullptr) {
  return {.name = name, .kind = kind, .evaluate = evaluate, .rounding = rounding};
}

// One function a family; registry.cpp joins them.
[[nodiscard]] std::span<const DialectRow> arithmetic_operators();
[[nodiscard]] std::span<const DialectRow> activation_operators();
[[nodiscard]] std::span<const DialectRow> norm_operators();
[[nodiscard]] std::span<const DialectRow> movement_operators();
[[nodiscard]] std::span<const DialectRow> selection_operators();
[[nodiscard]] std::span<const DialectRow> image_operators();
[[nodiscard]] std::span<const DialectRow> product_operators();
[[nodiscard]] std::span<const DialectRow> rope_operators();
[[nodiscard]] std::span<const DialectRow> attention_operators();

// ---- Sources and results ------------------------------------------------------------------------

/// Sizes as ggml counts them, the fastest first.
using Sizes = std::array<int64_t, 4>;

/// A tensor with four axes, slowest first, whatever its strides.
struct Source {
  Tensor tensor;
  Sizes ne{1, 1, 1, 1};
  [[nodiscard]] const TensorView& view() const { return tensor.view; }
};
/// errors  Invalid (missing) | Unsupported (more than four dimensions)
[[nodiscard]] Result<Source> source(const Arguments& arguments, std::string_view name);
[[nodiscard]] Result<std::optional<Source>> optional_source(const Arguments& arguments,
                                                            std::string_view name);
/// The values of a source: in C order, which is ggml's.
/// errors  of source(), widen()
[[nodiscard]] Result<Wide> values_of(const Arguments& arguments, std::string_view name);

[[nodiscard]] std::string text_of(const Sizes& ne);  // "[64, 4, 5, 1]"
[[nodiscard]] inline Dims dims_of(const Sizes& ne) { return {ne[3], ne[2], ne[1], ne[0]}; }
/// Without leading sizes of 1; at least one dimension stays.
[[nodiscard]] Dims shape_of(const Dims& dims);
/// A result of four axes as ggml's results are.
[[nodiscard]] Values result_of(Tensor tensor);
[[nodiscard]] inline Values result_of(Wide values) {
  return result_of(to_tensor(std::move(values)));
}
/// C and its rounding errors: w = factor sqrt(terms) C, v = w^2 / 12.
[[nodiscard]] Magnitudes scaled_rounding(Wide c, double factor, double terms = 1);
/// Room for C, w and v of a result of this shape, all 0.
[[nodiscard]] Magnitudes no_rounding(const Dims& dims);

template <typename T>
void set(Call* call, std::string_view name, T value) {
  call->arguments[std::string(name)].value = std::move(value);
}
void set_list(Call* call, std::string_view name, std::span<const int64_t> values);
/// src0 as self.
[[nodiscard]] Status set_self(const Arguments& arguments, Call* call);

// ---- Parameters ---------------------------------------------------------------------------------

/// A parameter by name, or from word `word` of "op_params", or the fallback. Reals are those of
/// float32, as ggml has them, also where a text of fewer digits stood for them.
/// errors  Invalid (another type; missing without fallback)
[[nodiscard]] Result<int64_t> integer(const Arguments& arguments, std::string_view name,
                                      size_t word, std::optional<int64_t> fallback = {});
[[nodiscard]] Result<double> real(const Arguments& arguments, std::string_view name, size_t word,
                                  std::optional<double> fallback = {});
/// Number `index` of the list `name`, or word `word`.
[[nodiscard]] Result<int64_t> listed(const Arguments& arguments, std::string_view name,
                                     size_t index, size_t word,
                                     std::optional<int64_t> fallback = {});
/// True or false, as a truth value or as a number that is not 0.
[[nodiscard]] Result<bool> truth(const Arguments& arguments, std::string_view name, size_t word,
                                 std::optional<bool> fallback = {});
/// The argument "ne".
/// errors  Invalid (not four sizes)
[[nodiscard]] Result<std::optional<Sizes>> wanted_sizes(const Arguments& arguments);
/// The same where nothing else says the sizes.
/// errors  Invalid (missing)
[[nodiscard]] Result<Sizes> needed_sizes(const Arguments& arguments);
/// The type in which a source was stored, in lower case: "src0_type" says it of one that comes as
/// values.
[[nodiscard]] Result<std::string> stored_type(const Arguments& arguments, std::string_view name);

}  // namespace assay::reference::ggml
