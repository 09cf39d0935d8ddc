// SPDX-License-Identifier: Apache-2.0
// Two rounds: kinds with enough products are tried with every narrow type, then the other kinds
// with the types that the first round found. All products of a kind that err are then judged anew.
#include "locate/judge/narrow_kernels.hpp"

#include <algorithm>

#include "base/thread_pool.hpp"
#include "locate/judge/strict_kernels.hpp"

namespace assay::locate {
namespace {

/// Products of a kind that a type is tried on, and the share of them that it has to explain. A type
/// that another kind has needs less: of a few products some may be wrong.
constexpr size_t kSample = 12;
constexpr double kExplained = 0.75, kExplainedByKnown = 0.5;

bool is_within(const OwnError& error) { return std::max(error.z, error.e) <= kOwnErrorLimit; }

/// As if the kernel rounded its operands; nothing where that cannot be computed.
std::optional<OwnError> judge_as(const Program& program, const OwnError& error, ProductType type) {
  const Operator& one = program.operators[error.op];
  const Result<reference::aten::Call> call = load_call(program, one);
  const Result<Tensor> mine = load_use(program, one.outputs[error.output]);
  if (!call || !mine) return std::nullopt;
  const Result<std::vector<Tensor>> results = evaluate_narrow(*call, type);
  if (!results) return std::nullopt;
  // Probabilities that are cut err to one side, all alike.
  const double deviations = type == ProductType::TF32Cut ? 2 : 1;
  Result<OwnError> judged =
      judge_output(*call, *results, result_of(one.outputs[error.output], error.output), mine->view,
                   /*jobs=*/1, product_roundoff(type) * deviations);
  if (!judged) return std::nullopt;
  judged->op = error.op;
  judged->output = error.output;
  judged->dtype = error.dtype;
  return *std::move(judged);
}

struct Kind {
  size_t all = 0;
  std::vector<OwnError*> beyond;  // what float32 explains
};

/// The candidate that explains most of a sample, of several the first; Float32: none explains
/// enough.
ProductType type_of(const Program& program, const OwnErrorOptions& options,
                    const std::vector<OwnError*>& beyond, std::span<const ProductType> candidates,
                    double share) {
  const size_t count = std::min(beyond.size(), kSample);
  std::vector<size_t> explained(candidates.size(), 0);
  for (size_t k = 0; k < candidates.size(); ++k) {
    std::vector<char> right(count, 0);
    parallel_for(count, resolve_job_count(options.jobs), [&](size_t i) {
      const OwnError& error = *beyond[i * beyond.size() / count];
      const std::optional<OwnError> judged = judge_as(program, error, candidates[k]);
      right[i] = judged && is_within(*judged) ? 1 : 0;
    });
    explained[k] = static_cast<size_t>(std::ranges::count(right, 1));
  }
  const auto most = std::ranges::max_element(explained);
  if (most == explained.end() || static_cast<double>(*most) < share * static_cast<double>(count))
    return ProductType::Float32;
  return candidates[static_cast<size_t>(most - explained.begin())];
}

}  // namespace

void judge_narrow_kernels(const Program& program, const OwnErrorOptions& options,
                          std::vector<std::vector<OwnError>>* by_operator, OwnErrors* result) {
  std::map<std::string_view, Kind> kinds;
  for (size_t op = 0; op < by_operator->size(); ++op) {
    const Operator& one = program.operators[op];
    if (!is_product(one.name)) continue;
    for (OwnError& error : (*by_operator)[op]) {
      const bool judged =
          error.state == OwnError::State::Judged || error.state == OwnError::State::Exact;
      if (!judged || error.dtype != DType::Float32 || error.output != 0 || error.by_sums) continue;
      Kind& kind = kinds[one.name];
      ++kind.all;
      if (!is_within(error)) kind.beyond.push_back(&error);
    }
  }
  std::map<std::string_view, ProductType> types;
  std::vector<ProductType> known;
  const auto find = [&](size_t fewest, std::span<const ProductType> candidates, double share) {
    for (const auto& [name, kind] : kinds) {
      if (kind.all < fewest || types.contains(name) || kind.beyond.empty() ||
          2 * kind.beyond.size() < kind.all)
        continue;
      const ProductType type = type_of(program, options, kind.beyond, candidates, share);
      if (type != ProductType::Float32) types.emplace(name, type);
    }
  };
  find(kFewestPeers, kNarrowProducts, kExplained);
  for (const auto& [name, type] : types) known.push_back(type);
  if (!known.empty()) find(0, known, kExplainedByKnown);
  for (const auto& [name, type] : types) {
    const std::vector<OwnError*>& beyond = kinds[name].beyond;
    parallel_for(beyond.size(), resolve_job_count(options.jobs), [&](size_t i) {
      std::optional<OwnError> judged = judge_as(program, *beyond[i], type);
      if (judged && std::max(judged->z, judged->e) < std::max(beyond[i]->z, beyond[i]->e))
        *beyond[i] = *std::move(judged);
    });
    result->products = std::max(result->products, type);
    result->narrow_kinds += (result->narrow_kinds.empty() ? "" : ", ") +
                            std::to_string(beyond.size()) + " " + std::string(name) + " in " +
                            std::string(product_name(type));
  }
}

}  // namespace assay::locate
