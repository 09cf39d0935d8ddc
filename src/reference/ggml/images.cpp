// SPDX-License-Identifier: Apache-2.0
// What convolutional front ends (audio, vision) add: im2col, pooling, enlarging.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

struct Window {
  int64_t stride[2], padding[2], dilation[2];
};

int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

/// Kernel [KW, KH, IC, OC] of which only the sizes count, image [W, H, IC, N] -> [IC KH KW, OW, OH, N]; in one
/// dimension kernel [KW, IC, OC], image [W, IC, N] -> [IC KW, OW, N].
Result<Values> im2col(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor kernel, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes k, sizes_of(arguments, kernel.view));
  ASSAY_TRY(const Volume x, source(arguments, "src1"));
  static constexpr std::string_view kNames[] = {"s0", "s1", "p0", "p1", "d0", "d1"};
  int64_t given[6];
  for (size_t i = 0; i < 6; ++i) {
    ASSAY_TRY(given[i], integer(arguments, kNames[i], i));
  }
  ASSAY_TRY(const bool two_dimensions, truth(arguments, "is_2d", 6));
  const bool flat = !two_dimensions;
  const Window window{{given[0], given[1]}, {given[2], given[3]}, {given[4], given[5]}};
  const int64_t width = x.ne[0], height = flat ? 1 : x.ne[1];
  const int64_t channels = x.ne[flat ? 1 : 2], images = x.ne[flat ? 2 : 3];
  const int64_t kw = k[0], kh = flat ? 1 : k[1];
  if (window.stride[0] <= 0 || (!flat && window.stride[1] <= 0) || k[flat ? 1 : 2] != channels)
    return fail(arguments.invalid("kernel " + text_of(k) + " for an image " + text_of(x.ne)));
  const int64_t ow = windows(width, kw, window.stride[0], window.padding[0], window.dilation[0]);
  const int64_t oh =
      flat ? 1 : windows(height, kh, window.stride[1], window.padding[1], window.dilation[1]);
  if (ow <= 0 || oh <= 0) return fail(arguments.invalid("a kernel larger than the image"));
  ASSAY_TRY_STATUS(checked_count(Dims{images, oh, ow, channels * kh * kw}));
  Volume result(flat ? Sizes{channels * kw, ow, images, 1}
                     : Sizes{channels * kh * kw, ow, oh, images});
  double* out = result.values.data();
  for (int64_t n = 0; n < images; ++n)
    for (int64_t oy = 0; oy < oh; ++oy)
      for (int64_t ox = 0; ox < ow; ++ox)
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t y = 0; y < kh; ++y)
            for (int64_t at = 0; at < kw; ++at) {
              const int64_t ix =
                  ox * window.stride[0] + at * window.dilation[0] - window.padding[0];
              const int64_t iy =
                  flat ? 0 : oy * window.stride[1] + y * window.dilation[1] - window.padding[1];
              const bool inside = ix >= 0 && ix < width && iy >= 0 && iy < height;
              *out++ = !inside ? 0 : flat ? x.at(ix, c, n, 0) : x.at(ix, iy, c, n);
            }
  return single(std::move(result));
}

/// `absolute`: of |x|, the C of averages.
Result<Volume> pooled(const Arguments& arguments, bool absolute, double* terms) {
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  ASSAY_TRY(const int64_t kind, integer(arguments, "kind", 0));
  ASSAY_TRY(const int64_t k0, listed(arguments, "kernel", 0, 1));
  ASSAY_TRY(const int64_t k1, listed(arguments, "kernel", 1, 2));
  ASSAY_TRY(const int64_t s0, listed(arguments, "stride", 0, 3));
  ASSAY_TRY(const int64_t s1, listed(arguments, "stride", 1, 4));
  ASSAY_TRY(const int64_t p0, listed(arguments, "padding", 0, 5));
  ASSAY_TRY(const int64_t p1, listed(arguments, "padding", 1, 6));
  if (k0 <= 0 || k1 <= 0 || s0 <= 0 || s1 <= 0 || kind < 0 || kind > 1)
    return fail(arguments.invalid("no kernel or no stride"));
  const Sizes ne{windows(x.ne[0], k0, s0, p0, 1), windows(x.ne[1], k1, s1, p1, 1), x.ne[2],
                 x.ne[3]};
  if (ne[0] <= 0 || ne[1] <= 0) return fail(arguments.invalid("a kernel larger than the image"));
  Volume result(ne);
  *terms = static_cast<double>(k0 * k1);
  double* out = result.values.data();
  for (int64_t i3 = 0; i3 < ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < ne[2]; ++i2)
      for (int64_t oy = 0; oy < ne[1]; ++oy)
        for (int64_t ox = 0; ox < ne[0]; ++ox) {
          // The border counts as zeros in an average and not at all in a maximum.
          double sum = 0;
          double largest = -std::numeric_limits<double>::infinity();
          for (int64_t y = std::max<int64_t>(0, oy * s1 - p1);
               y < std::min(x.ne[1], oy * s1 - p1 + k1); ++y)
            for (int64_t at = std::max<int64_t>(0, ox * s0 - p0);
                 at < std::min(x.ne[0], ox * s0 - p0 + k0); ++at) {
              const double value = x.at(at, y, i2, i3);
              sum += absolute ? std::fabs(value) : value;
              largest = std::fmax(largest, value);
            }
          *out++ = kind == 0 ? (absolute ? 0 : largest) : sum / *terms;
        }
  return result;
}
Result<Values> pool(const Arguments& arguments, const EvaluateOptions&) {
  double terms = 0;
  ASSAY_TRY(Volume y, pooled(arguments, false, &terms));
  return single(std::move(y));
}
Result<Magnitudes> rounding_of_pool(const Arguments& arguments, int) {
  double terms = 0;
  ASSAY_TRY(Volume c, pooled(arguments, true, &terms));
  return scaled_rounding(std::move(c.values), 2 * kFloat32Roundoff, terms);
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

Result<Volume> enlarged(const Arguments& arguments, bool absolute) {
  ASSAY_TRY(Volume x, source(arguments, "src0"));
  if (absolute) {
    for (double& value : x.values.values) value = std::fabs(value);
  }
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  ASSAY_TRY(const int64_t mode, integer(arguments, "mode", 0, 0));
  if (!ne || count_of(x.ne) == 0) return fail(arguments.invalid("no sizes"));
  const bool aligned = (mode & kAlignCorners) != 0;
  const int64_t how = mode & 0xFF;
  if (how > kBilinear || (mode & ~(kAlignCorners | 0xFF)) != 0)
    return fail(arguments.unsupported("no reference for mode " + std::to_string(mode)));
  double factor[4];
  for (size_t i = 0; i < 4; ++i) {
    factor[i] = static_cast<double>((*ne)[i]) / static_cast<double>(x.ne[i]);
    if (how == kBilinear && aligned && i < 2 && (*ne)[i] > 1 && x.ne[i] > 1)
      factor[i] = static_cast<double>((*ne)[i] - 1) / static_cast<double>(x.ne[i] - 1);
  }
  const auto nearest = [&](int64_t place, size_t i) {
    return std::min(static_cast<int64_t>(static_cast<double>(place) / factor[i]), x.ne[i] - 1);
  };
  const double offset = aligned ? 0 : 0.5;
  Volume result(*ne);
  double* out = result.values.data();
  for (int64_t i3 = 0; i3 < (*ne)[3]; ++i3)
    for (int64_t i2 = 0; i2 < (*ne)[2]; ++i2)
      for (int64_t i1 = 0; i1 < (*ne)[1]; ++i1)
        for (int64_t i0 = 0; i0 < (*ne)[0]; ++i0) {
          const int64_t z = nearest(i2, 2), n = nearest(i3, 3);
          if (how != kBilinear) {
            *out++ = x.at(nearest(i0, 0), nearest(i1, 1), z, n);
            continue;
          }
          const Neighbours a = neighbours(i0, x.ne[0], factor[0], offset);
          const Neighbours b = neighbours(i1, x.ne[1], factor[1], offset);
          const double upper = x.at(a.first, b.first, z, n) * (1 - a.share) +
                               x.at(a.second, b.first, z, n) * a.share;
          const double lower = x.at(a.first, b.second, z, n) * (1 - a.share) +
                               x.at(a.second, b.second, z, n) * a.share;
          *out++ = upper * (1 - b.share) + lower * b.share;
        }
  return result;
}
Result<Values> upscale(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Volume y, enlarged(arguments, false));
  return single(std::move(y));
}
Result<Magnitudes> rounding_of_upscale(const Arguments& arguments, int) {
  ASSAY_TRY(const int64_t mode, integer(arguments, "mode", 0, 0));
  ASSAY_TRY(Volume c, enlarged(arguments, true));
  // Shares of neighbours are differences of places: of the size of a place times u.
  const double places = static_cast<double>(std::max(c.ne[0], c.ne[1]));
  const double factor = (mode & 0xFF) == kBilinear ? (8 + 4 * places) * kFloat32Roundoff : 0;
  return scaled_rounding(std::move(c.values), factor);
}

}  // namespace

std::span<const Operator> image_operators() {
  using enum OperatorClass;
  static constexpr Operator kTable[] = {
      {"ggml.im2col", Cast, im2col},
      {"ggml.pool_2d", Reduction, pool, rounding_of_pool},
      {"ggml.upscale", Activation, upscale, rounding_of_upscale},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
