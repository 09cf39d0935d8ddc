// SPDX-License-Identifier: Apache-2.0
// Openings (values, weights and buffers that are not golden's) and the modules that close them.
#include "locate/replay/scopes.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <tuple>

#include "base/thread_pool.hpp"
#include "locate/program/owner.hpp"
#include "locate/replay/innocent_openings.hpp"
#include "measure/metrics.hpp"
#include "reference/wide.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

class Closer {
 public:
  explicit Closer(Openings* all)
      : all_(*all),
        mine_(all->scene.mine),
        options_(all->scene.options),
        replay_(all->replay),
        at_hand_(all->values),
        modules_(all->modules),
        judged_(all->judged),
        closed_(all->closed),
        dropped_(judged_.size(), false) {
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (judged_[i].finding) open_.insert(i);
    }
  }

  void run() {
    if (open_.size() > 1) close_between();
    // Golden's program is replayed with the weights of an engine's file: what that gives cannot
    // clear them, nor is it golden's function of a module.
    if (mine_.engine != nullptr) return;
    if (!open_.empty()) {
      find_scopes();
      for (auto depth = scopes_.rbegin(); depth != scopes_.rend(); ++depth) close_at(depth->second);
      judge_readers();
    }
    close_parts();
  }

 private:
  /// Of every opening the calls around it whose outputs can be judged, by depth.
  void find_scopes() {
    for (const size_t i : open_) {
      const Boundary& boundary = replay_.boundaries()[i];
      const ModuleCall& own = mine_.calls[boundary.call];
      std::string module = own.module;
      if (!boundary.input && !own.leaf && !modules_.outputs_of(boundary.call).empty())
        scopes_[ModuleScopes::depth_of(module)].insert(boundary.call);
      while (!module.empty()) {
        module = module_around(module);
        const size_t call = modules_.call_around(own.rank, module, boundary.time);
        if (call != kNone && !modules_.outputs_of(call).empty())
          scopes_[ModuleScopes::depth_of(module)].insert(call);
      }
    }
  }

  /// Where the modules around were not captured, what lies between two values is the scope: judged
  /// without the open values that it was judged on, a value is right. Both are closed, but for those
  /// that something right was made of, and those that would not have been seen in it.
  void close_between() {
    const std::set<size_t> read = values_behind_right_ones();
    const std::set<size_t> wrong = open_;
    std::set<size_t> taken = wrong;  // and what was handed on of them
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (judged_[i].handed_over && taken.contains(judged_[i].recorded.front())) taken.insert(i);
    }
    for (const size_t i : wrong) {
      if (options_.stopped()) return;
      const std::set<size_t> passed = judge_without(i, taken);
      if (passed.empty()) continue;
      closed_.values[i] = true;
      open_.erase(i);
      for (const size_t value : passed) {
        if (read.contains(value) || !open_.contains(value) || !is_seen_in(i, value, passed))
          continue;
        closed_.values[value] = true;
        open_.erase(value);
      }
    }
  }

  /// Judged on this one of the passed values alone, i is wrong.
  [[nodiscard]] bool is_seen_in(size_t i, size_t value, const std::set<size_t>& passed) const {
    std::vector<bool> unusable(judged_.size(), false);
    for (const size_t other : passed) unusable[other] = other != value;
    return at_hand_.judge(i, unusable).finding.has_value();
  }

  /// What golden's operators made something right of, directly or handed over first.
  [[nodiscard]] std::set<size_t> values_behind_right_ones() const {
    std::set<size_t> values;
    for (size_t i = judged_.size(); i-- > 0;) {
      const Judged& judged = judged_[i];
      if (judged.is_right() && (!judged.handed_over || values.contains(i)))
        values.insert(judged.recorded.begin(), judged.recorded.end());
    }
    return values;
  }

  /// returns  the wrong values that i is right without; empty: it is wrong all the same, or cannot
  ///          be judged without them
  std::set<size_t> judge_without(size_t i, const std::set<size_t>& wrong) {
    constexpr size_t kMostRounds = 4;  // each replays golden's program from further back
    Judged judged = judged_[i];
    std::set<size_t> passed;
    std::vector<bool> unusable(judged_.size(), false);
    for (size_t round = 0; round < kMostRounds; ++round) {
      at_hand_.add_carried(i, &judged);
      const size_t known = passed.size();
      for (size_t value : judged.recorded) {
        for (; wrong.contains(value) && !unusable[value]; value = judged_[value].recorded.front()) {
          passed.insert(value);
          unusable[value] = true;
          if (!judged_[value].handed_over) break;
        }
      }
      if (passed.size() == known) break;
      judged = at_hand_.judge(i, unusable);
      if (!judged.step.reason.empty()) break;
      if (judged.finding) continue;
      judged.finding = judged_[i].finding;
      judged_[i] = std::move(judged);
      return passed;
    }
    return {};
  }

  void close_at(const std::set<size_t>& scopes) {
    std::map<size_t, std::set<size_t>> inside;  // openings by scope
    std::vector<bool> dropped = dropped_;
    std::set<std::pair<int, std::string>> modules;
    for (const size_t call : scopes) {
      const ModuleCall& scope = mine_.calls[call];
      for (const size_t i : open_) {
        const Boundary& one = replay_.boundaries()[i];
        const bool own = one.call == call && !one.input;
        const bool within = modules_.is_within(i, scope.rank, scope.module) &&
                            modules_.call_around(scope.rank, scope.module, one.time) == call;
        if ((own || within) && may_be_undone(i, call)) inside[call].insert(i);
      }
      if (inside.contains(call) && modules.emplace(scope.rank, scope.module).second)
        modules_.drop_inside(scope.rank, scope.module, &dropped);
    }
    if (inside.empty()) return;
    const Replay replay = all_.without(dropped);
    const auto values = make_value_judge(all_.scene, replay, FarOnes::Left);
    std::map<size_t, Judged> outputs = judge_outputs(inside, *values);
    for (const auto& [call, openings] : inside) {
      const bool right = std::ranges::all_of(
          modules_.outputs_of(call), [&](size_t output) { return outputs.at(output).is_right(); });
      if (right)
        close(call, openings, dropped, replay, *values, &outputs);
      else
        for (const size_t i : openings) wrong_in_[i] = call;
    }
  }

  /// What moves the output of a module around it can be undone further out by another opening there.
  [[nodiscard]] bool may_be_undone(size_t opening, size_t call) const {
    const auto wrong = wrong_in_.find(opening);
    if (wrong == wrong_in_.end()) return true;
    const ModuleCall& inner = mine_.calls[wrong->second];
    const ModuleCall& scope = mine_.calls[call];
    return std::ranges::any_of(open_, [&](size_t other) {
      return !is_inside(modules_.call_of(other).module, inner.module) &&
             (replay_.boundaries()[other].call == call ||
              modules_.is_within(other, scope.rank, scope.module));
    });
  }

  [[nodiscard]] std::map<size_t, Judged> judge_outputs(
      const std::map<size_t, std::set<size_t>>& scopes, const ValueJudge& values) const {
    std::map<size_t, Judged> outputs;
    std::vector<size_t> order;
    for (const auto& [call, openings] : scopes) {
      for (const size_t output : modules_.outputs_of(call)) {
        outputs[output];
        order.push_back(output);
      }
    }
    parallel_for(order.size(), resolve_job_count(options_.jobs), [&](size_t k) {
      if (options_.stopped()) return;
      outputs.at(order[k]) = values.judge(order[k]);
    });
    return outputs;
  }

  void close(size_t call, const std::set<size_t>& openings, const std::vector<bool>& dropped,
             const Replay& replay, const ValueJudge& values, std::map<size_t, Judged>* outputs) {
    const ModuleCall& scope = mine_.calls[call];
    size_t count = 0;
    for (const size_t i : openings) {
      if (options_.stopped() ||
          !(is_shown(i, call, dropped, replay, values) || is_made_of_inputs(i, replay, values)))
        continue;
      closed_.values[i] = true;
      open_.erase(i);
      ++count;
    }
    if (count == 0) return;
    closed_.modules[scope.module] += count;
    modules_.drop_inside(scope.rank, scope.module, &dropped_);
    for (const size_t output : modules_.outputs_of(call))
      judged_[output] = std::move(outputs->at(output));
  }

  /// It is what golden's program makes of the module's inputs, and far from what that makes of
  /// mine's values in between: these are others, and this one has no effect to fear.
  bool is_made_of_inputs(size_t opening, const Replay& replay, const ValueJudge& values) const {
    const Result<Region> between = replay_.plan(opening), whole = replay.plan(opening);
    if (!between || !whole) return false;
    const Result<Replayed> right = replay.run(*whole, {});
    return right && values.effect(*right, replay_.run(*between, {}), whole->dtype).is_shown() &&
           values.judge(opening).is_right();
  }

  /// Asked once of a value in all steps, and of the same place in other layers only where the value
  /// is nearer to golden's than one that would have shown.
  bool is_shown(size_t opening, size_t call, const std::vector<bool>& dropped, const Replay& replay,
                const ValueJudge& values) {
    const Boundary& boundary = replay_.boundaries()[opening];
    const ModuleCall& own = mine_.calls[boundary.call];
    const std::string& scope = mine_.calls[call].module;
    const std::string& slot = use_of(mine_, boundary).slot;
    const auto [found, fresh] =
        shown_.try_emplace(std::tuple(scope, own.module.str(), slot, boundary.input), false);
    if (!fresh) return found->second;
    const auto [least, first] = shown_from_.try_emplace(
        std::tuple(run::layer_pattern(scope), run::layer_pattern(own.module), slot, boundary.input),
        INFINITY);
    const double distance = judged_[opening].step.r;
    found->second = distance >= least->second ||
                    would_have_shown(opening, modules_.outputs_of(call), dropped, replay, values);
    if (found->second) least->second = std::min(least->second, distance);
    return found->second;
  }

  [[nodiscard]] bool would_have_shown(size_t opening, const std::vector<size_t>& outputs,
                                      const std::vector<bool>& dropped, const Replay& replay,
                                      const ValueJudge& values) const {
    std::vector<bool> unusable = dropped;
    unusable[opening] = false;
    std::vector<EffectOf> effects;
    for (const size_t output : outputs) {
      const Result<Region> whole = replay.plan(output), with = replay_.plan(output, unusable);
      const Result<Replayed> right =
          whole && with ? replay.run(*whole, {}) : fail(Errc::NotFound, "no program");
      if (!right) continue;
      effects.emplace_back([&, right = *right, with = *with, type = whole->dtype](const How& how) {
        return values.effect(right, replay_.run(with, how), type);
      });
    }
    return locate::would_have_shown(
        effects, {}, [&] { return all_.drawn_value(opening, replay); },
        [&](const Tensor& drawn) {
          return How{.of_mine = {.value = &drawn, .boundary = opening}};
        });
  }

  /// What was made of values inside of closed modules in other ways than by their outputs.
  void judge_readers() {
    if (open_.empty() || std::ranges::none_of(dropped_, std::identity())) return;
    const Replay replay = all_.without(dropped_);
    const auto values = make_value_judge(all_.scene, replay);
    for (const size_t i : std::set(open_)) {
      if (options_.stopped()) return;
      Judged& judged = judged_[i];
      values->add_carried(i, &judged);
      if (std::ranges::none_of(judged.recorded, [&](size_t one) { return dropped_[one]; }))
        continue;
      Judged again = values->judge(i);
      if (!again.is_right()) continue;
      again.finding = std::move(judged.finding);
      judged = std::move(again);
      closed_.values[i] = true;
      ++closed_.modules[modules_.call_of(i).module];
      open_.erase(i);
    }
  }

  /// Parameters, buffers and arguments that are others although everything that golden makes of
  /// them is right: mine computes with them in another way, or not with them.
  void close_parts() {
    if (options_.other_leaves.empty() && options_.other_arguments.empty()) return;
    if (std::ranges::none_of(dropped_, std::identity())) return close_parts(replay_, at_hand_);
    const Replay around = all_.without(dropped_);
    close_parts(around, *make_value_judge(all_.scene, around));
  }

  /// around  without what is inside of closed modules
  void close_parts(const Replay& around, const ValueJudge& values) {
    around_ = &values;
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (replay_.boundaries()[i].golden == kNoValue) continue;
      if (Result<Region> region = replay_.plan(i)) regions_.emplace(i, *std::move(region));
      if (&around == &replay_ || dropped_[i]) continue;
      if (Result<Region> region = around.plan(i)) regions_around_.emplace(i, *std::move(region));
    }
    for (const OtherLeaf& leaf : options_.other_leaves) {
      if (!options_.stopped() && is_closed(leaf)) closed_.leaves.insert(leaf.name);
    }
    for (const OtherArgument& one : options_.other_arguments) {
      if (!options_.stopped() && is_closed(one)) closed_.arguments.insert(one.mine);
    }
  }

  [[nodiscard]] bool is_closed(const OtherLeaf& leaf) const {
    Substitutes others;
    for (const std::string& name : leaf.golden) others.leaves.emplace(name, leaf.mine_record);
    bool overwritten = true;
    const bool closed = is_closed_where(
        [&](const Region& region) { return replay_.reads(region, leaf.golden); },
        [&](const Region& region) {
          overwritten = overwritten && replay_.overwrites(region, leaf.golden);
          return leaf.other_shape ? Effect{.excess = kShown} : around_->effect(region, others);
        },
        false);
    return closed || (overwritten && is_right_where([&](const Region& region) {
                        return replay_.reads(region, leaf.golden);
                      }));
  }

  [[nodiscard]] bool is_closed(const OtherArgument& one) const {
    Substitutes others;
    others.arguments.emplace(one.golden, one.mine);
    const auto runs = [&](const Region& region) {
      return std::ranges::find(region.operators, one.golden, &Region::Call::op) !=
             region.operators.end();
    };
    return is_closed_where(
        runs, [&](const Region& region) { return around_->effect(region, others); }, true);
  }

  /// Those of around_.
  [[nodiscard]] const std::map<size_t, Region>& regions_around() const {
    return around_ == &at_hand_ ? regions_ : regions_around_;
  }

  /// All values around closed modules whose regions hold it are right or closed, and there are
  /// some.
  template <typename Holds>
  [[nodiscard]] bool is_right_where(const Holds& holds) const {
    bool any = false;
    for (const auto& [i, region] : regions_around()) {
      if (!holds(region)) continue;
      any = true;
      if (!closed_.values[i] && !judged_[i].is_right()) return false;
    }
    return any;
  }

  /// And a value that was made with it was closed, or mine's part would have shown. It `may_be_idle`
  /// when it may have no effect at all: a weight has none here that no token chose.
  template <typename Holds, typename EffectOf>
  [[nodiscard]] bool is_closed_where(const Holds& holds, const EffectOf& effect_of,
                                     bool may_be_idle) const {
    if (!is_right_where(holds)) return false;
    for (const auto& [i, region] : regions_) {
      if (closed_.values[i] && holds(region)) return true;
    }
    bool idle = may_be_idle;
    for (const auto& [i, region] : regions_around()) {
      if (!holds(region)) continue;
      const Effect effect = effect_of(region);
      if (effect.is_shown()) return true;
      idle = idle && effect.is_none();
    }
    return idle;
  }

  const Openings& all_;
  const Program& mine_;
  const WalkOptions& options_;
  const Replay& replay_;
  const ValueJudge& at_hand_;
  const ModuleScopes& modules_;
  std::vector<Judged>& judged_;
  Closed& closed_;
  std::set<size_t> open_;                      // boundaries
  std::map<size_t, size_t> wrong_in_;          // of them, the outermost call whose output is wrong
  std::vector<bool> dropped_;                  // boundaries inside of modules that closed something
  std::map<size_t, std::set<size_t>> scopes_;  // calls, by depth
  using Places = std::tuple<std::string, std::string, std::string, bool>;
  std::map<Places, bool> shown_;             // by scope, module, slot, whether it is an input
  std::map<Places, double> shown_from_;      // by patterns of modules: the least distance that is
  std::map<size_t, Region> regions_;         // by boundary, of replay_
  std::map<size_t, Region> regions_around_;  // of a replay without what is inside of closed modules
  const ValueJudge* around_ = nullptr;       // of that replay
};

}  // namespace

Replay Openings::without(const std::vector<bool>& dropped) const {
  std::set<std::string> rewritten;
  for (const OtherLeaf& leaf : scene.options.other_leaves) {
    if (!leaf.buffer) rewritten.insert(leaf.golden.begin(), leaf.golden.end());
  }
  return {scene.golden, scene.mine,          replay.boundaries(), scene.options.max_memory / 4,
          dropped,      std::move(rewritten)};
}

Result<Drawn> Openings::drawn_value(size_t boundary, const Replay& around) const {
  ASSAY_TRY(const Tensor own,
            load_use(scene.mine, use_of(scene.mine, replay.boundaries()[boundary])));
  ASSAY_TRY(const Region region, around.plan(boundary));
  ASSAY_TRY(const Replayed right, around.run(region, {}));
  ASSAY_TRY(Drawn drawn, with_signs_drawn(right.reference, own));
  const double floor = measure::relative_l2(right.reference.view, right.simulated.view);
  drawn.rounding = values.limit() * floor / measure::relative_l2(right.reference.view, own.view);
  return drawn;
}

Result<Drawn> with_signs_drawn(const Tensor& right, const Tensor& other) {
  ASSAY_TRY(const reference::Wide wide, reference::widen(other.view));
  ASSAY_TRY(reference::Wide made, reference::widen(right.view));
  if (wide.size() != made.size()) return fail(Errc::Invalid, "another shape");
  std::minstd_rand signs(1);
  for (size_t i = 0; i < made.values.size(); ++i) {
    const double difference = wide.values[i] - made.values[i];
    made.values[i] += signs() % 2 == 0 ? difference : -difference;
  }
  return Drawn{reference::to_tensor(std::move(made))};
}

bool would_have_shown(const std::vector<EffectOf>& outputs, const How& alone,
                      const std::function<Result<Drawn>()>& draw,
                      const std::function<How(const Tensor&)>& with) {
  std::vector<double> relative;
  for (const EffectOf& effect : outputs) {
    const Effect mine = effect(alone);
    if (mine.is_shown()) return true;
    relative.push_back(mine.relative);
  }
  const Result<Drawn> drawn = draw();
  if (!drawn) return false;
  const How how = with(drawn->tensor);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Effect effect = outputs[i](how);
    if (effect.is_shown() || (drawn->rounding * kShown < 1 && !effect.is_none() &&
                              relative[i] < drawn->rounding * effect.relative))
      return true;
  }
  return false;
}

Closed close_openings(const Scene& scene, const Replay& replay, const ValueJudge& values,
                      std::vector<Judged>* judged) {
  const ModuleScopes modules(scene.mine, replay);
  Openings all{scene, replay, values, modules, *judged};
  all.closed.values.assign(judged->size(), false);
  Closer(&all).run();
  // Golden's program is replayed with the weights of an engine's file.
  if (scene.mine.engine == nullptr) set_aside_innocent(&all);
  return std::move(all.closed);
}

}  // namespace assay::locate
