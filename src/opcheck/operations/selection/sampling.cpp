// SPDX-License-Identifier: Apache-2.0
// The host's random numbers are drawn again, and cumulative sums taken twice: exactly and in the
// device's type. A sample that differs counts as right where either says that it is a tie.
//   docs/opcheck/selection.md, "Sampling"
#include "reference/selection/sampling.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "opcheck/operations/elementwise/expect.hpp"
#include "opcheck/operations/selection/evaluate.hpp"
#include "reference/selection/glibc_random.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using reference::Choice;
using reference::Whole;
using reference::Wide;

constexpr Accuracy kInteger{.precision = Precision::Integer};
constexpr int64_t kMostSamples = 64;  // Multinomial draws that many numbers

// topkToppSamplingType   docs/opcheck/selection.md
constexpr int64_t kSingleTopk = 0;
constexpr int64_t kMultinomial = 1;
constexpr int64_t kExponential = 2;
constexpr int64_t kMultinomialLogProbs = 3;
constexpr int64_t kExponentialLogProbs = 4;

std::string of_rows(int64_t part, int64_t whole, const char* what) {
  return std::to_string(part) + " of " + std::to_string(whole) + " " + what;
}

/// Values of a [batch], [batch, 1] or (where one stands for all) one-element tensor.
Result<std::vector<double>> column(const Tensor& tensor, int64_t rows, bool one_for_all,
                                   std::string_view what) {
  const int64_t count = tensor.view.element_count();
  if (count != rows && !(one_for_all && count == 1))
    return fail(Errc::Invalid, what, " has shape ", tensor.view.shape, ", ", rows,
                " values expected");
  ASSAY_TRY(const Wide values, reference::widen(tensor.view));
  return std::vector<double>(values.values.begin(), values.values.end());
}

Result<Whole> output_indices(const Case& one, int64_t count) {
  ASSAY_TRY(const Tensor tensor, one.operands->output(0));
  if (tensor.view.element_count() != count)
    return fail(Errc::Invalid, "outtensor0 has shape ", tensor.view.shape, ", ", count,
                " samples expected");
  return reference::whole(tensor.view);
}

bool is_candidate(int64_t place, const Choice& choice) {
  return place == choice.place ||
         std::find(choice.ties.begin(), choice.ties.end(), place) != choice.ties.end();
}

/// The sampler, once with exact cumulative sums and once with sums of the type that the device
/// keeps.
struct Samplings {
  reference::NucleusSample exact;
  reference::NucleusSample rounded;
  DType sums;
};

struct SampledRows {
  Whole golden;  // [batch]; mine where that is as good
  Wide probs;    // [batch], of mine where it lies in the row, otherwise of golden
  int64_t ties = 0;
};

/// Judges sampled indices: the place that exact sums give, or one that lies as close.
/// same_value   places with equal probabilities count as one: the order of the sort is not
///              specified
SampledRows judge_samples(const Samplings& samplings, const reference::TopK& sorted,
                          const TensorView& probs, const Wide& all, const Whole& mine,
                          bool same_value) {
  const int64_t rows = sorted.values.shape[0];
  const int64_t width = sorted.values.shape[1];
  const int64_t columns = probs.shape[1];
  SampledRows result{Whole(mine.shape), Wide(mine.shape), 0};
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    const int64_t* indices = sorted.indices.data() + row * width;
    const double* values = sorted.values.data() + row * width;
    const int64_t chosen = mine.values[at];
    const bool inside = chosen >= 0 && chosen < columns;
    const double chosen_value = inside ? all.data()[row * columns + chosen] : 0;
    const auto fits = [&](int64_t place) {
      return indices[place] == chosen || (same_value && values[place] == chosen_value);
    };
    const Choice& exact = samplings.exact.choices[at];
    int64_t& golden = result.golden.values[at];
    golden = indices[exact.place];
    if (inside && golden != chosen) {
      const Choice& rounded = samplings.rounded.choices[at];
      for (int64_t place = 0; place < width; ++place) {
        if (!fits(place) || !(is_candidate(place, exact) || is_candidate(place, rounded))) continue;
        golden = chosen;
        ++result.ties;
        break;
      }
    }
    result.probs.values[at] =
        inside ? chosen_value : all.data()[row * columns + indices[exact.place]];
  }
  return result;
}

/// The expected logarithms end where those of mine do, if that place is as good as the computed
/// one.
Result<Wide> expected_log_probs(const reference::NucleusInput& input,
                                const reference::NucleusSample& sample, const Wide& mine,
                                int64_t size, int64_t* ties) {
  std::vector<int64_t> last;
  *ties = 0;
  for (size_t row = 0; row < sample.last.size(); ++row) {
    const Choice& end = sample.last[row];
    int64_t kept = 0;  // entries of mine that are logarithms
    while (kept < size &&
           mine.values[row * static_cast<size_t>(size) + static_cast<size_t>(kept)] > -9999)
      ++kept;
    const int64_t theirs = kept - 1;
    // A row that is full does not show where it ends; then ours counts.
    const bool is_tie = kept < size && theirs != end.place && is_candidate(theirs, end);
    *ties += is_tie ? 1 : 0;
    last.push_back(is_tie ? theirs : end.place);
  }
  return reference::nucleus_log_probs(input, sample.cumulative, last, size);
}

struct Sampler {
  int64_t type = 0;
  reference::NucleusInput input;
  std::vector<double> fractions;
  std::optional<Tensor> noise;

  [[nodiscard]] Result<reference::NucleusSample> sample(DType sums) const {
    reference::NucleusInput rounded = input;
    rounded.sums = sums;
    if (noise) return reference::sample_nucleus_exponential(rounded, noise->view);
    return reference::sample_nucleus(rounded, fractions, type == kSingleTopk);
  }
};

/// Numbers that the host's srand() and rand() give.
Result<std::vector<double>> random_fractions(const Case& one, int64_t type, int64_t rows) {
  std::vector<double> fractions;
  if (type == kSingleTopk) {
    ASSAY_TRY(const int64_t seed, one.parameters.integer("randSeed", 0));
    reference::GlibcRandom random(static_cast<uint32_t>(seed));
    for (int64_t row = 0; row < rows; ++row) fractions.push_back(random.next_fraction());
    return fractions;
  }
  ASSAY_TRY(const std::vector<int64_t> seeds, one.parameters.integers("randSeeds"));
  if (seeds.size() < static_cast<size_t>(rows))
    return fail(Errc::Invalid, "parameter randSeeds lists ", seeds.size(), " seeds for ", rows,
                " rows");
  for (int64_t row = 0; row < rows; ++row) {
    const auto seed = static_cast<uint32_t>(seeds[static_cast<size_t>(row)]);
    fractions.push_back(reference::GlibcRandom(seed).next_fraction());
  }
  return fractions;
}

size_t sampler_inputs(int64_t type) {
  return type == kSingleTopk ? 2 : type == kMultinomial ? 3 : 4;
}

Result<Sampler> read_sampler(const Case& one, int64_t type, const Tensor& probs) {
  const int64_t rows = probs.view.shape[0];
  const int64_t columns = probs.view.shape[1];
  Sampler sampler{.type = type, .input = {}, .fractions = {}, .noise = {}};
  int64_t kept = columns;
  if (type == kSingleTopk) {
    ASSAY_TRY(kept, one.parameters.integer("topk", 0));
    if (kept < 1) return fail(Errc::Invalid, sentence("parameter topk is ", kept));
  } else {
    ASSAY_TRY(const Tensor places, one.operands->input(1));
    ASSAY_TRY(const std::vector<double> top_k, column(places, rows, false, "intensor1 (topk)"));
    for (const double place : top_k) {
      // Compared as a double: what a hostile file holds may exceed every integer.
      if (!(place >= 0 && place < static_cast<double>(columns)))
        return fail(Errc::Invalid, sentence("intensor1 (topk) points outside rows of ", columns));
      sampler.input.top_k.push_back(static_cast<int64_t>(place));
    }
  }
  ASSAY_TRY(sampler.input.sorted, reference::top_k(probs.view, kept));
  const size_t at = type == kSingleTopk ? 1 : 2;
  ASSAY_TRY(const Tensor top_p, one.operands->input(at));
  ASSAY_TRY(sampler.input.top_p,
            column(top_p, rows, true, "intensor" + std::to_string(at) + " (topp)"));
  if (type == kExponential || type == kExponentialLogProbs) {
    ASSAY_TRY(sampler.noise, one.operands->input(3));
  } else if (type == kMultinomialLogProbs) {
    ASSAY_TRY(const Tensor random, one.operands->input(3));
    ASSAY_TRY(sampler.fractions, column(random, rows, false, "intensor3 (rand)"));
  } else {
    ASSAY_TRY(sampler.fractions, random_fractions(one, type, rows));
  }
  return sampler;
}

std::string_view sampler_name(int64_t type) {
  switch (type) {
    case kSingleTopk:
      return "single topk";
    case kMultinomial:
      return "batch topk, multinomial";
    case kExponential:
      return "batch topk, exponential";
    case kMultinomialLogProbs:
      return "batch topk, multinomial, log probs";
    default:
      return "batch topk, exponential, log probs";
  }
}

Result<Expectation> expect_log_probs(const Case& one, const Sampler& sampler,
                                     const Samplings& samplings) {
  ASSAY_TRY(const int64_t size, one.parameters.integer("logProbsSize", 0));
  ASSAY_TRY(const Tensor tensor, one.operands->output(2));
  const int64_t rows = sampler.input.sorted.values.shape[0];
  if (size < 0 || size > sampler.input.sorted.values.shape[1] ||
      tensor.view.element_count() != rows * size)
    return fail(Errc::Invalid, "outtensor2 has shape ", tensor.view.shape, " and logProbsSize is ",
                size);
  ASSAY_TRY(const Wide mine, reference::widen(tensor.view));
  Expectation output{.index = 2, .accuracy = {.precision = Precision::Float}};
  int64_t ties = 0;
  ASSAY_TRY(Wide exact, expected_log_probs(sampler.input, samplings.exact, mine, size, &ties));
  output.candidates.push_back(candidate(
      "", [golden = reference::to_tensor(std::move(exact))] { return Result<Tensor>(golden); }));
  if (ties != 0) output.note = of_rows(ties, rows, "rows: tie");
  if (samplings.sums != DType::Float64) {
    ASSAY_TRY(Wide rounded,
              expected_log_probs(sampler.input, samplings.rounded, mine, size, &ties));
    output.candidates[0].label = "exact cumulative sums";
    output.candidates.push_back(candidate(
        "cumulative sums in " + std::string(name(samplings.sums)),
        [golden = reference::to_tensor(std::move(rounded))] { return Result<Tensor>(golden); }));
  }
  return output;
}

}  // namespace

Result<Evaluation> evaluate_multinomial(const Case& one) {
  ASSAY_TRY_STATUS(expect_counts(one, {}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const int64_t samples, one.parameters.integer("numSamples", 1));
  ASSAY_TRY(const int64_t seed, one.parameters.integer("randSeed", 0));
  if (samples < 1) return fail(Errc::Invalid, sentence("parameter numSamples is ", samples));
  if (samples > kMostSamples)
    return fail(Errc::Unsupported, samples, " samples; no public golden draws more than 64");
  ASSAY_TRY(const Tensor probs, one.operands->input(0));
  reference::GlibcRandom random(static_cast<uint32_t>(seed));
  std::vector<double> fractions;
  for (int64_t i = 0; i < samples; ++i) fractions.push_back(random.next_fraction());
  // The device's sums are those of its own type; exact ones serve to tell a tie from an error.
  ASSAY_TRY(const std::vector<Choice> rounded,
            reference::multinomial(probs.view, fractions, probs.view.dtype));
  ASSAY_TRY(const std::vector<Choice> exact, reference::multinomial(probs.view, fractions));
  ASSAY_TRY(const Whole mine, output_indices(one, static_cast<int64_t>(rounded.size())));
  Whole golden(mine.shape);
  int64_t ties = 0;
  for (size_t i = 0; i < rounded.size(); ++i) {
    golden.values[i] = rounded[i].place;
    const int64_t chosen = mine.values[i];
    if (chosen == rounded[i].place) continue;
    if (!is_candidate(chosen, rounded[i]) && !is_candidate(chosen, exact[i])) continue;
    golden.values[i] = chosen;
    ++ties;
  }

  Expectation output = expectation_of(0, kInteger, std::move(golden));
  if (ties != 0) output.note = of_rows(ties, mine.size(), "samples: tie");
  return evaluation(std::to_string(samples) + (samples == 1 ? " sample" : " samples"),
                    std::move(output));
}

Result<Evaluation> evaluate_topk_topp_sampling(const Case& one) {
  ASSAY_TRY(const int64_t type,
            one.parameters.integer("topkToppSamplingType|tokkToppSamplingType", 0));
  if (type < kSingleTopk || type > kExponentialLogProbs)
    return fail(Errc::Unsupported, "topkToppSamplingType ", type, " is unknown");
  const bool log_probs = type == kMultinomialLogProbs || type == kExponentialLogProbs;
  const size_t inputs = sampler_inputs(type);
  const size_t outputs = log_probs ? 3 : 2;
  ASSAY_TRY_STATUS(expect_counts(one, {.least_inputs = inputs,
                                       .most_inputs = inputs,
                                       .least_outputs = outputs,
                                       .most_outputs = outputs}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const Tensor probs, one.operands->input(0));
  if (probs.view.shape.size() != 2 || probs.view.element_count() == 0)
    return fail(Errc::Invalid, "intensor0 has shape ", probs.view.shape,
                ", [batch, values] expected");
  ASSAY_TRY(const Sampler sampler, read_sampler(one, type, probs));
  Samplings samplings;
  ASSAY_TRY(samplings.exact, sampler.sample(DType::Float64));
  samplings.sums = probs.view.dtype;
  ASSAY_TRY(samplings.rounded, sampler.sample(samplings.sums));

  const int64_t rows = probs.view.shape[0];
  ASSAY_TRY(const Whole mine, output_indices(one, rows));
  ASSAY_TRY(const Wide all, reference::widen(probs.view));
  SampledRows judged =
      judge_samples(samplings, sampler.input.sorted, probs.view, all, mine, type == kSingleTopk);
  Evaluation result{.variant = std::string(sampler_name(type)), .outputs = {}};
  Expectation indices = expectation_of(0, kInteger, std::move(judged.golden));
  if (judged.ties != 0) indices.note = of_rows(judged.ties, rows, "rows: tie");
  result.outputs.push_back(std::move(indices));
  Expectation picked = expectation_of(1, {.precision = Precision::Move}, std::move(judged.probs));
  picked.note = "probability of the index in outtensor0";
  result.outputs.push_back(std::move(picked));
  if (log_probs) {
    ASSAY_TRY(Expectation logs, expect_log_probs(one, sampler, samplings));
    result.outputs.push_back(std::move(logs));
  }
  return result;
}

}  // namespace assay::opcheck
