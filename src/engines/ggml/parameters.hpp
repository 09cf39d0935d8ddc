// SPDX-License-Identifier: Apache-2.0
// Findings across engines in the words of both: the module of Hugging Face and the node of the ggml
// graph.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "engines/ggml/modules.hpp"

namespace assay::engines::ggml {

class Parameters {
 public:
  /// golden   Hugging Face's program, `mine` the one of Modules::run()
  Parameters(const locate::Program& golden, const locate::Program& mine, const Modules& modules)
      : golden_(golden), mine_(mine), modules_(modules) {}

  /// Names the node and its place in the graph's order, and the parameter that differs where one
  /// explains a gap: epsilon, scale of attention, base, scale and divisors of the rotary embedding,
  /// how many experts a token uses.
  void complete(locate::Finding* finding) const;

 private:
  /// A parameter of an operator of mine that differs from that of golden.
  struct Difference {
    const locate::Operator* mine;
    std::string text;  // "epsilon 0.01 where golden has 1e-05"
  };

  [[nodiscard]] size_t record_of(const locate::Finding& finding) const;
  void complete_own_error(locate::Finding* finding) const;
  /// tolerance  relative
  static std::optional<Difference> differ(const locate::Operator& one, std::string_view what,
                                          double mine, double golden, double tolerance);
  [[nodiscard]] std::optional<Difference> epsilon(const locate::Finding& finding) const;
  [[nodiscard]] std::optional<Difference> rotary_base(const locate::Finding& finding) const;
  [[nodiscard]] std::optional<Difference> scale(const locate::Finding& finding) const;
  [[nodiscard]] std::optional<Difference> used_experts(const locate::Finding& finding) const;
  /// Values of the only result of an operator of mine; 0 when not known.
  [[nodiscard]] int64_t result_count(const locate::Operator* one) const;
  [[nodiscard]] const locate::Operator* find_operator(int64_t step, std::string_view op,
                                                      std::string_view name, int64_t number) const;

  const locate::Program& golden_;
  const locate::Program& mine_;
  const Modules& modules_;
};

}  // namespace assay::engines::ggml
