// SPDX-License-Identifier: Apache-2.0
// Tensors as ggml counts them: four sizes, the fastest first.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "reference/aten/values.hpp"
#include "reference/ggml/operators.hpp"

namespace assay::reference::ggml {

using aten::Values;
using Sizes = std::array<int64_t, 4>;

/// Rounding errors of accumulators, float16 and bfloat16: half the distance of two values, relative.
inline constexpr double kFloat32Roundoff = 0x1p-24;
inline constexpr double kFloat16Roundoff = 0x1p-11;
inline constexpr double kBFloat16Roundoff = 0x1p-8;
/// Root mean square of a rounding in units of the roundoff, for spread-out values.   compare 8.4
inline constexpr double kMeanRounding = 0.425;

/// Values without gaps: element (i0, i1, i2, i3) is at i0 + ne0 (i1 + ne1 (i2 + ne2 i3)), which is C order of the
/// row-major shape as well.
struct Volume {
  Sizes ne{1, 1, 1, 1};
  Wide values;

  Volume() = default;
  explicit Volume(const Sizes& sizes);
  [[nodiscard]] int64_t place(int64_t i0, int64_t i1, int64_t i2, int64_t i3) const {
    return i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3));
  }
  [[nodiscard]] double at(int64_t i0, int64_t i1, int64_t i2, int64_t i3) const {
    return values.values[static_cast<size_t>(place(i0, i1, i2, i3))];
  }
  [[nodiscard]] double* row(int64_t i1, int64_t i2, int64_t i3) {
    return values.data() + place(0, i1, i2, i3);
  }
  [[nodiscard]] const double* row(int64_t i1, int64_t i2, int64_t i3) const {
    return values.data() + place(0, i1, i2, i3);
  }
  /// Rows of ne0 elements.
  [[nodiscard]] int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
};

/// The row-major shape: sizes reversed, leading ones removed down to rank 1.
[[nodiscard]] Dims shape_of(const Sizes& ne);
/// errors  Unsupported (more than four dimensions)
[[nodiscard]] Result<Sizes> sizes_of(const Arguments& arguments, const TensorView& view);
/// "[64, 4, 5, 1]"
[[nodiscard]] std::string text_of(const Sizes& ne);
[[nodiscard]] inline int64_t count_of(const Sizes& ne) { return ne[0] * ne[1] * ne[2] * ne[3]; }

/// A source, widened.
/// errors  Invalid (missing) | Unsupported (complex types) | TooLarge
[[nodiscard]] Result<Volume> source(const Arguments& arguments, std::string_view name);
[[nodiscard]] Result<std::optional<Volume>> optional_source(const Arguments& arguments,
                                                            std::string_view name);
/// Integers of a source, exact.
[[nodiscard]] Result<Whole> integers_of(const Arguments& arguments, std::string_view name,
                                        Sizes* ne);

/// A parameter by name, or from word `word` of "op_params", or the fallback. Reals are those of float32, as ggml has
/// them, also where a text of fewer digits stood for them.
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
/// errors  Invalid
[[nodiscard]] Result<std::optional<Sizes>> wanted_sizes(const Arguments& arguments);

/// One result of the volume's sizes.
[[nodiscard]] Values single(Volume volume);
/// The volume's values as C, w and v: w = w_factor C, v = w_factor^2 C^2 / 12, times the number of terms of sums.
[[nodiscard]] Magnitudes scaled_rounding(Wide c, double w_factor, double terms = 1);

/// Elements of a tensor at these places, -1: zero. Integers stay integers.
[[nodiscard]] Result<Values> picked(const Arguments& arguments, const Tensor& tensor,
                                    const Whole& places, const Sizes& ne);

}  // namespace assay::reference::ggml
