// SPDX-License-Identifier: Apache-2.0
// What an engine adds to a verdict whose operators are none of PyTorch's: what its records leave
// out, and its run as the modules of another. Implemented in engines/, handed in by the edge.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "locate/program/finding.hpp"
#include "pair/engine.hpp"
#include "reference/wide.hpp"

namespace assay::locate {

/// Where a tensor of a module is in an engine's run.
struct EnginePlace {
  size_t record = kNone;           // of the engine's run, the first of several graphs
  size_t golden = kNone;           // of the run with modules
  std::string node;                // "Qcur-3 mul_mat"
  std::vector<int64_t> rows = {};  // of golden's tensor, that the engine computed; empty: all
};

/// A run of an engine as the modules of another run, so that that one's program can be replayed on
/// its values.
///   docs/localisation.md, "Across engines"
class EngineModules {
 public:
  EngineModules() = default;
  EngineModules(const EngineModules&) = delete;
  EngineModules& operator=(const EngineModules&) = delete;
  virtual ~EngineModules() = default;

  /// The engine's records and operators as they are, and behind them the tensors of modules and the
  /// weights of the model's file, by the other run's names, shapes, steps and orders of rows and
  /// channels.
  [[nodiscard]] virtual const run::Run& run() const = 0;
  /// Marks what kernels do to values between the records: types of stored weights, of keys and
  /// values.
  virtual void describe(Program* mine) const = 0;
  /// Adds golden's values that are no module's output, but a node's.
  virtual void add_inner_values(Program* golden) const = 0;
  /// Of a record behind the engine's own; nullptr for those.
  [[nodiscard]] virtual const EnginePlace* place_of(size_t record) const = 0;
  /// Names the node and its place in the order of the engine's graph, and the parameter that
  /// differs where one explains a gap.
  ///
  /// golden  the program with modules, `mine` the one of run()
  virtual void complete(const Program& golden, const Program& mine, Finding* finding) const = 0;
  [[nodiscard]] virtual const std::vector<std::string>& notes() const = 0;
  /// Tokens of golden that the engine did not compute; empty: none.
  [[nodiscard]] virtual const std::string& missing() const = 0;
};

class Engine : public pair::Engine {
 public:
  /// False for tokens, positions and masks, which may be leaves of a graph, too.
  [[nodiscard]] virtual bool is_weight(const run::TensorRecord& leaf) const = 0;
  /// By name, where the captured command says that the model's files are.
  [[nodiscard]] virtual std::map<std::string, run::TensorRecord, std::less<>> model_weights(
      const run::Run& run) const = 0;
  /// The tensor of a use whose record has no bytes.
  /// errors  NotFound, of run::load_tensor() for the record itself
  [[nodiscard]] virtual Result<Tensor> load_uncopied(const Program& program,
                                                     const Use& use) const = 0;
  /// Adds to a call what the records say beside its arguments.
  [[nodiscard]] virtual Status add_facts(const Program& program, const Operator& one,
                                         reference::aten::Call* call) const = 0;
  /// Variance of a product's results by the conversion of what is multiplied with a weight alone:
  /// [rows of x, rows of the weight].
  ///
  /// type    that the weight is stored in
  /// weight  [out, in]
  /// x       [..., in]
  [[nodiscard]] virtual Result<reference::Wide> conversion_variance(const std::string& type,
                                                                    Tensor weight,
                                                                    Tensor x) const = 0;
  /// hf         captured with operators
  /// alignment  of align()
  [[nodiscard]] virtual std::unique_ptr<const EngineModules> modules(
      const run::Run& hf, const run::Run& own, const pair::EngineAlignment& alignment) const = 0;
};

/// Implementations outlive all that use them.
using Engines = std::span<const Engine* const>;

}  // namespace assay::locate
