// SPDX-License-Identifier: Apache-2.0
// The operations of this folder, and what their files share.
#pragma once
#include <string_view>
#include <vector>

#include "opcheck/operation.hpp"
#include "reference/norms/rows.hpp"
#include "reference/wide.hpp"

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
[[nodiscard]] Result<std::vector<Tensor>> read_inputs(
    const Case& one, std::initializer_list<std::string_view> names);

/// Tensors that are added up before a norm, with their factors.
class Addends {
 public:
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

/// An output with one candidate: `golden` gives Result<Wide>.
template <typename Golden>
[[nodiscard]] Expectation expect(size_t index, Accuracy accuracy, Golden golden) {
  Expectation expectation;
  expectation.index = index;
  expectation.accuracy = accuracy;
  expectation.candidates.push_back({{}, [golden = std::move(golden)]() -> Result<Tensor> {
                                      ASSAY_TRY(reference::Wide wide, golden());
                                      return reference::to_tensor(std::move(wide));
                                    }});
  return expectation;
}

/// The same of values that are at hand.
[[nodiscard]] Expectation expect_values(size_t index, Accuracy accuracy, reference::Wide values);

/// An int8 output from its values before rounding.
[[nodiscard]] Expectation expect_int8(size_t index, int64_t terms, reference::Wide before);

/// Outputs from number 0 on: int8 values, scales of rows and (asymmetric) offsets.   opcheck 8.3 type 19
/// errors  of dynamic_quantise()
[[nodiscard]] Result<std::vector<Expectation>> expect_dynamic_int8(int64_t terms,
                                                                   reference::Wide values,
                                                                   bool asymmetric);

/// How a norm's result is quantised.
struct Quantisation {
  enum class Kind : uint8_t { None, Static, Symmetric, Asymmetric } kind = Kind::None;
  /// Scale and offset stand in the parameters, as files of early 2024 have them, not in tensors.
  bool in_parameters = false;
  double scale = 1.0;
  double offset = 0.0;
};
/// section          "normParam", where quantType stands
/// dynamic_inputs   inputs of the dynamic form, which the file does not always tell: it is recognised by having
///                  them and at least two outputs; 0: there is none
/// errors           Unsupported (other than 0 and 2, unknown dynamicQuantType) | of Parameters
[[nodiscard]] Result<Quantisation> read_quantisation(const Case& one, std::string_view section,
                                                     size_t dynamic_inputs);
/// ", int8", ", int8 dynamic symmetric" or nothing
[[nodiscard]] std::string_view text(Quantisation::Kind kind);

/// `input` as the strides and the offset of two more inputs read its bytes.
/// errors  Invalid (counts, negative values) | Unsupported (bytes that are not in the dump)
[[nodiscard]] Result<Tensor> strided(const Tensor& input, const Tensor& strides,
                                     const Tensor& offset);

}  // namespace norms
}  // namespace assay::opcheck
