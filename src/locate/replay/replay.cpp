// SPDX-License-Identifier: Apache-2.0
// First, which recorded value of mine stands for a value of golden, and in which types rounding is
// forgiven. Then Machine, which runs the operators of a region twice: exactly, and with the
// rounding of a kernel. Regions are planned in replay_plan.cpp.
#include "locate/replay/replay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "locate/noise/conversion_noise.hpp"
#include "locate/noise/gap.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/noise/narrow_products.hpp"
#include "locate/program/owner.hpp"
#include "locate/replay/close_choices.hpp"
#include "locate/replay/replay_carried.hpp"
#include "reference/aten/selection.hpp"
#include "reference/wide.hpp"
#include "run/common_names.hpp"
#include "run/load.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::Call;
using reference::aten::OperatorClass;

/// Zeros of any shape in eight bytes.
Result<Tensor> zeros(const run::TensorRecord& record) {
  static const std::array<std::byte, 16> kZero{};
  if (!record.dtype || !record.shape) return fail(Errc::NotFound, "a tensor of unknown shape");
  Dims strides = *record.shape;
  std::fill_n(strides.data(), strides.size(), 0);
  const DType dtype = is_float(*record.dtype) ? DType::Float64 : *record.dtype;
  ASSAY_TRY(const TensorView view, make_view(dtype, *record.shape, strides, ByteSpan(kZero)));
  return Tensor{view, std::shared_ptr<const void>(std::shared_ptr<void>(), kZero.data())};
}

Result<Tensor> as_float64(const Tensor& tensor) {
  if (!is_float(tensor.view.dtype) || tensor.view.dtype == DType::Float64) return tensor;
  ASSAY_TRY(reference::Wide wide, reference::widen(tensor.view));
  return reference::to_tensor(std::move(wide));
}

/// A factor, an epsilon ... that no float32 equals, although kernels of float32 compute with one.
bool is_inexact_scalar(const Argument& argument) {
  const auto* real = std::get_if<double>(&argument.value);
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  return real != nullptr && std::abs(*real) <= kLargest &&
         static_cast<double>(static_cast<float>(*real)) != *real;
}

/// Not of operators without inputs: tables of constants are made in float64.
bool has_inexact_scalar(const Operator& one) {
  return !one.inputs.empty() && std::ranges::any_of(one.attributes, [](const auto& argument) {
    return is_inexact_scalar(argument.second);
  });
}

void round_scalars(Call* call) {
  for (auto& [name, argument] : call->arguments) {
    if (is_inexact_scalar(argument))
      argument.value = static_cast<double>(static_cast<float>(std::get<double>(argument.value)));
  }
}

bool shares_bytes(const Tensor& a, const Tensor& b) {
  return a.view.storage.data() == b.view.storage.data() && a.view.shape == b.view.shape &&
         a.view.strides == b.view.strides && a.view.offset_elements == b.view.offset_elements &&
         a.view.dtype == b.view.dtype;
}

bool sorts_in_open_order(const Call& call) {
  const std::string_view base = base_name(call.name);
  const bool* promised = argument_of<bool>(call.arguments, "stable");
  return (base == "sort" || base == "argsort") && (promised == nullptr || !*promised);
}

bool takes_last_axis(const Call& call, const TensorView& scores) {
  const int64_t dim = dim_of(call);
  const auto axes = static_cast<int64_t>(scores.shape.size());
  return axes > 0 && (dim == -1 || dim == axes - 1);
}

/// Places of a sort with those of equal values in the opposite order; nothing when all values
/// differ.
Result<std::optional<Tensor>> turn_ties_round(const Call& call, const Tensor& self,
                                              const Tensor& places) {
  if (self.view.shape.empty() || !(self.view.shape == places.view.shape)) return std::nullopt;
  ASSAY_TRY(const size_t axis, reference::axis_of(dim_of(call), self.view.shape.size()));
  ASSAY_TRY(const reference::Wide values, reference::widen(self.view));
  ASSAY_TRY(reference::Whole order, reference::whole(places.view));
  const int64_t length = self.view.shape[axis];
  int64_t inner = 1;
  for (size_t i = axis + 1; i < self.view.shape.size(); ++i) inner *= self.view.shape[i];
  bool ties = false;
  for (int64_t row = 0; length > 0 && inner > 0 && row < values.size() / length; ++row) {
    const int64_t first = row / inner * inner * length + row % inner;
    const auto place = [&](int64_t i) -> int64_t& {
      return order.values[static_cast<size_t>(first + i * inner)];
    };
    const auto value = [&](int64_t i) {
      return values.values[static_cast<size_t>(first + place(i) * inner)];
    };
    for (int64_t begin = 0, end = 0; begin < length; begin = end) {
      for (end = begin + 1; end < length && value(end) == value(begin);) ++end;
      ties = ties || end - begin > 1;
      for (int64_t a = begin, b = end - 1; a < b; ++a, --b) std::swap(place(a), place(b));
    }
  }
  if (!ties) return std::nullopt;
  return reference::to_tensor(std::move(order));
}

}  // namespace

const Use& use_of(const Program& program, const Boundary& boundary) {
  const ModuleCall& call = program.calls[boundary.call];
  return (boundary.input ? call.inputs : call.outputs)[boundary.use];
}

Replay::Replay(const Program& golden, const Program& mine, std::vector<Boundary> boundaries,
               uint64_t cache_bytes, const std::vector<bool>& dropped,
               std::set<std::string> rewritten)
    : golden_(golden),
      mine_(mine),
      rewritten_(std::move(rewritten)),
      state_(golden),
      boundaries_(std::move(boundaries)),
      cache_(std::make_unique<Cache>()),
      carrier_(std::make_unique<Carrier>(cache_bytes)) {
  cache_->limit = cache_bytes;
  for (const Operator& one : golden.operators) {
    for (const Use& use : one.inputs) {
      if (use.value != kNoValue && !state_.leaf(use.value).empty()) ++readers_[use.value];
    }
  }
  find_deciding_leaves();
  std::vector<size_t> by_time(boundaries_.size());
  for (size_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
  std::ranges::stable_sort(by_time, {}, [this](size_t i) { return boundaries_[i].time; });
  for (const size_t i : by_time) {
    if (i < dropped.size() && dropped[i]) continue;
    // A leaf that decides is golden's also where a module hands it on.
    if (boundaries_[i].golden != kNoValue && !boundaries_[i].last_rows &&
        !deciding_.contains(state_.leaf(boundaries_[i].golden)))
      recorded_[boundaries_[i].golden].push_back(i);
    if (boundaries_[i].reshaped != kNoValue) reshaped_.try_emplace(boundaries_[i].reshaped, i);
  }
  for (size_t op = 0; op < golden.operators.size(); ++op) {
    const Operator& one = golden.operators[op];
    of_rank_[one.rank].push_back(op);
    const auto [found, fresh] = first_step_.try_emplace(one.rank, one.step);
    if (!fresh) found->second = std::min(found->second, one.step);
  }
  find_constant_operators();
  find_types();
}

Replay::~Replay() = default;

void Replay::find_constant_operators() {
  constant_.assign(golden_.operators.size(), false);
  std::vector<bool> learned(golden_.operators.size(), false);  // depends on a parameter
  for (size_t op = 0; op < golden_.operators.size(); ++op) {
    const Operator& one = golden_.operators[op];
    constant_[op] = true;
    for (const Use& use : one.inputs) {
      const size_t origin = state_.origin(use.value, op).op;
      if (recorded_.contains(use.value) || state_.is_assembled(use.value) ||
          (origin != kNone && !constant_[origin]))
        constant_[op] = false;
      const std::string& leaf = state_.leaf(use.value);
      if (origin == kNone ? !leaf.empty() && !is_buffer(leaf) : learned[origin]) learned[op] = true;
    }
    // Of a first layer whose input was not captured: what weights make of tokens is no constant,
    // and has its own noise.
    if (learned[op] && reference::aten::class_of(one.name) == OperatorClass::Product)
      constant_[op] = false;
  }
}

bool Replay::is_buffer(const std::string& leaf) const {
  const auto found = golden_.leaves.find(leaf);
  return found != golden_.leaves.end() && golden_.run->records[found->second].role == Role::Buffer;
}

namespace {

size_t count_of(const TypeCounts& counts) {
  size_t all = 0;
  for (const auto& [type, count] : counts) all += count;
  return all;
}

/// The wider type that most have, where at most one in `share` is in a type as narrow as this one;
/// nothing: there are more of these, or fewer than `least` to tell by.
std::optional<DType> usual_type(const TypeCounts& counts, DType type, size_t least, size_t share) {
  const size_t all = count_of(counts);
  size_t narrow = 0;
  std::optional<DType> usual;
  size_t most = 0;
  for (const auto& [other, count] : counts) {
    if (info(other).element_bits <= info(type).element_bits) {
      narrow += count;
    } else if (count > most) {
      most = count;
      usual = other;
    }
  }
  return all >= least && share * narrow <= all ? usual : std::nullopt;
}

/// The narrowest of the types that at least one value in `share` has.
std::optional<DType> narrowest_common(const TypeCounts& counts, size_t share) {
  const size_t all = count_of(counts);
  std::optional<DType> narrowest;
  for (const auto& [type, count] : counts) {
    if (share * count >= all && (!narrowest || is_narrower(type, *narrowest))) narrowest = type;
  }
  return narrowest;
}

}  // namespace

/// A module that computes in a narrower type than its peers is a fault that its own type would
/// explain as rounding.
void Replay::find_types() {
  // How many may be in so narrow a type: one of three layers; of a place without layers one of ten
  // of all places; of layers of a kind that has fewer than three (the only one with attention) one
  // of four of all places.
  constexpr size_t kLeastPeers = 3, kPeers = 3, kLeastPlaces = 20, kPlaces = 10, kFewPeers = 4;
  using Place = std::tuple<std::string, std::string_view, bool>;
  std::map<Place, TypeCounts> peers;
  TypeCounts all;
  std::vector<const TypeCounts*> peers_of(boundaries_.size(), nullptr);
  types_.resize(boundaries_.size());
  for (size_t i = 0; i < boundaries_.size(); ++i) {
    const Use& use = use_of(mine_, boundaries_[i]);
    const std::optional<DType>& type = mine_.run->records[use.record].dtype;
    if (!type || !is_float(*type)) continue;
    types_[i] = type;
    ++all[*type];
    const std::string& module = mine_.calls[boundaries_[i].call].module;
    std::string pattern = run::layer_pattern(module);
    if (pattern == module) continue;
    TypeCounts& counts = peers[{std::move(pattern), use.slot, boundaries_[i].input}];
    ++counts[*type];
    peers_of[i] = &counts;
  }
  find_autocast(all);
  find_parameter_type();
  if (all.size() < 2) return;
  for (size_t i = 0; i < boundaries_.size(); ++i) {
    if (!types_[i]) continue;
    std::optional<DType> usual;
    if (peers_of[i] == nullptr)
      usual = usual_type(all, *types_[i], kLeastPlaces, kPlaces);
    else if (count_of(*peers_of[i]) < kLeastPeers)
      usual = usual_type(all, *types_[i], kLeastPlaces, kFewPeers);
    else
      usual = usual_type(*peers_of[i], *types_[i], kLeastPeers, kPeers);
    if (usual && !is_deliberate(boundaries_[i], *types_[i])) types_[i] = usual;
  }
}

/// The narrowest type that a parameter of mine has.
void Replay::find_parameter_type() {
  const auto consider = [&](const std::string& leaf, DType type) {
    if (is_float(type) && !is_buffer(leaf) &&
        (!parameter_type_ || is_narrower(type, *parameter_type_)))
      parameter_type_ = type;
  };
  for (const auto& [leaf, record] : mine_.leaves) {
    const run::TensorRecord& one = mine_.run->records[record];
    if (one.dtype && one.role != Role::Buffer) consider(leaf, *one.dtype);
  }
  for (const auto& [leaf, type] : mine_.leaf_types) consider(leaf, type);
}

/// Under autocast products are computed in a narrower type than all weights, between values that
/// may both be wide again.
void Replay::find_autocast(const TypeCounts& types) {
  constexpr size_t kShareOfValues = 4, kShareOfProducts = 2;
  const std::optional<DType> narrowest =
      mine_.operators.empty() ? narrowest_common(types, kShareOfValues)
                              : narrowest_common(types_of_products(), kShareOfProducts);
  if (!narrowest) return;
  bool any = false;
  for (const auto& [name, record] : mine_.leaves) {
    const run::TensorRecord& leaf = mine_.run->records[record];
    if (leaf.role == Role::Buffer || !leaf.dtype || !is_float(*leaf.dtype)) continue;
    if (!is_narrower(*narrowest, *leaf.dtype)) return;
    any = true;
  }
  if (any) autocast_ = narrowest;
}

/// What products of the run under test result in.
TypeCounts Replay::types_of_products() const {
  TypeCounts types;
  for (const Operator& one : mine_.operators) {
    if (reference::aten::class_of(one.name) != reference::aten::OperatorClass::Product) continue;
    for (const Use& output : one.outputs)
      if (const std::optional<DType> type = float_type(mine_, output)) ++types[*type];
  }
  return types;
}

/// Golden has as narrow a value there, or the run under test's module has weights of that type.
bool Replay::is_deliberate(const Boundary& boundary, DType type) const {
  const auto is_as_narrow = [&](const std::optional<DType>& other) {
    return other && is_float(*other) && info(*other).element_bits <= info(type).element_bits;
  };
  const std::vector<run::TensorRecord>& records = golden_.run->records;
  if (boundary.golden_record < records.size() &&
      is_as_narrow(records[boundary.golden_record].dtype))
    return true;
  return std::ranges::any_of(mine_.leaves, [&](const auto& leaf) {
    return is_inside(leaf.first, mine_.calls[boundary.call].module) &&
           is_as_narrow(mine_.run->records[leaf.second].dtype);
  });
}

size_t Replay::recorded(ValueId golden, size_t target, const std::vector<bool>& unusable) const {
  const auto found = recorded_.find(golden);
  if (found == recorded_.end()) return kNone;
  const Boundary& wanted = boundaries_[target];
  const ModuleCall& around = mine_.calls[wanted.call];
  size_t first = kNone;
  size_t output = kNone;    // the last that came out of a module
  size_t entering = kNone;  // what entered the innermost call around the target
  size_t depth = 0;
  // What another rank made went into a collective, whenever it was recorded there.
  const bool elsewhere = mine_.calls[boundaries_[found->second[0]].call].rank != around.rank;
  for (const size_t i : found->second) {
    const Boundary& boundary = boundaries_[i];
    if (elsewhere ? mine_.calls[boundary.call].step > around.step : boundary.time >= wanted.time)
      break;
    if (i < unusable.size() && unusable[i]) continue;
    if (first == kNone) first = i;
    if (!boundary.input) {
      output = i;
      continue;
    }
    const ModuleCall& call = mine_.calls[boundary.call];
    const bool own = boundary.call == wanted.call && !wanted.input;
    const bool encloses = boundary.call != wanted.call && call.rank == around.rank &&
                          call.step == around.step && call.begin <= wanted.time &&
                          wanted.time <= call.end && is_inside(around.module, call.module);
    // Depths count from 1, so that the root counts, too.
    if ((own || encloses) && call.module.size() + 1 > depth) {
      entering = i;
      depth = call.module.size() + 1;
    }
  }
  if (output == kNone && entering == kNone) return first;
  if (output == kNone || entering == kNone) return output == kNone ? entering : output;
  return boundaries_[output].time > boundaries_[entering].time ? output : entering;
}

/// The record that stands for the value for every reader behind the end of that step: the last that
/// came out of a module by then, or the first of all where none did. What mine recorded in later
/// steps does not count.
size_t Replay::recorded_by(ValueId golden, int64_t step) const {
  const auto found = recorded_.find(golden);
  if (found == recorded_.end()) return kNone;
  size_t first = kNone;
  size_t output = kNone;
  for (const size_t i : found->second) {
    if (mine_.calls[boundaries_[i].call].step > step) continue;
    if (first == kNone) first = i;
    if (!boundaries_[i].input) output = i;
  }
  return output == kNone ? first : output;
}

const run::TensorRecord* Replay::leaf_of_mine(const std::string& leaf) const {
  const auto found = mine_.leaves.find(leaf);
  return found == mine_.leaves.end() ? nullptr : &mine_.run->records[found->second];
}

std::optional<DType> Replay::stored_type(const std::string& leaf) const {
  const run::TensorRecord* record = leaf_of_mine(leaf);
  if (record != nullptr && record->dtype) return record->dtype;
  const auto type = mine_.leaf_types.find(leaf);
  return type == mine_.leaf_types.end() ? std::nullopt : std::optional(type->second);
}

/// A buffer in a narrower type than every parameter is no choice of the run's type.
DType Replay::leaf_type(const std::string& leaf, DType computed) const {
  const DType stored = stored_type(leaf).value_or(computed);
  const bool chosen = !parameter_type_ || !is_float(stored) || !is_buffer(leaf) ||
                      !is_narrower(stored, *parameter_type_);
  return chosen ? stored : computed;
}

void Replay::find_deciding_leaves() {
  std::vector<ValueId> narrower;
  for (const auto& [value, count] : readers_) {
    const size_t record = state_.record(value);
    const std::optional<DType> stored = stored_type(state_.leaf(value));
    if (record == kNone || !stored || !is_float(*stored)) continue;
    const std::optional<DType>& golden = golden_.run->records[record].dtype;
    if (golden && is_float(*golden) && is_narrower(*stored, *golden)) narrower.push_back(value);
  }
  if (narrower.empty()) return;
  std::unordered_map<ValueId, std::vector<size_t>> readers;
  for (size_t op = 0; op < golden_.operators.size(); ++op) {
    for (const Use& use : golden_.operators[op].inputs) readers[use.value].push_back(op);
  }
  for (const ValueId leaf : narrower) {
    if (only_decides(leaf, readers)) deciding_.insert(state_.leaf(leaf));
  }
}

bool Replay::only_decides(ValueId leaf,
                          const std::unordered_map<ValueId, std::vector<size_t>>& readers) const {
  constexpr size_t kFewOperators = 64;            // a router's; more are a model's
  const auto is_whole = [this](const Use& use) {  // places and truths; complex numbers are none
    const auto& records = golden_.run->records;
    if (use.record >= records.size() || !records[use.record].dtype) return false;
    const DType type = *records[use.record].dtype;
    return is_integer(type) || type == DType::Bool;
  };
  std::set<size_t> seen;
  std::vector<ValueId> open{leaf};
  bool decides = false;
  while (!open.empty()) {
    const auto found = readers.find(open.back());
    open.pop_back();
    if (found == readers.end()) return false;  // it leaves the program
    for (const size_t op : found->second) {
      if (!seen.insert(op).second) continue;
      if (seen.size() > kFewOperators) return false;
      const std::vector<Use>& outputs = golden_.operators[op].outputs;
      const bool chooses = std::ranges::any_of(outputs, is_whole);
      decides = decides || chooses;
      for (const Use& output : outputs) {
        // The values that a choice returns beside the places count only where something reads them.
        if (!is_whole(output) && (!chooses || readers.contains(output.value)))
          open.push_back(output.value);
      }
    }
  }
  return decides;
}

DType Replay::rounding_type(const Region& region) const {
  DType type = region.dtype;
  if (autocast_ && is_narrower(*autocast_, type)) type = *autocast_;
  if (mine_.products != ProductType::Float32 && type == DType::Float32)
    type = is_of_activations(mine_.products) ? DType::Float8E4M3FN : DType::BFloat16;
  for (const Region::Call& call : region.operators) {
    for (const Use& use : golden_.operators[call.op].outputs) {
      const std::optional<DType> made = float_type(golden_, use);
      if (made && info(*made).element_bits <= 8 && is_narrower(*made, type)) type = *made;
    }
  }
  return type;
}

std::string Replay::narrowed_buffer(const Region& region, bool deciding) const {
  for (const Region::Value& value : region.values) {
    if (value.source != Region::Value::Source::Leaf || value.record == kNone) continue;
    const std::string& leaf = state_.leaf(value.value);
    const std::optional<DType>& golden = golden_.run->records[value.record].dtype;
    const std::optional<DType> stored = stored_type(leaf);
    if (golden && stored && is_float(*golden) && is_float(*stored) &&
        (deciding ? deciding_.contains(leaf) : is_buffer(leaf)) && is_narrower(*stored, *golden))
      return leaf + " is held in " + std::string(name(*stored)) + ", golden's in " +
             std::string(name(*golden));
  }
  return {};
}

class Replay::Machine {
 public:
  /// earlier  values of earlier steps that are at hand; others are found or made
  Machine(const Replay& replay, const Region& region, const How& how, const CarriedValues* earlier)
      : replay_(replay),
        region_(region),
        how_(how),
        earlier_(earlier),
        values_(region.values.size()),
        uses_(region.values.size(), 0),
        runs_(region.operators.size(), false),
        cached_(region.operators.size()) {}

  Result<CarriedValue> evaluate() {
    find_needed();
    for (size_t i = 0; i < region_.operators.size(); ++i) {
      if (runs_[i]) ASSAY_TRY_STATUS(run_operator(i));
    }
    ASSAY_TRY(Pair result, fetch(0));
    if (is_table(0)) ASSAY_TRY_STATUS(round_table(&result));
    return CarriedValue{std::move(result), tie_elsewhere_ || !choices_.empty(), order_open_};
  }

  Result<Replayed> run() {
    ASSAY_TRY(const CarriedValue result, evaluate());
    Replayed replayed{result.pair.reference, result.pair.simulated, std::move(choices_),
                      tie_elsewhere_,        order_open_,           other_path_,
                      other_choice_};
    if (region_.data_dependent && !other_path_) {
      ASSAY_TRY(replayed.other_path, takes_other_path());
    }
    return replayed;
  }

 private:
  using Source = Region::Value::Source;

  void need(size_t at) {
    ++uses_[at];
    if (region_.values[at].source == Source::Produced) {
      runs_[region_.values[at].op] = true;
    } else if (region_.values[at].source == Source::Assembled && uses_[at] == 1) {
      for (const size_t part : region_.values[at].parts) need(part);
    }
  }

  /// Counts the uses of every value, without what only leads to results that are in the cache.
  void find_needed() {
    need(0);
    for (size_t i = region_.operators.size(); i-- > 0;) {
      if (!runs_[i]) continue;
      const Region::Call& call = region_.operators[i];
      if (call.constant && how_.of_mine.empty()) {
        const std::scoped_lock lock(replay_.cache_->mutex);
        const auto found = replay_.cache_->operators.find({call.op, region_.dtype, how_.rounding});
        if (found != replay_.cache_->operators.end()) {
          cached_[i] = found->second;
          continue;
        }
      }
      for (const size_t operand : call.operands) {
        if (operand != kNone) need(operand);
      }
    }
  }

  Result<Tensor> load_leaf(const Region::Value& value) {
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    if (value.record >= records.size())
      return fail(Errc::NotFound, "a value that no operator made was not captured");
    const run::TensorRecord& record = records[value.record];
    const bool real = record.dtype && is_float(*record.dtype);
    const bool named = value.source == Source::Leaf;
    const bool otherwise =
        named && real && is_stored_otherwise(replay_.state_.leaf(value.value), record);
    if (named) {
      if (const run::TensorRecord* own = own_weight(replay_.state_.leaf(value.value)))
        return run::load_as_stored(*own);
      const std::string& lonely = replay_.mine_.lonely_weight;
      if (!lonely.empty() && real && record.role != Role::Buffer && record.shape &&
          record.shape->size() > 1)
        return fail(Errc::Unsupported, "the run under test's " + replay_.state_.leaf(value.value) +
                                           " is not known: its file has " + lonely +
                                           ", which may be it");
    }
    if (named) {
      const std::string& leaf = replay_.state_.leaf(value.value);
      const auto made = how_.of_mine.made_leaves.find(leaf);
      if (made != how_.of_mine.made_leaves.end()) return *made->second;
      const auto other = how_.of_mine.leaves.find(leaf);
      if (other != how_.of_mine.leaves.end()) return mine_in_place_of(record, other->second);
    }
    DType type = region_.dtype;
    if (named && !otherwise &&
        (how_.rounding == LeafRounding::OwnType || how_.rounding == LeafRounding::Prepared))
      type = replay_.leaf_type(replay_.state_.leaf(value.value), region_.dtype);
    const bool rounds =
        real && how_.rounding != LeafRounding::None &&
        !(named && (replay_.rewritten_.contains(replay_.state_.leaf(value.value)) ||
                    replay_.deciding_.contains(replay_.state_.leaf(value.value)))) &&
        is_float(type) && *record.dtype != type && is_narrower(type, *record.dtype);
    if (rounds) {
      const std::scoped_lock lock(replay_.cache_->mutex);
      const auto found = replay_.cache_->leaves.find({value.record, type});
      if (found != replay_.cache_->leaves.end()) return found->second;
    }
    Result<Tensor> loaded =
        otherwise ? restored_weight(value, record) : run::load_as_stored(record);
    if (!loaded && !otherwise) {
      if (loaded.error().code == Errc::NotFound)
        return fail(Errc::NotFound,
                    named ? "golden's " + replay_.state_.leaf(value.value) + " was not captured"
                          : "a value that no operator made was not captured");
      return loaded;
    }
    if (!loaded || !rounds) return loaded;
    ASSAY_TRY(Tensor rounded, round_within(*loaded, type));
    // A weight that one operator reads is hardly wanted again.
    const auto readers = replay_.readers_.find(value.value);
    if (readers != replay_.readers_.end() && readers->second < 2) return rounded;
    const std::scoped_lock lock(replay_.cache_->mutex);
    const uint64_t bytes = rounded.view.storage.size();
    if (replay_.cache_->bytes + bytes <= replay_.cache_->limit &&
        replay_.cache_->leaves.emplace(std::pair(value.record, type), rounded).second)
      replay_.cache_->bytes += bytes;
    return rounded;
  }

  Status add_rounding_of_leaf(const Region::Value& value, Pair* pair) const {
    if (value.source != Source::Leaf || !is_float(pair->reference.view.dtype)) return {};
    const std::string& leaf = replay_.state_.leaf(value.value);
    if (!replay_.rewritten_.contains(leaf)) return {};
    const DType type = replay_.leaf_type(leaf, region_.dtype);
    if (!is_float(type) || info(type).element_bits < 16) return {};
    ASSAY_TRY(pair->simulated, moved_at_random(pair->reference, type, value.record));
    pair->same = false;
    return {};
  }

  /// errors  Unsupported (another shape) | of run::load_as_stored()
  Result<Tensor> mine_in_place_of(const run::TensorRecord& golden, size_t record) const {
    const run::TensorRecord& own = replay_.mine_.run->records[record];
    if (own.shape != golden.shape)
      return fail(Errc::Unsupported, "mine's " + own.node + " has another shape than golden's");
    return run::load_as_stored(own);
  }

  /// What mine computes with where it holds codes and scales; the test of weights says whether it
  /// is golden's.
  Result<Tensor> restored_weight(const Region::Value& value, const run::TensorRecord& golden) {
    const std::string& leaf = replay_.state_.leaf(value.value);
    Result<Tensor> made = locate::restored_weight(*replay_.mine_.coded, leaf, *golden.shape);
    if (made) return made;
    const run::TensorRecord* mine = replay_.leaf_of_mine(leaf);
    if (mine != nullptr && mine->shape && element_count(*mine->shape) == 0)
      return fail(Errc::Unsupported,
                  "mine had freed " + leaf + " when it was captured, so its values are not known");
    return fail(Errc::Unsupported,
                "mine holds " + leaf + " in codes or in parts, so its values are not golden's");
  }

  /// As a padded vocabulary: golden's rows, which the test of weights compares, and others that
  /// golden does not have.
  static bool has_more_rows(const Dims& mine, const Dims& golden) {
    return mine.size() > 1 && mine.size() == golden.size() && mine[0] > golden[0] &&
           std::equal(mine.begin() + 1, mine.end(), golden.begin() + 1);
  }

  static bool is_code(DType dtype) { return is_integer(dtype) || info(dtype).element_bits <= 8; }

  /// Mine has the weight as codes with scales, as a shard, or as an object without memory of its
  /// own.
  [[nodiscard]] bool is_stored_otherwise(const std::string& leaf,
                                         const run::TensorRecord& golden) const {
    if (const run::TensorRecord* mine = replay_.leaf_of_mine(leaf)) {
      const bool captured = mine->bytes || mine->stats || mine->digest;
      return !captured || (mine->dtype && is_code(*mine->dtype)) ||
             (mine->shape && golden.shape &&
              element_count(*mine->shape) != element_count(*golden.shape) &&
              !replay_.mine_.is_shared && !has_more_rows(*mine->shape, *golden.shape));
    }
    const auto is_wrapper = [&](const run::TensorRecord& one) {
      return one.role == Role::Weight && !one.bytes && !one.stats && !one.digest &&
             leaf == (one.node.empty() ? one.slot.str() : one.node + "." + one.slot);
    };
    if (std::ranges::any_of(replay_.mine_.run->records, is_wrapper)) return true;
    // Without weights the tree of modules still says what they are stored in.
    const auto& types = replay_.mine_.leaf_types;
    if (const auto type = types.find(leaf); type != types.end() && is_code(type->second))
      return true;
    if (replay_.mine_.coded != nullptr && replay_.mine_.coded->find(leaf) != nullptr) return true;
    if (!leaf.ends_with("weight")) return false;
    const std::string stem = leaf.substr(0, leaf.size() - std::string_view("weight").size());
    return std::ranges::any_of(
        std::array{leaf + "_packed", stem + "qweight", stem + "CB"}, [&](const std::string& name) {
          return replay_.leaf_of_mine(name) != nullptr || types.contains(name);
        });
  }

  /// The run under test's weight where it is stored in another type, which the test of weights
  /// judges; null otherwise.
  [[nodiscard]] const run::TensorRecord* own_weight(const std::string& leaf) const {
    return replay_.mine_.stored_weights.contains(leaf) || replay_.mine_.own.contains(leaf)
               ? replay_.leaf_of_mine(leaf)
               : nullptr;
  }

  /// A kernel that multiplies with a stored weight converts the activation to go with its type.
  Status add_conversions(const Operator& one, const Region::Call& call, const Call& exact,
                         std::vector<Tensor>* noisy) const {
    if (replay_.mine_.engine == nullptr || replay_.mine_.stored_weights.empty() || noisy->empty() ||
        reference::aten::class_of(one.name) != OperatorClass::Product)
      return {};
    for (size_t k = 0; k < one.inputs.size(); ++k) {
      const std::string_view leaf = replay_.leaf_behind(region_, call.operands[k]);
      const auto stored = replay_.mine_.stored_weights.find(leaf);
      if (leaf.empty() || stored == replay_.mine_.stored_weights.end()) continue;
      const run::TensorRecord* record = own_weight(stored->first);
      const auto product = weight_product(exact, one.inputs[k].slot);
      if (record == nullptr || !product) continue;
      ASSAY_TRY_STATUS(
          add_conversion_noise(*replay_.mine_.engine, stored->second, *product, &noisy->front()));
    }
    return {};
  }

  Result<Pair> fetch(size_t at) {
    const Region::Value& value = region_.values[at];
    if (!values_[at]) {
      Pair pair;
      switch (value.source) {
        case Source::Recorded: {
          if (how_.of_mine.value != nullptr && how_.of_mine.boundary == value.boundary) {
            pair.reference = *how_.of_mine.value;
            break;
          }
          const Use& use = use_of(replay_.mine_, replay_.boundaries_[value.boundary]);
          ASSAY_TRY(pair.reference, load_use(replay_.mine_, use));
          const auto rounding = replay_.mine_.attention_roundings.find(use.record);
          if (rounding != replay_.mine_.attention_roundings.end()) {
            ASSAY_TRY(pair.simulated,
                      with_attention_noise(rounding->second, pair.reference, use.record));
            pair.same = false;
          } else if (region_.casts && is_float(pair.reference.view.dtype)) {
            ASSAY_TRY(pair.simulated, round_within(pair.reference, region_.dtype));
            pair.same = false;
          }
          break;
        }
        case Source::Leaf:
        case Source::Anonymous: {
          ASSAY_TRY(pair.reference, load_leaf(value));
          ASSAY_TRY_STATUS(add_rounding_of_leaf(value, &pair));
          break;
        }
        case Source::Assembled: {
          std::vector<Tensor> exact, simulated;
          for (const size_t part : value.parts) {
            ASSAY_TRY(const Pair piece, fetch(part));
            exact.push_back(piece.reference);
            simulated.push_back(piece.simulated);
            pair.same = pair.same && piece.same;
            release(part);
          }
          ASSAY_TRY(pair.reference, assemble(value.assembly, exact));
          if (!pair.same) {
            ASSAY_TRY(pair.simulated, assemble(value.assembly, simulated));
          }
          break;
        }
        case Source::Carried: {
          ASSAY_TRY(pair, of_earlier_step(value.carried));
          break;
        }
        case Source::Produced:
          return fail(Errc::Invalid, "an operator returned fewer results than golden's record has");
      }
      if (pair.same) pair.simulated = pair.reference;
      values_[at] = std::move(pair);
    }
    if (!reference::aten::is_predictable(values_[at]->reference))
      return fail(Errc::Unsupported, "a result that nobody can predict is read");
    return *values_[at];
  }

  Result<Pair> of_earlier_step(size_t number) {
    CarriedValue made;
    if (const auto found =
            earlier_ == nullptr ? CarriedValues::const_iterator() : earlier_->find(number);
        earlier_ != nullptr && found != earlier_->end()) {
      made = found->second;
    } else {
      ASSAY_TRY(made, replay_.carried_value(number, {region_.dtype, how_}));
    }
    tie_elsewhere_ = tie_elsewhere_ || made.tie;
    order_open_ = order_open_ || made.order_open;
    return made.pair;
  }

  void release(size_t at) {
    if (uses_[at] > 0 && --uses_[at] == 0) values_[at].reset();
  }

  Status run_operator(size_t i) {
    const Region::Call& call = region_.operators[i];
    const Operator& one = replay_.golden_.operators[call.op];
    std::vector<Pair> results;
    if (!cached_[i].empty()) {
      results = std::move(cached_[i]);
    } else {
      const auto other = how_.of_mine.arguments.find(call.op);
      Result<std::vector<Pair>> made =
          other == how_.of_mine.arguments.end()
              ? evaluate_both(one, call)
              : evaluate_both(with_arguments(one, other->second), call);
      if (!made) return fail(in_operator(one.name, made.error()));
      results = *std::move(made);
      if (call.constant && how_.draw == 0 && how_.of_mine.empty()) remember(call.op, one, results);
    }
    // A loop over what was found, such as the experts that are hit, has golden's number of rounds.
    if (base_name(one.name) == "unbind" && results.size() != one.outputs.size()) other_path_ = true;
    for (size_t k = 0; k < std::min(results.size(), call.results.size()); ++k) {
      const size_t at = call.results[k];
      if (at != kNone && uses_[at] > 0) values_[at] = results[k];
    }
    return {};
  }

  /// Golden's operator with the arguments of an operator of mine.
  [[nodiscard]] Operator with_arguments(Operator one, size_t mine) const {
    one.attributes = replay_.mine_.operators[mine].attributes;
    return one;
  }

  /// Integers of another value than golden's record of the same result.
  [[nodiscard]] bool has_other_integers(const Use& golden, const Tensor& result) const {
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    if (!is_integer(result.view.dtype) || golden.record >= records.size()) return false;
    const Result<Tensor> captured = run::load_tensor(records[golden.record]);
    if (!captured) return false;
    const Result<bool> same = equal_integers(captured->view, result.view);
    return same && !*same;
  }

  /// Made of positions, constants and buffers alone, such as the cosines of rotary positions.
  [[nodiscard]] bool is_table(size_t at) const {
    const Region::Value& value = region_.values[at];
    return value.source == Source::Produced && !value.learned;
  }

  /// A table is computed in golden's own type, and rounded to the other run's where its values meet
  /// it.
  Status round_table(Pair* table) const {
    if (!is_float(table->simulated.view.dtype)) return {};
    ASSAY_TRY(table->simulated, round_within(table->simulated, region_.dtype));
    table->same = false;
    return {};
  }

  /// Whether kernels of float32 round the operand in this slot before they multiply.
  [[nodiscard]] bool is_narrow(const Operator& one, std::string_view slot) const {
    return replay_.mine_.products != ProductType::Float32 && region_.dtype == DType::Float32 &&
           is_multiplied(one.name, slot);
  }

  /// A factor of a product whose other factor is a weight.
  [[nodiscard]] bool meets_weight(const Operator& one, const Region::Call& call, size_t k) const {
    const auto is_weight = [&](size_t other) {
      return call.operands[other] != kNone && is_multiplied(one.name, one.inputs[other].slot) &&
             !replay_.leaf_behind(region_, call.operands[other]).empty();
    };
    if (is_weight(k)) return false;
    for (size_t other = 0; other < one.inputs.size(); ++other)
      if (other != k && is_weight(other)) return true;
    return false;
  }

  /// Autocast rounds what a product takes, however wide mine recorded it.
  Status cast_for_product(const Operator& one, const Region::Call& call, size_t k,
                          Pair* operand) const {
    const std::string_view slot = one.inputs[k].slot;
    const OperatorClass kind = reference::aten::class_of(one.name);
    const DType type = operand->simulated.view.dtype;
    if (is_narrow(one, slot) &&
        (!is_of_activations(replay_.mine_.products) || meets_weight(one, call, k))) {
      const uint64_t draw = how_.draw == 0 ? 0
                                           : (uint64_t{how_.draw} << 40U) + 31 * one.time +
                                                 static_cast<uint64_t>(slot.back());
      ASSAY_TRY(operand->simulated, narrowed(operand->simulated, replay_.mine_.products, draw));
      operand->same = false;
      return {};
    }
    if (!replay_.autocast_ || !is_float(type) || !is_narrower(*replay_.autocast_, type) ||
        (kind != OperatorClass::Product && kind != OperatorClass::Attention))
      return {};
    ASSAY_TRY(operand->simulated, round_within(operand->simulated, *replay_.autocast_));
    operand->same = false;
    return {};
  }

  /// The type that an operator rounds its results to.
  [[nodiscard]] DType type_of(const Operator& one, const Region::Call& call) const {
    if (call.learned) return region_.dtype;
    DType type = region_.dtype;
    for (const Use& output : one.outputs) {
      const std::optional<DType> golden = float_type(replay_.golden_, output);
      if (golden && is_narrower(type, *golden)) type = *golden;
    }
    return type;
  }

  Result<std::vector<Pair>> evaluate_both(const Operator& one, const Region::Call& call) {
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    std::vector<Pair> results;
    if (reference::aten::class_of(one.name) == OperatorClass::Allocation) {
      // Whatever lies there is written before it is read, or nobody could know it.
      for (const Use& output : one.outputs) {
        Pair pair;
        if (output.record >= records.size())
          return fail(Errc::NotFound, "a tensor of unknown shape");
        ASSAY_TRY(pair.reference, zeros(records[output.record]));
        pair.simulated = pair.reference;
        results.push_back(std::move(pair));
      }
      return results;
    }
    std::map<std::string, Tensor> exact, simulated;
    bool same = true;
    for (size_t k = 0; k < one.inputs.size(); ++k) {
      const Use& use = one.inputs[k];
      Pair operand;
      if (call.operands[k] == kNone) {
        if (use.record >= records.size()) return fail(Errc::NotFound, "a tensor of unknown shape");
        ASSAY_TRY(operand.reference, zeros(records[use.record]));
        operand.simulated = operand.reference;
      } else {
        ASSAY_TRY(operand, fetch(call.operands[k]));
        if (call.learned && is_table(call.operands[k])) ASSAY_TRY_STATUS(round_table(&operand));
        ASSAY_TRY_STATUS(cast_for_product(one, call, k, &operand));
        if (how_.wide_residual) ASSAY_TRY_STATUS(undo_cast(one, call.operands[k], &operand));
      }
      // What is written into keeps its element type, so a recorded 16-bit value would round the
      // reference; and of complex numbers there are none of bfloat16.
      const std::string_view argument = std::string_view(use.slot).substr(0, use.slot.find('.'));
      if (std::ranges::find(one.writes, argument) != one.writes.end() ||
          base_name(one.name) == "view_as_complex") {
        ASSAY_TRY(operand.reference, as_float64(operand.reference));
        ASSAY_TRY(operand.simulated, as_float64(operand.simulated));
      }
      same = same && operand.same;
      exact.insert_or_assign(use.slot, std::move(operand.reference));
      simulated.insert_or_assign(use.slot, std::move(operand.simulated));
    }
    for (const size_t operand : call.operands) {
      if (operand != kNone) release(operand);
    }
    ASSAY_TRY(const Call exact_call, make_call(one, exact));
    exact.clear();
    ASSAY_TRY(std::vector<Tensor> references, reference::aten::evaluate(exact_call));
    if (sorts_in_open_order(exact_call)) {
      ASSAY_TRY_STATUS(order_ties(one, exact_call, &references));
    }
    const std::optional<Tensor> chosen = recorded_choice(one, references);
    bool order_open = false;
    if (is_set(exact_call)) {
      ASSAY_TRY(order_open, order_set(chosen, exact_call, &references));
    }
    std::vector<Tensor> noisy;
    // What is the same for all values is rounded as it was in the run under test, in all draws.
    const uint64_t draw =
        how_.draw == 0 || call.constant ? 0 : (uint64_t{how_.draw} << 40U) + call.op + 1;
    const bool rounds_scalars = type_of(one, call) == DType::Float32 && has_inexact_scalar(one);
    if (!same || rounds_scalars) {
      ASSAY_TRY(Call simulated_call, make_call(one, simulated));
      simulated.clear();
      if (rounds_scalars) round_scalars(&simulated_call);
      ASSAY_TRY(noisy, simulate(simulated_call, nullptr, type_of(one, call), how_.kernel, draw,
                                how_.statistics));
      ASSAY_TRY_STATUS(settle_choice(call, exact_call, simulated_call, chosen, &references, &noisy,
                                     &order_open));
    } else {
      ASSAY_TRY(noisy, simulate(exact_call, &references, type_of(one, call), how_.kernel, draw,
                                how_.statistics));
      if (!sorts_in_open_order(exact_call))
        ASSAY_TRY_STATUS(
            settle_choice(call, exact_call, exact_call, chosen, &references, &noisy, &order_open));
    }
    order_open_ = order_open_ || order_open;
    if (reference::aten::has_open_order(one.name) && !references.empty() && !one.outputs.empty())
      other_choice_ = other_choice_ || has_other_integers(one.outputs.back(), references.back());
    if (mixes_tokens(one, call)) tie_elsewhere_ = tie_elsewhere_ || !choices_.empty();
    ASSAY_TRY_STATUS(add_conversions(one, call, exact_call, &noisy));
    if (is_narrow(one, "query") && !is_of_activations(replay_.mine_.products) && !noisy.empty())
      ASSAY_TRY_STATUS(
          add_noise_of_probabilities(exact_call, replay_.mine_.products, draw, &noisy.front()));
    if (replay_.mine_.multiplies_angles && !noisy.empty() &&
        reference::aten::class_of(one.name) == OperatorClass::Trigonometric) {
      ASSAY_TRY_STATUS(add_angle_noise(exact_call, &noisy.front()));
    }
    ASSAY_TRY_STATUS(round_steps(one, call, &references, &noisy));
    if (noisy.size() != references.size())
      return fail(Errc::Invalid, "other numbers of results with rounding than without");
    for (size_t k = 0; k < references.size(); ++k) {
      Pair pair{references[k], noisy[k], false};
      pair.same = shares_bytes(pair.reference, pair.simulated);
      results.push_back(std::move(pair));
    }
    return results;
  }

  /// Where rounding may decide a choice the simulation takes what the exact program takes: noise is
  /// what becomes of the values, and another choice is looked at for itself. One that mine recorded
  /// and that could be taken is no longer open.
  Status settle_choice(const Region::Call& call, const Call& exact, const Call& simulated,
                       const std::optional<Tensor>& chosen, std::vector<Tensor>* references,
                       std::vector<Tensor>* noisy, bool* order_open) {
    const Tensor* scores = argument_of<Tensor>(exact.arguments, "self");
    const Tensor* noisy_scores = argument_of<Tensor>(simulated.arguments, "self");
    if (!reference::aten::has_open_order(exact.name) || scores == nullptr ||
        noisy_scores == nullptr || call.results.empty() || call.results.back() == kNone)
      return {};
    ASSAY_TRY(std::optional<Choice> choice,
              close_choice(exact, scores->view, noisy_scores->view, references->back().view));
    if (choice ? !choice->last_axis : !is_set(exact) || !takes_last_axis(exact, scores->view)) {
      if (choice) choices_.push_back(*std::move(choice));
      return {};
    }
    if (choice && chosen && could_be_taken(*choice, chosen->view)) {
      references->back() = *chosen;
      *order_open = false;
      choice.reset();
    } else if (choice && how_.order == TieOrder::RunnerUp) {
      references->back() = with_runners_up(*choice);
    }
    noisy->back() = references->back();
    if (references->size() == 2) {
      const TensorView& places = references->back().view;
      ASSAY_TRY(references->front(), scores_at(scores->view, places));
      ASSAY_TRY(noisy->front(), scores_at(noisy_scores->view, places));
    }
    if (choice) choices_.push_back(*std::move(choice));
    return {};
  }

  /// Results for one token depend on other tokens' values.
  [[nodiscard]] bool mixes_tokens(const Operator& one, const Region::Call& call) const {
    const OperatorClass kind = reference::aten::class_of(one.name);
    if (kind == OperatorClass::Attention || base_name(one.name).starts_with("cum")) return true;
    if (kind != OperatorClass::Product) return false;
    // A matrix of experts that were chosen is still a weight.
    return std::ranges::count_if(call.operands, [this](size_t operand) {
             return operand != kNone && region_.values[operand].floating &&
                    replay_.leaf_behind(region_, operand).empty();
           }) > 1;
  }

  /// Roundings that are part of what is computed: golden's own casts to eight bits, and those that
  /// LeafRounding::Prepared asks for.
  Status round_steps(const Operator& one, const Region::Call& call, std::vector<Tensor>* references,
                     std::vector<Tensor>* noisy) const {
    if (const std::optional<DType> type = eight_bits_of(one)) {
      for (size_t k = 0; k < std::min(references->size(), noisy->size()); ++k)
        ASSAY_TRY_STATUS(cast_to_eight_bits(*type, &(*references)[k], &(*noisy)[k]));
    }
    if (how_.rounding != LeafRounding::Prepared || !call.learned || call.floating) return {};
    for (std::vector<Tensor>* results : {references, noisy}) {
      for (Tensor& result : *results) {
        ASSAY_TRY(result, round_within(result, region_.dtype));
      }
    }
    return {};
  }

  /// Of a residual that was cast for a module before it was recorded: what it was before is up to
  /// half an ULP away.
  Status undo_cast(const Operator& one, size_t at, Pair* operand) const {
    const Region::Value& value = region_.values[at];
    if (value.source != Source::Recorded || base_name(one.name) != "add" ||
        !replay_.boundaries_[value.boundary].input)
      return {};
    const DType dtype = operand->reference.view.dtype;
    if (dtype != DType::BFloat16 && dtype != DType::Float16) return {};
    const uint64_t seed = (uint64_t{how_.draw} << 40U) + value.boundary;
    ASSAY_TRY(operand->simulated, moved_at_random(operand->simulated, dtype, seed));
    operand->same = false;
    return {};
  }

  /// The float of eight bits that golden's cast goes to.
  [[nodiscard]] std::optional<DType> eight_bits_of(const Operator& one) const {
    if (reference::aten::class_of(one.name) != OperatorClass::Cast || one.outputs.empty())
      return std::nullopt;
    const std::optional<DType> type = float_type(replay_.golden_, one.outputs.front());
    return type && info(*type).element_bits == 8 ? type : std::nullopt;
  }

  /// Where rounding before the cast is n and a step of the cast U, about n / U of the values come
  /// out one step off. Which ones is a matter of chance, so all get the deviation that makes, and
  /// twice of it: a step may be a few values.
  Status cast_to_eight_bits(DType type, Tensor* reference, Tensor* noisy) const {
    const std::optional<FloatGrid> steps = float_grid(type);
    const std::optional<FloatGrid> before = float_grid(region_.dtype);
    if (!steps || !before || !is_float(reference->view.dtype)) return {};
    ASSAY_TRY(const reference::Wide exact, reference::widen(reference->view));
    ASSAY_TRY(const reference::Wide moved, reference::widen(noisy->view));
    ASSAY_TRY(Tensor cast, round_within(*reference, type));
    ASSAY_TRY(*reference, as_float64(cast));
    ASSAY_TRY(reference::Wide values, reference::widen(cast.view));
    for (size_t i = 0; i < values.values.size(); ++i) {
      double& value = values.values[i];
      if (!std::isfinite(value)) continue;
      const double n =
          std::max(std::abs(moved.values[i] - exact.values[i]), 0.5 * before->ulp(exact.values[i]));
      value += std::copysign(std::sqrt(2 * n * steps->ulp(value)), jitter(values.values.size(), i));
    }
    *noisy = reference::to_tensor(std::move(values));
    return {};
  }

  /// Puts what is taken of a set in the order of the places that mine recorded, or turns it round.
  /// True: its order is open.
  Result<bool> order_set(const std::optional<Tensor>& chosen, const Call& call,
                         std::vector<Tensor>* results) const {
    const Tensor* self = argument_of<Tensor>(call.arguments, "self");
    if (self == nullptr || results->size() != 2) return true;
    if (chosen && takes_last_axis(call, self->view)) {
      ASSAY_TRY(auto ordered, in_order_of(results->back().view, chosen->view));
      results->back() = std::move(ordered.first);
      ASSAY_TRY(results->front(), scores_at(self->view, results->back().view));
      if (ordered.second) return false;
    }
    if (how_.order != TieOrder::Reversed) return true;
    const Argument axis{dim_of(call)};
    for (Tensor& result : *results) {
      ASSAY_TRY(std::vector<Tensor> turned,
                reference::aten::evaluate(
                    {"aten.flip.default",
                     {{"self", {result}}, {"dims", {reference::aten::ArgumentList{axis}}}}}));
      result = std::move(turned.front());
    }
    return true;
  }

  /// The places that mine recorded for a choice of golden's.
  [[nodiscard]] std::optional<Tensor> recorded_choice(const Operator& one,
                                                      const std::vector<Tensor>& results) const {
    if (!reference::aten::has_open_order(one.name) || one.outputs.empty() || results.empty())
      return std::nullopt;
    const auto found = replay_.recorded_.find(one.outputs.back().value);
    if (found == replay_.recorded_.end()) return std::nullopt;
    const Boundary& boundary = replay_.boundaries_[found->second.front()];
    Result<Tensor> mine = load_use(replay_.mine_, use_of(replay_.mine_, boundary));
    if (!mine || !is_integer(mine->view.dtype) ||
        !(mine->view.shape == results.back().view.shape) || mine->view.shape.empty())
      return std::nullopt;
    return *std::move(mine);
  }

  /// Puts the places of equal values in golden's order, if that is one for these values, or turns
  /// them round.
  Status order_ties(const Operator& one, const Call& call, std::vector<Tensor>* results) {
    const Tensor* self = argument_of<Tensor>(call.arguments, "self");
    if (self == nullptr || results->empty()) return {};
    ASSAY_TRY(const std::optional<Tensor> turned, turn_ties_round(call, *self, results->back()));
    if (!turned) return {};
    order_open_ = true;
    if (how_.order == TieOrder::Reversed) {
      results->back() = *turned;
      return {};
    }
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    const size_t output = results->size() - 1;
    if (output >= one.outputs.size() || one.outputs[output].record >= records.size()) return {};
    const run::TensorRecord& record = records[one.outputs[output].record];
    if (!record.bytes || !record.shape || !(*record.shape == results->back().view.shape)) return {};
    ASSAY_TRY(Tensor captured, run::load_tensor(record));
    ASSAY_TRY(const bool fits,
              reference::aten::indices_select_same_values(call, *results, output, captured.view));
    if (fits) results->back() = std::move(captured);
    return {};
  }

  /// Views cost nothing to make again, and would keep what they look at.
  void remember(size_t op, const Operator& one, const std::vector<Pair>& results) {
    if (reference::aten::is_view(one.name)) return;
    uint64_t bytes = 0;
    for (const Pair& pair : results)
      bytes +=
          pair.reference.view.storage.size() + (pair.same ? 0 : pair.simulated.view.storage.size());
    const std::scoped_lock lock(replay_.cache_->mutex);
    if (replay_.cache_->bytes + bytes > replay_.cache_->limit) return;
    if (replay_.cache_->operators.emplace(std::tuple(op, region_.dtype, how_.rounding), results)
            .second)
      replay_.cache_->bytes += bytes;
  }

  /// Whether recorded integers are not golden's. Operators whose shapes depend on values, and loops
  /// over what they found, would have been others.
  Result<bool> takes_other_path() {
    const std::vector<run::TensorRecord>& records = replay_.golden_.run->records;
    for (const Region::Value& value : region_.values) {
      if (value.source != Source::Recorded || value.floating) continue;
      const Boundary& boundary = replay_.boundaries_[value.boundary];
      if (boundary.golden_record >= records.size() || !records[boundary.golden_record].bytes)
        continue;
      ASSAY_TRY(const Tensor theirs, run::load_tensor(records[boundary.golden_record]));
      ASSAY_TRY(const Tensor ours, load_use(replay_.mine_, use_of(replay_.mine_, boundary)));
      ASSAY_TRY(const Gap gap,
                measure_gap(ours.view, theirs.view, theirs.view, DType::Float32, false));
      if (gap.r > 0) return true;
    }
    return false;
  }

  const Replay& replay_;
  const Region& region_;
  How how_;
  const CarriedValues* earlier_;
  std::vector<std::optional<Pair>> values_;
  std::vector<uint32_t> uses_;
  std::vector<bool> runs_;
  std::vector<std::vector<Pair>> cached_;
  std::vector<Choice> choices_;
  bool tie_elsewhere_ = false;
  bool order_open_ = false;
  bool other_path_ = false;
  bool other_choice_ = false;
};

bool Replay::reads(const Region& region, const std::vector<std::string>& leaf) const {
  return std::ranges::any_of(region.values, [&](const Region::Value& value) {
    return value.source == Region::Value::Source::Leaf &&
           std::ranges::find(leaf, state_.leaf(value.value)) != leaf.end();
  });
}

bool Replay::has_parameters_of(const Region& region) const {
  return std::ranges::all_of(region.values, [&](const Region::Value& value) {
    if (value.source != Region::Value::Source::Leaf || !value.learned) return true;
    const std::string& leaf = state_.leaf(value.value);
    return leaf_of_mine(leaf) != nullptr || mine_.leaf_types.contains(leaf);
  });
}

bool Replay::overwrites(const Region& region, const std::vector<std::string>& leaf) const {
  const auto is_leaf = [&](size_t at) {
    return at != kNone && region.values[at].source == Region::Value::Source::Leaf &&
           std::ranges::find(leaf, state_.leaf(region.values[at].value)) != leaf.end();
  };
  return std::ranges::all_of(region.operators, [&](const Region::Call& call) {
    const Operator& one = golden_.operators[call.op];
    const std::string_view name = base_name(one.name);
    const bool fills = name == "copy" || name == "fill" || name == "zero";
    for (size_t k = 0; k < call.operands.size(); ++k) {
      if (is_leaf(call.operands[k]) && !(fills && one.inputs[k].slot == "self")) return false;
    }
    return true;
  });
}

Result<Replayed> Replay::run(const Region& region, const How& how) const {
  return Machine(*this, region, how, nullptr).run();
}

Result<Replay::CarriedValue> Replay::run_carried(size_t number, const Mode& mode,
                                                 const CarriedValues& earlier) const {
  ASSAY_TRY(Region region, plan_carried(number));
  region.dtype = mode.dtype;
  return Machine(*this, region, mode.how, &earlier).evaluate();
}

}  // namespace assay::locate
