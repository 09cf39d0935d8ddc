// SPDX-License-Identifier: Apache-2.0
// Shards are merged (a concatenation is one block interleaved), the steps of the recipe are
// applied, most of which only change the view, and FRACTAL_NZ memory is read into plain order.
#include "pair/operand.hpp"

#include <algorithm>
#include <limits>

#include "base/mapped_file.hpp"
#include "formats/atb_bin.hpp"
#include "pair/tensor_builder.hpp"
#include "run/load.hpp"
#include "tensor/convert.hpp"
#include "tensor/layouts.hpp"

namespace assay::pair {
namespace {

constexpr std::string_view kFractalNz = "fractal_nz";
constexpr int64_t kSumBlock = 4096;  // values added at once

/// The axis counted from the front.
Result<size_t> axis_of(int axis, const Dims& shape) {
  const auto rank = static_cast<int>(shape.size());
  const int index = axis < 0 ? axis + rank : axis;
  if (index < 0 || index >= rank) {
    return fail(Errc::Invalid,
                "axis " + std::to_string(axis) + " of a tensor of shape " + shape_text(shape));
  }
  return static_cast<size_t>(index);
}

int64_t product(const Dims& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count *= shape[i];  // part of a count that fits
  return count;
}

bool is_packed(DType dtype) { return info(dtype).element_bits < 8; }

bool same_lazy_bits(const TensorView& a, const TensorView& b) {
  return a.conjugate == b.conjugate && a.negative == b.negative;
}

Result<Tensor> with_lazy_bits_of(Result<Tensor> built, const TensorView& source) {
  if (built) {
    built->view.conjugate = source.conjugate;
    built->view.negative = source.negative;
  }
  return built;
}

/// Elements [first, first + count) of a view, packed types included.
Status append_run(TensorBuilder& builder, const TensorView& view, int64_t first, int64_t count) {
  if (!is_packed(view.dtype)) return builder.append_elements(view, first, count);
  const int64_t per_byte = 8 / info(view.dtype).element_bits;
  if (!view.is_contiguous() || first % per_byte != 0 || count % per_byte != 0 ||
      view.offset_elements % per_byte != 0) {
    return fail(Errc::Unsupported, "values of " + std::string(name(view.dtype)) +
                                       " would have to be cut inside a byte");
  }
  return builder.append(view.contiguous_bytes().subspan(static_cast<uint64_t>(first / per_byte),
                                                        static_cast<uint64_t>(count / per_byte)));
}

/// The same values in C order without gaps. Borrows when they are so already.
Result<Tensor> contiguous(const Tensor& tensor) {
  if (tensor.view.is_contiguous()) return tensor;
  ASSAY_TRY(auto builder, TensorBuilder::create(tensor.view.dtype, tensor.view.shape));
  ASSAY_TRY_STATUS(append_run(builder, tensor.view, 0, tensor.view.element_count()));
  return with_lazy_bits_of(builder.finish(), tensor.view);
}

// ---- Merging ----

Status check_shards(const std::vector<Tensor>& shards, size_t joined_axis) {
  const TensorView& first = shards[0].view;
  for (size_t k = 1; k < shards.size(); ++k) {
    const TensorView& shard = shards[k].view;
    if (shard.dtype != first.dtype) {
      return fail(Errc::Invalid, "shard 0 is " + std::string(name(first.dtype)) + ", shard " +
                                     std::to_string(k) + " is " + std::string(name(shard.dtype)));
    }
    bool fits = shard.shape.size() == first.shape.size();
    for (size_t i = 0; fits && i < first.shape.size(); ++i) {
      fits = i == joined_axis || shard.shape[i] == first.shape[i];
    }
    if (!fits) {
      return fail(Errc::Invalid, "shard 0 has shape " + shape_text(first.shape) + ", shard " +
                                     std::to_string(k) + " has " + shape_text(shard.shape));
    }
    if (!same_lazy_bits(shard, first)) {
      return fail(Errc::Unsupported, "shards with different conjugate or negative bits");
    }
  }
  return {};
}

/// Concat is Interleave with one block.
Result<Tensor> interleave(const std::vector<Tensor>& shards, int wanted_axis, int blocks) {
  const TensorView& first = shards[0].view;
  ASSAY_TRY(const size_t axis, axis_of(wanted_axis, first.shape));
  ASSAY_TRY_STATUS(check_shards(shards, axis));
  if (blocks < 1) return fail(Errc::Invalid, std::to_string(blocks) + " blocks");
  Dims shape = first.shape;
  for (size_t k = 0; k < shards.size(); ++k) {
    const int64_t size = shards[k].view.shape[axis];
    if (size % blocks != 0) {
      return fail(Errc::Invalid, "axis " + std::to_string(axis) + " of size " +
                                     std::to_string(size) + " cannot be cut into " +
                                     std::to_string(blocks) + " equal pieces");
    }
    if (k > 0 && add_overflows(shape[axis], size, &shape[axis])) {
      return fail(Errc::TooLarge, "the shards together are too large");
    }
  }
  ASSAY_TRY(auto builder, TensorBuilder::create(first.dtype, shape));
  // Beside a size of 0 the others may be anything.
  if (element_count(shape) == 0) return with_lazy_bits_of(builder.finish(), first);
  const int64_t outer_count = product(first.shape, 0, axis);
  const int64_t inner_count = product(first.shape, axis + 1, first.shape.size());
  for (int64_t outer = 0; outer < outer_count; ++outer) {
    for (int64_t block = 0; block < blocks; ++block) {
      for (const Tensor& shard : shards) {
        const int64_t piece = shard.view.shape[axis] / blocks * inner_count;
        ASSAY_TRY_STATUS(append_run(builder, shard.view, (outer * blocks + block) * piece, piece));
      }
    }
  }
  return with_lazy_bits_of(builder.finish(), first);
}

/// Elements of any integer type of up to 64 bits, exactly.
Status read_integers(const TensorView& view, int64_t first, int64_t count,
                     std::vector<double>& scratch, std::vector<int64_t>& out) {
  out.resize(static_cast<size_t>(count));
  if (view.dtype == DType::Int64 || view.dtype == DType::UInt64) {
    gather_bytes(view, first, count, std::as_writable_bytes(std::span(out)));
    if (view.dtype == DType::UInt64 && *std::min_element(out.begin(), out.end()) < 0) {
      return fail(Errc::Unsupported, "a sum of integers that exceeds 64 bits with sign");
    }
    return {};
  }
  scratch.resize(out.size());
  read_values(view, first, count, scratch);
  std::transform(scratch.begin(), scratch.end(), out.begin(),
                 [](double value) { return static_cast<int64_t>(value); });
  return {};
}

Result<Tensor> sum_integers(const std::vector<Tensor>& shards) {
  const TensorView& first = shards[0].view;
  ASSAY_TRY(auto builder, TensorBuilder::create(DType::Int64, first.shape));
  std::vector<double> scratch;
  std::vector<int64_t> values;
  std::vector<int64_t> total;
  const int64_t element_total = first.element_count();
  for (int64_t at = 0; at < element_total; at += kSumBlock) {
    const int64_t count = std::min(kSumBlock, element_total - at);
    total.assign(static_cast<size_t>(count), 0);
    for (const Tensor& shard : shards) {
      ASSAY_TRY_STATUS(read_integers(shard.view, at, count, scratch, values));
      for (size_t i = 0; i < total.size(); ++i) {
        if (add_overflows(total[i], values[i], &total[i])) {
          return fail(Errc::Unsupported, "a sum of integers that exceeds 64 bits with sign");
        }
      }
    }
    ASSAY_TRY_STATUS(builder.append(std::as_bytes(std::span(total))));
  }
  return builder.finish();
}

Result<Tensor> sum_reals(const std::vector<Tensor>& shards) {
  const TensorView& first = shards[0].view;
  const bool complex = is_complex(first.dtype);
  const bool wide = first.dtype == DType::Float64 || first.dtype == DType::Complex128;
  const DType narrow_type = complex ? DType::Complex64 : DType::Float32;
  const DType wide_type = complex ? DType::Complex128 : DType::Float64;
  ASSAY_TRY(auto builder, TensorBuilder::create(wide ? wide_type : narrow_type, first.shape));
  const auto per_element = static_cast<size_t>(values_per_element(first.dtype));
  std::vector<double> values;
  std::vector<double> total;
  std::vector<float> rounded;
  const int64_t element_total = first.element_count();
  for (int64_t at = 0; at < element_total; at += kSumBlock) {
    const int64_t count = std::min(kSumBlock, element_total - at);
    total.assign(static_cast<size_t>(count) * per_element, 0);
    values.resize(total.size());
    for (const Tensor& shard : shards) {
      read_values(shard.view, at, count, values);
      for (size_t i = 0; i < total.size(); ++i) total[i] += values[i];
    }
    if (wide) {
      ASSAY_TRY_STATUS(builder.append(std::as_bytes(std::span(total))));
      continue;
    }
    rounded.resize(total.size());
    std::transform(total.begin(), total.end(), rounded.begin(),
                   [](double value) { return static_cast<float>(value); });
    ASSAY_TRY_STATUS(builder.append(std::as_bytes(std::span(rounded))));
  }
  return builder.finish();
}

Result<Tensor> sum(const std::vector<Tensor>& shards) {
  const TensorView& first = shards[0].view;
  for (const Tensor& shard : shards) {
    if (shard.view.shape != first.shape) {
      return fail(Errc::Invalid, "a sum of shards of shapes " + shape_text(first.shape) + " and " +
                                     shape_text(shard.view.shape));
    }
    if (is_integer(shard.view.dtype) != is_integer(first.dtype) ||
        is_complex(shard.view.dtype) != is_complex(first.dtype)) {
      return fail(Errc::Invalid, "a sum of " + std::string(name(first.dtype)) + " and " +
                                     std::string(name(shard.view.dtype)));
    }
    const DTypeKind kind = info(shard.view.dtype).kind;
    if (kind == DTypeKind::Bool || kind == DTypeKind::Bits ||
        info(shard.view.dtype).element_values != 1) {
      return fail(Errc::Unsupported, "a sum of " + std::string(name(shard.view.dtype)));
    }
  }
  return is_integer(first.dtype) ? sum_integers(shards) : sum_reals(shards);
}

// ---- Steps ----

Result<Tensor> select(Tensor tensor, const RecipeStep& step) {
  ASSAY_TRY(const size_t axis, axis_of(step.axis, tensor.view.shape));
  const int64_t size = tensor.view.shape[axis];
  const int64_t index = step.first < 0 ? step.first + size : step.first;
  if (index < 0 || index >= size) {
    return fail(Errc::Invalid, "index " + std::to_string(step.first) + " of axis " +
                                   std::to_string(axis) + " of a tensor of shape " +
                                   shape_text(tensor.view.shape));
  }
  Dims shape;
  Dims strides;
  for (size_t i = 0; i < tensor.view.shape.size(); ++i) {
    if (i == axis) continue;
    shape.push_back(tensor.view.shape[i]);
    strides.push_back(tensor.view.strides[i]);
  }
  if (tensor.view.element_count() > 0)
    tensor.view.offset_elements += index * tensor.view.strides[axis];
  tensor.view.shape = shape;
  tensor.view.strides = strides;
  return tensor;
}

Result<Tensor> cut(Tensor tensor, const RecipeStep& step) {
  ASSAY_TRY(const size_t axis, axis_of(step.axis, tensor.view.shape));
  if (step.first < 0 || step.last < step.first || step.last > tensor.view.shape[axis]) {
    return fail(Errc::Invalid, "range [" + std::to_string(step.first) + ", " +
                                   std::to_string(step.last) + ") of axis " + std::to_string(axis) +
                                   " of a tensor of shape " + shape_text(tensor.view.shape));
  }
  tensor.view.shape[axis] = step.last - step.first;
  // An empty view starts anywhere; 0 keeps it inside the storage.
  tensor.view.offset_elements =
      tensor.view.element_count() == 0
          ? 0
          : tensor.view.offset_elements + step.first * tensor.view.strides[axis];
  return tensor;
}

Result<Tensor> reshape(const Tensor& tensor, const RecipeStep& step) {
  const Dims shape(step.shape);
  const auto count = element_count(shape);
  if (!count || *count != tensor.view.element_count()) {
    return fail(Errc::Invalid, "a tensor of shape " + shape_text(tensor.view.shape) +
                                   " cannot become " + shape_text(shape));
  }
  ASSAY_TRY(Tensor plain, contiguous(tensor));
  plain.view.shape = shape;
  plain.view.strides = contiguous_strides(shape);
  return plain;
}

/// The distance between neighbours when the order is equally spaced, for example 0, 2, 4.
std::optional<int64_t> spacing_of(const std::vector<int64_t>& order) {
  if (order.size() < 2) return 1;
  const int64_t spacing = order[1] - order[0];
  for (size_t i = 2; i < order.size(); ++i) {
    if (order[i] - order[i - 1] != spacing) return std::nullopt;
  }
  return spacing;
}

Result<Tensor> permute(Tensor tensor, const RecipeStep& step) {
  ASSAY_TRY(const size_t axis, axis_of(step.axis, tensor.view.shape));
  TensorView& view = tensor.view;
  for (const int64_t index : step.order) {
    if (index < 0 || index >= view.shape[axis]) {
      return fail(Errc::Invalid, "index " + std::to_string(index) + " of axis " +
                                     std::to_string(axis) + " of a tensor of shape " +
                                     shape_text(view.shape));
    }
  }
  Dims shape = view.shape;
  shape[axis] = static_cast<int64_t>(step.order.size());
  if (element_count(shape).value_or(0) == 0) {
    view.shape = shape;
    view.offset_elements = 0;
    return tensor;
  }
  if (const auto spacing = spacing_of(step.order)) {
    view.offset_elements += step.order[0] * view.strides[axis];
    view.strides[axis] *= *spacing;
    view.shape = shape;
    return tensor;
  }
  if (is_packed(view.dtype)) {
    return fail(Errc::Unsupported, "another order of values of " + std::string(name(view.dtype)));
  }
  // Of [outer, axis, inner]: pieces of `inner` elements in their new order.
  ASSAY_TRY(const Tensor source, contiguous(tensor));
  ASSAY_TRY(auto builder, TensorBuilder::create(view.dtype, shape));
  const int64_t outer_count = product(view.shape, 0, axis);
  const auto size = static_cast<int64_t>(info(view.dtype).element_bits / 8);
  const auto piece = static_cast<size_t>(product(view.shape, axis + 1, view.shape.size()) * size);
  const auto row_bytes = static_cast<size_t>(view.shape[axis]) * piece;
  const ByteSpan bytes = source.view.contiguous_bytes();
  std::vector<std::byte> row(step.order.size() * piece);
  for (int64_t outer = 0; outer < outer_count; ++outer) {
    const std::byte* from = bytes.data() + static_cast<size_t>(outer) * row_bytes;
    for (size_t i = 0; i < step.order.size(); ++i) {
      std::memcpy(row.data() + i * piece, from + static_cast<size_t>(step.order[i]) * piece, piece);
    }
    ASSAY_TRY_STATUS(builder.append(row));
  }
  return with_lazy_bits_of(builder.finish(), view);
}

Result<Tensor> transpose(Tensor tensor, const RecipeStep& step) {
  const TensorView old = tensor.view;
  std::vector<int64_t> axes = step.order;
  std::ranges::sort(axes);
  bool whole = axes.size() == old.shape.size();
  for (size_t i = 0; whole && i < axes.size(); ++i) whole = axes[i] == static_cast<int64_t>(i);
  if (!whole) {
    return fail(Errc::Invalid, "a tensor of shape " + shape_text(old.shape) +
                                   " has no order of axes " + list_text(step.order));
  }
  for (size_t i = 0; i < step.order.size(); ++i) {
    const auto axis = static_cast<size_t>(step.order[i]);
    tensor.view.shape[i] = old.shape[axis];
    tensor.view.strides[i] = old.strides[axis];
  }
  return tensor;
}

Result<Tensor> apply(Tensor tensor, const RecipeStep& step) {
  switch (step.kind) {
    case RecipeStep::Kind::Select:
      return select(std::move(tensor), step);
    case RecipeStep::Kind::Range:
      return cut(std::move(tensor), step);
    case RecipeStep::Kind::Permute:
      return permute(std::move(tensor), step);
    case RecipeStep::Kind::Reshape:
      return reshape(tensor, step);
    case RecipeStep::Kind::Transpose:
      return transpose(std::move(tensor), step);
  }
  return fail(Errc::Internal, "unknown step");
}

// ---- FRACTAL_NZ ----

/// Nothing when memory of the view's size does not hold a tensor of shape `logical`.
std::optional<Tiling> fractal_tiling(const TensorView& view, const Dims& logical) {
  if (element_count(logical).value_or(0) == 0) return std::nullopt;
  const bool is_untold = view.shape.size() < 3 || view.shape == logical;
  std::optional<Dims> tiles =
      fractal_nz_shape(logical, is_untold ? fractal_columns(view.dtype) : view.shape.span().back());
  if (!tiles) return std::nullopt;
  // Rows may be filled up to whole tiles; anything else means that the shape is another tensor's.
  if (element_count(*tiles) != view.element_count())
    (*tiles)[tiles->size() - 2] = logical[logical.size() - 2];
  if (element_count(*tiles) != view.element_count()) return std::nullopt;
  return find_tiling("*CRc", *tiles, "*RC", logical);
}

/// What an ATB header says about the shape before tiling. Nothing when it repeats the stored shape.
std::optional<Dims> header_dims(const run::TensorRecord& record, const Dims& stored) {
  if (!record.bytes || !record.bytes->raw || !record.bytes->file.ends_with(".bin")) return {};
  const auto file = MappedFile::open(record.bytes->file);
  if (!file) return {};
  const auto header = formats::read_atb_bin(file->bytes());
  if (!header) return {};
  if (header->dims != stored) return header->dims;
  // A payload without padding has the size of the plain tensor. Two axes cannot be a tiled shape.
  const int64_t columns = fractal_columns(record.dtype.value_or(DType::UInt8));
  const bool tiled =
      stored.size() != 2 && (columns == 0 || stored.empty() || stored.span().back() == columns ||
                             stored.span().back() == 16);
  return tiled ? std::nullopt : std::optional(stored);
}

}  // namespace

std::string_view merge_name(Merge merge) {
  switch (merge) {
    case Merge::None:
      return "none";
    case Merge::Concat:
      return "cat";
    case Merge::Interleave:
      return "interleave";
    case Merge::Sum:
      return "sum";
    case Merge::Pick:
      return "pick";
  }
  return "none";
}

Result<Tensor> to_nd(const Tensor& stored, const Dims& logical) {
  const TensorView& view = stored.view;
  if (is_packed(view.dtype))
    return fail(Errc::Unsupported, "FRACTAL_NZ of " + std::string(name(view.dtype)));
  const auto tiling = fractal_tiling(view, logical);
  if (!tiling) {
    return fail(Errc::Invalid, "FRACTAL_NZ memory of shape " + shape_text(view.shape) +
                                   " does not hold a tensor of shape " + shape_text(logical));
  }
  ASSAY_TRY(const Tensor source, contiguous(stored));
  ASSAY_TRY(auto builder, TensorBuilder::create(view.dtype, logical));
  TiledRows rows(*tiling, info(view.dtype).element_bits / 8u);
  std::vector<std::byte> row(rows.row_bytes());
  while (rows.next()) {
    rows.read(source.view.contiguous_bytes().data(), row.data());
    ASSAY_TRY_STATUS(builder.append(row));
  }
  return with_lazy_bits_of(builder.finish(), view);
}

namespace {

Result<PlainTensor> in_plain_order(const run::TensorRecord& record, Tensor tensor,
                                   const Dims* other) {
  if (record.memory_format != kFractalNz) return PlainTensor{std::move(tensor), {}};
  if (const auto logical = header_dims(record, tensor.view.shape)) {
    if (auto plain = to_nd(tensor, *logical)) return PlainTensor{*std::move(plain), "FRACTAL_NZ"};
  }
  if (other != nullptr && *other != tensor.view.shape) {
    auto plain = to_nd(tensor, *other);
    if (plain) {
      return PlainTensor{*std::move(plain), "FRACTAL_NZ, cut to the other side's shape"};
    }
    if (plain.error().code != Errc::Invalid) return fail(std::move(plain).error());
  }
  return PlainTensor{std::move(tensor), "FRACTAL_NZ, compared as stored"};
}

}  // namespace

Result<PlainTensor> load_plain(const run::TensorRecord& record, const Dims* other) {
  ASSAY_TRY(Tensor tensor, run::load_tensor(record));
  return in_plain_order(record, std::move(tensor), other);
}

Result<PlainTensor> load_plain_unchecked(const run::TensorRecord& record, const Dims* other) {
  ASSAY_TRY(Tensor tensor, run::load_unchecked(record));
  return in_plain_order(record, std::move(tensor), other);
}

Result<Tensor> load_operand(const run::Run& run, const Recipe& recipe) {
  if (recipe.records.empty()) return fail(Errc::Invalid, "a recipe without records");
  const bool merges = recipe.merge == Merge::Concat || recipe.merge == Merge::Interleave ||
                      recipe.merge == Merge::Sum;
  std::vector<Tensor> shards;
  for (const size_t index : recipe.records) {
    if (index >= run.records.size()) return fail(Errc::Invalid, "a recipe of unknown records");
    ASSAY_TRY(PlainTensor plain, load_plain(run.records[index], nullptr));
    if (recipe.flat) {
      const RecipeStep list{.kind = RecipeStep::Kind::Reshape,
                            .shape = {plain.tensor.view.element_count()}};
      ASSAY_TRY(plain.tensor, reshape(plain.tensor, list));
    }
    shards.push_back(std::move(plain.tensor));
    if (!merges) break;
  }
  Result<Tensor> tensor = shards[0];
  if (recipe.merge == Merge::Concat) tensor = interleave(shards, recipe.axis, 1);
  if (recipe.merge == Merge::Interleave) tensor = interleave(shards, recipe.axis, recipe.blocks);
  if (recipe.merge == Merge::Sum) tensor = sum(shards);
  for (const RecipeStep& step : recipe.steps) {
    if (!tensor) return tensor;
    tensor = apply(*std::move(tensor), step);
  }
  return tensor;
}

}  // namespace assay::pair
