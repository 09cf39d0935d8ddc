// SPDX-License-Identifier: Apache-2.0
// A matrix [3, 5] in FRACTAL_NZ, drawn with tiles of 2 x 4: tile after tile down the first columns,
// then the next ones; what a tile has too much is 0.
//
//   plain   a b c d | e        stored [C1 = 2, R1 = 2, R0 = 2, C0 = 4]
//           f g h i | j          a b c d  f g h i    k l m n  0 0 0 0
//           --------+--          e 0 0 0  j 0 0 0    o 0 0 0  0 0 0 0
//           k l m n | o
#include "tensor/layouts.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>

#include "tensor/convert.hpp"

namespace assay {
namespace {

char place_letter(char axis) { return static_cast<char>(std::tolower(axis)); }

/// The letters of each stored axis: "(CHW)Nnc" -> "CHW" "N" "n" "c". A star is none.
std::vector<std::string_view> stored_axes(std::string_view layout) {
  std::vector<std::string_view> axes;
  for (size_t i = layout.starts_with('*') ? 1 : 0; i < layout.size(); ++i) {
    if (layout[i] != '(') {
      axes.push_back(layout.substr(i, 1));
      continue;
    }
    const size_t end = layout.find(')', i);
    axes.push_back(layout.substr(i + 1, end - i - 1));
    i = end;
  }
  return axes;
}

/// How many axes stand in front of those with letters; nothing when that cannot be.
std::optional<size_t> axes_in_front(std::string_view layout, size_t letters, size_t rank) {
  if (rank < letters || (rank > letters && !layout.starts_with('*'))) return std::nullopt;
  return rank - letters;
}

struct StoredPart {
  char letter;
  int64_t size;
  int64_t stride;
};

/// The parts of stored axes, the innermost first. Axes that share one have their plain sizes, and
/// the one in tiles what is left. Nothing when that does not divide.
std::optional<std::vector<StoredPart>> parts_of(std::string_view layout,
                                                std::span<const int64_t> stored,
                                                std::string_view order,
                                                std::span<const int64_t> plain) {
  const std::vector<std::string_view> axes = stored_axes(layout);
  std::vector<StoredPart> parts;
  int64_t stride = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    int64_t rest = stored[i];
    std::vector<int64_t> sizes(axes[i].size(), 0);
    const auto in_tiles = [&](char letter) {
      return axes[i].size() == 1 || layout.find(place_letter(letter)) != layout.npos;
    };
    for (size_t k = 0; k < axes[i].size(); ++k) {
      if (in_tiles(axes[i][k])) continue;
      sizes[k] = plain[order.find(axes[i][k])];
      if (sizes[k] <= 0 || rest % sizes[k] != 0) return std::nullopt;
      rest /= sizes[k];
    }
    for (size_t k = axes[i].size(); k-- > 0;) {
      if (in_tiles(axes[i][k])) sizes[k] = rest;
      parts.push_back({axes[i][k], sizes[k], stride});
      if (mul_overflows(stride, sizes[k], &stride)) return std::nullopt;
    }
  }
  return parts;
}

TiledAxis axis_of(char letter, const std::vector<StoredPart>& parts) {
  TiledAxis axis;
  for (const StoredPart& part : parts) {
    if (part.letter == letter) {
      axis.tiles = part.size;
      axis.tile_stride = part.stride;
    } else if (part.letter == place_letter(letter)) {
      axis.tile = part.size;
      axis.place_stride = part.stride;
    }
  }
  return axis;
}

/// Offsets of an axis' elements in the tiles.
std::vector<int64_t> offsets_of(const TiledAxis& axis, int64_t element_bytes) {
  std::vector<int64_t> offsets(static_cast<size_t>(axis.size));
  for (int64_t i = 0; i < axis.size; ++i)
    offsets[static_cast<size_t>(i)] =
        (i / axis.tile * axis.tile_stride + i % axis.tile * axis.place_stride) * element_bytes;
  return offsets;
}

struct NewBytes {
  std::shared_ptr<std::byte[]> bytes;
  size_t element_bytes = 0;
  TensorView view;
};

/// Memory of a tensor that has the type of `like`; undefined content.
Result<NewBytes> new_bytes(const TensorView& like, const Dims& shape) {
  const size_t bits = info(like.dtype).element_bits;
  if (bits < 8)
    return fail(Errc::Unsupported, "packed values of type " + std::string(name(like.dtype)) +
                                       " cannot be moved one by one");
  const std::optional<int64_t> count = element_count(shape);
  const auto size_bytes =
      count ? storage_bytes(like.dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (!size_bytes) return fail(Errc::TooLarge, "a tensor of shape " + shape_text(shape));
  NewBytes made{std::make_shared_for_overwrite<std::byte[]>(*size_bytes), bits / 8, {}};
  ASSAY_TRY(made.view, make_view(like.dtype, shape, ByteSpan(made.bytes.get(), *size_bytes)));
  made.view.conjugate = like.conjugate;
  made.view.negative = like.negative;
  return made;
}

}  // namespace

bool has_tiles(std::string_view layout) {
  return std::ranges::any_of(layout, [](char letter) { return letter >= 'a' && letter <= 'z'; });
}

int64_t fractal_columns(DType dtype) {
  constexpr int64_t kRowBits = 32 * 8;
  const int64_t bits = info(dtype).element_bits;
  return bits < 8 ? 0 : kRowBits / bits;
}

std::optional<Dims> fractal_nz_shape(const Dims& plain, int64_t columns_of_tile) {
  const size_t rank = plain.size();
  constexpr int64_t kMost = int64_t{1} << 62;
  if (rank < 2 || columns_of_tile < 1 || plain[rank - 2] > kMost || plain[rank - 1] > kMost)
    return std::nullopt;
  const auto tiles = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  Dims stored(plain.span().first(rank - 2));
  stored.push_back(tiles(plain[rank - 1], columns_of_tile));
  stored.push_back(tiles(plain[rank - 2], kFractalRows) * kFractalRows);
  stored.push_back(columns_of_tile);
  return stored;
}

Dims Tiling::shape() const {
  Dims shape;
  for (const TiledAxis& axis : axes) shape.push_back(axis.size);
  return shape;
}

bool Tiling::uses_every_tile() const {
  return std::all_of(axes.begin(), axes.end(), [](const TiledAxis& axis) {
    return axis.tiles * axis.tile - axis.size < std::max<int64_t>(axis.tile, 1);
  });
}

std::optional<Tiling> find_tiling(std::string_view layout, const Dims& stored,
                                  std::string_view order, const Dims& plain) {
  const size_t letters = order.size() - (order.starts_with('*') ? 1 : 0);
  const auto stored_front = axes_in_front(layout, stored_axes(layout).size(), stored.size());
  const auto plain_front = axes_in_front(order, letters, plain.size());
  if (!stored_front || !plain_front) return std::nullopt;
  const std::span<const int64_t> front = plain.span().first(*plain_front);
  const auto batches = element_count(front);
  if (!batches || batches != element_count(stored.span().first(*stored_front))) return std::nullopt;
  order.remove_prefix(order.size() - letters);
  const auto parts = parts_of(layout, stored.span().subspan(*stored_front), order,
                              plain.span().subspan(*plain_front));
  if (!parts) return std::nullopt;

  Tiling tiling;
  for (const char letter : order) tiling.axes.push_back(axis_of(letter, *parts));
  int64_t stride = parts->back().stride * parts->back().size;  // parts_of() has multiplied it
  for (size_t i = front.size(); i-- > 0;) {
    tiling.axes.insert(tiling.axes.begin(), {.tiles = front[i], .tile_stride = stride});
    if (mul_overflows(stride, front[i], &stride)) return std::nullopt;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    TiledAxis& axis = tiling.axes[i];
    int64_t whole = 0;
    axis.size = plain[i];
    if (axis.size < 0 || mul_overflows(axis.tiles, axis.tile, &whole) || axis.size > whole)
      return std::nullopt;
  }
  return tiling;
}

std::optional<Dims> whole_shape(std::string_view layout, const Dims& stored,
                                std::string_view order) {
  const std::vector<std::string_view> axes = stored_axes(layout);
  const auto front = axes_in_front(layout, axes.size(), stored.size());
  if (!front || layout.find('(') != layout.npos) return std::nullopt;
  Dims shape(stored.span().first(*front));
  for (const char letter : order.substr(order.starts_with('*') ? 1 : 0)) {
    int64_t size = 1;
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool is_part = axes[i][0] == letter || axes[i][0] == place_letter(letter);
      if (is_part && mul_overflows(size, stored[*front + i], &size)) return std::nullopt;
    }
    shape.push_back(size);
  }
  return shape;
}

TiledRows::TiledRows(const Tiling& tiling, size_t element_bytes)
    : rows_left_(element_count(tiling.shape()).value_or(0)) {
  const auto bytes = static_cast<int64_t>(element_bytes);
  const TiledAxis& last = tiling.axes.back();
  row_bytes_ = static_cast<size_t>(last.size) * element_bytes;
  if (rows_left_ == 0) return;
  rows_left_ /= last.size;
  for (size_t i = 0; i + 1 < tiling.axes.size(); ++i)
    offsets_.push_back(offsets_of(tiling.axes[i], bytes));
  index_.assign(offsets_.size(), 0);
  // Of a tiled axis the rows of its tiles: 16 elements of fp16 in FRACTAL_NZ.
  for (const int64_t signed_offset : offsets_of(last, bytes)) {
    const auto offset = static_cast<size_t>(signed_offset);
    if (!stretches_.empty() && stretches_.back().offset + stretches_.back().size_bytes == offset)
      stretches_.back().size_bytes += element_bytes;
    else
      stretches_.push_back({offset, element_bytes});
  }
}

bool TiledRows::next() {
  if (rows_left_-- <= 0) return false;
  for (size_t axis = row_offset_ < 0 ? 0 : index_.size(); axis-- > 0;) {
    if (++index_[axis] < offsets_[axis].size()) break;
    index_[axis] = 0;
  }
  row_offset_ = 0;
  for (size_t axis = 0; axis < index_.size(); ++axis) row_offset_ += offsets_[axis][index_[axis]];
  return true;
}

void TiledRows::read(const std::byte* tiles, std::byte* row) const {
  for (const Stretch& stretch : stretches_) {
    std::memcpy(row, tiles + row_offset_ + stretch.offset, stretch.size_bytes);
    row += stretch.size_bytes;
  }
}

void TiledRows::write(std::byte* tiles, const std::byte* row) const {
  for (const Stretch& stretch : stretches_) {
    std::memcpy(tiles + row_offset_ + stretch.offset, row, stretch.size_bytes);
    row += stretch.size_bytes;
  }
}

Result<Tensor> untile(const TensorView& tiles, const Tiling& tiling) {
  ASSAY_TRY(const NewBytes made, new_bytes(tiles, tiling.shape()));
  std::byte* row = made.bytes.get();
  for (TiledRows rows(tiling, made.element_bytes); rows.next(); row += rows.row_bytes())
    rows.read(tiles.contiguous_bytes().data(), row);
  return Tensor{made.view, made.bytes};
}

Result<Tensor> tile(const TensorView& plain, const Dims& stored, const Tiling& tiling) {
  ASSAY_TRY(const NewBytes made, new_bytes(plain, stored));
  std::memset(made.bytes.get(), 0, made.view.storage.size());
  const int64_t columns = tiling.axes.back().size;
  TiledRows rows(tiling, made.element_bytes);
  std::vector<std::byte> row(rows.row_bytes());
  for (int64_t first = 0; rows.next(); first += columns) {
    gather_bytes(plain, first, columns, row);
    rows.write(made.bytes.get(), row.data());
  }
  return Tensor{made.view, made.bytes};
}

}  // namespace assay
