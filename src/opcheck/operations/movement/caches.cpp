// SPDX-License-Identifier: Apache-2.0
// Writing and reading key and value caches.   docs/opcheck/movement.md
#include <algorithm>
#include <optional>

#include "opcheck/operations/movement/evaluate.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/caches.hpp"
#include "reference/movement/collectives.hpp"
#include "reference/movement/gather.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using movement::integers_of;
using movement::kMove;
using reference::CacheLayout;
using reference::SlotWrite;

std::string text_of(const Tensor& tensor) { return list_text(tensor.view.shape.span()); }

/// New tokens written into a cache that is input `cache` and output `output`.
Result<Expectation> expect_writes(const Case& one, size_t cache, size_t output,
                                  const CacheLayout& layout, const Tensor& rows,
                                  std::vector<SlotWrite> writes) {
  const std::vector<SlotWrite> last = reference::last_writes(writes);
  std::vector<int64_t> slots;
  for (const SlotWrite& write : last) slots.push_back(write.slot);
  return movement::expect_in_place(
      one,
      {.input = cache,
       .output = output,
       .write =
           [=, writes = std::move(writes)](const Tensor& before) {
             return reference::write_slots(before, layout, rows, writes);
           },
       .pick = [layout,
                slots](const Tensor& after) { return reference::read_slots(after, layout, slots); },
       .written = [=] { return reference::pick_rows(rows, layout.row_elements, last); }});
}

/// How a cache lies in memory: as its header says, or as its shape does when rows of `row_elements`
/// fit only one way.
Result<CacheLayout> layout_of(const Case& one, size_t index, const Tensor& cache,
                              int64_t row_elements, bool must_be_nz) {
  const bool is_nz = must_be_nz || one.operands->is_nz_input(index);
  Result<CacheLayout> layout =
      is_nz ? reference::nz_cache(cache.view) : reference::plain_cache(cache.view);
  if (!is_nz && layout && layout->row_elements != row_elements) {
    const Result<CacheLayout> other = reference::nz_cache(cache.view);
    if (other && other->row_elements == row_elements) layout = other;
  }
  if (layout && layout->row_elements != row_elements)
    return fail(Errc::Invalid, "intensor", index, " has shape ", text_of(cache), ", rows of ",
                row_elements, " elements do not fit");
  return layout;
}

/// Elements of one token of [tokens, heads, size], or of one head of it.
Result<int64_t> row_elements_of(const Tensor& tokens, size_t first_dim) {
  if (tokens.view.shape.size() < first_dim + 1)
    return fail(Errc::Invalid, "new tokens of shape ", text_of(tokens),
                " have no [tokens, heads, size]");
  int64_t row = 1;
  for (size_t i = first_dim; i < tokens.view.shape.size(); ++i) {
    if (mul_overflows(row, tokens.view.shape[i], &row))
      return fail(Errc::TooLarge, "new tokens of shape ", text_of(tokens));
  }
  return row;
}

/// The inputs of the reshape_and_cache family; -1: not there.
struct CacheInputs {
  int key = 0, value = 1, key_cache = 2, value_cache = 3, slots = 4;
  int wins = -1, lengths = -1, offset_index = -1;
  int key_stride = -1, value_stride = -1, key_offset = -1, value_offset = -1;
  size_t count = 5;
};

class CacheWriter {
 public:
  CacheWriter(const Case& one, const CacheInputs& at) : one_(one), at_(at) {}

  Result<Evaluation> evaluate(std::string variant, bool must_be_nz) const {
    if (one_.operands->input_count() != at_.count)
      return fail(Errc::Invalid, one_.op_type, " (", variant, ") takes ", at_.count,
                  " inputs, the dump has ", one_.operands->input_count());
    Evaluation evaluation{std::move(variant), {}};
    ASSAY_TRY(Expectation key,
              side(at_.key, at_.key_cache, at_.key_stride, at_.key_offset, 0, must_be_nz));
    evaluation.outputs.push_back(std::move(key));
    if (at_.value >= 0) {
      ASSAY_TRY(Expectation value, side(at_.value, at_.value_cache, at_.value_stride,
                                        at_.value_offset, 1, must_be_nz));
      evaluation.outputs.push_back(std::move(value));
    }
    return evaluation;
  }

 private:
  [[nodiscard]] Result<Tensor> input(int index) const {
    return one_.operands->input(static_cast<size_t>(index));
  }

  [[nodiscard]] Result<std::vector<int64_t>> list(int index, std::string_view what) const {
    ASSAY_TRY(const Tensor tensor, input(index));
    return integers_of(tensor, what);
  }

  /// Key or value: its tokens into its cache.
  [[nodiscard]] Result<Expectation> side(int tokens_at, int cache_at, int stride_at, int offset_at,
                                         size_t output, bool must_be_nz) const {
    ASSAY_TRY(Tensor tokens, input(tokens_at));
    if (stride_at >= 0) {
      ASSAY_TRY(const std::vector<int64_t> stride, list(stride_at, "stride"));
      ASSAY_TRY(const std::vector<int64_t> offset, list(offset_at, "offset"));
      if (offset.size() != 1)
        return fail(Errc::Invalid, "intensor", offset_at, " holds ", offset,
                    ", one offset expected");
      ASSAY_TRY(tokens, reference::as_strided(tokens, tokens.view.shape,
                                              Dims(std::span<const int64_t>(stride)), offset[0]));
    }
    ASSAY_TRY(const Tensor cache, input(cache_at));
    const bool per_head = at_.wins >= 0;
    ASSAY_TRY(const int64_t row, row_elements_of(tokens, per_head ? 2 : 1));
    ASSAY_TRY(const CacheLayout layout,
              layout_of(one_, static_cast<size_t>(cache_at), cache, row, must_be_nz));
    ASSAY_TRY(std::vector<SlotWrite> found, writes(tokens));
    return expect_writes(one_, static_cast<size_t>(cache_at), output, layout, tokens,
                         std::move(found));
  }

  [[nodiscard]] Result<std::vector<SlotWrite>> writes(const Tensor& tokens) const {
    ASSAY_TRY(const std::vector<int64_t> slots, list(at_.slots, "slots"));
    if (at_.wins < 0) return reference::token_writes(slots);
    ASSAY_TRY(const std::vector<int64_t> wins, list(at_.wins, "wins"));
    ASSAY_TRY(const std::vector<int64_t> lengths, list(at_.lengths, "seqLen"));
    const int64_t heads = tokens.view.shape[1];
    if (at_.offset_index < 0) return reference::window_writes(slots, wins, lengths, heads);
    ASSAY_TRY(const std::vector<int64_t> offsets, list(at_.offset_index, "offsetIndex"));
    return reference::omni_writes(slots, wins, lengths, offsets, heads);
  }

  const Case& one_;
  const CacheInputs at_;
};

/// The two parameters, which both forms of the operation have.
struct CacheMode {
  int64_t compress_type = 0;
  int64_t cache_config = 0;
  std::string variant;
};

Result<CacheMode> read_mode(const Case& one, int64_t last_config) {
  CacheMode mode;
  ASSAY_TRY(mode.compress_type, one.parameters.integer("compressType", 0));
  ASSAY_TRY(mode.cache_config, one.parameters.integer("kvCacheCfg|kvcacheCfg", 0));
  if (mode.compress_type == 2)
    return fail(Errc::Unsupported, "compressType 2 (KVHEAD_ROPE) has no public golden");
  if (mode.compress_type != 0 && mode.compress_type != 1)
    return fail(Errc::Unsupported, "compressType ", mode.compress_type, " is not known");
  if (mode.cache_config < 0 || mode.cache_config > last_config)
    return fail(Errc::Unsupported, "kvCacheCfg ", mode.cache_config, " is not known");
  if (mode.compress_type == 1 && mode.cache_config != 0)
    return fail(Errc::Unsupported, "compressType 1 with kvCacheCfg ", mode.cache_config,
                " is not described");
  mode.variant = mode.compress_type == 1  ? "one window a head"
                 : mode.cache_config == 1 ? "key only"
                 : mode.cache_config == 2 ? "key and value, NZ"
                                          : "key and value";
  return mode;
}

/// Lengths of contexts, given as such or as sums that begin with 0.
Result<std::vector<int64_t>> context_lengths(const Case& one, const Tensor& tables,
                                             const Tensor& contexts) {
  ASSAY_TRY(std::vector<int64_t> lengths, integers_of(contexts, "contextLens"));
  if (tables.view.shape.empty())
    return fail(Errc::Invalid, "block tables of shape ", text_of(tables));
  const bool looks_summed = static_cast<int64_t>(lengths.size()) == tables.view.shape[0] + 1;
  ASSAY_TRY(const bool is_summed, one.parameters.boolean("isSeqLensCumsumMode", looks_summed));
  if (!is_summed) return lengths;
  for (size_t i = 0; i + 1 < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i + 1] < lengths[i])
      return fail(Errc::Invalid, "sums of contextLens fall from ", lengths[i], " to ",
                  lengths[i + 1]);
    lengths[i] = lengths[i + 1] - lengths[i];
  }
  if (!lengths.empty()) lengths.pop_back();
  return lengths;
}

/// Tokens of a cache packed into input `target`, which may have room for more.
Result<Expectation> expect_load(const Case& one, const Tensor& cache, const CacheLayout& layout,
                                std::vector<int64_t> slots, size_t target, size_t output) {
  ASSAY_TRY(const Tensor room, one.operands->has_output(output)
                                   ? one.operands->output(output)
                                   : one.operands->input_after(target));
  const auto tokens = static_cast<int64_t>(slots.size());
  int64_t loaded = 0;
  if (mul_overflows(tokens, layout.row_elements, &loaded) || loaded > room.view.element_count())
    return fail(Errc::Invalid, tokens, " tokens of ", layout.row_elements,
                " elements exceed the result of shape ", text_of(room));
  const auto load = [cache, layout, slots = std::move(slots)] {
    return reference::read_slots(cache, layout, slots);
  };
  if (loaded == room.view.element_count()) {
    Expectation whole =
        expectation(one.operands->has_output(output) ? output : target, kMove, load);
    whole.in_place = !one.operands->has_output(output);
    return whole;
  }
  return movement::expect_in_place(
      one,
      {.input = target,
       .output = output,
       .write = [load, loaded](const Tensor& before) -> Result<Tensor> {
         ASSAY_TRY(const Tensor rows, load());
         ASSAY_TRY(const Tensor flat, reference::flat_part(rows, 0, loaded));
         ASSAY_TRY(const Tensor rest,
                   reference::flat_part(before, loaded, before.view.element_count() - loaded));
         const Tensor parts[] = {flat, rest};
         return reference::concat(parts, 0);
       },
       .pick = [loaded](const Tensor& after) { return reference::flat_part(after, 0, loaded); },
       .written = load});
}

}  // namespace

Result<Evaluation> evaluate_kv_cache(const Case& one) {
  ASSAY_TRY(const std::vector<Tensor> inputs,
            read_inputs(one, {"newKv", "layerId", "past", "tokenOffset", "seqLen"}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> layer, integers_of(inputs[1], "layerId"));
  ASSAY_TRY(const std::vector<int64_t> offsets, integers_of(inputs[3], "tokenOffset"));
  ASSAY_TRY(const std::vector<int64_t> lengths, integers_of(inputs[4], "seqLen"));
  if (layer.size() != 1)
    return fail(Errc::Invalid, "layerId holds ", layer, ", one layer expected");
  const Tensor& past = inputs[2];
  ASSAY_TRY(std::vector<SlotWrite> writes,
            reference::layer_writes(past.view, layer[0], offsets, lengths));
  ASSAY_TRY(const int64_t row, row_elements_of(past, 3));
  const CacheLayout layout{past.view.shape[0] * past.view.shape[1], past.view.shape[2], row, row};

  ASSAY_TRY(Expectation expected, expect_writes(one, 2, 0, layout, inputs[0], std::move(writes)));
  return evaluation("", std::move(expected));
}

Result<Evaluation> evaluate_reshape_and_cache(const Case& one) {
  ASSAY_TRY(const CacheMode mode, read_mode(one, 2));
  CacheInputs at;
  if (mode.compress_type == 1) {
    at.wins = 5;
    at.lengths = 6;
    at.count = 7;
  } else if (mode.cache_config == 1) {
    at = {.key = 0, .value = -1, .key_cache = 1, .value_cache = -1, .slots = 2, .count = 3};
  }
  return CacheWriter(one, at).evaluate(mode.variant, mode.cache_config == 2);
}

Result<Evaluation> evaluate_reshape_and_cache_with_stride(const Case& one) {
  ASSAY_TRY(const CacheMode mode, read_mode(one, 1));
  CacheInputs at{
      .key_stride = 5, .value_stride = 6, .key_offset = 7, .value_offset = 8, .count = 9};
  if (mode.compress_type == 1) {
    at = {.wins = 5,
          .lengths = 6,
          .key_stride = 7,
          .value_stride = 8,
          .key_offset = 9,
          .value_offset = 10,
          .count = 11};
  } else if (mode.cache_config == 1) {
    at = {.key = 0,
          .value = -1,
          .key_cache = 1,
          .value_cache = -1,
          .slots = 2,
          .key_stride = 3,
          .key_offset = 4,
          .count = 5};
  }
  ASSAY_TRY(Evaluation evaluation, CacheWriter(one, at).evaluate(mode.variant, false));
  for (Expectation& expected : evaluation.outputs)
    expected.note += std::string(expected.note.empty() ? "" : "; ") +
                     "strides read as those of the strided norms";
  return evaluation;
}

Result<Evaluation> evaluate_reshape_and_cache_omni(const Case& one) {
  return CacheWriter(one, {.wins = 5, .lengths = 6, .offset_index = 7, .count = 8})
      .evaluate("all but one window a head", false);
}

Result<Evaluation> evaluate_paged_cache_load(const Case& one) {
  const size_t count = one.operands->input_count();
  if (count != 6 && count != 7)
    return fail(Errc::Invalid, count, " inputs in the dump, 6 or 7 expected");
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < count; ++i) {
    ASSAY_TRY(Tensor input, one.operands->input(i));
    inputs.push_back(std::move(input));
  }
  ASSAY_TRY_STATUS(movement::require_integers(inputs[2], "block tables"));
  ASSAY_TRY(const std::vector<int64_t> lengths, context_lengths(one, inputs[2], inputs[3]));
  std::vector<int64_t> starts;
  if (count == 7) {
    ASSAY_TRY(starts, integers_of(inputs[6], "seqStarts"));
  }
  // Results of plain caches have heads, those of NZ caches do not.
  const bool looks_plain = inputs[4].view.shape.size() == 3 && !one.operands->is_nz_input(0);
  ASSAY_TRY(const int64_t config, one.parameters.integer("kvCacheCfg", looks_plain ? 1 : 0));
  if (config != 0 && config != 1)
    return fail(Errc::Unsupported, "kvCacheCfg ", config, " is not known");
  Evaluation evaluation{config == 1 ? "ND" : "NZ", {}};
  for (size_t side = 0; side < 2; ++side) {
    const Tensor& cache = inputs[side];
    ASSAY_TRY(const CacheLayout layout,
              config == 1 ? reference::plain_cache(cache.view) : reference::nz_cache(cache.view));
    ASSAY_TRY(std::vector<int64_t> slots,
              reference::table_slots(inputs[2].view, lengths, starts, layout.block_size));
    ASSAY_TRY(Expectation expected,
              expect_load(one, cache, layout, std::move(slots), 4 + side, side));
    evaluation.outputs.push_back(std::move(expected));
  }
  return evaluation;
}

Result<Evaluation> evaluate_block_copy(const Case& one) {
  ASSAY_TRY(const std::vector<Tensor> inputs,
            read_inputs(one, {"kCache", "vCache", "srcIndices", "dstIndices", "cumSum"}));
  ASSAY_TRY(const std::vector<int64_t> sources, integers_of(inputs[2], "srcIndices"));
  ASSAY_TRY(const std::vector<int64_t> targets, integers_of(inputs[3], "dstIndices"));
  ASSAY_TRY(const std::vector<int64_t> sums, integers_of(inputs[4], "cumSum"));
  // Without the state before, a target tells its source only while nothing overwrote either.
  std::vector<int64_t> sorted = targets;
  std::sort(sorted.begin(), sorted.end());
  const bool is_readable = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
                           std::none_of(sources.begin(), sources.end(), [&](int64_t source) {
                             return std::binary_search(sorted.begin(), sorted.end(), source);
                           });
  if (!one.operands->has_before() && !is_readable)
    return fail(Errc::Unsupported,
                "needs before data: blocks are overwritten that are also sources");
  // The source of every target.
  std::vector<int64_t> source_of;
  for (size_t i = 0; i < sources.size() && i < sums.size(); ++i) {
    while (source_of.size() < targets.size() && static_cast<int64_t>(source_of.size()) < sums[i])
      source_of.push_back(sources[i]);
  }
  const std::vector<int64_t> copied(
      targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(source_of.size()));
  const auto blocks_of = [](const Tensor& cache, const std::vector<int64_t>& blocks) {
    reference::Whole indices(Dims{static_cast<int64_t>(blocks.size())});
    std::copy(blocks.begin(), blocks.end(), indices.values.begin());
    return reference::gather(cache, reference::to_tensor(std::move(indices)), 0, 0);
  };
  Evaluation evaluation;
  for (size_t side = 0; side < 2; ++side) {
    ASSAY_TRY(const Tensor after, one.operands->has_output(side) ? one.operands->output(side)
                                                                 : one.operands->input_after(side));
    ASSAY_TRY(Expectation expected,
              movement::expect_in_place(
                  one, {.input = side,
                        .output = side,
                        .write =
                            [=](const Tensor& before) {
                              return reference::copy_blocks(before, sources, targets, sums);
                            },
                        .pick = [=](const Tensor& state) { return blocks_of(state, copied); },
                        .written = [=] { return blocks_of(after, source_of); }}));
    evaluation.outputs.push_back(std::move(expected));
  }
  return evaluation;
}

}  // namespace assay::opcheck
