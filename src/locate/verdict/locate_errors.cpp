// SPDX-License-Identifier: Apache-2.0
// Tensors of a candidate are held against those in the same slots of its partner: the operator, or
// where there is none the module call that was running. Their errors make one relative L2.
#include "locate/verdict/locate_errors.hpp"

#include <algorithm>
#include <cmath>

#include "measure/pair_sums.hpp"

namespace assay::locate {
namespace {

constexpr size_t kCandidates = 16;  // that get numbers; a report shows the first few
constexpr size_t kLinks = 64;
constexpr int64_t kMaxElements = int64_t{1} << 27;

struct Sums {
  double error = 0, golden = 0;
  size_t tensors = 0;

  [[nodiscard]] double relative() const {
    return tensors > 0 && golden > 0 ? std::sqrt(error / golden) : NAN;
  }
};

void add(const TensorView& golden, const TensorView& mine, Sums* sums) {
  if (!is_float(golden.dtype) || !is_float(mine.dtype)) return;
  if (golden.element_count() != mine.element_count() || golden.element_count() > kMaxElements)
    return;
  const measure::PairSums pair = measure::sums_of(golden, mine);
  sums->error += pair.difference_squared;
  sums->golden += pair.golden_squared;
  ++sums->tensors;
}

class Errors {
 public:
  Errors(const Program& golden, const Program& mine, const Pairing& pairing)
      : golden_(golden), mine_(mine), pairing_(pairing) {}

  void describe(Finding* finding) const {
    const Operator* mine = at(mine_.operators, finding->mine_operator);
    if (finding->golden_operator == kNone && mine != nullptr)
      finding->golden_operator = partner(pairing_.golden_of, finding->mine_operator);
    const Operator* golden = at(golden_.operators, finding->golden_operator);
    if (golden != nullptr && finding->golden_node.empty()) finding->golden_node = golden->node;
    if (mine != nullptr && golden != nullptr) {
      if (std::isnan(finding->err_in)) finding->err_in = pooled(golden->inputs, mine->inputs);
      if (std::isnan(finding->err_out)) finding->err_out = pooled(golden->outputs, mine->outputs);
      return;
    }
    const size_t call = call_of(*finding);
    if (call == kNone) return;
    const ModuleCall* other = at(golden_.calls, partner(pairing_.golden_call_of, call));
    if (other == nullptr) return;
    if (finding->golden_node.empty()) finding->golden_node = other->module;
    const ModuleCall& own = mine_.calls[call];
    if (std::isnan(finding->err_in)) finding->err_in = pooled(other->inputs, own.inputs);
    if (std::isnan(finding->err_out)) finding->err_out = pooled(other->outputs, own.outputs);
  }

  std::vector<ChainLink> chain_behind(const Finding& first) const {
    std::vector<ChainLink> chain;
    for (size_t i = 0; i < mine_.calls.size() && chain.size() < kLinks; ++i) {
      const ModuleCall& call = mine_.calls[i];
      if (call.rank != first.rank || call.step != first.step || call.end < first.time ||
          !is_milestone(call.module))
        continue;
      const ModuleCall* other = at(golden_.calls, partner(pairing_.golden_call_of, i));
      if (other == nullptr) continue;
      const double error = pooled(other->outputs, call.outputs);
      if (!std::isnan(error)) chain.push_back({call.module, call.step, error});
    }
    return chain;
  }

 private:
  template <typename T>
  static const T* at(const std::vector<T>& list, size_t index) {
    return index < list.size() ? &list[index] : nullptr;
  }
  static size_t partner(const std::vector<size_t>& table, size_t index) {
    return index < table.size() ? table[index] : kNone;
  }

  // A repeated block, or the model itself.
  static bool is_milestone(std::string_view module) {
    const std::string_view last = module.substr(module.rfind('.') + 1);
    return module.empty() || last.find_first_not_of("0123456789") == std::string_view::npos;
  }

  // The call of the finding's module that was running, or had just ended, at its time.
  size_t call_of(const Finding& finding) const {
    size_t best = kNone;
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const ModuleCall& call = mine_.calls[i];
      if (call.module != finding.module || call.rank != finding.rank || call.step != finding.step ||
          call.end < finding.time)
        continue;
      if (best == kNone || call.end < mine_.calls[best].end) best = i;
    }
    return best;
  }

  double pooled(const std::vector<Use>& golden, const std::vector<Use>& mine) const {
    Sums sums;
    for (const Use& use : mine) {
      const auto other =
          std::ranges::find_if(golden, [&](const Use& one) { return one.slot == use.slot; });
      if (other == golden.end()) continue;
      const Result<Tensor> g = load_use(golden_, *other);
      const Result<Tensor> m = load_use(mine_, use);
      if (g && m) add(g->view, m->view, &sums);
    }
    return sums.relative();
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
};

}  // namespace

void add_errors_against_golden(const Program& golden, const Program& mine, const Pairing& pairing,
                               Verdict* verdict) {
  const Errors errors(golden, mine, pairing);
  for (size_t i = 0; i < std::min(kCandidates, verdict->candidates.size()); ++i)
    errors.describe(&verdict->candidates[i]);
  if (!verdict->candidates.empty())
    verdict->chain = errors.chain_behind(verdict->candidates.front());
}

}  // namespace assay::locate
