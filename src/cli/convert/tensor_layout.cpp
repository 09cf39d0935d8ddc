// SPDX-License-Identifier: Apache-2.0
// Formats in tiles are untiled first, then the axes are put in the order asked for. The header does
// not name the axes of a shape, so likely orders are tried until one fits the tiles.
#include "cli/convert/tensor_layout.hpp"

#include <algorithm>
#include <vector>

#include "tensor/layouts.hpp"

namespace assay::cli {
namespace {

using formats::CannTensor;

constexpr int32_t kNchw = 0;
constexpr int32_t kNhwc = 1;
constexpr int32_t kNd = formats::kCannFormatNd;
constexpr int32_t kHwcn = 16;

/// Axes of a plain format in their order; empty for formats whose axes have no names or are tiled.
std::string_view axes_of(int32_t format) {
  const formats::CannFormat* known = formats::cann_layout(format);
  return known == nullptr || has_tiles(known->layout) ? std::string_view() : known->layout;
}

/// The layout of a format in tiles; null for others.
const formats::CannFormat* tiled_layout(int32_t format) {
  const formats::CannFormat* known = formats::cann_layout(format);
  return known == nullptr || !has_tiles(known->layout) ? nullptr : known;
}

bool same_axes(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::all_of(a.begin(), a.end(), [b](char axis) { return b.find(axis) != b.npos; });
}

/// Sizes given in the order `from`, in the order `to`.
Dims reorder(const Dims& sizes, std::string_view from, std::string_view to) {
  Dims out;
  for (const char axis : to) out.push_back(sizes[from.find(axis)]);
  return out;
}

TensorView permute(const TensorView& view, std::string_view from, std::string_view to) {
  TensorView out = view;
  out.shape = reorder(view.shape, from, to);
  out.strides = reorder(view.strides, from, to);
  return out;
}

Error no_way(int32_t from, int32_t to) {
  return {Errc::Unsupported,
          {},
          std::nullopt,
          "there is no conversion from " + formats::cann_format_name(from) + " to " +
              formats::cann_format_name(to)};
}

/// Shapes that the tensor can have in `axes`, the likeliest first. The header does not say the
/// order of the framework's shape. Without one the last tile counts as full.
std::vector<Dims> plain_shapes(const CannTensor& tensor, const Layout& layout,
                               std::string_view stored, std::string_view axes) {
  std::vector<Dims> shapes;
  if (!layout.shape.empty()) {
    if (layout.shape.size() == axes.size())
      shapes.push_back(reorder(layout.shape, axes_of(layout.format), axes));
    return shapes;
  }
  if (tensor.original_shape && tensor.original_shape->size() == axes.size()) {
    const bool volume = axes.size() == 5;
    for (const std::string_view order :
         {axes, volume ? std::string_view("NDHWC") : std::string_view("NHWC"),
          volume ? std::string_view("DHWCN") : std::string_view("HWCN")})
      shapes.push_back(reorder(*tensor.original_shape, order, axes));
  }
  if (const auto whole = whole_shape(stored, tensor.shape, axes)) shapes.push_back(*whole);
  return shapes;
}

Result<Tensor> untiled_as(const CannTensor& tensor, const Dims& shape) {
  CannTensor described = tensor;
  described.original_shape = shape;
  ASSAY_TRY(Tensor plain, formats::cann_tensor(described));
  if (!(plain.view.shape == shape)) {
    return fail(Errc::Invalid, "the shape " + list_text(shape.span()) +
                                   " does not fit what is stored as " +
                                   formats::cann_format_name(tensor.format) + " " +
                                   list_text(tensor.shape.span()) +
                                   (tensor.sub_format > 1 ? ", whose weights are grouped" : ""));
  }
  return plain;
}

/// NC1HWC0 and its kin to NCHW, then to the axes that are asked for.
Result<Tensor> from_channel_tiles(const CannTensor& tensor, const Layout& layout,
                                  const formats::CannFormat& tiles) {
  const std::string_view axes = tiles.orders[0];
  const std::string_view wanted = axes_of(layout.format);
  if (!same_axes(axes, wanted)) return fail(no_way(tensor.format, layout.format));
  for (const Dims& shape : plain_shapes(tensor, layout, tiles.layout, axes)) {
    const auto tiling = find_tiling(tiles.layout, tensor.shape, axes, shape);
    if (!tiling || !tiling->uses_every_tile()) continue;
    ASSAY_TRY(Tensor plain, untiled_as(tensor, shape));
    plain.view = permute(plain.view, axes, wanted);
    return plain;
  }
  return fail(Errc::Invalid, "the shape does not fit what is stored as " +
                                 formats::cann_format_name(tensor.format) + " " +
                                 shape_text(tensor.shape) + "; name it with -s");
}

/// FRACTAL_NZ and FRACTAL_ZZ hold matrices: their last two axes become one row after the other.
Result<Tensor> from_matrix_tiles(const CannTensor& tensor, const Layout& layout,
                                 const formats::CannFormat& tiles) {
  if (tensor.shape.size() < 4)
    return fail(Errc::Invalid, "a tiled matrix has at least four dimensions");
  Dims shape = !layout.shape.empty() ? layout.shape : tensor.original_shape.value_or(Dims{});
  if (shape.empty()) {
    const auto whole = whole_shape(tiles.layout, tensor.shape, tiles.orders[0]);
    if (!whole) return fail(Errc::TooLarge, "the shape has too many elements");
    shape = *whole;
  }
  if (shape.size() != 1) return untiled_as(tensor, shape);
  ASSAY_TRY(Tensor plain, untiled_as(tensor, {1, shape[0]}));
  plain.view.shape = shape;
  plain.view.strides = contiguous_strides(shape);
  return plain;
}

}  // namespace

std::optional<int32_t> cann_format_from_name(std::string_view name) {
  if (name == "DHWCH") return 31;  // how some tables spell DHWCN
  return formats::cann_format_from_name(name);
}

int32_t real_format(const CannTensor& tensor) {
  const bool needs_four =
      tensor.format == kNchw || tensor.format == kNhwc || tensor.format == kHwcn;
  return needs_four && tensor.shape.size() != 4 ? kNd : tensor.format;
}

Result<Tensor> tensor_in_layout(const CannTensor& tensor, const Layout& layout) {
  const int32_t format = real_format(tensor);
  const formats::CannFormat* tiles = tiled_layout(format);
  if (tiles != nullptr && layout.format != format) {
    if (tiles->layout.starts_with('*')) return from_matrix_tiles(tensor, layout, *tiles);
    if (layout.format != kNd) return from_channel_tiles(tensor, layout, *tiles);
    if (!tensor.original_shape && layout.shape.empty()) return fail(no_way(format, layout.format));
    return untiled_as(tensor, layout.shape.empty() ? *tensor.original_shape : layout.shape);
  }
  ASSAY_TRY(const TensorView stored, formats::cann_stored_view(tensor));
  if (format == layout.format || format == kNd || layout.format == kNd)
    return Tensor{stored, nullptr};
  const std::string_view axes = axes_of(format);
  const std::string_view wanted = axes_of(layout.format);
  if (axes.empty() || !same_axes(axes, wanted) || stored.shape.size() != axes.size())
    return fail(no_way(format, layout.format));
  return Tensor{permute(stored, axes, wanted), nullptr};
}

}  // namespace assay::cli
