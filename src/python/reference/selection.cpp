// SPDX-License-Identifier: Apache-2.0
// assay.reference: reductions, sorting, sampling.
#include "python/reference/operators.hpp"
#include "reference/selection/experts.hpp"
#include "reference/selection/glibc_random.hpp"
#include "reference/selection/indexing.hpp"
#include "reference/selection/reduce.hpp"
#include "reference/selection/sampling.hpp"

namespace assay::python {
namespace {

using namespace reference;
using Integers = std::vector<int64_t>;

auto reduction_of(Reduction reduction) {
  return
      [reduction](const TensorView& x, const Integers& axes) { return reduce(x, reduction, axes); };
}

Wide glibc_random(uint32_t seed, size_t count) {
  GlibcRandom random(seed);
  Wide values(Dims{static_cast<int64_t>(count)});
  for (double& value : values.values) value = random.next_fraction();
  return values;
}

Result<std::vector<double>> values_of(const TensorView& view) {
  ASSAY_TRY(const Wide wide, widen(view));
  return std::vector<double>(wide.values.begin(), wide.values.end());
}

Result<Whole> multinomial_of(const TensorView& probs, const TensorView& fractions) {
  ASSAY_TRY(const std::vector<double> numbers, values_of(fractions));
  ASSAY_TRY(const std::vector<Choice> choices, multinomial(probs, numbers, probs.dtype));
  Whole places(Dims{probs.shape[0], static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < choices.size(); ++i) places.values[i] = choices[i].place;
  return places;
}

/// The `kept` largest of each row (below 0: all), and which of them may be chosen.
Result<NucleusInput> nucleus_of(const TensorView& probs, int64_t kept, const Integers& top_k,
                                const TensorView& top_p) {
  NucleusInput input;
  input.top_k = top_k;
  ASSAY_TRY(input.top_p, values_of(top_p));
  const int64_t all = probs.shape.empty() ? 0 : probs.shape[probs.shape.size() - 1];
  ASSAY_TRY(input.sorted, reference::top_k(probs, kept < 0 ? all : kept));
  return input;
}

/// Indices into the unsorted rows and values of the choices.
TopK chosen(const NucleusInput& input, const std::vector<Choice>& choices) {
  const auto width = static_cast<size_t>(input.sorted.values.shape[1]);
  const Dims rows{static_cast<int64_t>(choices.size())};
  TopK found{Wide(rows), Whole(rows)};
  for (size_t row = 0; row < choices.size(); ++row) {
    const size_t at = row * width + static_cast<size_t>(choices[row].place);
    found.indices.values[row] = input.sorted.indices.values[at];
    found.values.values[row] = input.sorted.values.values[at];
  }
  return found;
}

Result<TopK> top_p_sample(const TensorView& probs, const TensorView& top_p,
                          const TensorView& fractions, const Integers& top_k, int64_t kept,
                          bool inclusive) {
  ASSAY_TRY(const NucleusInput input, nucleus_of(probs, kept, top_k, top_p));
  ASSAY_TRY(const std::vector<double> numbers, values_of(fractions));
  ASSAY_TRY(const NucleusSample sample, sample_nucleus(input, numbers, inclusive));
  return chosen(input, sample.choices);
}

Result<TopK> top_p_sample_exponential(const TensorView& probs, const TensorView& top_p,
                                      const TensorView& noise, const Integers& top_k) {
  ASSAY_TRY(const NucleusInput input, nucleus_of(probs, -1, top_k, top_p));
  ASSAY_TRY(const NucleusSample sample, sample_nucleus_exponential(input, noise));
  return chosen(input, sample.choices);
}

Result<Wide> group_top_k_of(const Tensor& x, int64_t groups, int64_t keep, int64_t largest) {
  ASSAY_TRY(const Tensor y, group_top_k(x, groups, keep, largest));
  return widen(y.view);
}

}  // namespace

void add_selection(Operators& operators) {
  constexpr auto kSample = kFields<&TopK::indices, &TopK::values>;
  using Gated = GatingParameters;
  using Routed = RoutingParameters;
  operators.add("cumsum", cumsum);
  operators.add("amax", reduction_of(Reduction::Max));
  operators.add("amin", reduction_of(Reduction::Min));
  operators.add("sum", reduction_of(Reduction::Sum));
  operators.add("softmax", softmax);
  operators.add("top_k", reference::top_k, kFields<&TopK::values, &TopK::indices>);
  operators.add("nonzero", nonzero, kFields<&Nonzero::indices, &Nonzero::count>);
  operators.add("one_hot", one_hot);
  operators.add("index_add", index_add);
  operators.add(
      "gating",
      with_options<&Gated::topk_expert_num, &Gated::expert_count, &Gated::device_experts>(gating),
      kFields<&Gating::token_index, &Gating::cumulative, &Gating::original_index, &Gating::valid>);
  operators.add("glibc_random", glibc_random);
  operators.add("multinomial", multinomial_of);
  operators.add("top_p_sample", top_p_sample, kSample);
  operators.add("top_p_sample_exponential", top_p_sample_exponential, kSample);
  operators.add("group_top_k", group_top_k_of);
  operators.add(
      "route_to_experts",
      with_options<&Routed::top_k, &Routed::groups, &Routed::group_top_k, &Routed::largest,
                   &Routed::normalise, &Routed::scale>(route_to_experts),
      kFields<&Routing::weights, &Routing::experts>);
}

}  // namespace assay::python
