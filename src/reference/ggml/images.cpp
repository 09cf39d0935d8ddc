// SPDX-License-Identifier: Apache-2.0
// What convolutional front ends (audio, vision) add: im2col, pooling, enlarging.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "reference/ggml/dialect.hpp"
#include "reference/movement/views.hpp"

namespace assay::reference::ggml {
namespace {

/// Kernel [KW, KH, IC, OC] of which only the sizes count, image [W, H, IC, N] -> [IC KH KW, OW, OH,
/// N]; in one dimension kernel [KW, IC, OC], image [W, IC, N] -> [IC KW, OW, N].
Status im2col(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source kernel, source(arguments, "src0"));
  ASSAY_TRY(Source x, source(arguments, "src1"));
  static constexpr std::string_view kNames[] = {"s0", "s1", "p0", "p1", "d0", "d1"};
  int64_t given[6];
  for (size_t i = 0; i < 6; ++i) {
    ASSAY_TRY(given[i], integer(arguments, kNames[i], i));
  }
  ASSAY_TRY(const bool two_dimensions, truth(arguments, "is_2d", 6));
  const int64_t channels = x.ne[two_dimensions ? 2 : 1];
  if (kernel.ne[two_dimensions ? 2 : 1] != channels)
    return fail(arguments.invalid("kernel ", text_of(kernel.ne), " for an image ", text_of(x.ne)));
  if (!two_dimensions) {
    ASSAY_TRY(x.tensor, reshaped(x.tensor, {x.ne[2], channels, 1, x.ne[0]}));
  }
  const auto of_axes = [&](int64_t of_h, int64_t of_w, int64_t absent) {
    return std::array{two_dimensions ? of_h : absent, of_w};
  };
  Call patches;
  patches.name = "aten.im2col.default";
  set(&patches, "self", x.tensor);
  set_list(&patches, "kernel_size", of_axes(kernel.ne[1], kernel.ne[0], 1));
  set_list(&patches, "stride", of_axes(given[1], given[0], 1));
  set_list(&patches, "padding", of_axes(given[3], given[2], 0));
  set_list(&patches, "dilation", of_axes(given[5], given[4], 1));
  ASSAY_TRY(const Values columns, aten::evaluate(patches));  // [N, IC KH KW, OH OW]
  ASSAY_TRY(const Tensor rows, reference::transpose(columns[0], {{0, 2, 1}}));
  Dims shape = rows.view.shape;
  if (two_dimensions) {
    const int64_t reach = given[4] * (kernel.ne[0] - 1);
    const int64_t width = (x.ne[0] + 2 * given[2] - reach - 1) / given[0] + 1;
    shape = {shape[0], shape[1] / width, width, shape[2]};
  }
  set(same, "self", rows);
  set_list(same, "shape", shape.span());
  return {};
}

/// The border counts as zeros in an average and not at all in a maximum.
Status pool(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  ASSAY_TRY(const int64_t kind, integer(arguments, "kind", 0));
  if (kind != 0 && kind != 1) return fail(arguments.invalid("no kernel or no stride"));
  same->name = kind == 0 ? "aten.max_pool2d.default" : "aten.avg_pool2d.default";
  set(same, "self", x.tensor);
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"kernel", "kernel_size"}, {"stride", "stride"}, {"padding", "padding"}};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    ASSAY_TRY(const int64_t w, listed(arguments, kNames[i].first, 0, 1 + 2 * i));
    ASSAY_TRY(const int64_t h, listed(arguments, kNames[i].first, 1, 2 + 2 * i));
    set_list(same, kNames[i].second, {{h, w}});
  }
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
