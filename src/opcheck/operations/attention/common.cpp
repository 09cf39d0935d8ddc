// SPDX-License-Identifier: Apache-2.0
// Inputs in their order, masks and blocks of caches as views of the dumped bytes, and the
// expectation itself: one candidate for each way in which a kernel may round, without rows that
// nothing determines.   docs/opcheck/attention.md
#include <algorithm>

#include "opcheck/operations/attention/evaluate.hpp"
#include "reference/movement/transdata.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck::attention {
namespace {

Error in_input(Error error, std::string_view name) {
  error.message = std::string(name) + ": " + error.message;
  return error;
}

/// Another look at the same bytes; sizes and strides lie within those of `view`.
TensorView look(const TensorView& view, int64_t first, Dims shape, Dims strides) {
  TensorView result = view;
  result.offset_elements += first;
  result.shape = std::move(shape);
  result.strides = std::move(strides);
  return result;
}

}  // namespace

Result<InputList::Input> InputList::next(std::string_view name) {
  if (next_ >= operands_.input_count())
    return fail(Errc::Invalid, "the dump has ", operands_.input_count(), " inputs, ", name,
                " would be intensor", next_);
  Result<Tensor> tensor = operands_.input(next_);
  if (!tensor) return fail(in_input(tensor.error(), name));
  ASSAY_TRY(Tensor packed, reference::contiguous(*tensor));
  Input input{std::move(packed), operands_.is_nz_input(next_)};
  ++next_;
  names_.append(names_.empty() ? "" : ", ").append(name);
  return input;
}

Status InputList::finish() const {
  if (left() == 0) return {};
  return fail(Errc::Invalid, "the dump has ", operands_.input_count(),
              " inputs; with these parameters there are ", next_, ": ", names_);
}

Result<std::vector<int64_t>> lengths_of(const Tensor& tensor, std::string_view name) {
  Result<reference::Whole> values = reference::whole(tensor.view);
  if (!values) return fail(in_input(values.error(), name));
  for (const int64_t value : values->values) {
    if (value < 0 || value > INT32_MAX) return fail(Errc::Invalid, name, " holds ", value);
  }
  return std::vector<int64_t>(values->values.begin(), values->values.end());
}

Result<std::vector<double>> scales_of(const Tensor& tensor, std::string_view name, int64_t count) {
  if (tensor.view.element_count() != count)
    return fail(Errc::Invalid, name, " has shape ", tensor.view.shape, ", not ", count, " values");
  if (tensor.view.dtype == DType::Int64 || tensor.view.dtype == DType::UInt64) {
    ASSAY_TRY(const reference::Whole bits, reference::whole(tensor.view));
    std::vector<double> result;
    for (const int64_t value : bits.values) result.push_back(reference::scale_from_bits(value));
    return result;
  }
  Result<reference::Wide> wide = reference::widen(tensor.view);
  if (!wide) return fail(in_input(wide.error(), name));
  return std::vector<double>(wide->values.begin(), wide->values.end());
}

Result<int64_t> read_choice(const Parameters& parameters, std::string_view key, int64_t last) {
  ASSAY_TRY(const int64_t value, parameters.integer(key, 0));
  if (value < 0 || value > last)
    return fail(Errc::Unsupported, key.substr(0, key.find('|')), " ", value, " is not known");
  return value;
}

Result<Heads> read_heads(const Parameters& parameters) {
  Heads heads;
  ASSAY_TRY(heads.query, parameters.integer("headNum", 0));
  ASSAY_TRY(heads.kv, parameters.integer("kvHeadNum", 0));
  if (heads.query <= 0 || heads.query > (1 << 20))
    return fail(Errc::Invalid, sentence("headNum is ", heads.query));
  if (heads.kv == 0) heads.kv = heads.query;
  if (heads.kv < 0 || heads.query % heads.kv != 0)
    return fail(Errc::Invalid, "kvHeadNum ", heads.kv, " does not divide headNum ", heads.query);
  return heads;
}

Result<Tensor> tokens_of(const Tensor& tensor, int64_t heads, std::string_view name) {
  const Dims& shape = tensor.view.shape;
  const size_t rank = shape.size();
  const auto split = [&](int64_t tokens, int64_t columns) {
    return reference::reshaped(tensor, {tokens, heads, columns / heads});
  };
  if (rank == 2 && shape[1] % heads == 0) return split(shape[0], shape[1]);
  if (rank == 3 && shape[1] == heads) return tensor;
  if (rank == 3 && shape[2] % heads == 0) return split(shape[0] * shape[1], shape[2]);
  if (rank == 4 && shape[2] == heads) return split(shape[0] * shape[1], heads * shape[3]);
  return fail(Errc::Invalid, name, " has shape ", tensor.view.shape, ", which is not [tokens, ",
              heads, " heads, size]");
}

// ---- Masks --------------------------------------------------------------------------------------

TensorView Mask::of_sequence(int64_t sequence, int64_t first_row) const {
  const TensorView& view = tensor.view;
  return look(view, sequence * view.strides[0] + first_row * view.strides[2],
              {view.shape[1], view.shape[2] - first_row, view.shape[3]},
              {view.strides[1], view.strides[2], view.strides[3]});
}

Result<Mask> read_mask(const InputList::Input& input, int64_t batch, int64_t heads, bool by_heads) {
  Tensor tensor = input.tensor;
  if (input.is_nz) {
    ASSAY_TRY(tensor, reference::nz_to_nd(tensor, -1, -1));
    if (tensor.view.shape.size() == 3 && batch > 0 && tensor.view.shape[0] == batch * heads &&
        heads > 1) {
      ASSAY_TRY(tensor, reference::reshaped(
                            tensor, {batch, heads, tensor.view.shape[1], tensor.view.shape[2]}));
    }
  }
  const Dims shape = tensor.view.shape;
  const Dims strides = tensor.view.strides;
  const size_t rank = shape.size();
  const auto refuse = [&] {
    return fail(Errc::Invalid, "mask has shape ", shape, " for ", batch, " sequences and ", heads,
                " heads");
  };
  if (rank < 2 || rank > 4) return refuse();
  int64_t sequences = 1;
  int64_t per_head = 1;
  int64_t sequence_stride = 0;
  int64_t head_stride = 0;
  if (rank == 4) {
    sequences = shape[0];
    per_head = shape[1];
    sequence_stride = strides[0];
    head_stride = strides[1];
  } else if (rank == 3) {
    const bool fits_heads = shape[0] == heads;
    const bool fits_batch = shape[0] == batch;
    if (fits_heads && (by_heads || !fits_batch)) {
      per_head = heads;
      head_stride = strides[0];
    } else {
      sequences = shape[0];
      sequence_stride = strides[0];
    }
  }
  if ((sequences != 1 && sequences != batch) || (per_head != 1 && per_head != heads))
    return refuse();
  Mask mask;
  mask.tensor = tensor;
  mask.tensor.view.shape = {batch, heads, shape[rank - 2], shape[rank - 1]};
  mask.tensor.view.strides = {sequences == 1 ? 0 : sequence_stride, per_head == 1 ? 0 : head_stride,
                              strides[rank - 2], strides[rank - 1]};
  return mask;
}

double mask_coefficient(const TensorView& mask, DType query_type) {
  const bool may_be = query_type == DType::BFloat16 || query_type == DType::Float32;
  return may_be && reference::is_zero_one(mask) ? kZeroOneMaskFactor : 1.0;
}

// ---- Caches -------------------------------------------------------------------------------------

TensorView BlockCache::rows(int64_t block, int64_t count) const {
  const TensorView& view = tensor.view;
  const Dims& strides = view.strides;
  const int64_t first = block * strides[0];
  if (!is_nz)
    return look(view, first, {count, kv_heads, size}, {strides[1], strides[2], strides[3]});
  const int64_t width = view.shape[3];
  return look(view, first, {count, kv_heads, size / width, width},
              {strides[2], size / width * strides[1], strides[1], strides[3]});
}

Result<BlockCache> read_block_cache(const InputList::Input& input, int64_t kv_heads,
                                    std::string_view name) {
  const Dims& shape = input.tensor.view.shape;
  BlockCache cache{input.tensor, input.is_nz, kv_heads, 0, 0, 0};
  const std::string found = std::string(name) + " has shape " + shape_text(input.tensor.view.shape);
  if (shape.size() != 4)
    return fail(Errc::Invalid, found, "; caches of blocks have four dimensions");
  cache.blocks = shape[0];
  if (input.is_nz) {
    const int64_t columns = shape[1] * shape[3];
    if (shape[3] <= 0 || columns % kv_heads != 0)
      return fail(Errc::Invalid, found, " (FRACTAL_NZ), which ", kv_heads,
                  " kv heads do not divide");
    cache.size = columns / kv_heads;
    cache.block_size = shape[2];
    if (cache.size % shape[3] != 0)
      return fail(Errc::Unsupported, found, " (FRACTAL_NZ): heads of ", cache.size,
                  " columns share blocks");
    return cache;
  }
  if (shape[2] != kv_heads)
    return fail(Errc::Invalid, found, ", not [blocks, block size, ", kv_heads, " kv heads, size]");
  cache.block_size = shape[1];
  cache.size = shape[3];
  return cache;
}

Result<std::vector<TensorView>> gather_blocks(const BlockCache& cache,
                                              const reference::Whole& table, int64_t sequence,
                                              int64_t count) {
  const int64_t columns = table.shape[1];
  std::vector<TensorView> parts;
  if (count == 0) return parts;
  // A division, since the product of two sizes from a file may overflow.
  if (cache.block_size <= 0 || (count - 1) / cache.block_size >= columns)
    return fail(Errc::Invalid, "sequence ", sequence, " has ", count, " keys, its ", columns,
                " blocks of ", cache.block_size, " hold less");
  for (int64_t first = 0; first < count; first += cache.block_size) {
    const int64_t at = first / cache.block_size;
    const int64_t block = table.values[static_cast<size_t>(sequence * columns + at)];
    if (block < 0 || block >= cache.blocks)
      return fail(Errc::Invalid, "block table of sequence ", sequence, " names block ", block,
                  "; the cache has ", cache.blocks);
    parts.push_back(cache.rows(block, std::min(cache.block_size, count - first)));
  }
  return parts;
}

// ---- Evaluations --------------------------------------------------------------------------------

namespace {

using reference::Attention;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

/// Puts what the device wrote where nothing says what belongs there.
Status fill_unjudged(reference::Wide* values, const Ranges& unjudged, const Tensor& mine) {
  if (unjudged.empty()) return {};
  ASSAY_TRY(const reference::Wide found, reference::widen(mine.view));
  if (found.size() != values->size()) return {};  // the count is reported anyway
  for (const auto& [first, count] : unjudged)
    std::copy_n(found.data() + first, count, values->data() + first);
  return {};
}

}  // namespace

Evaluation evaluation_of(Prepared prepared, const Case& one) {
  const Result<Tensor> output = one.operands->output(0);
  // A missing output is reported where it is judged.
  const Tensor mine = output ? *output : Tensor{};
  Ranges unjudged = output ? prepared.unjudged : Ranges{};
  const int jobs = one.jobs;

  Expectation expected;
  expected.accuracy = {Precision::CvFusion, prepared.attention.heads * prepared.longest + 4};
  expected.note = prepared.note;
  expected.partial = !unjudged.empty();
  expected.try_all = prepared.try_all;
  const DType dtype = mine.view.dtype;
  const bool has_model =
      output && (dtype == DType::Float16 || dtype == DType::BFloat16 || dtype == DType::Float32);
  const auto add = [&](std::string label, Attention attention) {
    auto held = std::make_shared<const Attention>(std::move(attention));
    Candidate candidate;
    candidate.label = std::move(label);
    candidate.golden = [held, jobs, unjudged, mine]() -> Result<Tensor> {
      ASSAY_TRY(reference::Wide golden, reference::attention(*held, jobs));
      ASSAY_TRY_STATUS(fill_unjudged(&golden, unjudged, mine));
      return reference::to_tensor(std::move(golden));
    };
    if (has_model) {
      candidate.second = [held, dtype, jobs, unjudged, mine]() -> Result<Tensor> {
        ASSAY_TRY(Tensor model, reference::flash_attention_model(*held, dtype, jobs));
        if (unjudged.empty()) return model;
        ASSAY_TRY(reference::Wide values, reference::widen(model.view));
        ASSAY_TRY_STATUS(fill_unjudged(&values, unjudged, mine));
        return reference::narrow(reference::to_tensor(std::move(values)).view, dtype);
      };
    }
    expected.candidates.push_back(std::move(candidate));
  };
  add(prepared.label, std::move(prepared.attention));
  for (auto& [label, attention] : prepared.alternatives) add(label, std::move(attention));
  return evaluation(prepared.variant, std::move(expected));
}

void add_roundings(Prepared* prepared, bool online) {
  using reference::WeightRounding;
  constexpr int64_t kKernelBlock = 128;  // keys that ATB's own golden rounds together
  struct Way {
    WeightRounding rounding;
    const char* label;
  };
  const Way online_ways[] = {{WeightRounding::Online, "weights rounded online"}};
  const Way offline_ways[] = {{WeightRounding::OfflineDivide, "weights rounded as p / pScale"},
                              {WeightRounding::OfflineMultiply, "weights rounded as p * pScale"}};
  const std::span<const Way> ways = online ? std::span<const Way>(online_ways) : offline_ways;
  const Attention plain = prepared->attention;
  bool is_first = true;
  for (const Way& way : ways) {
    for (const int64_t block : {int64_t{0}, kKernelBlock}) {
      if (block > 0 && prepared->longest <= block) continue;  // one block: no difference
      Attention attention = plain;
      attention.rounding = way.rounding;
      attention.rounding_block = block;
      std::string label = std::string(way.label) + (block == 0 ? "" : ", in blocks of 128 keys");
      if (is_first) {
        prepared->attention = std::move(attention);
        prepared->label = std::move(label);
      } else {
        prepared->alternatives.emplace_back(std::move(label), std::move(attention));
      }
      is_first = false;
    }
  }
  prepared->try_all = true;
}

}  // namespace assay::opcheck::attention
