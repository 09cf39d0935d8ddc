// SPDX-License-Identifier: Apache-2.0
// One weight is a grid of codes and two coarser grids beside it, scales and zero points, all read
// row by row of the float weight they stand for:
//
//   codes [4, 8]       scale [4, 2]: groups of 4 in a row      zero [4, 1]: one a row
//   c c c c  c c c c    s  s                                    z
//   c c c c  c c c c    s  s                                    z
//   ...
#include "compare/dequantise.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <span>
#include <vector>

#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "pair/scratch_tensor.hpp"
#include "reference/wide.hpp"
#include "tensor/convert.hpp"

namespace assay::compare {
namespace {

constexpr int64_t kUnitValues = 65536;  // values a thread works on at a time
constexpr int64_t kFloat8Block = 128;   // DeepSeek's weight_block_size
// Place of column k within a word of AWQ. Source: casper-hansen/AutoAWQ: awq/utils/packing_utils.py
constexpr int kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

bool is_float8(DType dtype) {
  return is_float(dtype) && info(dtype).element_bits == 8 && info(dtype).element_values == 1;
}

// ---- integers, packed or not, row by row ----

struct Codes {
  TensorView view;  // axes as in the float weight; `packed_axis` counts words
  int bits = 0;     // of a code inside a word; 0: every element is one number
  int codes_per_word = 1;
  size_t packed_axis = 0;       // the last or the one before it
  int64_t rows = 1;             // of the axis before the last, unpacked
  int64_t columns = 1;          // of the last axis, unpacked
  const int* places = nullptr;  // of code k within its word; null: k
  bool is_signed = false;       // two's complement, otherwise unsigned
  double bias = 0;              // subtracted from what the word holds

  [[nodiscard]] double unpack(double word_value, int64_t k) const {
    const auto word = static_cast<uint32_t>(static_cast<int64_t>(word_value));
    const int place = places == nullptr ? static_cast<int>(k) : places[k];
    const uint32_t code = (word >> (place * bits)) & ((1u << bits) - 1u);
    const auto value = static_cast<double>(code);
    const bool is_negative = is_signed && (code >> (bits - 1)) != 0;
    return value - (is_negative ? static_cast<double>(1u << bits) : 0.0) - bias;
  }

  /// Columns [first, first + count) of row `row` of all rows. `words` is room for as many numbers.
  void read(int64_t row, int64_t first, int64_t count, std::vector<double>* words,
            double* out) const {
    const auto size = static_cast<size_t>(count);
    if (bits == 0) {
      read_values(view, row * columns + first, count, {out, size});
    } else if (packed_axis + 1 == view.shape.size()) {
      const int64_t row_words = view.shape[packed_axis];
      const int64_t first_word = first / codes_per_word;
      const int64_t word_count = (first + count - 1) / codes_per_word - first_word + 1;
      words->resize(static_cast<size_t>(word_count));
      read_values(view, row * row_words + first_word, word_count, *words);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t column = first + i;
        out[i] = unpack((*words)[static_cast<size_t>(column / codes_per_word - first_word)],
                        column % codes_per_word);
      }
    } else {
      const int64_t word_row = row / rows * view.shape[packed_axis] + row % rows / codes_per_word;
      read_values(view, word_row * columns + first, count, {out, size});
      for (int64_t i = 0; i < count; ++i) out[i] = unpack(out[i], row % rows % codes_per_word);
    }
  }
};

Codes plain_codes(const TensorView& view) {
  Codes codes;
  codes.view = view;
  const size_t rank = view.shape.size();
  if (rank > 0) codes.columns = view.shape[rank - 1];
  if (rank > 1) codes.rows = view.shape[rank - 2];
  return codes;
}

Codes packed_codes(const TensorView& view, int word_bits, int bits, size_t axis,
                   const Dims& unpacked) {
  Codes codes;
  codes.view = view;
  codes.bits = bits;
  codes.codes_per_word = word_bits / bits;
  codes.packed_axis = axis;
  const size_t rank = unpacked.size();
  codes.columns = unpacked[rank - 1];
  if (rank > 1) codes.rows = unpacked[rank - 2];
  return codes;
}

TensorView transposed(const TensorView& view) {
  TensorView out = view;
  std::swap(out.shape[0], out.shape[1]);
  std::swap(out.strides[0], out.strides[1]);
  return out;
}

// ---- scales and zero points, spread over the weight ----

struct Grid {
  Codes values;
  Dims shape;   // entries along each axis of the weight
  Dims blocks;  // elements of the weight that one entry covers

  [[nodiscard]] int64_t row_of(int64_t weight_row, const Dims& weight) const {
    int64_t out = 0;
    int64_t step = 1;
    for (size_t i = weight.size() - 1; i-- > 0;) {
      out += weight_row % weight[i] / blocks[i] * step;
      weight_row /= weight[i];
      step *= shape[i];
    }
    return out;
  }
  [[nodiscard]] int64_t row_size() const { return shape.empty() ? 1 : shape[shape.size() - 1]; }
};

// Elements of an axis of `size` that each of `entries` entries covers; 0 when they do not fit.
int64_t block_of(int64_t size, int64_t entries, bool in_blocks_of_128) {
  if (entries == 1) return std::max<int64_t>(size, 1);
  if (entries == size) return 1;
  if (entries <= 0) return 0;
  if (in_blocks_of_128 && (size + kFloat8Block - 1) / kFloat8Block == entries) return kFloat8Block;
  return size % entries == 0 ? size / entries : 0;
}

// The sizes of `shape` at the axes of a tensor of `rank` axes, size 1 elsewhere.
Dims aligned(const Dims& shape, size_t rank, bool to_the_left) {
  Dims out;
  out.resize(rank);
  std::fill(out.data(), out.data() + rank, 1);
  const size_t shift = to_the_left ? 0 : rank - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) out[shift + i] = shape[i];
  return out;
}

Dims without_last_ones(Dims shape, size_t rank) {
  while (shape.size() > rank && shape[shape.size() - 1] == 1) shape.resize(shape.size() - 1);
  return shape;
}

enum class Fit : uint8_t { Torch, Groups, Blocks };

bool place_grid(const Dims& entries, const Dims& weight, Fit fit, Grid* grid) {
  Dims blocks;
  blocks.resize(weight.size());
  for (size_t i = 0; i < weight.size(); ++i) {
    const bool fits_torch = entries[i] == 1 || entries[i] == weight[i];
    blocks[i] =
        fit == Fit::Torch && !fits_torch ? 0 : block_of(weight[i], entries[i], fit == Fit::Blocks);
    if (blocks[i] == 0) return false;
  }
  grid->shape = entries;
  grid->blocks = blocks;
  return true;
}

/// values  read as rows of the unpacked `shape`
Result<Grid> make_grid(Codes values, const Dims& shape, const Dims& weight, Fit fit,
                       std::string_view what) {
  Grid grid;
  grid.values = std::move(values);
  const size_t rank = weight.size();
  const Dims own = fit == Fit::Torch ? shape : without_last_ones(shape, rank);
  bool fits = false;
  if (own.size() <= rank) {
    // A scale of one axis belongs to the output channels, the first axis; torch would put it last.
    const bool whole = own.size() == rank;
    if (fit != Fit::Torch) {
      fits = place_grid(aligned(own, rank, true), weight, whole ? fit : Fit::Torch, &grid);
    }
    if (!fits) fits = place_grid(aligned(own, rank, false), weight, Fit::Torch, &grid);
  }
  if (!fits) {
    return fail(Errc::Invalid, std::string(what) + " has shape " + shape_text(shape) +
                                   ", which does not fit a weight of shape " + shape_text(weight));
  }
  // Entries are numbered along the weight's axes, which may be more than the tensor's own.
  if (grid.values.bits == 0) grid.values.columns = grid.row_size();
  return grid;
}

std::string granularity(const Grid& grid, const Dims& weight) {
  const size_t rank = weight.size();
  const auto is_one = [&](size_t i) { return grid.shape[i] == 1; };
  const auto is_full = [&](size_t i) { return grid.shape[i] == weight[i]; };
  bool all_one = true;
  bool leading_full = true;
  for (size_t i = 0; i < rank; ++i) all_one = all_one && is_one(i);
  for (size_t i = 0; i + 1 < rank; ++i) leading_full = leading_full && is_full(i);
  if (all_one) return "per tensor";
  if (leading_full && rank > 1 && is_one(rank - 1)) return "per channel";
  if (leading_full && is_full(rank - 1)) return rank == 1 ? "per channel" : "per element";
  if (leading_full) return "per group of " + std::to_string(grid.blocks[rank - 1]);
  std::string sizes;
  for (size_t i = 0; i < rank; ++i) {
    sizes += (i == 0 ? "" : " x ") + std::to_string(grid.blocks[i]);
  }
  return "per block of " + sizes;
}

// ---- arithmetic ----

double round_to(DType dtype, double value) {
  if (dtype == DType::Float64) return value;
  const auto single = static_cast<double>(static_cast<float>(value));
  const bool is_half = dtype == DType::Float16 || dtype == DType::BFloat16;
  return is_half ? reference::round_to(single, dtype) : single;
}

// Type of torch's result for two floating-point operands of equal rank, or of one and an integer.
DType promoted(DType a, DType b) {
  if (!is_float(a)) return is_float(b) ? b : DType::Float32;
  if (!is_float(b) || a == b) return a;
  return a == DType::Float64 || b == DType::Float64 ? DType::Float64 : DType::Float32;
}

/// (code - zero) * scale
struct Arithmetic {
  bool like_torch = false;
  bool wraps = false;  // int8 - int8 stays int8 in torch
  DType after_zero = DType::Float32;
  DType after_scale = DType::Float32;

  [[nodiscard]] double apply(double code, double zero, double scale) const {
    double difference = code - zero;
    if (!like_torch) return difference * scale;
    if (wraps) {
      difference = static_cast<int8_t>(static_cast<uint8_t>(static_cast<int>(difference)));
    } else {
      difference = round_to(after_zero, difference);
    }
    return round_to(after_scale, difference * scale);
  }
};

Arithmetic arithmetic_of(const QuantisedParts& parts, bool like_torch) {
  Arithmetic out;
  out.like_torch = like_torch;
  if (!like_torch) return out;
  DType difference = parts.codes.dtype;
  if (parts.zero) {
    out.wraps = parts.codes.dtype == DType::Int8 && parts.zero->dtype == DType::Int8;
    difference = promoted(parts.codes.dtype, parts.zero->dtype);
    if (!is_float(parts.zero->dtype)) difference = DType::Float64;  // exact
    out.after_zero = difference;
  }
  out.after_scale = parts.zero && is_float(parts.zero->dtype)
                        ? promoted(difference, parts.scale.dtype)
                        : promoted(DType::Int8, parts.scale.dtype);
  return out;
}

// ---- one weight ----

struct Plan {
  Dims shape;  // of the result
  Codes codes;
  Grid scale;
  std::optional<Grid> zero;
  double default_zero = 0;
  std::vector<int64_t> column_group;  // entry of each column along the last axis; empty: by blocks
  std::string code_name;              // "int8"
  double scale_factor = 1;
};

/// What a row of the weight needs of a grid, kept while rows share it.
class GridRow {
 public:
  /// grid   null: `otherwise` everywhere
  GridRow(const Grid* grid, double otherwise) : grid_(grid) {
    values_.assign(grid == nullptr ? 1 : static_cast<size_t>(grid->row_size()), otherwise);
    if (grid != nullptr && !grid->blocks.empty()) block_ = grid->blocks[grid->blocks.size() - 1];
  }
  void seek(int64_t weight_row, const Dims& weight) {
    if (grid_ == nullptr) return;
    const int64_t row = weight.size() > 1 ? grid_->row_of(weight_row, weight) : 0;
    if (row == row_) return;
    row_ = row;
    grid_->values.read(row, 0, grid_->row_size(), &words_, values_.data());
  }
  [[nodiscard]] double at(int64_t column, const std::vector<int64_t>& column_group) const {
    if (values_.size() == 1) return values_[0];
    const int64_t entry =
        column_group.empty() ? column / block_ : column_group[static_cast<size_t>(column)];
    return values_[static_cast<size_t>(entry)];
  }
  [[nodiscard]] const std::vector<double>& entries() const { return values_; }

 private:
  const Grid* grid_;
  int64_t block_ = 1;
  int64_t row_ = -1;
  std::vector<double> words_;
  std::vector<double> values_;
};

/// Rows [first, last) of the weight.
class RowWorker {
 public:
  RowWorker(const Plan& plan, const Arithmetic& arithmetic, pair::ScratchTensor* out)
      : plan_(plan),
        arithmetic_(arithmetic),
        out_(out),
        scale_(&plan.scale, 0),
        zero_(plan.zero ? &*plan.zero : nullptr, plan.default_zero) {}
  Status work(int64_t first, int64_t last) {
    const int64_t columns = plan_.codes.columns;
    for (int64_t row = first; row < last; ++row) {
      scale_.seek(row, plan_.shape);
      zero_.seek(row, plan_.shape);
      for (int64_t column = 0; column < columns; column += kUnitValues) {
        ASSAY_TRY_STATUS(piece(row, column, std::min(kUnitValues, columns - column)));
      }
    }
    return {};
  }

 private:
  Status piece(int64_t row, int64_t first, int64_t count) {
    codes_.resize(static_cast<size_t>(count));
    values_.resize(codes_.size());
    plan_.codes.read(row, first, count, &words_, codes_.data());
    for (int64_t i = 0; i < count; ++i) {
      const double zero = zero_.at(first + i, plan_.column_group);
      const double scale = scale_.at(first + i, plan_.column_group) * plan_.scale_factor;
      const auto at = static_cast<size_t>(i);
      values_[at] = static_cast<float>(arithmetic_.apply(codes_[at], zero, scale));
    }
    return out_->write(row * plan_.codes.columns + first, values_);
  }

  const Plan& plan_;
  const Arithmetic& arithmetic_;
  pair::ScratchTensor* out_;
  GridRow scale_;
  GridRow zero_;
  std::vector<double> words_;
  std::vector<double> codes_;
  std::vector<float> values_;
};

Result<Tensor> carry_out(const Plan& plan, const Arithmetic& arithmetic, int jobs) {
  ASSAY_TRY(pair::ScratchTensor out, pair::ScratchTensor::create(plan.shape));
  const int64_t count = element_count(plan.shape).value_or(0);
  if (count > 0) {
    const int64_t rows = count / plan.codes.columns;
    const int64_t unit_rows = std::max<int64_t>(1, kUnitValues / plan.codes.columns);
    const auto units = static_cast<size_t>((rows + unit_rows - 1) / unit_rows);
    std::mutex mutex;
    Status failed;
    parallel_for(units, resolve_job_count(jobs), [&](size_t unit) {
      const int64_t first = static_cast<int64_t>(unit) * unit_rows;
      const Status done =
          RowWorker(plan, arithmetic, &out).work(first, std::min(rows, first + unit_rows));
      if (done) return;
      const std::lock_guard lock(mutex);
      failed = done;
    });
    ASSAY_TRY_STATUS(failed);
  }
  return std::move(out).finish();
}

Status check_numbers(const TensorView& view, std::string_view what) {
  if (values_per_element(view.dtype) == 1 && info(view.dtype).kind != DTypeKind::Bits) return {};
  return fail(Errc::Unsupported, std::string(what) + " is of type " + torch_name(view.dtype));
}

Status check_words(const TensorView& view, const char* what) {
  if (view.shape.size() == 2 && (view.dtype == DType::Int32 || view.dtype == DType::UInt32)) {
    return {};
  }
  return fail(Errc::Unsupported, std::string(what) + " is " + torch_name(view.dtype) + " " +
                                     shape_text(view.shape) + ", expected a matrix of int32 words");
}

// ---- layouts ----

// The axis along which bytes hold two codes each, so that `stored` unpacks to `wanted`.
std::optional<size_t> paired_axis(const Dims& stored, const Dims& wanted) {
  if (stored.size() != wanted.size() || stored.empty()) return std::nullopt;
  std::optional<size_t> axis;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (stored[i] == wanted[i]) continue;
    if (axis || stored[i] * 2 != wanted[i] || i + 2 < stored.size()) return std::nullopt;
    axis = i;
  }
  return axis;
}

Result<Plan> plan_codes(const QuantisedParts& parts, const Dims& wanted, bool like_torch) {
  const TensorView& codes = parts.codes;
  Plan plan;
  const bool bytes = codes.dtype == DType::Int8 || codes.dtype == DType::UInt8;
  const auto pairs = bytes && !like_torch ? paired_axis(codes.shape, wanted) : std::nullopt;
  if (pairs) {
    plan.shape = wanted;
    plan.codes = packed_codes(codes, 8, 4, *pairs, wanted);
    plan.codes.is_signed = codes.dtype == DType::Int8;
    plan.code_name = plan.codes.is_signed ? "int4" : "uint4";
  } else {
    plan.shape = codes.shape;
    plan.codes = plain_codes(codes);
    plan.code_name = std::string(name(codes.dtype));
  }
  const Fit fit = like_torch ? Fit::Torch : is_float8(codes.dtype) ? Fit::Blocks : Fit::Groups;
  ASSAY_TRY(plan.scale,
            make_grid(plain_codes(parts.scale), parts.scale.shape, plan.shape, fit, "the scale"));
  if (parts.zero) {
    ASSAY_TRY(plan.zero, make_grid(plain_codes(*parts.zero), parts.zero->shape, plan.shape, fit,
                                   "the offset"));
  }
  return plan;
}

Result<Plan> plan_compressed_tensors(const QuantisedParts& parts, const Dims& wanted) {
  ASSAY_TRY_STATUS(check_words(parts.codes, "weight_packed"));
  const Dims& stored = parts.codes.shape;
  int bits = 0;
  for (const int candidate : {4, 8, 2}) {
    const int64_t per_word = 32 / candidate;
    // Rows of less than a word fit several widths; 4 bits are by far the most common.
    if (bits == 0 && wanted.size() == 2 && stored[0] == wanted[0] &&
        stored[1] == (wanted[1] + per_word - 1) / per_word) {
      bits = candidate;
    }
  }
  if (bits == 0) {
    return fail(Errc::Unsupported, "weight_packed of shape " + shape_text(stored) +
                                       " does not unpack to " + shape_text(wanted));
  }
  Plan plan;
  plan.shape = wanted;
  plan.codes = packed_codes(parts.codes, 32, bits, 1, wanted);
  plan.codes.bias = std::ldexp(1.0, bits - 1);
  plan.code_name = "int" + std::to_string(bits);
  ASSAY_TRY(plan.scale, make_grid(plain_codes(parts.scale), parts.scale.shape, wanted, Fit::Groups,
                                  "weight_scale"));
  if (parts.zero) {
    const int64_t per_word = 32 / bits;
    const TensorView& zero = *parts.zero;
    Codes codes = plain_codes(zero);
    Dims shape = zero.shape;
    if (zero.dtype == DType::Int32 && zero.shape.size() == 2 &&
        zero.shape[0] == (wanted[0] + per_word - 1) / per_word) {
      shape = Dims{wanted[0], zero.shape[1]};
      codes = packed_codes(zero, 32, bits, 0, shape);
      codes.bias = plan.codes.bias;
    }
    ASSAY_TRY(plan.zero,
              make_grid(std::move(codes), shape, wanted, Fit::Groups, "weight_zero_point"));
  }
  return plan;
}

Result<Plan> plan_qweight(const QuantisedParts& parts, const Dims& wanted) {
  ASSAY_TRY_STATUS(check_words(parts.codes, "qweight"));
  const Dims stored = parts.codes.shape;
  const bool matrix = wanted.size() == 2;
  const bool is_awq = matrix && stored[0] == wanted[1] && stored[1] * 8 == wanted[0];
  int bits = is_awq ? 4 : 0;
  for (const int candidate : {4, 8, 2}) {
    if (!is_awq && matrix && stored[1] == wanted[0] && stored[0] * (32 / candidate) == wanted[1]) {
      bits = candidate;
    }
  }
  if (bits == 0) {
    return fail(Errc::Unsupported, "qweight of shape " + shape_text(stored) +
                                       " is no GPTQ or AWQ layout of " + shape_text(wanted));
  }
  if (parts.scale.shape.size() != 2) {
    return fail(Errc::Invalid, "scales has shape " + shape_text(parts.scale.shape) +
                                   ", expected [groups, output channels]");
  }
  Plan plan;
  plan.shape = wanted;
  plan.codes = packed_codes(transposed(parts.codes), 32, bits, is_awq ? 0 : 1, wanted);
  if (is_awq) plan.codes.places = kAwqPlaces;
  plan.code_name = (is_awq ? "AWQ int" : "GPTQ int") + std::to_string(bits);
  const TensorView scale = transposed(parts.scale);
  ASSAY_TRY(plan.scale, make_grid(plain_codes(scale), scale.shape, wanted, Fit::Groups, "scales"));
  plan.default_zero = std::ldexp(1.0, bits - 1);
  if (parts.zero) {
    ASSAY_TRY_STATUS(check_words(*parts.zero, "qzeros"));
    const TensorView zero = transposed(*parts.zero);
    const int64_t per_word = 32 / bits;
    const Dims shape{zero.shape[0] * per_word, zero.shape[1]};
    Codes codes = packed_codes(zero, 32, bits, 0, shape);
    if (is_awq) {
      codes.places = kAwqPlaces;
    } else if (parts.zero_is_less_one) {
      codes.bias = -1;
    }
    ASSAY_TRY(plan.zero, make_grid(std::move(codes), shape, wanted, Fit::Groups, "qzeros"));
  }
  return plan;
}

Status set_column_groups(const TensorView& index, Plan* plan) {
  const int64_t columns = plan->codes.columns;
  if (index.shape.size() != 1 || index.shape[0] != columns) {
    return fail(Errc::Invalid, "g_idx has shape " + shape_text(index.shape) + ", expected [" +
                                   std::to_string(columns) + "]");
  }
  std::vector<double> groups(static_cast<size_t>(columns));
  read_values(index, 0, columns, groups);
  int64_t entries = plan->scale.row_size();
  if (plan->zero && plan->zero->row_size() > 1) {
    entries = std::min(entries, plan->zero->row_size());
  }
  for (const double group : groups) {
    if (!(group >= 0 && group < static_cast<double>(entries))) {
      return fail(Errc::Invalid,
                  "g_idx names group " + python_repr(group) + " of " + std::to_string(entries));
    }
    plan->column_group.push_back(static_cast<int64_t>(group));
  }
  return {};
}

// Zero points that all lie where a symmetric code has them say nothing.
bool is_asymmetric(const Plan& plan) {
  if (!plan.zero) return false;
  GridRow row(&*plan.zero, 0);
  const int64_t count = element_count(plan.shape).value_or(0);
  const int64_t rows = plan.codes.columns == 0 ? 0 : count / plan.codes.columns;
  for (int64_t i = 0; i < rows; ++i) {
    row.seek(i, plan.shape);
    for (const double zero : row.entries()) {
      if (zero != plan.default_zero) return true;
    }
  }
  return false;
}

/// Blocks of values lie one after the other, whatever the weight's shape.
Result<Dequantised> from_levels(const QuantisedParts& parts, const Dims& wanted) {
  const int64_t count = element_count(wanted).value_or(0);
  const int64_t blocks = parts.scale.element_count();
  if (parts.codes.element_count() * 2 != count || blocks == 0 || count % blocks != 0 ||
      parts.levels.size() != 16)
    return fail(Errc::Invalid,
                "codes or scales that do not fit a weight of shape " + shape_text(wanted));
  ASSAY_TRY(const reference::Whole codes, reference::whole(parts.codes));
  ASSAY_TRY(const reference::Wide scales, reference::widen(parts.scale));
  reference::Wide values(wanted);
  const int64_t block = count / blocks;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t byte = codes.data()[i / 2] & 255;
    const auto code = static_cast<size_t>(i % 2 == 0 ? byte >> 4 : byte & 15);
    values.data()[i] = static_cast<float>(parts.levels[code] * scales.data()[i / block]);
  }
  return Dequantised{reference::to_tensor(std::move(values)),
                     "nf4 per block of " + std::to_string(block), "torch.float32"};
}

}  // namespace

// Source: bitsandbytes-foundation/bitsandbytes: bitsandbytes/functional.py
const std::array<double, 16> kNormalFloat4 = {-1.0,
                                              -0.6961928009986877,
                                              -0.5250730514526367,
                                              -0.39491748809814453,
                                              -0.28444138169288635,
                                              -0.18477343022823334,
                                              -0.09105003625154495,
                                              0.0,
                                              0.07958029955625534,
                                              0.16093020141124725,
                                              0.24611230194568634,
                                              0.33791524171829224,
                                              0.44070982933044434,
                                              0.5626170039176941,
                                              0.7229568362236023,
                                              1.0};

Result<Dequantised> dequantise(const QuantisedParts& parts, const Dims& wanted, bool like_torch,
                               int jobs) {
  ASSAY_TRY_STATUS(check_numbers(parts.codes, "the weight"));
  ASSAY_TRY_STATUS(check_numbers(parts.scale, "the scale"));
  if (parts.zero) ASSAY_TRY_STATUS(check_numbers(*parts.zero, "the offset"));
  if (parts.coding == pair::Coding::Levels) return from_levels(parts, wanted);
  Result<Plan> plan = parts.coding == pair::Coding::QWeight ? plan_qweight(parts, wanted)
                      : parts.coding == pair::Coding::CompressedTensors
                          ? plan_compressed_tensors(parts, wanted)
                          : plan_codes(parts, wanted, like_torch);
  if (!plan) return fail(plan.error());
  plan->scale_factor = parts.scale_factor;
  if (parts.group_index) ASSAY_TRY_STATUS(set_column_groups(*parts.group_index, &*plan));
  const Arithmetic arithmetic = arithmetic_of(parts, like_torch);
  Dequantised out;
  ASSAY_TRY(out.tensor, carry_out(*plan, arithmetic, jobs));
  out.scheme = plan->code_name + " " + granularity(plan->scale, plan->shape);
  if (is_asymmetric(*plan)) out.scheme += ", asymmetric";
  out.dtype = torch_name(arithmetic.after_scale);
  return out;
}

}  // namespace assay::compare
