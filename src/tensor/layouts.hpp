// SPDX-License-Identifier: Apache-2.0
// Tensors in tiles: FRACTAL_NZ, NC1HWC0 and their kin, taken apart and put together.
//
// A layout is written in letters, one for each axis as it is stored, from the outermost on. A
// letter is an axis of the plain tensor; of an axis in tiles the capital counts the tiles and the
// small letter the places in a tile:
//
//   NC1HWC0     "NCHWc"      stored [N, C1, H, W, C0]
//   FRACTAL_NZ  "*CRrc"      stored [..., C1, R1, R0, C0]; "*": axes in front are the same in both
//   FRACTAL_Z   "(CHW)Nnc"   letters between ( and ) share one stored axis
//
// The order of the plain axes is written in the same way, without tiles: "NCHW", "*RC".
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay {

/// Whether a layout has tiles.
[[nodiscard]] bool has_tiles(std::string_view layout);

/// Rows of a tile of FRACTAL_NZ.
inline constexpr int64_t kFractalRows = 16;
/// Columns of a tile whose rows have 32 bytes; 0 for packed types.
[[nodiscard]] int64_t fractal_columns(DType dtype);

/// [..., rows, columns] as FRACTAL_NZ stores it in tiles `columns_of_tile` wide: [..., C1, rows
/// filled up to 16, C0], which is "*CRc". Nothing for less than two dimensions and for sizes beyond
/// 2^62.
[[nodiscard]] std::optional<Dims> fractal_nz_shape(const Dims& plain, int64_t columns_of_tile);

/// A matrix in tiles that have as many rows as it has, so that no row is filled up: [columns /
/// tile, rows, tile].
struct TiledMatrix {
  int64_t rows = 0;
  int64_t columns = 0;  // a multiple of the tile's
  int64_t tile = 0;     // columns of one

  /// Where element `plain` of the matrix in C order lies in the tiles.
  [[nodiscard]] int64_t place_of(int64_t plain) const {
    const int64_t column = plain % columns;
    return (column / tile * rows + plain / columns) * tile + column % tile;
  }
  /// Which element of the matrix lies there.
  [[nodiscard]] int64_t element_at(int64_t place) const {
    return place / tile % rows * columns + place / (tile * rows) * tile + place % tile;
  }
};

/// One plain axis. Its element i is i / tile * tile_stride + i % tile * place_stride elements from
/// the first one.
struct TiledAxis {
  int64_t size = 1;
  int64_t tiles = 1;  // stored; the last one may be filled up
  int64_t tile = 1;   // places in one
  int64_t tile_stride = 0;
  int64_t place_stride = 0;
};

/// Where the elements of a plain tensor are in memory that holds it in tiles without gaps.
struct Tiling {
  std::vector<TiledAxis> axes;
  [[nodiscard]] Dims shape() const;
  /// Nothing is left over but places of the last tile of an axis.
  [[nodiscard]] bool uses_every_tile() const;
};

/// Nothing when `stored` is no shape of `layout`, or has less than `plain` needs.
/// plain  sizes in the order `order`
[[nodiscard]] std::optional<Tiling> find_tiling(std::string_view layout, const Dims& stored,
                                                std::string_view order, const Dims& plain);

/// The plain shape when no tile is filled up. Nothing when `stored` is no shape of the layout, when
/// it does not tell (letters share an axis), and on overflow.
[[nodiscard]] std::optional<Dims> whole_shape(std::string_view layout, const Dims& stored,
                                              std::string_view order);

/// Goes through a plain tensor row by row; a row is its last axis.
class TiledRows {
 public:
  TiledRows(const Tiling& tiling, size_t element_bytes);
  /// To the next row, first to row 0; false behind the last one.
  [[nodiscard]] bool next();
  [[nodiscard]] size_t row_bytes() const { return row_bytes_; }
  void read(const std::byte* tiles, std::byte* row) const;
  void write(std::byte* tiles, const std::byte* row) const;

 private:
  /// Elements that stand beside each other in both orders.
  struct Stretch {
    size_t offset;  // bytes, from the row's first element in the tiles
    size_t size_bytes;
  };
  std::vector<std::vector<int64_t>> offsets_;  // of the axes in front of the last, by index; bytes
  std::vector<Stretch> stretches_;
  std::vector<size_t> index_;
  int64_t rows_left_;
  size_t row_bytes_;
  int64_t row_offset_ = -1;
};

/// The plain tensor of `tiles`, in memory of its own. Precondition: `tiles` is contiguous and of
/// the tiling's stored shape.
/// errors  Unsupported (packed types)
[[nodiscard]] Result<Tensor> untile(const TensorView& tiles, const Tiling& tiling);

/// The tiles of a plain tensor of any strides; what is filled up is 0. Precondition: the tiling is
/// of its shape.
/// errors  Unsupported (packed types) | TooLarge
[[nodiscard]] Result<Tensor> tile(const TensorView& plain, const Dims& stored,
                                  const Tiling& tiling);

}  // namespace assay
