// SPDX-License-Identifier: Apache-2.0
// Other spellings of the rows of all families: overloads of torch that write into an argument, and
// synonyms. Lists say which operators have them, rules how they are called;
// tests/python/reference/test_aten_variants.py asks torch.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "reference/aten/registry.hpp"

namespace assay::reference::aten {
namespace {

// clang-format off

/// Operators, or single overloads, that write into self under their name with a "_": add.Tensor as
/// add_.Tensor.
constexpr std::string_view kInPlace =
    "abs acos add addbmm addcdiv addcmul addmm.default addmv addr as_strided asin atan atan2 "
    "baddbmm.default bitwise_and.Scalar bitwise_and.Tensor bitwise_left_shift.Tensor "
    "bitwise_left_shift.Tensor_Scalar bitwise_not bitwise_or.Scalar bitwise_or.Tensor "
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar "
    "bitwise_xor.Tensor ceil celu clamp clamp_max clamp_min copy copysign cos cosh cumprod "
    "cumsum deg2rad detach div elu eq erf erfc exp exp2 expm1 fill floor floor_divide.Scalar "
    "fmod frac ge gelu gt hardsigmoid hardswish hardtanh heaviside hypot index_add index_copy "
    "index_fill index_put le leaky_relu lerp log log10 log1p log2 logical_and logical_not "
    "logical_or logical_xor logit lt masked_fill masked_scatter mish mul nan_to_num ne neg put "
    "reciprocal relu relu6 remainder.Scalar remainder.Tensor round rsqrt scatter scatter_add "
    "scatter_reduce selu sigmoid sign silu sin sinh sqrt square squeeze sub swapaxes t tan tanh "
    "threshold tril triu true_divide trunc uniform unsqueeze xlogy.Scalar_Other xlogy.Tensor "
    "zero";

/// Those with an argument "out": of mm.default it is mm.out, of eq.Scalar eq.Scalar_out.
constexpr std::string_view kOut =
    "__lshift__ __rshift__ _adaptive_avg_pool2d _adaptive_avg_pool3d _addmm_activation "
    "_convolution.default _int_mm _log_softmax _native_batch_norm_legit.no_stats _scaled_mm "
    "_softmax _to_copy _transformer_encoder_layer_fwd _unsafe_view _upsample_bicubic2d_aa "
    "_upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d abs acos adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d add.Scalar addbmm addcdiv "
    "addcmul addmm addmv addr all.dims amax amin any.dims arange.default argmax argmin "
    "argsort.stable asin atan atan2 avg_pool1d avg_pool2d avg_pool3d baddbmm bernoulli.Tensor "
    "bernoulli.default bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor bmm bucketize cat ceil celu clamp clamp_max clamp_min "
    "clone col2im column_stack constant_pad_nd convolution convolution_overrideable copy "
    "copysign.Scalar cos cosh count_nonzero cumprod cumsum deg2rad diag_embed diagonal_scatter "
    "diff dist div.Scalar div.Scalar_mode dot dstack elu embedding empty_like empty_permuted "
    "empty_strided eq erf erfc exp exp2 expm1 eye fill flip float_power floor floor_divide fmax "
    "fmin fmod frac full full_like gather ge gelu ger glu gt hardshrink hardsigmoid hardswish "
    "hardtanh heaviside histc hstack hypot im2col index index_add index_copy index_fill "
    "index_put index_select inner isin isinf isnan isneginf isposinf le leaky_relu lerp "
    "linalg_matmul linalg_solve_triangular linalg_vector_norm linear linspace log log10 log1p "
    "log2 log_sigmoid log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not "
    "logical_or logical_xor logit logsumexp lt masked_fill masked_scatter masked_select matmul "
    "max_pool2d_with_indices max_pool3d_with_indices maximum median.default minimum mish "
    "mkldnn_convolution mkldnn_linear mm msort mul.Scalar multinomial mv nan_to_num nanmean "
    "nanmedian.default nansum native_batch_norm ne neg new_empty new_empty_strided new_full "
    "new_ones new_zeros nonzero nonzero_static norm.Scalar norm.ScalarOpt_dtype normal ones "
    "ones_like outer polar pow prod.default put rand.default rand_like randint randint_like "
    "randn.default randn_like randperm reciprocal relu remainder repeat "
    "repeat_interleave.Tensor roll rot90 round rsqrt rsub scalar_tensor scatter scatter_add "
    "scatter_reduce searchsorted select_scatter sigmoid sign signbit silu sin sinh "
    "slice_scatter slow_conv3d softmax softplus softshrink special_entr special_logsumexp sqrt "
    "square stack std.correction sub.Scalar sum.default take take_along_dim tan tanh tensordot "
    "thnn_conv2d threshold trace tril tril_indices triu triu_indices trunc uniform "
    "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d var.correction vdot vstack "
    "where.self zero zeros zeros_like";

/// Operators with the arguments and overloads of another one, in-place and out overloads too.
constexpr std::string_view kSynonyms =
    "absolute=abs arccos=acos arcsin=asin arctan=atan clip=clamp concat=cat concatenate=cat "
    "data=alias divide=div fix=trunc greater=gt greater_equal=ge less=lt less_equal=le "
    "matrix_H=adjoint moveaxis=movedim multiply=mul negative=neg not_equal=ne positive=alias "
    "reshape_as=view_as resolve_conj=alias resolve_neg=alias sgn=sign special_erf=erf "
    "special_exp2=exp2 special_expit=sigmoid special_expm1=expm1 special_log1p=log1p "
    "special_logit=logit subtract=sub";

/// The same with a result of its own where the other gives a view; no in-place overloads.
constexpr std::string_view kCopies =
    "alias_copy=alias as_strided_copy=as_strided detach_copy=detach diagonal_copy=diagonal "
    "expand_copy=expand lift=lift_fresh lift_fresh_copy=lift_fresh narrow_copy=narrow "
    "permute_copy=permute select_copy=select slice_copy=slice split_copy=split "
    "split_with_sizes_copy=split_with_sizes squeeze_copy=squeeze t_copy=t "
    "transpose_copy=transpose unbind_copy=unbind unfold_copy=unfold unsafe_chunk=chunk "
    "unsafe_split=split unsafe_split_with_sizes=split_with_sizes unsqueeze_copy=unsqueeze "
    "view_copy=view";

/// What these rules give but torch does not have.
constexpr std::string_view kAbsent =
    "divide.Scalar_mode_out divide.Scalar_out multiply.Scalar_out narrow_copy.Tensor "
    "narrow_copy.Tensor_out special_erf_.default special_exp2_.default special_expit_.default "
    "special_expm1_.default special_log1p_.default special_logit_.default split_copy.default "
    "split_copy.out split_copy.sizes split_copy.sizes_out subtract.Scalar_out unsafe_chunk.out "
    "unsafe_split.default unsafe_split.out unsafe_split.sizes unsafe_split.sizes_out";

struct Exception {
  std::string_view name;
  std::string_view of;
  std::string_view written;  // as Variant::written
  bool view = false;
};
/// What no rule gives.
constexpr Exception kExceptions[] = {
    {"__and__.Scalar", "bitwise_and.Scalar", ""},
    {"__and__.Tensor", "bitwise_and.Tensor", ""},
    {"__iand__.Scalar", "bitwise_and.Scalar", "self"},
    {"__iand__.Tensor", "bitwise_and.Tensor", "self"},
    {"__ilshift__.Scalar", "__lshift__.Scalar", "self"},
    {"__ilshift__.Tensor", "__lshift__.Tensor", "self"},
    {"__ior__.Scalar", "bitwise_or.Scalar", "self"},
    {"__ior__.Tensor", "bitwise_or.Tensor", "self"},
    {"__irshift__.Scalar", "__rshift__.Scalar", "self"},
    {"__irshift__.Tensor", "__rshift__.Tensor", "self"},
    {"__ixor__.Scalar", "bitwise_xor.Scalar", "self"},
    {"__ixor__.Tensor", "bitwise_xor.Tensor", "self"},
    {"__or__.Scalar", "bitwise_or.Scalar", ""},
    {"__or__.Tensor", "bitwise_or.Tensor", ""},
    {"__xor__.Scalar", "bitwise_xor.Scalar", ""},
    {"__xor__.Tensor", "bitwise_xor.Tensor", ""},
    {"_batch_norm_no_update.out", "_batch_norm_no_update.default", "out0"},
    {"_fused_dropout.out", "_fused_dropout.default", "out0"},
    {"_index_put_impl_.default", "index_put.default", "self"},
    {"_index_put_impl_.hacked_twin", "index_put.default", "self"},
    {"_native_multi_head_attention.out", "_native_multi_head_attention.default", "out0"},
    {"_native_batch_norm_legit_no_training.out", "_native_batch_norm_legit_no_training.default", "out0"},
    {"_slow_conv2d_forward.output", "_slow_conv2d_forward.default", "output"},
    {"_unsafe_index.Tensor", "index.Tensor", ""},
    {"_unsafe_index.Tensor_hacked_twin", "index.Tensor", ""},
    {"_unsafe_index_put.default", "index_put.default", ""},
    {"_unsafe_index_put.hacked_twin", "index_put.default", ""},
    {"add.out", "add.Tensor", "out"},
    {"all.all_out", "all.default", "out"},
    {"all.out", "all.dim", "out"},
    {"aminmax.out", "aminmax.default", "min"},
    {"any.all_out", "any.default", "out"},
    {"any.out", "any.dim", "out"},
    {"arange.start_out", "arange.start_step", "out"},
    {"bernoulli.float_out", "bernoulli.p", "out"},
    {"broadcast_to.default", "expand.default", "", true},
    {"copysign.out", "copysign.Tensor", "out"},
    {"cudnn_batch_norm.out", "cudnn_batch_norm.default", "out0"},
    {"data.default", "alias.default", ""},
    {"div.out", "div.Tensor", "out"},
    {"div.out_mode", "div.Tensor_mode", "out"},
    {"empty.out", "empty.memory_format", "out"},
    {"float_power_.Scalar", "float_power.Tensor_Scalar", "self"},
    {"float_power_.Tensor", "float_power.Tensor_Tensor", "self"},
    {"floor_divide_.Tensor", "floor_divide.default", "self"},
    {"frobenius_norm.out", "frobenius_norm.dim", "out"},
    {"index.Tensor_hacked_twin", "index.Tensor", ""},
    {"index_put.hacked_twin", "index_put.default", ""},
    {"index_put_.hacked_twin", "index_put.default", "self"},
    {"log_sigmoid_forward.output", "log_sigmoid_forward.default", "output"},
    {"mT.a", "mT.default", "", true},
    {"matrix_H.a", "adjoint.default", "", true},
    {"max.out", "max.other", "out"},
    {"max.unary_out", "max.default", "out"},
    {"mean.dtype_out", "mean.default", "out"},
    {"mean.out", "mean.dim", "out"},
    {"meshgrid.indexing", "meshgrid.default", ""},
    {"min.out", "min.other", "out"},
    {"min.unary_out", "min.default", "out"},
    {"miopen_batch_norm.out", "miopen_batch_norm.default", "out0"},
    {"mkldnn_rnn_layer.out", "mkldnn_rnn_layer.default", "out0"},
    {"movedim.intlist", "movedim.int", "", true},
    {"mul.out", "mul.Tensor", "out"},
    {"narrow.Tensor", "narrow.default", "", true},
    {"native_dropout.out", "native_dropout.default", "out0"},
    {"native_group_norm.out", "native_group_norm.default", "out0"},
    {"native_layer_norm.out", "native_layer_norm.default", "out0"},
    {"norm.dtype_out", "norm.ScalarOpt_dim", "out"},
    {"norm.out", "norm.ScalarOpt_dim", "out"},
    {"numpy_T.a", "numpy_T.default", "", true},
    {"pow_.Scalar", "pow.Tensor_Scalar", "self"},
    {"pow_.Tensor", "pow.Tensor_Tensor", "self"},
    {"prod.int_out", "prod.dim_int", "out"},
    {"rand.generator_out", "rand.default", "out"},
    {"rand_like.generator_out", "rand_like.default", "out"},
    {"randint.generator_out", "randint.default", "out"},
    {"randint.low_generator_out", "randint.low", "out"},
    {"randint_like.generator_out", "randint_like.default", "out"},
    {"randint_like.low_generator_dtype_out", "randint_like.low_dtype", "out"},
    {"randn.generator_out", "randn.default", "out"},
    {"randn_like.generator_out", "randn_like.default", "out"},
    {"randperm.generator_out", "randperm.default", "out"},
    {"split.default", "split_with_sizes.default", "", true},
    {"split.sizes", "split_with_sizes.default", "", true},
    {"squeeze.dim", "squeeze.default", "", true},
    {"squeeze.dims", "squeeze.default", "", true},
    {"squeeze_.dim", "squeeze.default", "self"},
    {"squeeze_.dims", "squeeze.default", "self"},
    {"std.out", "std.dim", "out"},
    {"std_mean.correction_out", "std_mean.correction", "out0"},
    {"sub.out", "sub.Tensor", "out"},
    {"sum.IntList_out", "sum.dim_IntList", "out"},
    {"swapdims.default", "transpose.int", "", true},
    {"swapdims_.default", "transpose.int", "self"},
    {"tensor_split.indices", "tensor_split.sections", "", true},
    {"transpose_.default", "transpose.int", "self"},
    {"true_divide.out", "true_divide.Tensor", "out"},
    {"var.out", "var.dim", "out"},
    {"var_mean.correction_out", "var_mean.correction", "out0"},
    {"xlogy.OutScalar_Other", "xlogy.Scalar_Other", "out"},
    {"xlogy.OutScalar_Self", "xlogy.Scalar_Self", "out"},
    {"xlogy.OutTensor", "xlogy.Tensor", "out"},
};
// clang-format on

constexpr std::string_view kPrefix = "aten.";

/// "aten.add.Tensor" without "aten.".
struct Spelling {
  std::string_view base;      // "add"
  std::string_view overload;  // "Tensor"
};
Spelling spelling_of(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  const size_t dot = name.find('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string joined(std::string_view base, std::string_view overload) {
  return std::string(kPrefix).append(base).append(".").append(overload);
}
std::string in_place(const Spelling& of) { return joined(std::string(of.base) + "_", of.overload); }
std::string with_out(std::string_view base, std::string_view overload) {
  return joined(base, overload == "default" ? "out" : std::string(overload) + "_out");
}

/// Which rows a list means.
class Listed {
 public:
  explicit Listed(std::string_view list) {
    for (const std::string_view word : words_of(list)) words_.emplace(word);
  }
  [[nodiscard]] bool has(const Spelling& row) const {
    return words_.contains(row.base) ||
           words_.contains(std::string(row.base).append(".").append(row.overload));
  }

 private:
  std::set<std::string, std::less<>> words_;
};

using Spellings = std::map<std::string, Variant, std::less<>>;

void add(std::string name, const Variant& like, Spellings& spellings) {
  Variant variant = like;
  variant.name = name;
  spellings.emplace(std::move(name), std::move(variant));  // the first one stays
}

/// In-place and out overloads of the rows, and what no rule gives.
void add_written(const Spellings& rows, Spellings& spellings) {
  for (const Exception& one : kExceptions) {
    const auto of = rows.find(std::string(kPrefix).append(one.of));
    ASSAY_CHECK(of != rows.end(), "a variant of no row");
    add(std::string(kPrefix).append(one.name), {{}, of->second.of, one.written, one.view},
        spellings);
  }
  const Listed in_place_rows(kInPlace);
  const Listed out_rows(kOut);
  for (const auto& [name, row] : rows) {
    const Spelling spelling = spelling_of(name);
    if (in_place_rows.has(spelling)) add(in_place(spelling), {{}, row.of, "self"}, spellings);
    if (out_rows.has(spelling))
      add(with_out(spelling.base, spelling.overload), {{}, row.of, "out"}, spellings);
  }
}

/// `known` under the name of a synonym.
void add_synonym(std::string_view synonym, const Spelling& known, const Variant& variant,
                 std::string_view of, Spellings& spellings) {
  if (known.base == of) add(joined(synonym, known.overload), variant, spellings);
  if (known.base.ends_with('_') && known.base.substr(0, known.base.size() - 1) == of)
    add(in_place({synonym, known.overload}), variant, spellings);
}

/// `known` as an operator whose result is new.
void add_copy(std::string_view copy, const Spelling& known, const Variant& variant,
              std::string_view of, Spellings& spellings) {
  if (known.base != of || !variant.written.empty()) return;
  add(joined(copy, known.overload), {{}, variant.of, ""}, spellings);
  add(with_out(copy, known.overload), {{}, variant.of, "out"}, spellings);
}

template <typename Add>
void add_pairs(std::string_view list, const Spellings& known, Spellings& spellings, Add add_pair) {
  for (const std::string_view pair : words_of(list)) {
    const size_t equals = pair.find('=');
    for (const auto& [name, variant] : known)
      add_pair(pair.substr(0, equals), spelling_of(name), variant, pair.substr(equals + 1),
               spellings);
  }
}

}  // namespace

std::vector<Variant> variants_of(std::span<const Overload> overloads) {
  Spellings rows;
  for (const Overload& one : overloads) {
    if (one.name.starts_with(kPrefix))
      rows.emplace(one.name, Variant{one.name, &one, "", one.view});
  }
  Spellings spellings = rows;
  add_written(rows, spellings);
  const Spellings known = spellings;
  add_pairs(kSynonyms, known, spellings, add_synonym);
  add_pairs(kCopies, known, spellings, add_copy);
  for (const std::string_view absent : words_of(kAbsent))
    spellings.erase(std::string(kPrefix).append(absent));
  std::vector<Variant> variants;
  for (auto& [name, variant] : spellings) {
    if (!rows.contains(name)) variants.push_back(std::move(variant));
  }
  return variants;
}

}  // namespace assay::reference::aten
