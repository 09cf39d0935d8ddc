// SPDX-License-Identifier: Apache-2.0
// Every value is judged for itself, in parallel. Then those behind a sort in open order are judged
// without it, openings are closed, and what the model's outputs are made of is followed back.
#include "locate/replay/walk.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "base/thread_pool.hpp"
#include "locate/program/owner.hpp"
#include "locate/replay/scopes.hpp"
#include "reference/aten/selection.hpp"
#include "run/common_names.hpp"

namespace assay::locate {
namespace {

/// "model.layers.3", the outermost numbered modules, and the root.
bool is_layer(std::string_view module) {
  if (module.empty()) return true;
  const std::string pattern = run::layer_pattern(module);
  return (pattern == "*" || pattern.ends_with(".*")) && std::ranges::count(pattern, '*') == 1;
}

bool is_walked(CaptureLevel level, const ModuleCall& call, bool input) {
  switch (level) {
    case CaptureLevel::Modules:
      return !input;
    case CaptureLevel::Layers:
      return !input && is_layer(call.module);
    default:
      return true;
  }
}

class Walker {
 public:
  Walker(const Program& golden, const Program& mine, const Pairing& pairing,
         const WalkOptions& options)
      : golden_(golden),
        mine_(mine),
        pairing_(pairing),
        options_(options),
        replay_(golden, mine, find_boundaries(), options.max_memory / 4),
        gate_(options.max_memory - options.max_memory / 4),
        values_(make_value_judge(scene_, replay_)) {}

  Result<Walk> run() {
    const std::vector<Boundary>& boundaries = replay_.boundaries();
    judged_.resize(boundaries.size());
    std::mutex progress_mutex;
    size_t done = 0;
    const std::vector<size_t> order = largest_first();
    parallel_for(boundaries.size(), resolve_job_count(options_.jobs), [&](size_t place) {
      if (options_.stopped()) return;
      if (!options_.probes.empty() && !std::ranges::binary_search(options_.probes, order[place])) {
        judged_[order[place]].step.reason = "not asked";
        return;
      }
      judged_[order[place]] = values_->judge(order[place]);
      if (options_.progress) {
        const std::scoped_lock lock(progress_mutex);
        options_.progress(++done, boundaries.size());
      }
    });
    if (options_.stopped()) return fail(Errc::Interrupted, "interrupted");
    judge_products();
    if (!options_.probes.empty() || (options_.stops_at_narrow_products && are_narrow_)) {
      closed_.values.assign(judged_.size(), false);
      return collect();
    }
    judge_around_open_orders();
    closed_ = close_openings(scene_, replay_, *values_, &judged_);
    if (options_.stopped()) return fail(Errc::Interrupted, "interrupted");
    find_path();
    return collect();
  }

 private:
  /// The run under test's recorded values, in order of rank and production.
  std::vector<Boundary> find_boundaries() {
    std::vector<Boundary> boundaries;
    for (size_t call = 0; call < mine_.calls.size(); ++call) {
      for (const bool input : {true, false}) {
        if (!is_walked(options_.level, mine_.calls[call], input)) continue;
        const std::vector<Use>& uses = input ? mine_.calls[call].inputs : mine_.calls[call].outputs;
        for (size_t i = 0; i < uses.size(); ++i) add_boundary(call, i, input, uses[i], &boundaries);
      }
    }
    std::ranges::stable_sort(boundaries, [this](const Boundary& a, const Boundary& b) {
      return std::pair(mine_.calls[a.call].rank, a.time) <
             std::pair(mine_.calls[b.call].rank, b.time);
    });
    return boundaries;
  }

  /// Each value is judged for itself, so the order is free. The largest are often the dearest
  /// (logits): begun last, one would keep a thread busy long after the others.
  [[nodiscard]] std::vector<size_t> largest_first() const {
    const auto elements = [this](size_t i) {
      return elements_of(mine_.run->records[use_of(mine_, replay_.boundaries()[i]).record]);
    };
    int64_t largest = 0;
    for (size_t i = 0; i < judged_.size(); ++i) largest = std::max(largest, elements(i));
    std::vector<size_t> order(judged_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    // The others stay in order of time: neighbours share weights and pages of files.
    std::ranges::stable_partition(order, [&](size_t i) { return 2 * elements(i) > largest; });
    return order;
  }

  /// Both records hold reals, or both integers, or both truth values; true when a type is not
  /// known.
  bool is_same_kind(size_t golden, size_t mine) const {
    if (golden >= golden_.run->records.size()) return true;
    const std::optional<DType>& theirs = golden_.run->records[golden].dtype;
    const std::optional<DType>& ours = mine_.run->records[mine].dtype;
    if (!theirs || !ours || *theirs == *ours) return true;
    return is_float(*theirs) == is_float(*ours) && *theirs != DType::Bool && *ours != DType::Bool;
  }

  /// True when a shape is not known.
  bool has_same_shape(size_t golden, size_t mine) const {
    if (golden >= golden_.run->records.size()) return true;
    const InternedDims theirs = golden_.run->records[golden].shape;
    const InternedDims ours = mine_.run->records[mine].shape;
    return !theirs || !ours || *theirs == *ours || mine_.joined.contains(mine);
  }

  [[nodiscard]] bool is_padded(size_t golden, size_t mine) const {
    const InternedDims theirs = golden_.run->records[golden].shape;
    const InternedDims ours = mine_.run->records[mine].shape;
    return options_.padded && theirs && ours && has_padded_columns(*ours, *theirs);
  }

  void add_boundary(size_t call, size_t index, bool input, const Use& use,
                    std::vector<Boundary>* boundaries) {
    if (use.record >= mine_.run->records.size() || mine_.joined_parts.contains(use.record)) return;
    Boundary boundary;
    boundary.call = call;
    boundary.use = index;
    boundary.input = input;
    boundary.time = use.time;
    const size_t partner =
        call < pairing_.golden_call_of.size() ? pairing_.golden_call_of[call] : kNone;
    if (partner < golden_.calls.size() && mine_.run->records[use.record].bytes) {
      const ModuleCall& theirs = golden_.calls[partner];
      const std::vector<Use>& uses = input ? theirs.inputs : theirs.outputs;
      const auto found = std::ranges::find(uses, use.slot, &Use::slot);
      // A mask of truth values and one that is added to scores are not the same value.
      if (found != uses.end() && is_same_kind(found->record, use.record)) {
        const bool same_shape =
            has_same_shape(found->record, use.record) || is_padded(found->record, use.record);
        boundary.last_rows = !same_shape && !input && mine_.calls[call].module.empty() &&
                             has_last_rows(*mine_.run->records[use.record].shape,
                                           *golden_.run->records[found->record].shape);
        (same_shape || boundary.last_rows ? boundary.golden : boundary.reshaped) = found->value;
        boundary.golden_record = found->record;
      }
    }
    boundaries->push_back(boundary);
  }

  /// Values behind the order of equal values in a sort may be in another order than golden's, and
  /// so may what is made of them, until the order is undone. What looks wrong on their account is
  /// judged without them.
  void judge_around_open_orders() {
    if (std::ranges::none_of(judged_, &Judged::order_open)) return;
    judge_by_whole_calls();
    std::vector<bool> unusable(judged_.size(), false);
    for (size_t i = 0; i < judged_.size(); ++i) values_->add_carried(i, &judged_[i]);
    for (size_t i = 0; i < judged_.size(); ++i) {
      unusable[i] = judged_[i].order_open;
      const bool built_on =
          std::ranges::any_of(judged_[i].recorded, [&](size_t other) { return unusable[other]; });
      if (!built_on) continue;
      if (judged_[i].finding || judged_[i].order_open) {
        judged_[i] = values_->judge(i, unusable);
        unusable[i] = judged_[i].order_open;
      } else {
        unusable[i] = true;
      }
    }
  }

  /// What is recorded inside of a module may be in an open order that its result is not: experts
  /// sort their tokens, and put them back. On the module's inputs alone the result is judged.
  void judge_by_whole_calls() {
    const std::vector<Boundary>& all = replay_.boundaries();  // by rank, then time
    for (size_t i = 0; i < judged_.size(); ++i) {
      if (!judged_[i].order_open || all[i].input) continue;
      const ModuleCall& call = mine_.calls[all[i].call];
      std::vector<bool> unusable(judged_.size(), false);
      bool any = false;
      for (size_t k = i; k-- > 0;) {
        const ModuleCall& other = mine_.calls[all[k].call];
        const bool earlier = other.module == call.module && all[k].call != all[i].call;
        if (other.rank != call.rank || other.step != call.step || earlier) break;
        unusable[k] = other.module != call.module && is_inside(other.module, call.module);
        any = any || unusable[k];
      }
      if (!any) continue;
      Judged whole = values_->judge(i, unusable);
      if (!whole.order_open) judged_[i] = std::move(whole);
    }
  }

  /// Errors behind products: how many are beyond the limit, and whether they are like those that
  /// the type of the operands makes.
  void judge_products() {
    constexpr size_t kFewest = 3;
    constexpr double kLeastRatio = 0.5;     // less is a finer type than the one that is tried
    constexpr double kLeastLikeness = 0.5;  // errors of other origin have none
    std::vector<double> ratios, likeness;
    for (const Judged& judged : judged_) {
      if (!judged.step.by_product || !judged.step.reason.empty()) continue;
      ratios.push_back(judged.step.r);
      if (!std::isnan(judged.step.likeness)) likeness.push_back(judged.step.likeness);
    }
    if (ratios.size() < kFewest) return;
    const auto beyond = static_cast<size_t>(
        std::ranges::count_if(ratios, [this](double r) { return r > values_->limit(); }));
    const auto middle = [](std::vector<double>& all) {
      std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
      return all[all.size() / 2];
    };
    are_narrow_ = 2 * beyond >= ratios.size();
    are_explained_ = 4 * beyond <= ratios.size() && middle(ratios) >= kLeastRatio &&
                     !likeness.empty() && middle(likeness) >= kLeastLikeness;
  }

  /// Another number of features, as of a router that chooses fewer: how many rows there are may
  /// follow from the data, and how many keys the probabilities of attention have from the cache.
  [[nodiscard]] bool has_other_features(const Boundary& boundary) const {
    const Dims& mine = *mine_.run->records[use_of(mine_, boundary).record].shape;
    const Dims& golden = *golden_.run->records[boundary.golden_record].shape;
    constexpr size_t kProbabilities = 4;  // [batch, heads, queries, keys]
    return !mine.empty() && mine.size() == golden.size() && mine.size() < kProbabilities &&
           mine[mine.size() - 1] != golden[golden.size() - 1];
  }

  /// Results of another shape of calls that were given values of golden's shapes; of calls whose
  /// inputs were not captured those with another number of features.
  [[nodiscard]] std::vector<std::string> other_shapes() const {
    std::map<size_t, bool> same_inputs;  // by call, of those with inputs
    for (const Boundary& boundary : replay_.boundaries()) {
      if (!boundary.input || boundary.golden_record == kNone) continue;
      const auto [found, fresh] = same_inputs.try_emplace(boundary.call, true);
      found->second = found->second && boundary.reshaped == kNoValue;
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < replay_.boundaries().size(); ++i) {
      const Boundary& boundary = replay_.boundaries()[i];
      if (boundary.input || boundary.reshaped == kNoValue) continue;
      const auto inputs = same_inputs.find(boundary.call);
      if (inputs == same_inputs.end() ? has_other_features(boundary) : inputs->second)
        texts.push_back(values_->shape_difference(i));
    }
    return texts;
  }

  /// Operators that make a floating value; those that return what they were given make nothing.
  [[nodiscard]] bool produces_floats(size_t op) const {
    const Operator& one = golden_.operators[op];
    if (reference::aten::class_of(one.name) == reference::aten::OperatorClass::Allocation)
      return false;
    for (size_t i = 0; i < one.outputs.size(); ++i) {
      const Use& output = one.outputs[i];
      if (float_type(golden_, output) &&
          (output.value == kNoValue || replay_.values().is_made(output.value, {op, i})))
        return true;
    }
    return false;
  }

  /// Calls take(Carried) for values of earlier steps and those behind them, each once.
  template <typename Take>
  void for_each_carried(std::vector<size_t> numbers, std::set<size_t>* seen,
                        const Take& take) const {
    while (!numbers.empty()) {
      const size_t number = numbers.back();
      numbers.pop_back();
      if (!seen->insert(number).second) continue;
      const Carried& earlier = replay_.carried(number);
      take(earlier);
      numbers.insert(numbers.end(), earlier.carried.begin(), earlier.carried.end());
    }
  }

  /// Values that the outputs of golden's model are made of, by way of what each was judged on.
  void find_path() {
    std::vector<size_t> open;
    for (const auto& [golden, output] : outputs_of_model()) {
      const size_t found = boundary_of_output(output);
      if (found == kNone) {
        missing_outputs_.push_back(output_text(golden_.calls[golden], output));
      } else {
        open.push_back(found);
      }
    }
    std::set<size_t> carried;
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      if (judged_[i].step.on_path) continue;
      judged_[i].step.on_path = true;
      open.insert(open.end(), judged_[i].recorded.begin(), judged_[i].recorded.end());
      for_each_carried(judged_[i].carried, &carried, [&](const Carried& earlier) {
        open.insert(open.end(), earlier.recorded.begin(), earlier.recorded.end());
      });
    }
  }

  /// The run under test's value for a value that golden's model returns, or for the one that it
  /// only views or casts.
  [[nodiscard]] size_t boundary_of_output(const Use& output) const {
    for (size_t i = replay_.boundaries().size(); i-- > 0;) {
      const Boundary& one = replay_.boundaries()[i];
      if (!one.input && one.golden_record == output.record) return i;
    }
    size_t behind = golden_.operators.size();
    for (ValueId value = output.value; value != kNoValue;) {
      for (size_t i = replay_.boundaries().size(); i-- > 0;) {
        if (replay_.boundaries()[i].golden == value) return i;
      }
      const size_t maker = replay_.values().origin(value, behind).op;
      if (maker == kNone) break;
      const Operator& one = golden_.operators[maker];
      if (one.inputs.empty() || !(is_transparent(one.name) || reference::aten::is_view(one.name)))
        break;
      value = one.inputs.front().value;
      behind = maker;
    }
    return kNone;
  }

  /// Reals that golden's model returned in steps that mine has, with the call.
  [[nodiscard]] std::vector<std::pair<size_t, Use>> outputs_of_model() const {
    const std::set<std::pair<int, int64_t>> captured = captured_steps(mine_);
    std::vector<std::pair<size_t, Use>> outputs;
    for (size_t i = 0; i < golden_.calls.size(); ++i) {
      const ModuleCall& call = golden_.calls[i];
      if (!call.module.empty() || !captured.contains({call.rank, call.step})) continue;
      for (const Use& use : call.outputs)
        if (float_type(golden_, use)) outputs.emplace_back(i, use);
    }
    return outputs;
  }

  static std::string output_text(const ModuleCall& call, const Use& use) {
    return (use.slot.empty() ? std::string("its result") : use.slot.str()) + ", step " +
           std::to_string(call.step);
  }

  /// Arguments of mine that explain the first wrong value which golden makes with its own.
  [[nodiscard]] std::set<size_t> telling_arguments() const {
    constexpr double kExplained = 0.5;  // of the value's error
    std::set<size_t> telling;
    for (const OtherArgument& one : options_.other_arguments) {
      Substitutes others;
      others.arguments.emplace(one.golden, one.mine);
      const auto is_wrong_behind = [&](size_t i) {
        const std::vector<size_t>& operators = judged_[i].operators;
        return judged_[i].finding && !closed_.values[i] &&
               std::ranges::find(operators, one.golden) != operators.end();
      };
      size_t i = 0;
      while (i < judged_.size() && !is_wrong_behind(i)) ++i;
      if (i == judged_.size() || options_.stopped()) continue;
      const Judged with = make_value_judge(scene_, replay_, FarOnes::Left, others)->judge(i);
      if (with.step.reason.empty() && with.step.err_own <= kExplained * judged_[i].step.err_own)
        telling.insert(one.mine);
    }
    return telling;
  }

  void keep_reference(size_t i, Walk* walk) const {
    constexpr size_t kExplained = 4;  // a screen shows as many
    const Finding& finding = *judged_[i].finding;
    if (finding.kind != FindingKind::Gap || walk->references.size() >= kExplained) return;
    if (Result<Tensor> made = values_->reference(i))
      walk->references.emplace(finding.mine_record, *std::move(made));
  }

  Walk collect() {
    Walk walk;
    walk.limit = values_->limit();
    walk.are_narrow = are_narrow_;
    walk.are_explained = are_explained_;
    walk.missing_outputs = std::move(missing_outputs_);
    walk.other_shapes = other_shapes();
    walk.closed_leaves = std::move(closed_.leaves);
    walk.closed_arguments = std::move(closed_.arguments);
    walk.closed_by = std::move(closed_.modules);
    walk.idle_leaves = std::move(closed_.idle);
    walk.telling_arguments = telling_arguments();
    for (const OtherLeaf& leaf : options_.other_leaves) {
      const auto expected = closed_.expected.find(leaf.name);
      if (expected != closed_.expected.end())
        walk.references.emplace(leaf.mine_record, std::move(expected->second));
    }
    std::set<size_t> covered;
    std::set<size_t> carried;
    for (size_t i = 0; i < judged_.size(); ++i) {
      Judged& judged = judged_[i];
      const bool closed = closed_.values[i];
      if (closed) judged.step.suspicious = false;
      ++walk.judgeable;
      if (judged.step.reason.empty()) {
        ++walk.judged;
        covered.insert(judged.operators.begin(), judged.operators.end());
        for_each_carried(judged.carried, &carried, [&](const Carried& earlier) {
          covered.insert(earlier.operators.begin(), earlier.operators.end());
        });
      } else {
        ++walk.unjudged[judged.step.reason];
      }
      if (judged.finding) judged.finding->idle = closed_.idle_values.contains(i);
      if (judged.finding && !closed) keep_reference(i, &walk);
      if (judged.finding)
        (closed ? walk.closed : walk.findings).push_back(std::move(*judged.finding));
      walk.steps.push_back(std::move(judged.step));
    }
    walk.covered.assign(golden_.operators.size(), false);
    for (const size_t op : covered) walk.covered[op] = true;
    // Steps that mine did not capture are nobody's business here.
    const std::set<std::pair<int, int64_t>> captured = captured_steps(mine_);
    for (size_t op = 0; op < golden_.operators.size(); ++op) {
      const Operator& one = golden_.operators[op];
      if (!captured.contains({one.rank, one.step}) || !produces_floats(op)) continue;
      ++walk.operators;
      if (covered.contains(op)) ++walk.operators_covered;
      const bool paired = op < pairing_.mine_of.size() && pairing_.mine_of[op] != kNone;
      if (paired || is_transparent(one.name) || reference::aten::is_view(one.name)) continue;
      ++(covered.contains(op) ? walk.seen_from_outside : walk.unseen);
    }
    return walk;
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
  const WalkOptions& options_;
  Replay replay_;
  MemoryGate gate_;
  const Scene scene_{golden_, mine_, pairing_, options_, &gate_};
  std::unique_ptr<const ValueJudge> values_;
  std::vector<Judged> judged_;
  std::vector<std::string> missing_outputs_;
  Closed closed_;
  bool are_narrow_ = false, are_explained_ = false;
};

}  // namespace

bool Walk::is_whole_path_judged() const {
  if (!missing_outputs.empty()) return false;
  bool any = false;
  for (const WalkStep& step : steps) {
    if (!step.on_path) continue;
    if (!step.reason.empty()) return false;
    any = true;
  }
  return any;
}

Result<Walk> walk(const Program& golden, const Program& mine, const Pairing& pairing,
                  const WalkOptions& options) {
  if (golden.operators.empty())
    return fail(Errc::Invalid, "golden was not captured at operator level: it is no program");
  return Walker(golden, mine, pairing, options).run();
}

}  // namespace assay::locate
