// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/tensor_layout.hpp"

#include <algorithm>
#include <vector>

namespace assay::cli {
namespace {

using formats::CannTensor;

constexpr int32_t kNchw = 0;
constexpr int32_t kNhwc = 1;
constexpr int32_t kNd = 2;
constexpr int32_t kNc1hwc0 = 3;
constexpr int32_t kFractalZ = 4;
constexpr int32_t kC1hwnc0 = 9;
constexpr int32_t kNc1hwc0C04 = 12;
constexpr int32_t kHwcn = 16;
constexpr int32_t kFractalZz = 28;
constexpr int32_t kFractalNz = 29;
constexpr int32_t kNdc1hwc0 = 32;
constexpr int32_t kFractalZ3d = 33;
constexpr int32_t kFormatCount = 50;

/// Axes of a plain format in their order; empty for formats whose axes have no names or are tiled.
std::string_view axes_of(int32_t format) {
  switch (format) {
    case kNchw:
      return "NCHW";
    case kNhwc:
      return "NHWC";
    case 14:
      return "CHWN";
    case kHwcn:
      return "HWCN";
    case 27:
      return "NDHWC";
    case 30:
      return "NCDHW";
    case 31:
      return "DHWCN";
    case 34:
      return "CN";
    case 35:
      return "NC";
    case 47:
      return "NCL";
    default:
      return {};
  }
}

/// The plain axes that a tiled format is put together to.
std::string_view untiled_axes(int32_t format) {
  switch (format) {
    case kNc1hwc0:
    case kNc1hwc0C04:
    case kFractalZ:
    case kC1hwnc0:
      return "NCHW";
    case kNdc1hwc0:
    case kFractalZ3d:
      return "NCDHW";
    default:
      return {};
  }
}

bool is_matrix_format(int32_t format) { return format == kFractalNz || format == kFractalZz; }

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

bool fills(int64_t size, int64_t tiles, int64_t tile) {
  int64_t whole = 0;
  return !mul_overflows(tiles, tile, &whole) && size <= whole && size > whole - tile;
}

/// Whether a tiled shape can be that of `plain`, in untiled_axes(): every axis is what is stored, up to the filling of
/// its last tile.
bool is_shape_of(const CannTensor& tensor, const Dims& plain) {
  const Dims& s = tensor.shape;
  const auto same_product = [](int64_t whole, std::initializer_list<int64_t> sizes) {
    int64_t product = 1;
    for (const int64_t size : sizes) {
      if (size <= 0 || mul_overflows(product, size, &product)) return false;
    }
    return product == whole;
  };
  const auto tile_count = [](int64_t size, int64_t tile) {
    return tile > 0 && size > 0 ? (size - 1) / tile + 1 : 0;
  };
  switch (tensor.format) {
    case kNc1hwc0:
    case kNc1hwc0C04:
      return s.size() == 5 && plain.size() == 4 && plain[0] == s[0] &&
             fills(plain[1], s[1], s[4]) && plain[2] == s[2] && plain[3] == s[3];
    case kC1hwnc0:
      return s.size() == 5 && plain.size() == 4 && plain[0] == s[3] &&
             fills(plain[1], s[0], s[4]) && plain[2] == s[1] && plain[3] == s[2];
    case kNdc1hwc0:
      return s.size() == 6 && plain.size() == 5 && plain[0] == s[0] &&
             fills(plain[1], s[2], s[5]) && plain[2] == s[1] && plain[3] == s[3] &&
             plain[4] == s[4];
    case kFractalZ:
      return s.size() == 4 && plain.size() == 4 && fills(plain[0], s[1], s[2]) &&
             same_product(s[0], {tile_count(plain[1], s[3]), plain[2], plain[3]});
    case kFractalZ3d:
      return s.size() == 4 && plain.size() == 5 && fills(plain[0], s[1], s[2]) &&
             same_product(s[0], {plain[2], tile_count(plain[1], s[3]), plain[3], plain[4]});
    default:
      return false;
  }
}

Error no_way(int32_t from, int32_t to) {
  return {Errc::Unsupported,
          {},
          std::nullopt,
          "there is no conversion from " + formats::cann_format_name(from) + " to " +
              formats::cann_format_name(to)};
}

/// Shapes that the tensor can have in `axes`, the likeliest first. The header does not say the order of the framework's
/// shape.
std::vector<Dims> plain_shapes(const CannTensor& tensor, const Layout& layout,
                               std::string_view axes) {
  const std::string_view wanted = axes_of(layout.format);
  std::vector<Dims> shapes;
  if (!layout.shape.empty()) {
    if (layout.shape.size() == axes.size()) shapes.push_back(reorder(layout.shape, wanted, axes));
    return shapes;
  }
  if (tensor.original_shape && tensor.original_shape->size() == axes.size()) {
    const bool volume = axes.size() == 5;
    for (const std::string_view order :
         {axes, volume ? std::string_view("NDHWC") : std::string_view("NHWC"),
          volume ? std::string_view("DHWCN") : std::string_view("HWCN")})
      shapes.push_back(reorder(*tensor.original_shape, order, axes));
  }
  const Dims& s = tensor.shape;
  // Without a shape of the framework the last tile counts as full.
  int64_t channels = 0;
  if ((tensor.format == kNc1hwc0 || tensor.format == kNc1hwc0C04) && s.size() == 5 &&
      !mul_overflows(s[1], s[4], &channels))
    shapes.push_back(Dims{s[0], channels, s[2], s[3]});
  if (tensor.format == kC1hwnc0 && s.size() == 5 && !mul_overflows(s[0], s[4], &channels))
    shapes.push_back(Dims{s[3], channels, s[1], s[2]});
  if (tensor.format == kNdc1hwc0 && s.size() == 6 && !mul_overflows(s[2], s[5], &channels))
    shapes.push_back(Dims{s[0], channels, s[1], s[3], s[4]});
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
Result<Tensor> from_channel_tiles(const CannTensor& tensor, const Layout& layout) {
  const std::string_view axes = untiled_axes(tensor.format);
  const std::string_view wanted = axes_of(layout.format);
  if (!same_axes(axes, wanted)) return fail(no_way(tensor.format, layout.format));
  for (const Dims& shape : plain_shapes(tensor, layout, axes)) {
    if (!is_shape_of(tensor, shape)) continue;
    ASSAY_TRY(Tensor plain, untiled_as(tensor, shape));
    plain.view = permute(plain.view, axes, wanted);
    return plain;
  }
  return fail(Errc::Invalid, "the shape does not fit what is stored as " +
                                 formats::cann_format_name(tensor.format) + " " +
                                 list_text(tensor.shape.span()) + "; name it with -s");
}

/// FRACTAL_NZ and FRACTAL_ZZ hold matrices: their last two axes become one row after the other.
Result<Tensor> from_matrix_tiles(const CannTensor& tensor, const Layout& layout) {
  Dims shape = !layout.shape.empty() ? layout.shape : tensor.original_shape.value_or(Dims{});
  const Dims& s = tensor.shape;
  if (s.size() < 4) return fail(Errc::Invalid, "a tiled matrix has at least four dimensions");
  if (shape.empty()) {
    const size_t first = s.size() - 4;
    const bool rows_first = tensor.format == kFractalZz;
    int64_t rows = 0;
    int64_t columns = 0;
    if (mul_overflows(s[first + (rows_first ? 0 : 1)], s[first + 2], &rows) ||
        mul_overflows(s[first + (rows_first ? 1 : 0)], s[first + 3], &columns))
      return fail(Errc::TooLarge, "the shape has too many elements");
    shape = Dims(s.span().first(first));
    shape.push_back(rows);
    shape.push_back(columns);
  }
  const bool is_row = shape.size() == 1;
  const Dims matrix = is_row ? Dims{1, shape[0]} : shape;
  CannTensor described = tensor;
  described.original_shape = matrix;
  ASSAY_TRY(Tensor plain, formats::cann_tensor(described));
  if (!(plain.view.shape == matrix)) {
    return fail(Errc::Invalid,
                "the shape " + list_text(shape.span()) + " does not fit what is stored as " +
                    formats::cann_format_name(tensor.format) + " " + list_text(s.span()));
  }
  if (is_row) {
    plain.view.shape = shape;
    plain.view.strides = contiguous_strides(shape);
  }
  return plain;
}

}  // namespace

std::optional<int32_t> cann_format_from_name(std::string_view name) {
  if (name == "DHWCH") return 31;  // how some tables spell DHWCN
  for (int32_t format = 0; format < kFormatCount; ++format) {
    if (formats::cann_format_name(format) == name) return format;
  }
  return std::nullopt;
}

int32_t real_format(const CannTensor& tensor) {
  const bool needs_four =
      tensor.format == kNchw || tensor.format == kNhwc || tensor.format == kHwcn;
  return needs_four && tensor.shape.size() != 4 ? kNd : tensor.format;
}

Result<Tensor> tensor_in_layout(const CannTensor& tensor, const Layout& layout) {
  const int32_t format = real_format(tensor);
  if (is_matrix_format(format) && layout.format != format) return from_matrix_tiles(tensor, layout);
  if (!untiled_axes(format).empty() && layout.format != format) {
    if (layout.format != kNd) return from_channel_tiles(tensor, layout);
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
