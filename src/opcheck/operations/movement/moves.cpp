// SPDX-License-Identifier: Apache-2.0
// Views, joins, choices and picks.   docs/opcheck/movement.md
#include <utility>

#include "opcheck/operations/movement/evaluate.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/gather.hpp"
#include "reference/movement/transdata.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using movement::kMove;

constexpr Accuracy kCast{Precision::Cast, 0};

Dims dims_of(const std::vector<int64_t>& list) { return Dims(std::span<const int64_t>(list)); }

/// One tensor in, one out; `compute` is given the input.
template <typename Compute>
Result<Evaluation> one_to_one(const Case& one, std::string variant, Accuracy accuracy,
                              Compute compute) {
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x"}));
  return evaluation(std::move(variant),
                    expectation(0, accuracy, [x = inputs[0], compute = std::move(compute)] {
                      return compute(x);
                    }));
}

}  // namespace

Result<Evaluation> evaluate_as_strided(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> size, one.parameters.integers("size"));
  ASSAY_TRY(const std::vector<int64_t> stride, one.parameters.integers("stride"));
  ASSAY_TRY(const std::vector<int64_t> offset, one.parameters.integers("offset"));
  if (offset.size() > 1)
    return fail(Errc::Invalid, "parameter offset is ", offset, ", one value expected");
  return one_to_one(one, "", kMove, [=](const Tensor& x) {
    return reference::as_strided(x, dims_of(size), dims_of(stride), offset.empty() ? 0 : offset[0]);
  });
}

Result<Evaluation> evaluate_concat(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("concatDim", 0));
  std::vector<Tensor> parts;
  for (size_t i = 0; i < one.operands->input_count(); ++i) {
    ASSAY_TRY(Tensor part, one.operands->input(i));
    parts.push_back(std::move(part));
  }
  return evaluation(std::to_string(parts.size()) + " inputs", expectation(0, kMove, [parts, axis] {
                      return reference::concat(parts, axis);
                    }));
}

Result<Evaluation> evaluate_split(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("splitDim", 0));
  ASSAY_TRY(const int64_t number, one.parameters.integer("splitNum", 2));
  ASSAY_TRY(const std::vector<int64_t> sizes, one.parameters.integers("splitSizes"));
  if (number != 2 && number != 3)
    return fail(Errc::Unsupported, "splitNum ", number, " is neither 2 nor 3");
  if (!sizes.empty() && static_cast<int64_t>(sizes.size()) != number)
    return fail(Errc::Invalid, "splitSizes ", sizes, " for splitNum ", number);
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x"}));
  ASSAY_TRY(const std::vector<Tensor> parts, sizes.empty()
                                                 ? reference::split_evenly(inputs[0], axis, number)
                                                 : reference::split(inputs[0], axis, sizes));
  Evaluation evaluation{sizes.empty() ? "equal parts" : "parts of given sizes", {}};
  for (size_t i = 0; i < parts.size(); ++i)
    evaluation.outputs.push_back(expectation_of(i, kMove, parts[i]));
  return evaluation;
}

Result<Evaluation> evaluate_slice(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> offsets, one.parameters.integers("offsets"));
  ASSAY_TRY(const std::vector<int64_t> sizes, one.parameters.integers("size"));
  return one_to_one(one, "", kMove,
                    [=](const Tensor& x) { return reference::slice(x, offsets, sizes); });
}

Result<Evaluation> evaluate_transpose(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> perm, one.parameters.integers("perm"));
  return one_to_one(one, "", kCast, [=](const Tensor& x) { return reference::transpose(x, perm); });
}

Result<Evaluation> evaluate_transdata(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("transdataType", 0));
  if (type == 2)
    return one_to_one(one, "ND to NZ", kCast,
                      [](const Tensor& x) { return reference::nd_to_nz(x); });
  if (type != 1)
    return fail(Errc::Unsupported, "transdataType ", type,
                " is neither 1 (NZ to ND) nor 2 (ND to NZ)");
  ASSAY_TRY(std::vector<int64_t> crops, one.parameters.integers("outCrops"));
  if (!crops.empty() && crops.size() != 2)
    return fail(Errc::Invalid, "parameter outCrops is ", crops, ", two sizes expected");
  // 0 is the library's default: nothing is cropped.
  const int64_t rows = crops.empty() || crops[0] == 0 ? -1 : crops[0];
  const int64_t columns = crops.empty() || crops[1] == 0 ? -1 : crops[1];
  return one_to_one(one, "NZ to ND", kCast,
                    [=](const Tensor& x) { return reference::nz_to_nd(x, rows, columns); });
}

Result<Evaluation> evaluate_fill(const Case& one) {
  ASSAY_TRY(const bool with_mask, one.parameters.boolean("withMask", true));
  ASSAY_TRY(const std::vector<double> value, one.parameters.numbers("value"));
  if (value.size() != 1)
    return fail(Errc::Invalid, "parameter value has ", value.size(), " elements, one expected");
  if (with_mask) {
    ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x", "mask"}));
    return evaluation("with mask",
                      expectation(0, kMove, [x = inputs[0], mask = inputs[1], value = value[0]] {
                        return reference::masked_fill(x, mask, value);
                      }));
  }
  ASSAY_TRY_STATUS(read_inputs(one, {}));
  ASSAY_TRY(const std::vector<int64_t> shape, one.parameters.integers("outDim"));
  ASSAY_TRY(const Tensor output, one.operands->output(0));
  return evaluation("constant",
                    expectation(0, kMove, [shape, value = value[0], dtype = output.view.dtype] {
                      return reference::full(dims_of(shape), value, dtype);
                    }));
}

Result<Evaluation> evaluate_repeat(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const std::vector<int64_t> multiples, one.parameters.integers("multiples"));
  return one_to_one(one, "", {Precision::Float, 0},
                    [=](const Tensor& x) { return reference::tile(x, multiples); });
}

Result<Evaluation> evaluate_where(const Case& one) {
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"cond", "a", "b"}));
  return evaluation("", expectation(0, {Precision::Float, 0}, [inputs] {
                      return reference::where(inputs[0], inputs[1], inputs[2]);
                    }));
}

Result<Evaluation> evaluate_gather(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("axis", 0));
  ASSAY_TRY(const int64_t batch_dims, one.parameters.integer("batchDims", 0));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x", "indices"}));
  ASSAY_TRY_STATUS(movement::require_integers(inputs[1], "indices"));
  return evaluation(batch_dims == 0 ? "" : "batches",
                    expectation(0, kMove, [inputs, axis, batch_dims] {
                      return reference::gather(inputs[0], inputs[1], axis, batch_dims);
                    }));
}

Result<Evaluation> evaluate_set_value(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(std::vector<int64_t> starts, one.parameters.integers("starts"));
  ASSAY_TRY(std::vector<int64_t> ends, one.parameters.integers("ends"));
  ASSAY_TRY(std::vector<int64_t> strides, one.parameters.integers("strides"));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"dst", "src"}));
  const Dims& shape = inputs[0].view.shape;
  if (strides.empty()) strides.resize(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != strides.size() ||
      starts.size() > shape.size())
    return fail(Errc::Invalid, "starts ", starts, ", ends ", ends, " and strides ", strides,
                " for dst of shape ", shape);
  // Dimensions that are not named are taken whole.
  for (size_t i = starts.size(); i < shape.size(); ++i) {
    starts.push_back(0);
    ends.push_back(shape[i]);
    strides.push_back(1);
  }
  ASSAY_TRY(const Tensor target, reference::region(inputs[0], starts, ends, strides));
  if (target.view.shape != inputs[1].view.shape)
    return fail(Errc::Invalid, "the region has shape ", target.view.shape, ", src has ",
                inputs[1].view.shape);

  ASSAY_TRY(Expectation expected,
            movement::expect_in_place(
                one, {.input = 0,
                      .output = 0,
                      .write =
                          [=, source = inputs[1]](const Tensor& before) {
                            return reference::set_value(before, source, starts, ends, strides);
                          },
                      .pick =
                          [=](const Tensor& after) {
                            return reference::region(after, starts, ends, strides);
                          },
                      .written = [source = inputs[1]]() -> Result<Tensor> { return source; }}));
  return evaluation("", std::move(expected));
}

Result<Evaluation> evaluate_scatter_elements(const Case& one) {
  ASSAY_TRY_STATUS(refuse_nz(one));
  // Neither parameter is written by the library's own dump.
  ASSAY_TRY(const int64_t axis, one.parameters.integer("axis", -1));
  ASSAY_TRY(const int64_t reduction, one.parameters.integer("reduction", 0));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x", "indices", "updates"}));
  ASSAY_TRY_STATUS(movement::require_integers(inputs[1], "indices"));
  if (reduction != 0 && reduction != 1)
    return fail(Errc::Unsupported, "reduction ", reduction, " is neither 0 (none) nor 1 (add)");
  const bool has_before = one.operands->has_before();
  if (reduction == 1 && !has_before) return fail(Errc::Unsupported, "needs before data");
  const bool is_listed = one.operands->has_output(0);
  const auto scattered = [x = inputs[0], indices = inputs[1], updates = inputs[2], axis](bool add) {
    return [=] { return reference::scatter_elements(x, indices, updates, axis, add); };
  };
  Expectation expected{.index = 0, .in_place = !is_listed, .accuracy = kMove};
  if (reduction == 1) expected.accuracy = {Precision::Float, inputs[1].view.element_count()};
  const bool is_known = one.parameters.has("reduction");
  if (reduction == 0)
    expected.candidates.push_back(candidate(is_known ? "" : "reduction none", scattered(false)));
  if (reduction == 1 || (!is_known && has_before))
    expected.candidates.push_back(candidate(is_known ? "" : "reduction add", scattered(true)));
  // Writing the same values once more changes nothing, so what was written is found to be there;
  // the rest agrees with itself.
  expected.partial = !has_before;
  if (expected.partial) expected.note = "written part only";
  return evaluation(reduction == 1 ? "add" : "replace", std::move(expected));
}

}  // namespace assay::opcheck
