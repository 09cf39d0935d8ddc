// SPDX-License-Identifier: Apache-2.0
// Rotary embeddings and their tables.   docs/opcheck/norms.md
#include "reference/norms/rope.hpp"

#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using norms::nd_inputs;
using reference::Wide;

/// Says which tensor an error is about.
Result<Wide> of_tensor(std::string_view name, Result<Wide> result) {
  if (!result) result.error().message = std::string(name) + ": " + result.error().message;
  return result;
}

}  // namespace

Result<Evaluation> evaluate_rope(const Case& one) {
  ASSAY_TRY(const int64_t coefficient, one.parameters.integer("rotaryCoeff", 4));
  if (coefficient < 2)
    return fail(Errc::Unsupported, "rotaryCoeff ", coefficient,
                " is none of 2, 4 and half the head size");
  ASSAY_TRY(auto inputs, nd_inputs(one, {"q", "k", "cos", "sin", "seqLen"}));
  const bool in_groups = coefficient == 2 || coefficient == 4;
  const reference::RopeOptions options{.groups = in_groups ? coefficient / 2 : 1,
                                       .interleaved = !in_groups};
  Evaluation evaluation;
  evaluation.variant = coefficient == 2   ? "halves"
                       : coefficient == 4 ? "halves in two groups"
                                          : "interleaved pairs";
  for (size_t i = 0; i < 2; ++i) {
    evaluation.outputs.push_back(expectation(
        i, {Precision::Float, 0}, [i, options, x = inputs[i], cos = inputs[2], sin = inputs[3]] {
          return of_tensor(i == 0 ? "q" : "k",
                           reference::rope(x.view, cos.view, sin.view, options));
        }));
  }
  return evaluation;
}

Result<Evaluation> evaluate_rope_grad(const Case& one) {
  ASSAY_TRY(const std::vector<int64_t> lengths, one.parameters.integers("c_qSeqLen|qSeqLen"));
  if (lengths.empty())
    return fail(Errc::Invalid, "the lengths of the sequences (qSeqLen) are not in the parameters");
  ASSAY_TRY(auto inputs, nd_inputs(one, {"dq", "dk", "cos", "sin"}));
  Evaluation evaluation{"element by element", {}};
  for (size_t i = 0; i < 2; ++i) {
    evaluation.outputs.push_back(expectation(
        i, {Precision::Float, 0}, [i, lengths, dx = inputs[i], cos = inputs[2], sin = inputs[3]] {
          return of_tensor(i == 0 ? "dq" : "dk",
                           reference::rope_gradient(dx.view, cos.view, sin.view, lengths));
        }));
  }
  return evaluation;
}

Result<Evaluation> evaluate_rope_q_concat(const Case& one) {
  ASSAY_TRY(auto inputs, nd_inputs(one, {"q", "cos", "sin", "concat"}));
  return evaluation("halves", expectation(0, {Precision::Float, 0}, [inputs] {
                      return reference::rope_concat(inputs[0].view, inputs[1].view, inputs[2].view,
                                                    inputs[3].view);
                    }));
}

Result<Evaluation> evaluate_dynamic_ntk(const Case& one) {
  ASSAY_TRY(auto inputs, nd_inputs(one, {"positionIds", "invFreq", "seqLens"}));
  // Tables are larger than what they are made of: the dump must have them.
  ASSAY_TRY(const Tensor sin, one.operands->output(0));
  if (inputs[1].view.shape.size() != 2 ||
      element_count(Dims{inputs[0].view.element_count(), inputs[1].view.shape[1], 2}) !=
          sin.view.element_count())
    return fail(Errc::Invalid, "positions of shape ", inputs[0].view.shape,
                " and inverse frequencies of shape ", inputs[1].view.shape,
                " do not give a table of shape ", sin.view.shape);
  ASSAY_TRY(reference::RotaryTables tables,
            reference::rotary_tables(inputs[0].view, inputs[1].view, inputs[2].view));

  const Accuracy accuracy{Precision::Float, 0};
  return evaluation("tables", expectation_of(0, accuracy, std::move(tables.sin)),
                    expectation_of(1, accuracy, std::move(tables.cos)));
}

}  // namespace assay::opcheck
