// SPDX-License-Identifier: Apache-2.0
// assay.reference: attention.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/reference/bind.hpp"
#include "reference/attention/attention.hpp"
#include "reference/attention/training_attention.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace assay::python {
namespace {

using reference::Attention;
using reference::AttentionSequence;

/// What both kinds of calls are told beside queries, keys and values.
struct Terms {
  std::optional<Tensor> mask;
  bool causal = false;
  int64_t window = 0;
  std::vector<double> slopes;
};

Result<TensorView> of_three_dims(const TensorView& view, const char* what) {
  if (view.shape.size() == 3) return view;
  return fail(Errc::Usage, std::string(what) + " has shape " + list_text(view.shape.span()) +
                               ", expected [rows, heads, size]");
}

/// Elements [first, first + count) of the first dimension.
TensorView part_of(TensorView view, int64_t first, int64_t count) {
  view.offset_elements += first * view.strides[0];
  view.shape[0] = count;
  return view;
}

/// A mask of [m, n] or [heads, m, n], or larger, as rows of all heads.
Result<TensorView> mask_of(const TensorView& mask, int64_t heads, int64_t m, int64_t n) {
  const size_t rank = mask.shape.size();
  if (rank == 2 || rank == 3) {
    const int64_t planes = rank == 3 ? mask.shape[0] : 1;
    const int64_t rows = mask.shape[rank - 2];
    const int64_t columns = mask.shape[rank - 1];
    if ((planes == 1 || planes == heads) && rows >= m && columns >= n) {
      TensorView view = mask;
      view.shape = Dims{heads, rows, columns};
      view.strides =
          Dims{planes == 1 ? 0 : mask.strides[0], mask.strides[rank - 2], mask.strides[rank - 1]};
      return view;
    }
  }
  return fail(Errc::Usage, "the mask has shape " + list_text(mask.shape.span()) + ", needs [" +
                               std::to_string(m) + ", " + std::to_string(n) + "], or [" +
                               std::to_string(heads) + ", " + std::to_string(m) + ", " +
                               std::to_string(n) + "]");
}

Status add_terms(const Terms& terms, int64_t heads, int64_t m, int64_t n,
                 AttentionSequence* sequence) {
  sequence->bias.offset = n - m;
  sequence->bias.causal = terms.causal;
  sequence->bias.window = terms.window;
  sequence->bias.slopes = terms.slopes;
  if (!terms.slopes.empty() && static_cast<int64_t>(terms.slopes.size()) != heads)
    return fail(Errc::Usage, std::to_string(terms.slopes.size()) + " slopes for " +
                                 std::to_string(heads) + " heads");
  if (!terms.mask) return {};
  ASSAY_TRY(sequence->bias.dense, mask_of(terms.mask->view, heads, m, n));
  return {};
}

/// Sizes that the queries and the values decide.
Result<Attention> attention_over(const TensorView& query, int64_t kv_heads, int64_t value_size,
                                 std::optional<double> scale) {
  Attention attention;
  attention.heads = query.shape[1];
  attention.kv_heads = kv_heads;
  attention.head_size = query.shape[2];
  attention.value_size = value_size;
  attention.scale =
      scale.value_or(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(query.shape[2], 1))));
  attention.output_shape = Dims{query.shape[0], query.shape[1], value_size};
  ASSAY_TRY_STATUS(reference::checked_count(attention.output_shape));
  attention.output_head_stride = value_size;
  attention.output_row_stride = query.shape[1] * value_size;
  return attention;
}

Status check_lengths(const std::vector<int64_t>& lengths, int64_t rows, const char* what) {
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > rows - sum)
      return fail(Errc::Usage, std::string("lengths of the sequences do not fit ") + what + " of " +
                                   std::to_string(rows) + " rows");
    sum += length;
  }
  if (sum == rows) return {};
  return fail(Errc::Usage, "lengths of the sequences add up to " + std::to_string(sum) + ", " +
                               what + " has " + std::to_string(rows) + " rows");
}

Result<Attention> plain_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  std::vector<int64_t> q_lens, std::vector<int64_t> kv_lens,
                                  std::optional<double> scale, const Terms& terms) {
  ASSAY_TRY(const TensorView query, of_three_dims(q.view, "q"));
  ASSAY_TRY(const TensorView key, of_three_dims(k.view, "k"));
  ASSAY_TRY(const TensorView value, of_three_dims(v.view, "v"));
  if (q_lens.empty()) q_lens = {query.shape[0]};
  if (kv_lens.empty()) kv_lens = q_lens.size() == 1 ? std::vector{key.shape[0]} : q_lens;
  ASSAY_TRY_STATUS(check_lengths(q_lens, query.shape[0], "q"));
  ASSAY_TRY_STATUS(check_lengths(kv_lens, key.shape[0], "k"));
  if (q_lens.size() != kv_lens.size() || value.shape[0] != key.shape[0])
    return fail(Errc::Usage, "q, k and v have different numbers of sequences or rows");
  ASSAY_TRY(Attention attention, attention_over(query, key.shape[1], value.shape[2], scale));
  attention.owners = {q, k, v};
  int64_t q_first = 0;
  int64_t kv_first = 0;
  for (size_t i = 0; i < q_lens.size(); ++i) {
    AttentionSequence one;
    one.query = part_of(query, q_first, q_lens[i]);
    one.keys = {part_of(key, kv_first, kv_lens[i])};
    one.values = {part_of(value, kv_first, kv_lens[i])};
    one.output_offset = q_first * attention.output_row_stride;
    ASSAY_TRY_STATUS(add_terms(terms, attention.heads, q_lens[i], kv_lens[i], &one));
    attention.sequences.push_back(std::move(one));
    q_first += q_lens[i];
    kv_first += kv_lens[i];
  }
  return attention;
}

Result<Attention> paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                  const Tensor& block_tables, const std::vector<int64_t>& contexts,
                                  std::vector<int64_t> q_lens, std::optional<double> scale,
                                  const Terms& terms) {
  ASSAY_TRY(const TensorView query, of_three_dims(q.view, "q"));
  const TensorView& keys = k_cache.view;
  const TensorView& values = v_cache.view;
  if (keys.shape.size() != 4 || values.shape.size() != 4 || block_tables.view.shape.size() != 2)
    return fail(Errc::Usage,
                "caches are [blocks, block size, heads, size], block tables [sequences, blocks]");
  for (size_t i = 0; i < 3; ++i) {
    if (keys.shape[i] != values.shape[i])
      return fail(Errc::Usage, "k_cache has shape " + list_text(keys.shape.span()) + ", v_cache " +
                                   list_text(values.shape.span()));
  }
  ASSAY_TRY(const reference::Whole tables, reference::whole(block_tables.view));
  const int64_t sequences = tables.shape[0];
  const int64_t table_size = tables.shape[1];
  const int64_t block_size = keys.shape[1];
  if (static_cast<int64_t>(contexts.size()) != sequences || block_size == 0)
    return fail(Errc::Usage, std::to_string(contexts.size()) + " context lengths for " +
                                 std::to_string(sequences) + " sequences");
  if (q_lens.empty()) q_lens.assign(contexts.size(), 1);
  ASSAY_TRY_STATUS(check_lengths(q_lens, query.shape[0], "q"));
  if (q_lens.size() != contexts.size())
    return fail(Errc::Usage, "q_lens and context_lens differ in length");
  ASSAY_TRY(Attention attention, attention_over(query, keys.shape[2], values.shape[3], scale));
  attention.owners = {q, k_cache, v_cache};
  const auto block_of = [](const TensorView& cache, int64_t block, int64_t rows) {
    TensorView view = cache;
    view.offset_elements += block * cache.strides[0];
    view.shape = Dims{rows, cache.shape[2], cache.shape[3]};
    view.strides = Dims{cache.strides[1], cache.strides[2], cache.strides[3]};
    return view;
  };
  int64_t q_first = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t context = contexts[static_cast<size_t>(b)];
    const int64_t rows = q_lens[static_cast<size_t>(b)];
    if (context < 0 || context > table_size * block_size)
      return fail(Errc::Usage, "context length " + std::to_string(context) +
                                   " exceeds the blocks of its sequence");
    AttentionSequence one;
    one.query = part_of(query, q_first, rows);
    for (int64_t first = 0; first < context; first += block_size) {
      const int64_t block = tables.values[static_cast<size_t>(b * table_size + first / block_size)];
      if (block < 0 || block >= keys.shape[0])
        return fail(Errc::Usage, "block " + std::to_string(block) + " of " +
                                     std::to_string(keys.shape[0]) + " blocks");
      const int64_t filled = std::min(block_size, context - first);
      one.keys.push_back(block_of(keys, block, filled));
      one.values.push_back(block_of(values, block, filled));
    }
    one.output_offset = q_first * attention.output_row_stride;
    ASSAY_TRY_STATUS(add_terms(terms, attention.heads, rows, context, &one));
    if (context > 0) attention.sequences.push_back(std::move(one));
    q_first += rows;
  }
  return attention;
}

/// In fp64, or as a kernel of type `dtype` computes it.
nb::object computed(const Attention& attention, const std::string& dtype, int jobs) {
  Result<Tensor> result = [&]() -> Result<Tensor> {
    const nb::gil_scoped_release released;
    if (dtype.empty()) {
      ASSAY_TRY(reference::Wide wide, reference::attention(attention, jobs));
      return reference::to_tensor(std::move(wide));
    }
    const std::optional<DType> named = dtype_from_name(dtype);
    if (!named) return fail(Errc::Usage, "unknown dtype '" + dtype + "'");
    ASSAY_TRY(const Tensor model, reference::flash_attention_model(attention, *named, jobs));
    return reference::narrow(model.view, DType::Float64);
  }();
  return owned_array(value_or_raise(std::move(result)));
}

reference::TrainingAttention training_options(double scale, const std::optional<Tensor>& mask,
                                              double mask_value, int64_t pre_tokens) {
  reference::TrainingAttention options;
  options.scale = scale;
  if (mask) options.mask = mask->view;
  options.mask_value = mask_value;
  options.pre_tokens = pre_tokens;
  return options;
}

nb::tuple arrays_of(reference::Wide first, reference::Wide second, reference::Wide third) {
  return nb::make_tuple(owned_array(reference::to_tensor(std::move(first))),
                        owned_array(reference::to_tensor(std::move(second))),
                        owned_array(reference::to_tensor(std::move(third))));
}

void bind_training(nb::module_& m) {
  m.def(
      "attention_with_statistics",
      [](nb::handle q, nb::handle k, nb::handle v, double scale, nb::handle mask, double mask_value,
         int64_t pre_tokens) {
        const Tensor in[] = {borrowed_tensor(q), borrowed_tensor(k), borrowed_tensor(v)};
        const std::optional<Tensor> masked = optional_tensor(mask);
        auto result = [&] {
          const nb::gil_scoped_release released;
          return reference::attention_with_statistics(
              in[0].view, in[1].view, in[2].view,
              training_options(scale, masked, mask_value, pre_tokens));
        }();
        auto found = value_or_raise(std::move(result));
        return arrays_of(std::move(found.output), std::move(found.maximum), std::move(found.sum));
      },
      "q"_a, "k"_a, "v"_a, "scale"_a, "mask"_a.none(), "mask_value"_a, "pre_tokens"_a);
  m.def(
      "attention_gradients",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle output_gradient, nb::handle maximum,
         nb::handle sum, nb::handle output, double scale, nb::handle mask, double mask_value,
         int64_t pre_tokens) {
        const Tensor in[] = {borrowed_tensor(q),       borrowed_tensor(k),
                             borrowed_tensor(v),       borrowed_tensor(output_gradient),
                             borrowed_tensor(maximum), borrowed_tensor(sum),
                             borrowed_tensor(output)};
        const std::optional<Tensor> masked = optional_tensor(mask);
        auto result = [&] {
          const nb::gil_scoped_release released;
          return reference::attention_gradients(
              in[0].view, in[1].view, in[2].view, in[3].view, in[4].view, in[5].view, in[6].view,
              training_options(scale, masked, mask_value, pre_tokens));
        }();
        auto found = value_or_raise(std::move(result));
        return arrays_of(std::move(found.query), std::move(found.key), std::move(found.value));
      },
      "q"_a, "k"_a, "v"_a, "output_gradient"_a, "maximum"_a, "sum"_a, "output"_a, "scale"_a,
      "mask"_a.none(), "mask_value"_a, "pre_tokens"_a);
  m.def("combine_attention", [](nb::handle lse, nb::handle outputs) {
    const Tensor in[] = {borrowed_tensor(lse), borrowed_tensor(outputs)};
    auto result = [&] {
      const nb::gil_scoped_release released;
      return reference::combine_attention(in[0].view, in[1].view);
    }();
    return array_or_raise(std::move(result));
  });
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def(
      "attention",
      [](nb::handle q, nb::handle k, nb::handle v, const std::vector<int64_t>& q_lens,
         const std::vector<int64_t>& kv_lens, std::optional<double> scale, nb::handle mask,
         bool causal, int64_t window, const std::vector<double>& slopes,
         std::optional<std::pair<double, double>> clamp, const std::string& dtype, int jobs) {
        Attention attention = value_or_raise(
            plain_attention(borrowed_tensor(q), borrowed_tensor(k), borrowed_tensor(v), q_lens,
                            kv_lens, scale, {optional_tensor(mask), causal, window, slopes}));
        attention.clamp = clamp;
        return computed(attention, dtype, jobs);
      },
      "q"_a, "k"_a, "v"_a, "q_lens"_a, "kv_lens"_a, "scale"_a.none(), "mask"_a.none(), "causal"_a,
      "window"_a, "slopes"_a, "clamp"_a.none(), "dtype"_a, "jobs"_a);
  m.def(
      "paged_attention",
      [](nb::handle q, nb::handle k_cache, nb::handle v_cache, nb::handle block_tables,
         const std::vector<int64_t>& context_lens, const std::vector<int64_t>& q_lens,
         std::optional<double> scale, nb::handle mask, bool causal,
         const std::vector<double>& slopes, const std::string& dtype, int jobs) {
        const Attention attention = value_or_raise(
            paged_attention(borrowed_tensor(q), borrowed_tensor(k_cache), borrowed_tensor(v_cache),
                            borrowed_tensor(block_tables), context_lens, q_lens, scale,
                            {optional_tensor(mask), causal, 0, slopes}));
        return computed(attention, dtype, jobs);
      },
      "q"_a, "k_cache"_a, "v_cache"_a, "block_tables"_a, "context_lens"_a, "q_lens"_a,
      "scale"_a.none(), "mask"_a.none(), "causal"_a, "slopes"_a, "dtype"_a, "jobs"_a);
  bind_training(m);
  m.def("alibi_slopes", &reference::alibi_slopes, "heads"_a);
}

}  // namespace assay::python
