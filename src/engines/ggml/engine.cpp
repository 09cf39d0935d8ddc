// SPDX-License-Identifier: Apache-2.0
// Hands each question about a ggml run on to the file that answers it: alignment, row_matcher,
// modules, operands.
#include "engines/ggml/engine.hpp"

#include "engines/ggml/modules.hpp"
#include "engines/ggml/operands.hpp"
#include "engines/ggml/row_matcher.hpp"
#include "reference/ggml/operators.hpp"

namespace assay::engines::ggml {
namespace {

/// As the manifest says, or the operators where it is lost.
bool is_of_ggml(const run::Run& run) {
  const auto kind = run.properties.find("host.kind");
  if (kind != run.properties.end()) return kind->second == "ggml";
  return !run.operations.empty() && reference::ggml::is_ggml(run.operations.front().op_type);
}

struct AlignedRuns final : pair::EngineAlignment {
  explicit AlignedRuns(Alignment alignment) : found(std::move(alignment)) {}
  [[nodiscard]] Result<pair::Matching> match(const run::Run& golden, const run::Run& mine,
                                             const pair::Correspondence& pairs,
                                             const pair::MatchOptions& options) const override {
    return match_rows(golden, mine, is_of_ggml(golden), found, pairs, options);
  }

  Alignment found;
};

}  // namespace

bool Engine::made(const run::Run& run) const { return is_of_ggml(run); }

Result<std::shared_ptr<const pair::EngineAlignment>> Engine::align(
    const run::Run& modules, const run::Run& own, const pair::StepPairs& steps) const {
  ASSAY_TRY(Alignment alignment, ggml::align(modules, own, steps));
  return std::make_shared<const AlignedRuns>(std::move(alignment));
}

bool Engine::is_weight(const run::TensorRecord& leaf) const {
  return !reference::ggml::is_ggml(leaf.op_type) || leaf.leaf.ends_with(".weight") ||
         leaf.leaf.ends_with(".bias");
}

std::map<std::string, run::TensorRecord, std::less<>> Engine::model_weights(
    const run::Run& run) const {
  return ggml::model_weights(run);
}

Result<Tensor> Engine::load_uncopied(const locate::Program& program, const locate::Use& use) const {
  return ggml::load_uncopied(program, use);
}

Status Engine::add_facts(const locate::Program& program, const locate::Operator& one,
                         reference::aten::Call* call) const {
  return ggml::add_facts(program, one, call);
}

Result<reference::Wide> Engine::conversion_variance(const std::string& type, Tensor weight,
                                                    Tensor x) const {
  reference::aten::Call call{"ggml.mul_mat", {}};
  call.arguments["src0"].value = std::move(weight);
  call.arguments["src1"].value = std::move(x);
  call.arguments["src0_type"].value = type;
  ASSAY_TRY(reference::aten::Magnitudes error, reference::ggml::rounding(call));
  return std::move(error.variance);
}

std::unique_ptr<const locate::EngineModules> Engine::modules(
    const run::Run& hf, const run::Run& own, const pair::EngineAlignment& alignment) const {
  return std::make_unique<const Modules>(hf, own, static_cast<const AlignedRuns&>(alignment).found);
}

}  // namespace assay::engines::ggml
