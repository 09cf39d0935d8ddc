// SPDX-License-Identifier: Apache-2.0
// A difference is a fault where the smallest module around it does not compute golden's function.
//   docs/localisation.md, "Functions decide"
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "locate/replay/module_scopes.hpp"
#include "locate/replay/value_judge.hpp"

namespace assay::locate {

struct Closed {
  /// By boundary: it is not what golden's operators make of the values before it, and a module
  /// around it returns what golden's program makes of that module's inputs.
  std::vector<bool> values;
  std::set<std::string> leaves;  // parameters and buffers of mine that are others
  std::set<size_t> arguments;    // of mine's operators
  /// Leaves, and by boundary values, that have no effect which could be seen: what else is open comes
  /// before them.
  std::set<std::string> idle;
  std::set<size_t> idle_values;
  /// Leaves that are written otherwise and wrong besides: what they should be, written so.
  std::map<std::string, Tensor> expected;
  std::map<std::string, size_t> modules;  // that closed something: how many differences
};

/// Golden's value or parameter, and mine's difference from it with signs drawn at random.
struct Drawn {
  Tensor tensor;
  double rounding = INFINITY;  // what it explains of the difference; infinity: not known
};
/// In fp64.
/// errors  Invalid (another shape)
[[nodiscard]] Result<Drawn> with_signs_drawn(const Tensor& right, const Tensor& other);

/// What is open in a run, and what it is asked with. All but `closed` outlive it.
struct Openings {
  const Scene& scene;
  const Replay& replay;      // on all values of mine
  const ValueJudge& values;  // of that replay
  const ModuleScopes& modules;
  std::vector<Judged>& judged;  // by boundary of the replay
  Closed closed = {};

  [[nodiscard]] bool is_open(size_t boundary) const {
    return judged[boundary].finding && !closed.values[boundary];
  }
  /// Golden's program on the values of mine that are not dropped, mine's other parameters being
  /// golden's in another form.
  [[nodiscard]] Replay without(const std::vector<bool>& dropped) const;
  /// A value of mine, golden's being what golden's program makes there.
  /// around  where that is run
  [[nodiscard]] Result<Drawn> drawn_value(size_t boundary, const Replay& around) const;
};

/// By how much a value that a module returns is moved by how golden's program is run.
using EffectOf = std::function<Effect(const How&)>;

/// With one difference of mine in golden's program what the module returns would be another. Or it
/// would be with a difference as large whose signs are drawn: then this one was made to have no
/// effect, as what is added to all scores of a softmax. That is also told by the two effects alone,
/// where both drown: this one moves what is returned by no larger a part of what the drawn one does
/// than rounding is of the difference.
///
/// alone    how golden's program runs with the difference in it, and nothing else of mine
/// with     how it does with the drawn one
[[nodiscard]] bool would_have_shown(const std::vector<EffectOf>& outputs, const How& alone,
                                    const std::function<Result<Drawn>()>& draw,
                                    const std::function<How(const Tensor&)>& with);

/// Closes what it can, from the innermost modules outwards, and judges their outputs anew.
///
/// judged  by boundary of the replay
[[nodiscard]] Closed close_openings(const Scene& scene, const Replay& replay,
                                    const ValueJudge& values, std::vector<Judged>* judged);

}  // namespace assay::locate
