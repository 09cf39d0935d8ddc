// SPDX-License-Identifier: Apache-2.0
// The overloads of fused attention differ in layout, mask and second output, which a table says.
// Each call is brought to the form of reference/attention: a batch is a sequence, a mask numbers to
// add.
#include "reference/aten/attention.hpp"

#include <algorithm>
#include <cmath>

#include "reference/aten/values.hpp"
#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How the overloads of fused attention differ.
enum class Layout : uint8_t {
  HeadsFirst,
  HeadsLast
};  // [..., heads, rows, size] | [..., rows, heads, size]
enum class Second : uint8_t {
  None,
  LogSums,  // logsumexp, one a query row and head
  Weights,  // softmax of the scores
  Padded,   // logsumexp in a shape of the kernel's own: not predicted
};
struct Kind {
  std::string_view operation;
  Layout layout;
  Second second;
  size_t outputs;
  std::string_view mask;  // the name of its mask or bias
  bool broadcasts;        // grouped heads only when asked for, leading sizes broadcast
};
constexpr Kind kKinds[] = {
    {"scaled_dot_product_attention", Layout::HeadsFirst, Second::None, 1, "attn_mask", true},
    {"_scaled_dot_product_attention_math", Layout::HeadsFirst, Second::Weights, 2, "attn_mask",
     true},
    {"_scaled_dot_product_attention_math_for_mps", Layout::HeadsFirst, Second::Weights, 2,
     "attn_mask", true},
    {"_scaled_dot_product_flash_attention_for_cpu", Layout::HeadsFirst, Second::LogSums, 2,
     "attn_mask", false},
    {"_scaled_dot_product_flash_attention", Layout::HeadsFirst, Second::LogSums, 9, "", false},
    {"_scaled_dot_product_efficient_attention", Layout::HeadsFirst, Second::Padded, 4, "attn_bias",
     false},
    {"_scaled_dot_product_cudnn_attention", Layout::HeadsFirst, Second::Padded, 9, "attn_bias",
     false},
    {"_scaled_dot_product_fused_attention_overrideable", Layout::HeadsFirst, Second::Padded, 9,
     "attn_bias", false},
    {"_flash_attention_forward", Layout::HeadsLast, Second::LogSums, 5, "", false},
    {"_efficient_attention_forward", Layout::HeadsLast, Second::Padded, 6, "bias", false},
};

Result<Kind> kind_of(const Arguments& arguments) {
  std::string_view name = arguments.call().name;
  name.remove_prefix(std::min(name.size(), std::string_view("aten.").size()));
  const std::string_view operation = name.substr(0, name.find('.'));
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const Kind& kind) { return kind.operation == operation; });
  if (found == std::end(kKinds)) return fail(arguments.unsupported("no attention"));
  return *found;
}

Error misfit(const Arguments& arguments, const TensorView& q, const TensorView& k,
             const TensorView& v) {
  return arguments.invalid("query ", q.shape, ", key ", k.shape, " and value ", v.shape,
                           " do not fit");
}

/// Views as [batch..., rows, heads, size], which is what the reference reads.
TensorView with_heads_last(TensorView view, Layout layout) {
  while (view.shape.size() < 3) {  // one head
    Dims shape{1};
    Dims strides{0};
    for (size_t i = 0; i < view.shape.size(); ++i) {
      shape.push_back(view.shape[i]);
      strides.push_back(view.strides[i]);
    }
    view.shape = shape;
    view.strides = strides;
  }
  const size_t rank = view.shape.size();
  if (layout == Layout::HeadsFirst) {
    std::swap(view.shape[rank - 3], view.shape[rank - 2]);
    std::swap(view.strides[rank - 3], view.strides[rank - 2]);
  }
  return view;
}

/// One batch of a view whose leading sizes broadcast to `batches`: [rows, heads, size].
TensorView batch_of(const TensorView& view, const Dims& batches, int64_t index) {
  TensorView one = view;
  const size_t own = view.shape.size() - 3;
  one.shape = Dims(view.shape.span().subspan(own));
  one.strides = Dims(view.strides.span().subspan(own));
  for (size_t i = batches.size(); i-- > 0;) {
    const int64_t place = index % batches[i];
    index /= batches[i];
    const size_t missing = batches.size() - own;
    if (i >= missing && view.shape[i - missing] != 1)
      one.offset_elements += place * view.strides[i - missing];
  }
  return one;
}

/// The operands of a call and the sizes that follow from them.
struct Operands {
  Kind kind;
  TensorView q, k, v;  // [batch..., rows, heads, size]
  Dims batches;
  int64_t heads = 0, kv_heads = 0, m = 0, n = 0;
  size_t rank = 0;  // of the query as given
};

Result<Operands> operands_of(const Arguments& arguments) {
  Operands operands;
  ASSAY_TRY(operands.kind, kind_of(arguments));
  ASSAY_TRY(const Tensor q, arguments.tensor("query"));
  ASSAY_TRY(const Tensor k, arguments.tensor("key"));
  ASSAY_TRY(const Tensor v, arguments.tensor("value"));
  for (const Tensor* one : {&q, &k, &v}) {
    if (one->view.shape.size() < 2) return fail(misfit(arguments, q.view, k.view, v.view));
    ASSAY_TRY_STATUS(checked_count(one->view.shape));
  }
  operands.rank = q.view.shape.size();
  operands.q = with_heads_last(q.view, operands.kind.layout);
  operands.k = with_heads_last(k.view, operands.kind.layout);
  operands.v = with_heads_last(v.view, operands.kind.layout);
  for (const TensorView* one : {&operands.q, &operands.k, &operands.v}) {
    const Dims own(one->shape.span().first(one->shape.size() - 3));
    const Result<Dims> joined = reference::broadcast_shape(operands.batches, own);
    if (!joined) return fail(misfit(arguments, q.view, k.view, v.view));
    operands.batches = *joined;
  }
  const auto size = [](const TensorView& view, size_t from_end) {
    return view.shape[view.shape.size() - from_end];
  };
  operands.m = size(operands.q, 3);
  operands.n = size(operands.k, 3);
  operands.heads = size(operands.q, 2);
  operands.kv_heads = size(operands.k, 2);
  const bool fits = size(operands.v, 2) == operands.kv_heads && size(operands.v, 3) == operands.n &&
                    size(operands.q, 1) == size(operands.k, 1);
  if (!fits) return fail(misfit(arguments, q.view, k.view, v.view));
  if (operands.kind.broadcasts) {
    ASSAY_TRY(const bool grouped, arguments.truth("enable_gqa", false));
    if (!grouped && operands.heads != operands.kv_heads && operands.kv_heads != 1 &&
        operands.heads != 1)
      return fail(misfit(arguments, q.view, k.view, v.view));
    if (!grouped && operands.heads == 1 && operands.kv_heads > 1) {
      TensorView& query = operands.q;
      query.shape[query.shape.size() - 2] = operands.heads = operands.kv_heads;
      query.strides[query.shape.size() - 2] = 0;
    }
  }
  return operands;
}

// ---- Masks ------------------------------------------------------------------------------------

/// A mask as numbers to add: what a truth mask leaves out becomes -inf.
Result<Tensor> additive_mask(const Operands& operands, const Tensor& mask) {
  // torch's plain formula (the `_math` overloads) adds truth values as numbers: its callers have
  // converted them.
  if (mask.view.dtype != DType::Bool || operands.kind.second == Second::Weights) return mask;
  ASSAY_TRY(Wide values, widen(mask.view));
  for (double& value : values.values) value = value != 0 ? 0.0 : -kInfinity;
  return to_tensor(std::move(values));
}

/// [batches..., heads, m, n] of a mask that broadcasts to it.
Result<Tensor> expanded_mask(const Arguments& arguments, const Operands& operands, Tensor mask) {
  Dims shape = operands.batches;
  for (const int64_t size : {operands.heads, operands.m, operands.n}) shape.push_back(size);
  Result<Tensor> expanded = broadcast_to(mask, shape);
  if (!expanded)
    return fail(arguments.invalid("mask ", mask.view.shape, " does not fit scores ", shape));
  return *std::move(expanded);
}

/// The causal rule, the place of row 0 among the keys, and the window.
Status read_causality(const Arguments& arguments, const Operands& operands, ScoreBias& bias) {
  ASSAY_TRY(bias.causal, arguments.truth("is_causal", false));
  bias.offset = 0;  // torch: row 0 sees key 0
  if (operands.kind.layout == Layout::HeadsFirst) return {};
  // The kernels' own entries: flash attention aligns the last row with the last key.
  bias.offset = operands.n - operands.m;
  ASSAY_TRY(const int64_t left, arguments.integer("window_size_left", -1));
  ASSAY_TRY(const int64_t right, arguments.integer("window_size_right", -1));
  if (right > 0 || (right == 0 && !bias.causal))
    return fail(arguments.unsupported("windows to the right"));
  if (left >= 0) bias.window = left + 1;
  if (operands.kind.operation != "_efficient_attention_forward") return {};
  ASSAY_TRY(const int64_t mask_type, arguments.integer("custom_mask_type", 0));
  bias.causal = mask_type != 0;
  bias.offset = mask_type == 2 ? operands.n - operands.m : 0;
  return {};
}

Status check_supported(const Arguments& arguments) {
  ASSAY_TRY(const double dropout, arguments.real("dropout_p", 0.0));
  if (dropout > 0)
    return fail(
        in_operator(arguments.call().name, {Errc::Random, {}, std::nullopt, "random: dropout"}));
  for (const std::string_view name :
       {"dropout_mask", "alibi_slopes", "block_table", "seqused_k", "seqlen_k", "q_descale",
        "k_descale", "v_descale", "window_size", "cum_seq_q", "cum_seq_k", "cu_seqlens_q",
        "cu_seqlens_k"}) {
    if (arguments.has(name)) return fail(arguments.unsupported("with ", name));
  }
  return {};
}

Values with_unpredicted(Values values, size_t count) {
  values.resize(count);
  return values;
}

Result<Values> evaluate_attention(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(const Kind kind, kind_of(arguments));
  ASSAY_TRY(const AttentionCall call, attention_of(arguments));
  AttentionTerms terms;
  terms.with_weights = kind.second == Second::Weights;
  ASSAY_TRY(Wide result, attention(call.attention, options.jobs, &terms));
  Values values = single(to_tensor(std::move(result)));
  if (kind.second == Second::LogSums) {
    // Rows that see nothing: the CPU leaves 0, flash attention +inf.
    const bool cpu = kind.operation.ends_with("_for_cpu");
    for (double& sum : terms.log_sums.values)
      if (sum == -kInfinity) sum = cpu ? 0.0 : kInfinity;
    terms.log_sums.shape = call.lines_shape;
    values.push_back(to_tensor(std::move(terms.log_sums)));
  }
  if (kind.second == Second::Weights) {
    Wide weights;
    weights.shape = call.weights_shape;
    weights.values.assign(terms.weights.begin(), terms.weights.end());
    values.push_back(to_tensor(std::move(weights)));
  }
  return with_unpredicted(std::move(values), kind.outputs);
}

}  // namespace

int64_t AttentionCall::line_of_row(int64_t row) const {
  if (!heads_last) return row;
  const size_t rank = lines_shape.size();
  const int64_t heads = lines_shape[rank - 2];
  const int64_t m = lines_shape[rank - 1];
  const int64_t batch = row / (heads * m);
  const int64_t within = row % (heads * m);
  return batch * heads * m + within % heads * m + within / heads;
}

Result<AttentionCall> attention_of(const Arguments& arguments) {
  ASSAY_TRY_STATUS(check_supported(arguments));
  ASSAY_TRY(const Operands operands, operands_of(arguments));
  const auto& [kind, q, k, v, batches, heads, kv_heads, m, n, rank] = operands;
  AttentionCall call;
  Attention& attention = call.attention;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.head_size = q.shape[q.shape.size() - 1];
  attention.value_size = v.shape[v.shape.size() - 1];
  ASSAY_TRY(attention.scale,
            arguments.real("scale", 1.0 / std::sqrt(static_cast<double>(attention.head_size))));
  const bool heads_last = kind.layout == Layout::HeadsLast;
  call.heads_last = heads_last;
  attention.output_row_stride = attention.value_size * (heads_last ? heads : 1);
  attention.output_head_stride = attention.value_size * (heads_last ? 1 : m);

  call.lines_shape = batches;
  if (rank > 2) call.lines_shape.push_back(heads);
  call.lines_shape.push_back(m);
  call.weights_shape = call.lines_shape;
  call.weights_shape.push_back(n);
  attention.output_shape = batches;
  if (rank > 2) attention.output_shape.push_back(heads_last ? m : heads);
  attention.output_shape.push_back(heads_last ? heads : m);
  attention.output_shape.push_back(attention.value_size);

  ScoreBias bias;
  ASSAY_TRY_STATUS(read_causality(arguments, operands, bias));
  std::optional<Tensor> mask;
  if (!kind.mask.empty()) {
    ASSAY_TRY(mask, arguments.optional_tensor(kind.mask));
  }
  if (mask) {
    ASSAY_TRY(mask, additive_mask(operands, *mask));
    ASSAY_TRY(mask, expanded_mask(arguments, operands, *mask));
    attention.owners.push_back(*mask);
  }
  ASSAY_TRY(const int64_t batch_count, checked_count(batches));
  ASSAY_TRY_STATUS(checked_count(attention.output_shape));
  for (int64_t batch = 0; batch < batch_count; ++batch) {
    AttentionSequence one;
    one.query = batch_of(q, batches, batch);
    one.keys = {batch_of(k, batches, batch)};
    one.values = {batch_of(v, batches, batch)};
    one.bias = bias;
    if (mask) one.bias.dense = batch_of(mask->view, batches, batch);
    one.output_offset = batch * heads * m * attention.value_size;
    attention.sequences.push_back(std::move(one));
  }
  return call;
}

std::span<const Overloads> attention_overloads() {
  constexpr auto kAttention = OperatorClass::Attention;
  static constexpr Overloads kTable[] = {
      {"_efficient_attention_forward.default _flash_attention_forward.default "
       "_scaled_dot_product_attention_math.default "
       "_scaled_dot_product_attention_math_for_mps.default "
       "_scaled_dot_product_cudnn_attention.default "
       "_scaled_dot_product_efficient_attention.default "
       "_scaled_dot_product_flash_attention.default "
       "_scaled_dot_product_flash_attention_for_cpu.default "
       "_scaled_dot_product_fused_attention_overrideable.default "
       "scaled_dot_product_attention.default",
       kAttention, evaluate_attention},
  };
  return kTable;
}

}  // namespace assay::reference::aten
