// SPDX-License-Identifier: Apache-2.0
// LaserAttention, its gradient, and FaUpdate.
#include "reference/attention/training_attention.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "opcheck/operations/attention/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using reference::TrainingAttention;
using reference::Wide;

constexpr size_t kMaskOfForward = 6;
constexpr size_t kMaskOfGradient = 7;

struct Call {
  TrainingAttention options;
  std::vector<Tensor> owners;
};

Result<Call> read_call(const Case& one, size_t mask_index) {
  Call call;
  const Result<std::string> layout = one.parameters.text("inputLayout", "BNSD");
  if (!layout) return fail(layout.error());
  if (*layout != "BNSD")
    return fail(Errc::Unsupported, "inputLayout ", *layout, " has no public golden");
  ASSAY_TRY(call.options.scale, one.parameters.number("scaleValue", call.options.scale));
  ASSAY_TRY(call.options.pre_tokens, one.parameters.integer("preTokens", INT32_MAX));
  if (call.options.pre_tokens < 1)
    return fail(Errc::Invalid, sentence("parameter preTokens is ", call.options.pre_tokens));
  for (size_t i = mask_index - 3; i < mask_index; ++i) {
    if (!one.operands->has_input(i)) continue;
    ASSAY_TRY(const Tensor tensor, one.operands->input(i));
    if (tensor.view.element_count() > 0)
      return fail(Errc::Unsupported, "pseShift, dropMask and paddingMask have no public golden");
  }
  if (one.operands->has_input(mask_index)) {
    ASSAY_TRY(const Tensor mask, one.operands->input(mask_index));
    if (mask.view.element_count() > 0) {
      call.options.mask = mask.view;
      call.owners.push_back(mask);
    }
  }
  return call;
}

/// One output of several that are computed together, at most once.
template <typename Outputs>
class Shared {
 public:
  explicit Shared(std::function<Result<Outputs>()> compute) : compute_(std::move(compute)) {}
  Result<Tensor> get(Wide Outputs::* member) {
    std::call_once(once_, [&] { outputs_.emplace(compute_()); });
    if (!*outputs_) return fail(outputs_->error());
    return reference::to_tensor(Wide((**outputs_).*member));
  }

 private:
  std::function<Result<Outputs>()> compute_;
  std::once_flag once_;
  std::optional<Result<Outputs>> outputs_;
};

/// An output that the library leaves as it is.
Expectation unused(size_t index) {
  const auto nothing = [] { return reference::to_tensor(Wide(Dims{0})); };
  Expectation expected = expectation(index, {Precision::Float, 0},
                                     [nothing]() -> Result<Tensor> { return nothing(); });
  expected.mine = nothing();
  expected.partial = true;
  expected.note = "the library does not write this output";
  return expected;
}

/// Rows of the longest side, for N of the standard.
int64_t terms_of(const TensorView& query) {
  return query.shape.size() == 4 ? query.shape[1] * query.shape[2] + 4 : 0;
}

}  // namespace

Result<Evaluation> evaluate_laser_attention(const Case& one) {
  ASSAY_TRY(Call call, read_call(one, kMaskOfForward));
  ASSAY_TRY(const Tensor q, one.operands->input(0));
  ASSAY_TRY(const Tensor k, one.operands->input(1));
  ASSAY_TRY(const Tensor v, one.operands->input(2));
  using Outputs = reference::AttentionWithStatistics;
  auto shared = std::make_shared<Shared<Outputs>>(
      [q, k, v, call] { return attention_with_statistics(q.view, k.view, v.view, call.options); });
  const Accuracy accuracy{Precision::CvFusion, terms_of(q.view)};
  Evaluation evaluation;
  evaluation.variant = call.options.mask ? "masked" : "without mask";
  evaluation.outputs = {
      expectation(0, accuracy, [shared] { return shared->get(&Outputs::maximum); }),
      expectation(1, accuracy, [shared] { return shared->get(&Outputs::sum); }),
      expectation(3, accuracy, [shared] { return shared->get(&Outputs::output); })};
  if (one.operands->has_output(2)) evaluation.outputs.push_back(unused(2));
  return evaluation;
}

Result<Evaluation> evaluate_laser_attention_grad(const Case& one) {
  ASSAY_TRY(Call call, read_call(one, kMaskOfGradient));
  std::vector<Tensor> in;
  for (const size_t index : {0, 1, 2, 3, 8, 9, 11}) {
    ASSAY_TRY(const Tensor tensor, one.operands->input(index));
    in.push_back(tensor);
  }
  using Outputs = reference::AttentionGradients;
  auto shared = std::make_shared<Shared<Outputs>>([in, call] {
    return attention_gradients(in[0].view, in[1].view, in[2].view, in[3].view, in[4].view,
                               in[5].view, in[6].view, call.options);
  });
  const Accuracy accuracy{Precision::CvFusion, terms_of(in[0].view)};
  Evaluation evaluation;
  evaluation.variant = call.options.mask ? "masked" : "without mask";
  evaluation.outputs = {
      expectation(0, accuracy, [shared] { return shared->get(&Outputs::query); }),
      expectation(1, accuracy, [shared] { return shared->get(&Outputs::key); }),
      expectation(2, accuracy, [shared] { return shared->get(&Outputs::value); })};
  if (one.operands->has_output(3)) evaluation.outputs.push_back(unused(3));
  return evaluation;
}

Result<Evaluation> evaluate_fa_update(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("faUpdateType", 0));
  if (type != 0) return fail(Errc::Unsupported, "faUpdateType ", type, " is not known");
  ASSAY_TRY(const Tensor lse, one.operands->input(0));
  ASSAY_TRY(const Tensor outputs, one.operands->input(1));
  const int64_t parts = lse.view.shape.empty() ? 0 : lse.view.shape[0];
  ASSAY_TRY(const int64_t listed, one.parameters.integer("sp", parts));
  if (listed != parts)
    return fail(Errc::Invalid, "lse has shape ", lse.view.shape, ", parameter sp is ", listed);
  const auto golden = [lse, outputs]() -> Result<Tensor> {
    ASSAY_TRY(Wide result, reference::combine_attention(lse.view, outputs.view));
    return reference::to_tensor(std::move(result));
  };
  return evaluation("decode update", expectation(0, {Precision::Float, parts}, golden));
}

}  // namespace assay::opcheck
