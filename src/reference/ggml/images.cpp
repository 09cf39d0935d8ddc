// SPDX-License-Identifier: Apache-2.0
// What convolutional front ends (audio, vision) add: im2col, pooling, enlarging.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/ggml/dialect.hpp"
#include "reference/movement/views.hpp"

namespace assay::reference::ggml {
namespace {

/// How a kernel moves along one axis.
struct Window {
  int64_t size = 1, stride = 1, padding = 0, dilation = 1;
};

/// [images, channels, H, W] -> [images, channels, OH, OW, KH, KW]: the values under the kernel at
/// each of its places.
Result<Tensor> windows_of(const Arguments& arguments, const Tensor& images, const Window& h,
                          const Window& w, double border) {
  Call padded;
  padded.name = "aten.constant_pad_nd.default";
  set(&padded, "self", images);
  set(&padded, "value", border);
  set_list(&padded, "pad", {{w.padding, w.padding, h.padding, h.padding}});
  ASSAY_TRY(const Values values, aten::evaluate(padded));
  Tensor windows = values[0];
  TensorView& view = windows.view;
  const Window* axes[] = {&h, &w};
  for (size_t i = 0; i < 2; ++i) {
    const Window& axis = *axes[i];
    int64_t& size = view.shape[2 + i];
    int64_t& stride = view.strides[2 + i];
    int64_t reach = 0;  // from the first value under the kernel to the last
    if (axis.size <= 0 || axis.stride <= 0 || axis.dilation <= 0 ||
        mul_overflows(axis.dilation, axis.size - 1, &reach) || reach >= size)
      return fail(arguments.invalid("no kernel, no stride, or a kernel larger than the image"));
    view.shape.push_back(axis.size);
    view.strides.push_back(stride * axis.dilation);
    size = (size - reach - 1) / axis.stride + 1;
    if (size > 1) stride *= axis.stride;
  }
  return windows;
}

/// Kernel [KW, KH, IC, OC] of which only the sizes count, image [W, H, IC, N] -> [IC KH KW, OW, OH,
/// N]; in one
/// dimension kernel [KW, IC, OC], image [W, IC, N] -> [IC KW, OW, N].
Status im2col(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source kernel, source(arguments, "src0"));
  ASSAY_TRY(Source x, source(arguments, "src1"));
  static constexpr std::string_view kNames[] = {"s0", "s1", "p0", "p1", "d0", "d1"};
  int64_t given[6];
  for (size_t i = 0; i < 6; ++i) {
    ASSAY_TRY(given[i], integer(arguments, kNames[i], i));
  }
  ASSAY_TRY(const bool two_dimensions, truth(arguments, "is_2d", 6));
  const Window w{kernel.ne[0], given[0], given[2], given[4]};
  Window h;
  if (two_dimensions) h = {kernel.ne[1], given[1], given[3], given[5]};
  const int64_t channels = x.ne[two_dimensions ? 2 : 1];
  if (kernel.ne[two_dimensions ? 2 : 1] != channels)
    return fail(arguments.invalid("kernel ", text_of(kernel.ne), " for an image ", text_of(x.ne)));
  if (!two_dimensions) {
    ASSAY_TRY(x.tensor, reshaped(x.tensor, {x.ne[2], channels, 1, x.ne[0]}));
  }
  ASSAY_TRY(Tensor windows, windows_of(arguments, x.tensor, h, w, 0));
  const Dims& found = windows.view.shape;
  Dims shape{found[0], found[2], found[3], channels * h.size * w.size};
  if (!two_dimensions) shape = {found[0], found[3], shape[3]};
  ASSAY_TRY_STATUS(checked_count(shape));
  ASSAY_TRY(windows, reference::transpose(windows, {{0, 2, 3, 1, 4, 5}}));
  set(same, "self", windows);
  set_list(same, "shape", shape.span());
  return {};
}

/// The border counts as zeros in an average and not at all in a maximum.
Status pool(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  ASSAY_TRY(const int64_t kind, integer(arguments, "kind", 0));
  Window axes[2];
  for (size_t i = 0; i < 2; ++i) {
    ASSAY_TRY(axes[i].size, listed(arguments, "kernel", i, 1 + i));
    ASSAY_TRY(axes[i].stride, listed(arguments, "stride", i, 3 + i));
    ASSAY_TRY(axes[i].padding, listed(arguments, "padding", i, 5 + i));
  }
  if (kind != 0 && kind != 1) return fail(arguments.invalid("no kernel or no stride"));
  same->name = kind == 0 ? "aten.amax.default" : "aten.mean.dim";
  const double border = kind == 0 ? -std::numeric_limits<double>::infinity() : 0;
  ASSAY_TRY(Tensor windows, windows_of(arguments, x.tensor, axes[1], axes[0], border));
  set(same, "self", std::move(windows));
  set_list(same, "dim", {{-2, -1}});
  return {};
}

constexpr int64_t kBilinear = 1;
constexpr int64_t kAlignCorners = 1 << 8;

/// Two neighbours of a place of the enlarged axis and the share of the second.
struct Neighbours {
  int64_t first = 0, second = 0;
  double share = 0;
};
Neighbours neighbours(int64_t place, int64_t size, double factor, double offset) {
  const double at = (static_cast<double>(place) + offset) / factor - offset;
  const auto below = static_cast<int64_t>(std::floor(at));
  const int64_t last = size - 1;
  return {std::clamp<int64_t>(below, 0, last), std::clamp<int64_t>(below + 1, 0, last),
          std::clamp(at - std::floor(at), 0.0, 1.0)};
}

Result<Wide> enlarged(const Arguments& arguments, bool absolute) {
  ASSAY_TRY(const Source from, source(arguments, "src0"));
  ASSAY_TRY(Wide x, values_of(arguments, "src0"));
  if (absolute) {
    for (double& value : x.values) value = std::fabs(value);
  }
  ASSAY_TRY(const Sizes ne, needed_sizes(arguments));
  ASSAY_TRY(const int64_t mode, integer(arguments, "mode", 0, 0));
  if (x.size() == 0) return fail(arguments.invalid("no sizes"));
  const bool aligned = (mode & kAlignCorners) != 0;
  const int64_t how = mode & 0xFF;
  if (how > kBilinear || (mode & ~(kAlignCorners | 0xFF)) != 0)
    return fail(arguments.unsupported("no reference for mode ", mode));
  double factor[4];
  for (size_t i = 0; i < 4; ++i) {
    factor[i] = static_cast<double>(ne[i]) / static_cast<double>(from.ne[i]);
    if (how == kBilinear && aligned && i < 2 && ne[i] > 1 && from.ne[i] > 1)
      factor[i] = static_cast<double>(ne[i] - 1) / static_cast<double>(from.ne[i] - 1);
  }
  const auto nearest = [&](int64_t place, size_t i) {
    return std::min(static_cast<int64_t>(static_cast<double>(place) / factor[i]), from.ne[i] - 1);
  };
  const double offset = aligned ? 0 : 0.5;
  const auto at = [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    const int64_t row = i1 + from.ne[1] * (i2 + from.ne[2] * i3);
    return x.values[static_cast<size_t>(i0 + from.ne[0] * row)];
  };
  Wide result(dims_of(ne));
  double* out = result.data();
  for (int64_t i3 = 0; i3 < ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < ne[1]; ++i1)
        for (int64_t i0 = 0; i0 < ne[0]; ++i0) {
          const int64_t z = nearest(i2, 2), n = nearest(i3, 3);
          if (how != kBilinear) {
            *out++ = at(nearest(i0, 0), nearest(i1, 1), z, n);
            continue;
          }
          const Neighbours a = neighbours(i0, from.ne[0], factor[0], offset);
          const Neighbours b = neighbours(i1, from.ne[1], factor[1], offset);
          const double upper =
              at(a.first, b.first, z, n) * (1 - a.share) + at(a.second, b.first, z, n) * a.share;
          const double lower =
              at(a.first, b.second, z, n) * (1 - a.share) + at(a.second, b.second, z, n) * a.share;
          *out++ = upper * (1 - b.share) + lower * b.share;
        }
  return result;
}
Result<Values> upscale(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Wide y, enlarged(arguments, false));
  return result_of(std::move(y));
}
Result<Magnitudes> rounding_of_upscale(const Arguments& arguments, int) {
  ASSAY_TRY(const int64_t mode, integer(arguments, "mode", 0, 0));
  ASSAY_TRY(Wide c, enlarged(arguments, true));
  // Shares of neighbours are differences of places: of the size of a place times u.
  const auto places = static_cast<double>(std::max(c.shape[2], c.shape[3]));
  const double factor = (mode & 0xFF) == kBilinear ? (8 + 4 * places) * kFloat32Roundoff : 0;
  return scaled_rounding(std::move(c), factor);
}

}  // namespace

std::span<const DialectRow> image_operators() {
  using enum OperatorClass;
  static constexpr DialectRow kTable[] = {
      {"ggml.im2col", Cast, "aten.reshape.default", im2col},
      {"ggml.pool_2d", Reduction, {}, pool, {Size::Terms, 2}},
      own("ggml.upscale", Activation, upscale, rounding_of_upscale),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
