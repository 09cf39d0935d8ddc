// SPDX-License-Identifier: Apache-2.0
// Modules around two openings or more are asked, from the innermost outwards. The open weights and
// arguments inside go into golden's program together, then the values that each module made; what
// leaves the module's outputs as they were is closed.
#include "locate/replay/innocent_openings.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "locate/judge/rewritten_weight.hpp"
#include "locate/program/owner.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

/// Effect::excess up to which a difference would be seen by rare chance only.
constexpr double kHardlySeen = kShown / 2;
/// Modules with more open parts are not asked.
constexpr size_t kMostParts = 256;
/// Each costs a replay of the module; a module with more of either is not asked about its values.
constexpr size_t kMostValues = 8, kMostOutputs = 8;

/// A weight or an argument of mine that is open.
struct Part {
  const OtherLeaf* leaf = nullptr;
  const OtherArgument* argument = nullptr;
  std::string module;
};
using Parts = std::vector<Part>;

class Innocence {
 public:
  explicit Innocence(Openings* all)
      : all_(*all),
        golden_(all->scene.golden),
        mine_(all->scene.mine),
        options_(all->scene.options),
        replay_(all->replay),
        modules_(all->modules),
        judged_(all->judged),
        closed_(all->closed) {
    for (const OtherLeaf& leaf : options_.other_leaves) {
      if (!leaf.other_shape && !closed_.leaves.contains(leaf.name))
        parts_.push_back({&leaf, nullptr, leaf.module});
    }
    for (const OtherArgument& one : options_.other_arguments) {
      if (!closed_.arguments.contains(one.mine))
        parts_.push_back({nullptr, &one, mine_.operators[one.mine].module});
    }
  }

  void run() {
    if (sites().size() < 2) return;
    for (const auto& [depth, modules] : modules_by_depth()) {
      if (options_.stopped()) return;
      ask(modules);
    }
  }

 private:
  /// A module of mine, in one rank.
  struct Scope {
    int rank = 0;
    std::string module;
    friend auto operator<=>(const Scope&, const Scope&) = default;
  };

  /// Modules with something open.
  [[nodiscard]] std::set<Scope> sites() const {
    std::set<Scope> sites;
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (all_.is_open(i)) sites.insert({modules_.call_of(i).rank, modules_.call_of(i).module});
    }
    for (const Part& part : parts_) {
      for (const ModuleCall& call : mine_.calls) {
        if (call.module == part.module) sites.insert({call.rank, call.module});
      }
    }
    return sites;
  }

  /// Modules around more than one of the sites, from the innermost outwards.
  [[nodiscard]] std::map<size_t, std::set<Scope>, std::greater<>> modules_by_depth() const {
    std::map<Scope, size_t> counts;
    for (const Scope& site : sites()) {
      for (std::string module = site.module;;) {
        ++counts[{site.rank, module}];
        if (module.empty()) break;
        module = module_around(module);
      }
    }
    std::map<size_t, std::set<Scope>, std::greater<>> found;
    for (const auto& [scope, count] : counts) {
      const auto returns = [&](size_t call) { return !modules_.outputs_of(call).empty(); };
      if (count > 1 && std::ranges::any_of(modules_.calls(scope.rank, scope.module), returns))
        found[ModuleScopes::depth_of(scope.module)].insert(scope);
    }
    return found;
  }

  /// One value that a module returns, and what golden's program of the module makes there.
  struct Output {
    size_t boundary;
    Region region;
    Replayed right;
  };
  using Outputs = std::vector<Output>;

  /// Asks modules of one depth, which do not overlap.
  void ask(const std::set<Scope>& scopes) {
    std::vector<bool> dropped(judged_.size(), false);
    for (const Scope& scope : scopes) modules_.drop_inside(scope.rank, scope.module, &dropped);
    const Replay whole = all_.without(dropped);
    const auto values = make_value_judge(all_.scene, whole, FarOnes::Left);
    for (const Scope& scope : scopes) {
      const Outputs outputs = outputs_of(scope, whole);
      if (outputs.empty()) continue;
      set_parts_aside(scope, outputs, whole, *values);
      if (returned_by(scope).size() > kMostOutputs || open_values_in(scope).size() > kMostValues)
        continue;
      set_values_aside(scope, outputs, dropped, whole, *values);
      find_what_explains(scope, dropped, whole, *values);
    }
  }

  /// What all calls of the module return.
  [[nodiscard]] std::vector<size_t> returned_by(const Scope& scope) const {
    std::vector<size_t> outputs;
    for (const size_t call : modules_.calls(scope.rank, scope.module)) {
      const std::vector<size_t>& more = modules_.outputs_of(call);
      outputs.insert(outputs.end(), more.begin(), more.end());
    }
    return outputs;
  }

  /// Golden's program of the first of them: later steps compute the same function. Empty where that
  /// of one cannot be run.
  [[nodiscard]] Outputs outputs_of(const Scope& scope, const Replay& whole) const {
    Outputs outputs;
    for (const size_t output : returned_by(scope)) {
      if (outputs.size() == kMostOutputs) break;
      Result<Region> region = whole.plan(output, {}, Carry::No);
      if (!region) return {};
      Result<Replayed> right = whole.run(*region, {});
      if (!right) return {};
      outputs.push_back({output, *std::move(region), *std::move(right)});
    }
    return outputs;
  }

  // ---- Weights and arguments --------------------------------------------------------------------

  static void put_in(const Part& part, Substitutes* others) {
    if (part.argument != nullptr) {
      others->arguments.emplace(part.argument->golden, part.argument->mine);
      return;
    }
    for (const std::string& name : part.leaf->golden)
      others->leaves.emplace(name, part.leaf->mine_record);
  }

  /// expected  in place of weights of mine, by their names; outlives the result
  static Substitutes together(const Parts& parts, const std::map<std::string, Tensor>& expected) {
    Substitutes others;
    for (const Part& part : parts) {
      const auto found = part.leaf == nullptr ? expected.end() : expected.find(part.leaf->name);
      if (found == expected.end()) {
        put_in(part, &others);
        continue;
      }
      for (const std::string& name : part.leaf->golden)
        others.made_leaves.emplace(name, &found->second);
    }
    return others;
  }

  [[nodiscard]] static bool is_read(const Part& part, const Region& region, const Replay& whole) {
    if (part.leaf != nullptr) return whole.reads(region, part.leaf->golden);
    return std::ranges::find(region.operators, part.argument->golden, &Region::Call::op) !=
           region.operators.end();
  }

  [[nodiscard]] Parts parts_in(const Scope& scope, const Outputs& outputs,
                               const Replay& whole) const {
    Parts inside;
    std::ranges::copy_if(parts_, std::back_inserter(inside), [&](const Part& part) {
      return is_inside(part.module, scope.module) &&
             std::ranges::any_of(
                 outputs, [&](const Output& one) { return is_read(part, one.region, whole); });
    });
    return inside;
  }

  void set_parts_aside(const Scope& scope, const Outputs& outputs, const Replay& whole,
                       const ValueJudge& values) {
    const Parts parts = parts_in(scope, outputs, whole);
    if (parts.empty() || parts.size() > kMostParts) return;
    if (const double excess = most_excess(together(parts, {}), outputs, whole, values);
        excess <= kHardlySeen) {
      close(scope, parts, excess <= 1, outputs, whole, values);
      return;
    }
    std::map<std::string, Tensor> expected = expected_of_faulty(parts);
    if (expected.empty()) return;
    const double excess = most_excess(together(parts, expected), outputs, whole, values);
    if (excess > kHardlySeen) return;
    Parts others;
    std::ranges::copy_if(parts, std::back_inserter(others), [&](const Part& part) {
      return part.leaf == nullptr || !expected.contains(part.leaf->name);
    });
    close(scope, others, excess <= 1, outputs, whole, values);
    closed_.expected.merge(expected);
  }

  /// Relative L2 of a weight that bfloat16 alone does not reach.
  static constexpr double kRounded = 0.004;

  /// How mine writes the weight otherwise than golden does; asked once for each.
  const std::optional<RewrittenWeight>& rewritten(const OtherLeaf& leaf) {
    const auto [found, fresh] = rewritten_.try_emplace(leaf.name);
    if (!fresh) return found->second;
    if (const auto both = sides_of(leaf)) found->second = as_rewritten(both->first, both->second);
    if (found->second && found->second->difference <= kRounded) found->second->expected = {};
    return found->second;
  }

  /// Weights that are not only written otherwise, with what they would be if they were.
  [[nodiscard]] std::map<std::string, Tensor> expected_of_faulty(const Parts& parts) {
    std::map<std::string, Tensor> expected;
    for (const Part& part : parts) {
      if (part.leaf == nullptr) continue;
      const std::optional<RewrittenWeight>& one = rewritten(*part.leaf);
      if (one && one->difference > kRounded) expected.emplace(part.leaf->name, one->expected);
    }
    return expected;
  }

  /// Golden's weight and mine.
  [[nodiscard]] Result<std::pair<Tensor, Tensor>> sides_of(const OtherLeaf& leaf) const {
    if (leaf.golden.empty()) return fail(Errc::NotFound, "golden has no such weight");
    const size_t record = golden_.leaves.find(leaf.golden.front())->second;
    ASSAY_TRY(Tensor right, run::load_tensor(golden_.run->records[record]));
    ASSAY_TRY(Tensor mine, run::load_tensor(mine_.run->records[leaf.mine_record]));
    return std::pair(std::move(right), std::move(mine));
  }

  /// The largest effect on what the module returns, over what rounding explains.
  [[nodiscard]] static double most_excess(const Substitutes& others, const Outputs& outputs,
                                          const Replay& whole, const ValueJudge& values) {
    double most = 0;
    for (const Output& output : outputs) {
      const Effect effect = values.effect(
          output.right, whole.run(output.region, {.of_mine = others}), output.region.dtype);
      most = std::isnan(effect.relative) ? INFINITY : std::max(most, effect.excess);
    }
    return most;
  }

  /// innocent  the parts have no effect; else it is below what could be seen
  void close(const Scope& scope, const Parts& parts, bool innocent, const Outputs& outputs,
             const Replay& whole, const ValueJudge& values) {
    Substitutes others;
    std::map<std::string, bool> shown;  // by pattern of names
    for (const Part& part : parts) {
      const std::string name = part.leaf != nullptr ? part.leaf->name : part.module;
      const auto [found, fresh] = shown.try_emplace(run::layer_pattern(name), false);
      if (fresh) found->second = innocent && is_shown(part, outputs, whole, values);
      if (!found->second) {
        const auto* one = part.leaf == nullptr ? nullptr : &rewritten(*part.leaf);
        if (one != nullptr && *one && (*one)->difference <= kRounded)
          closed_.idle.insert(part.leaf->name);
        continue;
      }
      put_in(part, &others);
      ++closed_.modules[scope.module];
      if (part.leaf != nullptr)
        closed_.leaves.insert(part.leaf->name);
      else
        closed_.arguments.insert(part.argument->mine);
    }
    std::erase_if(parts_, [&](const Part& part) {
      return part.leaf != nullptr ? closed_.leaves.contains(part.leaf->name)
                                  : closed_.arguments.contains(part.argument->mine);
    });
    if (!others.empty()) close_values_made_with(others);
  }

  [[nodiscard]] bool is_shown(const Part& part, const Outputs& outputs, const Replay& whole,
                              const ValueJudge& values) const {
    std::vector<EffectOf> effects;
    for (const Output& output : outputs) {
      effects.emplace_back([&](const How& how) {
        return values.effect(output.right, whole.run(output.region, how), output.region.dtype);
      });
    }
    return would_have_shown(
        effects, {.of_mine = together({part}, {})},
        [&]() -> Result<Drawn> {
          if (part.leaf == nullptr) return fail(Errc::NotFound, "no signs to draw");
          ASSAY_TRY(const auto both, sides_of(*part.leaf));
          return with_signs_drawn(both.first, both.second);
        },
        [&](const Tensor& drawn) {
          How how;
          for (const std::string& name : part.leaf->golden)
            how.of_mine.made_leaves.emplace(name, &drawn);
          return how;
        });
  }

  /// Closes values that golden's program makes as well with these weights and arguments of mine.
  void close_values_made_with(const Substitutes& innocent) {
    const auto values = make_value_judge(all_.scene, replay_, FarOnes::Left, innocent);
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (!all_.is_open(i)) continue;
      const Result<Region> region = replay_.plan(i);
      if (!region || !reads_any(*region, innocent)) continue;
      Judged again = values->judge(i);
      if (!again.is_right()) continue;
      again.finding = std::move(judged_[i].finding);
      judged_[i] = std::move(again);
      closed_.values[i] = true;
    }
  }

  [[nodiscard]] bool reads_any(const Region& region, const Substitutes& others) const {
    return std::ranges::any_of(
               others.leaves,
               [&](const auto& leaf) { return replay_.reads(region, {leaf.first}); }) ||
           std::ranges::any_of(region.operators, [&](const Region::Call& call) {
             return others.arguments.contains(call.op);
           });
  }

  // ---- Values -----------------------------------------------------------------------------------

  /// What a module made in all its calls is put in together: a table of cosines and one of sines.
  void set_values_aside(const Scope& scope, const Outputs& outputs,
                        const std::vector<bool>& dropped, const Replay& whole,
                        const ValueJudge& values) {
    for (const auto& [module, made] : open_values_in(scope)) {
      const std::optional<bool> innocent = are_innocent(outputs, made, dropped, whole, values);
      if (!innocent) continue;
      if (*innocent) closed_.modules[scope.module] += made.size();
      for (const size_t i : made) {
        if (*innocent)
          closed_.values[i] = true;
        else
          closed_.idle_values.insert(i);
      }
    }
  }

  /// The open values inside, by the module that made them.
  [[nodiscard]] std::map<std::string, std::vector<size_t>> open_values_in(
      const Scope& scope) const {
    std::map<std::string, std::vector<size_t>> open;
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (all_.is_open(i) && modules_.is_within(i, scope.rank, scope.module))
        open[modules_.call_of(i).module].push_back(i);
    }
    return open;
  }

  /// returns  false: their effect is below what could be seen; nothing: it is not
  [[nodiscard]] std::optional<bool> are_innocent(const Outputs& outputs,
                                                 const std::vector<size_t>& made,
                                                 const std::vector<bool>& dropped,
                                                 const Replay& whole,
                                                 const ValueJudge& values) const {
    std::vector<bool> unusable = dropped;
    for (const size_t i : made) unusable[i] = false;
    bool shown = false;
    double most = 0;
    for (const Output& output : outputs) {
      const Result<Region> with = replay_.plan(output.boundary, unusable, Carry::No);
      if (!with) return std::nullopt;
      const Result<Replayed> moved = replay_.run(*with, {});
      if (!moved) return std::nullopt;
      const Effect effect = values.effect(output.right, moved, output.region.dtype);
      most = std::max(most, effect.excess);
      if (most > kHardlySeen || std::isnan(effect.relative)) return std::nullopt;
      shown = shown || std::ranges::any_of(made, [&](size_t i) {
                return drawn_shows(i, *with, output, whole, values);
              });
    }
    return shown && most <= 1;
  }

  [[nodiscard]] bool drawn_shows(size_t opening, const Region& with, const Output& output,
                                 const Replay& whole, const ValueJudge& values) const {
    const Result<Drawn> drawn = all_.drawn_value(opening, whole);
    return drawn &&
           values
               .effect(
                   output.right,
                   replay_.run(with, {.of_mine = {.value = &drawn->tensor, .boundary = opening}}),
                   output.region.dtype)
               .is_shown();
  }

  // ---- What is wrong ----------------------------------------------------------------------------

  /// A value that, put into golden's program alone, makes what the module returns: weights that it
  /// is not made with have no part in what is wrong.
  void find_what_explains(const Scope& scope, const std::vector<bool>& dropped, const Replay& whole,
                          const ValueJudge& values) {
    const auto is_of = [&](const Part& part, std::string_view module) {
      return is_inside(part.module, module);
    };
    const bool any =
        std::ranges::any_of(parts_, [&](const Part& part) { return is_of(part, scope.module); });
    if (!any) return;
    const std::vector<size_t> outputs = returned_by(scope);
    if (are_right(outputs, values, {})) return;
    const auto with_values = make_value_judge(all_.scene, replay_, FarOnes::Left);
    for (const auto& [module, made] : open_values_in(scope)) {
      if (closed_.idle_values.contains(made.front()) || are_returned(made, outputs)) continue;
      std::vector<bool> unusable = dropped;
      for (const size_t i : made) unusable[i] = false;
      if (!are_right(outputs, *with_values, unusable)) continue;
      for (const Part& part : parts_) {
        if (part.leaf != nullptr && is_of(part, scope.module) && !is_of(part, module) &&
            !are_made_with(made, part, whole))
          closed_.idle.insert(part.leaf->name);
      }
    }
  }

  /// Golden's program of the scope reads the part to make one of them: it has the part's effect.
  [[nodiscard]] static bool are_made_with(const std::vector<size_t>& made, const Part& part,
                                          const Replay& whole) {
    return std::ranges::any_of(made, [&](size_t i) {
      const Result<Region> region = whole.plan(i, {}, Carry::No);
      return !region || is_read(part, *region, whole);
    });
  }

  [[nodiscard]] static bool are_right(const std::vector<size_t>& outputs, const ValueJudge& values,
                                      const std::vector<bool>& unusable) {
    return std::ranges::all_of(
        outputs, [&](size_t output) { return values.judge(output, unusable).is_right(); });
  }

  /// One of them is what the module returns. Such a value explains whatever is wrong there.
  [[nodiscard]] bool are_returned(const std::vector<size_t>& made,
                                  const std::vector<size_t>& outputs) const {
    const std::vector<Boundary>& all = replay_.boundaries();
    return std::ranges::any_of(made, [&](size_t one) {
      return std::ranges::any_of(
          outputs, [&](size_t output) { return all[output].golden == all[one].golden; });
    });
  }

  const Openings& all_;
  const Program& golden_;
  const Program& mine_;
  const WalkOptions& options_;
  const Replay& replay_;
  const ModuleScopes& modules_;
  std::vector<Judged>& judged_;
  Closed& closed_;
  Parts parts_;                                                      // that are open
  std::map<std::string, std::optional<RewrittenWeight>> rewritten_;  // by name of mine
};

}  // namespace

void set_aside_innocent(Openings* all) { Innocence(all).run(); }

}  // namespace assay::locate
