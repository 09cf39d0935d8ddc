// SPDX-License-Identifier: Apache-2.0
// ggml programs: llama.cpp and what is built of it.
#pragma once
#include "locate/program/engine.hpp"

namespace assay::engines::ggml {

class Engine final : public locate::Engine {
 public:
  [[nodiscard]] std::string_view name() const override { return "ggml"; }
  [[nodiscard]] bool made(const run::Run& run) const override;
  [[nodiscard]] Result<std::shared_ptr<const pair::EngineAlignment>> align(
      const run::Run& modules, const run::Run& own, const pair::StepPairs& steps) const override;
  [[nodiscard]] bool is_weight(const run::TensorRecord& leaf) const override;
  [[nodiscard]] std::map<std::string, run::TensorRecord, std::less<>> model_weights(
      const run::Run& run) const override;
  [[nodiscard]] Result<Tensor> load_uncopied(const locate::Program& program,
                                             const locate::Use& use) const override;
  [[nodiscard]] Status add_facts(const locate::Program& program, const locate::Operator& one,
                                 reference::aten::Call* call) const override;
  [[nodiscard]] Result<reference::Wide> conversion_variance(const std::string& type, Tensor weight,
                                                            Tensor x) const override;
  [[nodiscard]] std::unique_ptr<const locate::EngineModules> modules(
      const run::Run& hf, const run::Run& own,
      const pair::EngineAlignment& alignment) const override;
};

}  // namespace assay::engines::ggml
