// SPDX-License-Identifier: Apache-2.0
// What of golden's program has to run for one value.
#include <algorithm>
#include <array>

#include "locate/noise/kernel_rounding.hpp"
#include "locate/replay/replay_carried.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

using reference::aten::OperatorClass;

/// Tensors without producer of so many axes are caches, not constants, when the capture began after
/// the first step.
constexpr size_t kCacheAxes = 3;

/// Operators whose results have shapes, or whose callers take branches, that depend on values.
bool is_data_dependent(std::string_view name) {
  constexpr std::array<std::string_view, 9> kNames = {
      "nonzero",  "masked_select", "unique",        "unique2",           "unique_dim",
      "bincount", "argwhere",      "nonzero_numpy", "unique_consecutive"};
  std::string_view base = base_name(name);
  while (base.starts_with('_')) base.remove_prefix(1);
  return std::ranges::find(kNames, base) != kNames.end() || name == "aten.where.default" ||
         name == "aten.repeat_interleave.Tensor";
}

/// Operators that look at the shape and type of their operands and never at the values.
bool needs_shapes_only(std::string_view name) {
  const std::string_view base = base_name(name);
  return reference::aten::class_of(name) == OperatorClass::Allocation || base.ends_with("_like") ||
         base.starts_with("new_");
}

}  // namespace

/// The operators of a rank that ran in front of a record, as the index of the first one behind it.
size_t Replay::operators_before(size_t record) const {
  if (record >= golden_.run->records.size()) return golden_.operators.size();
  const run::TensorRecord& read = golden_.run->records[record];
  const auto found = of_rank_.find(read.rank);
  if (found == of_rank_.end()) return golden_.operators.size();
  const auto behind = std::ranges::lower_bound(
      found->second, read.order, {}, [this](size_t op) { return golden_.operators[op].time; });
  return behind == found->second.end() ? golden_.operators.size() : *behind;
}

size_t Replay::behind_views(const Region& region, size_t at) const {
  while (at != kNone && region.values[at].source == Region::Value::Source::Produced) {
    const Region::Call& call = region.operators[region.values[at].op];
    const std::string_view name = golden_.operators[call.op].name;
    const bool takes_some = name == "aten.index.Tensor" || name == "aten.index_select.default";
    const bool looks = takes_some || is_transparent(name) || reference::aten::is_view(name);
    if (!looks || call.operands.empty()) break;
    at = call.operands.front();
  }
  return at;
}

std::string_view Replay::leaf_behind(const Region& region, size_t at) const {
  const size_t base = behind_views(region, at);
  if (base == kNone || region.values[base].source != Region::Value::Source::Leaf) return {};
  return state_.leaf(region.values[base].value);
}

/// Walks back from a value of golden to values of mine, leaves and values of earlier steps.
class Replay::Planner {
 public:
  Planner(const Replay& replay, const Reader& reader) : replay_(replay), reader_(reader) {}

  /// value   what is asked for, as the operator `end` reads it
  /// record  golden's record of it
  Status walk(ValueId value, size_t record, size_t end) {
    intern(value, record, end);
    while (!open_values_.empty()) {
      const auto [at, reader] = open_values_.back();
      open_values_.pop_back();
      ASSAY_TRY_STATUS(find_source(at, reader));
    }
    order_operators();
    return {};
  }

  [[nodiscard]] const std::vector<size_t>& carried() const { return region_.carried; }
  [[nodiscard]] bool data_dependent() const { return region_.data_dependent; }

  void narrow_to(const std::optional<DType>& dtype) {
    if (dtype && is_float(*dtype) && (!narrowest_ || is_narrower(*dtype, *narrowest_)))
      narrowest_ = dtype;
  }

  /// Precondition: what is carried has been described.
  Result<Region> finish() {
    for (Region::Value& value : region_.values) {
      if (value.source != Source::Carried) continue;
      const Carried& known = replay_.carried(value.carried);
      value.floating = known.floating;
      value.learned = true;
      region_.from_before = region_.from_before || known.from_before;
      narrow_to(known.narrowest);
    }
    if (has_attention()) {
      if (!replay_.mine_.unknown_blocks.empty())
        return fail(Errc::Unsupported, "mine holds keys and values in " +
                                           replay_.mine_.unknown_blocks +
                                           ", which golden's program does not round to");
      narrow_to(replay_.mine_.attention_type);
    }
    if (has_product()) narrow_to(replay_.autocast_);
    narrow_to_weights();
    ASSAY_TRY_STATUS(spread_floating());
    if (narrowest_) region_.dtype = *narrowest_;
    region_.bytes = peak_bytes();
    return std::move(region_);
  }
  /// What others have to know of the value. Precondition: what is carried has been described.
  Result<Carried> describe() {
    Carried about;
    about.data_dependent = region_.data_dependent;
    for (const size_t number : region_.carried) {
      if (const std::optional<Error> problem = replay_.carrier_->problem(number))
        return fail(*problem);
      const Carried& earlier = replay_.carried(number);
      about.data_dependent = about.data_dependent || earlier.data_dependent;
      about.modules.insert(about.modules.end(), earlier.modules.begin(), earlier.modules.end());
    }
    ASSAY_TRY(Region region, finish());
    about.narrowest = narrowest_;
    about.floating = region.values[0].floating;
    about.from_before = region.from_before;
    about.carried = std::move(region.carried);
    for (const Region::Value& one : region.values) {
      if (one.source == Source::Recorded) about.recorded.push_back(one.boundary);
    }
    for (const Region::Call& call : region.operators) {
      about.operators.push_back(call.op);
      if (call.floating) about.modules.push_back(replay_.golden_.operators[call.op].module);
    }
    std::ranges::sort(about.modules);
    const auto [end, last] = std::ranges::unique(about.modules);
    about.modules.erase(end, last);
    return about;
  }

 private:
  using Source = Region::Value::Source;

  [[nodiscard]] bool has_product() const {
    return std::ranges::any_of(region_.operators, [this](const Region::Call& call) {
      return reference::aten::class_of(replay_.golden_.operators[call.op].name) ==
             OperatorClass::Product;
    });
  }

  /// A product takes operands of one type. Where what meets the run under test's weight was not
  /// captured, as inside a layer of which only the output was, it is the weight's, whatever the
  /// residual around it is kept in.
  void narrow_to_weights() {
    for (const Region::Call& call : region_.operators) {
      const std::string& name = replay_.golden_.operators[call.op].name;
      if (reference::aten::class_of(name) != OperatorClass::Product) continue;
      const auto is_made_here = [this](size_t operand) {
        return operand != kNone && replay_.leaf_behind(region_, operand).empty() &&
               region_.values[replay_.behind_views(region_, operand)].source == Source::Produced;
      };
      if (std::ranges::none_of(call.operands, is_made_here)) continue;
      for (const size_t operand : call.operands) {
        const std::string leaf(replay_.leaf_behind(region_, operand));
        const DType type = replay_.leaf_type(leaf, DType::Float32);
        if (leaf.empty() || info(type).element_bits < 16) continue;
        region_.casts = region_.casts || (narrowest_ && is_narrower(type, *narrowest_));
        narrow_to(type);
      }
    }
  }

  [[nodiscard]] bool has_attention() const {
    return std::ranges::any_of(region_.operators, [this](const Region::Call& call) {
      const std::string& name = replay_.golden_.operators[call.op].name;
      return reference::aten::class_of(name) == OperatorClass::Attention ||
             base_name(name).ends_with("softmax");
    });
  }

  /// before: index of the operator that reads the value. Of a view that several made each takes its
  /// own.
  size_t intern(ValueId value, size_t record, size_t before) {
    const StorageState::Origin origin =
        value == kNoValue ? StorageState::Origin{} : replay_.state_.origin(value, before);
    // Inputs without ids are anonymous, each for itself.
    const ValueId key = value != kNoValue ? value : -2 - static_cast<ValueId>(record);
    const auto [found, fresh] =
        index_of_.try_emplace(std::pair(key, origin.op), region_.values.size());
    if (fresh) {
      Region::Value one;
      one.value = value;
      one.record = record;
      one.op = origin.op;
      one.output = origin.output;
      region_.values.push_back(std::move(one));
      open_values_.push_back({found->second, before});
    }
    return found->second;
  }

  [[nodiscard]] size_t recorded(ValueId value) const {
    return reader_.target == kNone ? replay_.recorded_by(value, reader_.step)
                                   : replay_.recorded(value, reader_.target, *reader_.unusable);
  }

  Status find_source(size_t at, size_t reader) {
    const ValueId value = region_.values[at].value;
    const size_t known = value == kNoValue ? kNone : recorded(value);
    if (known != kNone) {
      region_.values[at].source = Source::Recorded;
      region_.values[at].boundary = known;
      narrow_to(replay_.type_at(known));
      region_.values[at].floating = replay_.type_at(known).has_value();
      region_.values[at].learned = region_.values[at].floating;
      return {};
    }
    note_reshaped(value);
    if (region_.values[at].op != kNone) return find_operands(at);
    if (value != kNoValue && !replay_.state_.leaf(value).empty()) {
      region_.values[at].source = Source::Leaf;
      region_.values[at].record = replay_.state_.record(value);
      region_.values[at].learned = !replay_.is_buffer(replay_.state_.leaf(value));
      return {};
    }
    if (value != kNoValue && replay_.state_.is_assembled(value)) {
      ASSAY_TRY(region_.values[at].assembly, replay_.state_.assembly(value));
      region_.values[at].source = Source::Assembled;
      std::vector<size_t> parts;
      // Its parts were there when it was first seen, whoever reads it later.
      const size_t seen = std::min(reader, replay_.operators_before(replay_.state_.record(value)));
      for (const Part& part : region_.values[at].assembly.parts)
        parts.push_back(intern(part.value, replay_.state_.record(part.value), seen));
      region_.values[at].parts = std::move(parts);
      return {};
    }
    region_.values[at].source = Source::Anonymous;
    if (value != kNoValue && replay_.state_.record(value) != kNone)
      region_.values[at].record = replay_.state_.record(value);
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    if (region_.values[at].record >= records.size()) return {};
    const run::TensorRecord& record = records[region_.values[at].record];
    const auto first = replay_.first_step_.find(record.rank);
    if (record.dtype && is_float(*record.dtype) && record.shape &&
        record.shape->size() >= kCacheAxes && elements_of(record) > 1 &&
        first != replay_.first_step_.end() && first->second > 0)
      region_.from_before = true;
    return {};
  }

  /// Mine has the value in another shape, from before.
  void note_reshaped(ValueId value) {
    const auto found = replay_.reshaped_.find(value);
    if (found == replay_.reshaped_.end() || reader_.target == kNone) return;
    const Boundary& target = replay_.boundaries_[reader_.target];
    if (replay_.boundaries_[found->second].time >= target.time) return;
    region_.around = std::min(region_.around, found->second);
  }

  Status find_operands(size_t at) {
    Region::Value& value = region_.values[at];
    const size_t maker = value.op;
    const Operator& one = replay_.golden_.operators[maker];
    if (reader_.carry == Carry::Yes && one.step < reader_.step && value.value != kNoValue) {
      value.source = Source::Carried;
      value.carried = replay_.carrier_->number_of({value.value, {maker, value.output}});
      region_.carried.push_back(value.carried);
      return {};
    }
    value.source = Source::Produced;
    const auto [found, fresh] = operands_of_.try_emplace(maker);
    if (!fresh) return {};
    if (!one.problem.empty()) return fail(Errc::Invalid, one.name + ": " + one.problem);
    const bool shapes = needs_shapes_only(one.name);
    for (const Use& use : one.inputs)
      found->second.push_back(shapes ? kNone : intern(use.value, use.record, maker));
    return {};
  }

  void order_operators() {
    std::map<size_t, size_t> place_of;  // operator -> place in the region
    for (auto& [op, operands] : operands_of_) {
      const Operator& one = replay_.golden_.operators[op];
      place_of.emplace(op, region_.operators.size());
      Region::Call call;
      call.op = op;
      call.operands = std::move(operands);
      call.results.assign(one.outputs.size(), kNone);
      call.constant = replay_.constant_[op];
      region_.operators.push_back(std::move(call));
      region_.data_dependent = region_.data_dependent || is_data_dependent(one.name);
    }
    for (size_t at = 0; at < region_.values.size(); ++at) {
      Region::Value& value = region_.values[at];
      if (value.source != Source::Produced) continue;
      value.op = place_of.at(value.op);
      region_.operators[value.op].results[value.output] = at;
    }
  }

  /// Operators run in golden's order, so whatever they read was made before.
  Status spread_floating() {
    for (size_t i = 0; i < region_.operators.size(); ++i) {
      Region::Call& call = region_.operators[i];
      for (const size_t operand : call.operands) {
        if (operand == kNone) continue;
        ASSAY_TRY_STATUS(settle(operand, i));
        call.floating = call.floating || region_.values[operand].floating;
        call.learned = call.learned || region_.values[operand].learned;
      }
      for (const size_t result : call.results) {
        if (result == kNone) continue;
        region_.values[result].floating = call.floating;
        region_.values[result].learned = call.learned;
      }
    }
    return settle(0, region_.operators.size());
  }

  Status settle(size_t at, size_t before) {
    Region::Value& value = region_.values[at];
    if (value.source == Source::Produced && value.op >= before)
      return fail(Errc::Invalid, "golden reads a value before it is made");
    if (value.source != Source::Assembled) return {};
    for (const size_t part : value.parts) {
      ASSAY_TRY_STATUS(settle(part, before));
      value.floating = value.floating || region_.values[part].floating;
      value.learned = value.learned || region_.values[part].learned;
    }
    return {};
  }

  /// What is alive at once, about: results stay until their last use.
  [[nodiscard]] uint64_t peak_bytes() const {
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    std::vector<size_t> last_use(region_.values.size(), 0);
    for (size_t i = 0; i < region_.operators.size(); ++i) {
      for (const size_t operand : region_.operators[i].operands) {
        if (operand != kNone) last_use[operand] = i;
      }
    }
    std::vector<int64_t> change(region_.operators.size() + 1, 0);
    for (size_t at = 0; at < region_.values.size(); ++at) {
      const Region::Value& value = region_.values[at];
      if (value.record >= records.size()) continue;
      const int64_t count = std::min(elements_of(records[value.record]), int64_t{1} << 40);
      const size_t begin = value.source == Source::Produced ? value.op : last_use[at];
      const bool view =
          value.source == Source::Produced &&
          reference::aten::is_view(replay_.golden_.operators[region_.operators[value.op].op].name);
      // A carried one is made from the one before it.
      const int64_t copies = value.source == Source::Carried ? 2 : 1;
      const int64_t bytes =
          value.source == Source::Recorded || view ? 0 : copies * int64_t{16} * count;
      change[begin] += bytes;
      change[std::max(begin, last_use[at]) + (last_use[at] < region_.operators.size() ? 1 : 0)] -=
          bytes;
    }
    int64_t alive = 0;
    int64_t peak = 0;
    for (const int64_t bytes : change) peak = std::max(peak, alive += bytes);
    return static_cast<uint64_t>(peak);
  }

  const Replay& replay_;
  Reader reader_;
  Region region_;
  std::optional<DType> narrowest_;
  std::map<std::pair<ValueId, size_t>, size_t> index_of_;  // by value and who made it
  std::map<size_t, std::vector<size_t>> operands_of_;      // by operator
  std::vector<std::pair<size_t, size_t>> open_values_;     // with the operator that reads it
};

Result<Region> Replay::plan(size_t target, const std::vector<bool>& unusable, Carry carry) const {
  const Boundary& wanted = boundaries_[target];
  const ModuleCall& call = mine_.calls[wanted.call];
  const Use& use = (wanted.input ? call.inputs : call.outputs)[wanted.use];
  const run::TensorRecord& record = mine_.run->records[use.record];
  if (!unusable.empty()) carry = Carry::No;
  Planner planner(*this, {target, &unusable, call.step, carry});
  planner.narrow_to(types_[target]);
  ASSAY_TRY_STATUS(
      planner.walk(wanted.golden, wanted.golden_record, operators_before(wanted.golden_record)));
  ASSAY_TRY_STATUS(describe_carried(planner.carried()));
  const bool depends_on_data =
      planner.data_dependent() || std::ranges::any_of(planner.carried(), [&](size_t number) {
        return carried(number).data_dependent;
      });
  if (depends_on_data && !planner.carried().empty()) return plan(target, unusable, Carry::No);
  ASSAY_TRY(Region region, planner.finish());
  region.bytes += 32 * static_cast<uint64_t>(elements_of(record));
  return region;
}

/// As everybody behind the end of its step sees it.
Result<std::unique_ptr<Replay::Planner>> Replay::walk_carried(size_t number) const {
  const auto [value, origin] = carrier_->place(number);
  const Operator& maker = golden_.operators[origin.op];
  auto planner = std::make_unique<Planner>(*this, Reader{kNone, nullptr, maker.step, Carry::Yes});
  ASSAY_TRY_STATUS(planner->walk(value, maker.outputs[origin.output].record, origin.op + 1));
  return planner;
}

Result<Region> Replay::plan_carried(size_t number) const {
  ASSAY_TRY(const std::unique_ptr<Planner> planner, walk_carried(number));
  return planner->finish();
}

/// The earliest first. A chain is as long as there are steps, so this is no recursion.
Status Replay::describe_carried(const std::vector<size_t>& numbers) const {
  std::vector<std::pair<size_t, std::unique_ptr<Planner>>> open;
  for (const size_t number : numbers) open.emplace_back(number, nullptr);
  while (!open.empty()) {
    const size_t number = open.back().first;
    if (carrier_->is_known(number)) {
      open.pop_back();
      continue;
    }
    if (open.back().second == nullptr) {
      Result<std::unique_ptr<Planner>> walked = walk_carried(number);
      if (!walked) {
        carrier_->describe(number, {}, walked.error());
        continue;
      }
      const std::vector<size_t> earlier = (*walked)->carried();
      open.back().second = *std::move(walked);
      for (const size_t other : earlier) {
        if (!carrier_->is_known(other)) open.emplace_back(other, nullptr);
      }
      if (open.back().first != number) continue;
    }
    Result<Carried> about = open.back().second->describe();
    if (about) {
      carrier_->describe(number, *std::move(about), std::nullopt);
    } else {
      carrier_->describe(number, {}, about.error());
    }
  }
  for (const size_t number : numbers) {
    if (const std::optional<Error> problem = carrier_->problem(number)) return fail(*problem);
  }
  return {};
}

}  // namespace assay::locate
