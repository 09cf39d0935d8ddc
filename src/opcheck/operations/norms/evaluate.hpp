// SPDX-License-Identifier: Apache-2.0
// The operations of this folder, and what their files share.
#pragma once
#include <string_view>
#include <vector>

#include "opcheck/operations/expectations.hpp"
#include "reference/elementwise/quantise.hpp"
#include "reference/norms/rows.hpp"

namespace assay::opcheck {

Result<Evaluation> evaluate_rms_norm(const Case& one);
Result<Evaluation> evaluate_rms_norm_with_stride(const Case& one);
Result<Evaluation> evaluate_rms_norm_backward(const Case& one);
Result<Evaluation> evaluate_gather_pre_rms_norm(const Case& one);
Result<Evaluation> evaluate_norm_rope_reshape(const Case& one);
Result<Evaluation> evaluate_layer_norm(const Case& one);
Result<Evaluation> evaluate_layer_norm_with_stride(const Case& one);
Result<Evaluation> evaluate_cohere_layer_norm(const Case& one);
Result<Evaluation> evaluate_rope(const Case& one);
Result<Evaluation> evaluate_rope_grad(const Case& one);
Result<Evaluation> evaluate_rope_q_concat(const Case& one);
Result<Evaluation> evaluate_dynamic_ntk(const Case& one);
Result<Evaluation> evaluate_fast_softmax(const Case& one);
Result<Evaluation> evaluate_fast_softmax_grad(const Case& one);

namespace norms {

/// 1e-5 as the library's float members hold it.
inline constexpr double kEpsilon = static_cast<double>(1e-5f);

/// All inputs, which must be as many as there are names.
/// errors  Invalid "RmsNormOperation takes x, gamma; the dump has 3 inputs" | Unsupported
///         (FRACTAL_NZ) | of Operands::input()
[[nodiscard]] Result<std::vector<Tensor>> nd_inputs(const Case& one,
                                                    const std::vector<std::string_view>& names);

/// Tensors that are added up before a norm, with their factors.
class Addends {
 public:
  Addends() = default;
  explicit Addends(std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) add(tensor);
  }
  void add(Tensor tensor, double factor = 1.0) {
    terms_.push_back({tensor.view, factor});
    tensors_.push_back(std::move(tensor));
  }
  [[nodiscard]] std::span<const reference::Term> terms() const { return terms_; }
  /// The result of the first tensor's shape, so of the norm.
  [[nodiscard]] const Dims& shape() const { return tensors_.front().view.shape; }

 private:
  std::vector<Tensor> tensors_;  // keep the terms' bytes
  std::vector<reference::Term> terms_;
};

/// The last size; 0 for a 0-d tensor.
[[nodiscard]] int64_t last_size(const Tensor& tensor);

/// A norm of a sum, but for what stands behind it.
struct Norm {
  Addends x = {};
  Tensor gamma = {};
  std::optional<Tensor> beta = {};
  reference::NormOptions options = {};

  [[nodiscard]] Result<reference::Wide> compute() const;
  /// Elements that one mean is taken over; 0 for impossible dimensions.
  [[nodiscard]] int64_t terms() const;
};

/// By layerType: 1 (NORM), 2 (PRENORM), 3 (POSTNORM).
///
/// of_sum  a norm of a sum, which is an output where `prenorm`
[[nodiscard]] Result<Evaluation> evaluate_layer(const Case& one,
                                                Result<Evaluation> (*alone)(const Case& one),
                                                Result<Evaluation> (*of_sum)(const Case& one,
                                                                             bool prenorm));

/// The norm, and the sum in front of it.
[[nodiscard]] inline Expectation expect_norm(size_t index, Precision precision, Norm norm) {
  return expectation(index, {precision, norm.terms()}, [norm] { return norm.compute(); });
}
[[nodiscard]] inline Expectation expect_sum(size_t index, Precision precision, const Norm& norm) {
  return expectation(index, {precision, norm.terms()},
                     [x = norm.x] { return reference::sum_of(x.terms()); });
}

/// An int8 output from its values before rounding.
[[nodiscard]] Expectation expect_int8(size_t index, int64_t terms, reference::Wide before);

/// How a norm's result is quantised.
struct Quantisation {
  enum class Kind : uint8_t { None, Static, Symmetric, Asymmetric } kind = Kind::None;
  /// Scale and offset stand in the parameters, as files of early 2024 have them, not in tensors.
  bool in_parameters = false;
  double scale = 1.0;
  double offset = 0.0;
  /// Scale and offset are inputs.
  [[nodiscard]] bool has_tensors() const { return kind == Kind::Static && !in_parameters; }
};
/// section          "normParam", where quantType stands
/// dynamic_inputs   inputs of the dynamic form, which the file does not always tell: it is
///                  recognised by having them and at least two outputs; 0: there is none
/// errors           Unsupported (other than 0 and 2, unknown dynamicQuantType) | of Parameters
[[nodiscard]] Result<Quantisation> read_quantisation(const Case& one, std::string_view section,
                                                     size_t dynamic_inputs);
/// The outputs of y quantised so, from number `index` on; of static quantisation before rounding
/// y / scale + offset, or y * scale + offset.
/// parameters  scale and offset, unless they stand in the parameters or rows have their own
/// errors      of quantise_per_channel(), dynamic_quantise()
[[nodiscard]] Result<std::vector<Expectation>> expect_quantised(size_t index, int64_t terms,
                                                                reference::Wide y,
                                                                const Quantisation& quantisation,
                                                                std::span<const Tensor> parameters,
                                                                reference::ScaleUse use);
/// ", int8", ", int8 dynamic symmetric" or nothing
[[nodiscard]] std::string_view text(Quantisation::Kind kind);

/// `input` as the strides and the offset of two more inputs read its bytes.
/// errors  Invalid (counts, negative values) | Unsupported (bytes that are not in the dump)
[[nodiscard]] Result<Tensor> strided(const Tensor& input, const Tensor& strides,
                                     const Tensor& offset);

}  // namespace norms
}  // namespace assay::opcheck
