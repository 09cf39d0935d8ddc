// SPDX-License-Identifier: Apache-2.0
// Findings across engines in the words of both: the module of Hugging Face and the node of the ggml graph.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "locate/verdict/ggml_modules.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::locate {

class AcrossEngines {
 public:
  /// golden   Hugging Face's program, `mine` the one of GgmlModules::run()
  AcrossEngines(const Program& golden, const Program& mine, const GgmlModules& modules)
      : golden_(golden), mine_(mine), modules_(modules) {}

  /// Names the node and its place in the graph's order, and the parameter that differs where one explains a gap: epsilon,
  /// scale of attention, base, scale and divisors of the rotary embedding, how many experts a token uses.
  void complete(Finding* finding) const;

 private:
  /// A parameter of an operator of mine that is not golden's.
  struct Difference {
    const Operator* mine;
    std::string text;  // "epsilon 0.01 where golden has 1e-05"
  };

  [[nodiscard]] size_t record_of(const Finding& finding) const;
  void complete_own_error(Finding* finding) const;
  /// tolerance  relative
  static std::optional<Difference> differ(const Operator& one, std::string_view what, double mine,
                                          double golden, double tolerance);
  [[nodiscard]] std::optional<Difference> epsilon(const Finding& finding) const;
  [[nodiscard]] std::optional<Difference> rotary_base(const Finding& finding) const;
  [[nodiscard]] std::optional<Difference> scale(const Finding& finding) const;
  [[nodiscard]] std::optional<Difference> used_experts(const Finding& finding) const;
  /// Values of the only result of an operator of mine; 0 when not known.
  [[nodiscard]] int64_t result_count(const Operator* one) const;
  [[nodiscard]] const Operator* find_operator(int64_t step, std::string_view op,
                                              std::string_view name, int64_t number) const;

  const Program& golden_;
  const Program& mine_;
  const GgmlModules& modules_;
};

/// Moves records of modules to the captured ones, and to the side that the caller has as mine.
///
/// turned   the caller's golden is the ggml run
void put_on_sides(const GgmlModules& modules, bool turned, Verdict* verdict);

}  // namespace assay::locate
