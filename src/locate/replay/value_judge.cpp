// SPDX-License-Identifier: Apache-2.0
// How one value is judged: golden's program in several ways of rounding, the nearest of which
// counts; choices that rounding decides; and what is said of a value that no way explains.
#include "locate/replay/value_judge.hpp"

#include <algorithm>
#include <cmath>

#include "locate/judge/other_integers.hpp"
#include "locate/noise/narrow_products.hpp"
#include "locate/program/owner.hpp"
#include "locate/program/padding.hpp"
#include "locate/program/shards.hpp"
#include "measure/metrics.hpp"
#include "pair/ranks.hpp"
#include "reference/products/matmul.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "run/strided_payload.hpp"
#include "tensor/convert.hpp"
#include "tensor/equal_bytes.hpp"

namespace assay::locate {
namespace {

// docs/localisation.md, "Cross substitution"
constexpr double kLimit = 2, kElementLimit = 3, kColumnLimit = 2;
constexpr double kLayerLimit = 1.5, kLayerElementLimit = 1.75;
/// Further beyond the limit than this no unlucky draw of the noise takes a healthy value.
constexpr double kLuckyExcess = 20;
// docs/localisation.md, "The order of things"
constexpr double kMediumRatio = 4, kMediumElementRatio = 6;

/// Some rows of the last axis but one, in fp64.
Result<Tensor> some_rows(const Tensor& tensor, const std::vector<int64_t>& rows) {
  const Dims& shape = tensor.view.shape;
  if (shape.size() < 2) return fail(Errc::Invalid, "a tensor without rows");
  ASSAY_TRY(const reference::Wide all, reference::widen(tensor.view));
  const int64_t columns = shape[shape.size() - 1];
  const int64_t count = shape[shape.size() - 2];
  const int64_t outer = count * columns == 0 ? 0 : all.size() / (count * columns);
  Dims selected = shape;
  selected[shape.size() - 2] = static_cast<int64_t>(rows.size());
  reference::Wide some(selected);
  double* to = some.values.data();
  for (int64_t i = 0; i < outer; ++i) {
    for (const int64_t row : rows) {
      if (row < 0 || row >= count) return fail(Errc::Invalid, "a row beyond the tensor's");
      to = std::copy_n(all.values.data() + (i * count + row) * columns, columns, to);
    }
  }
  return reference::to_tensor(std::move(some));
}

/// The same of rows wherever their tokens lie, as [row, value].
Result<Tensor> some_rows(const Tensor& tensor, const RowsOfTokens& shown) {
  ASSAY_TRY(const reference::Wide all, reference::widen(tensor.view));
  reference::Wide some(Dims{static_cast<int64_t>(shown.rows.size()), shown.width});
  double* to = some.values.data();
  for (const int64_t row : shown.rows)
    to = std::copy_n(all.values.data() + row * shown.width, shown.width, to);
  return reference::to_tensor(std::move(some));
}

/// Values or places along an axis in rising order.
Result<Tensor> with_sorted_rows(const Tensor& tensor, size_t axis) {
  const Dims& shape = tensor.view.shape;
  size_t inner = 1;
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= static_cast<size_t>(shape[i]);
  const auto length = static_cast<size_t>(shape[axis]);
  const auto sort = [&](auto array) {
    std::vector<std::decay_t<decltype(array.values[0])>> row(length);
    for (size_t first = 0; first < array.values.size(); ++first) {
      if (first / inner % length != 0) continue;
      for (size_t i = 0; i < length; ++i) row[i] = array.values[first + i * inner];
      std::ranges::sort(row,
                        [](auto a, auto b) { return a < b || (b != b && a == a); });  // NaN last
      for (size_t i = 0; i < length; ++i) array.values[first + i * inner] = row[i];
    }
    return reference::to_tensor(std::move(array));
  };
  if (length == 0 || inner == 0) return tensor;
  if (is_float(tensor.view.dtype)) {
    ASSAY_TRY(reference::Wide values, reference::widen(tensor.view));
    return sort(std::move(values));
  }
  ASSAY_TRY(reference::Whole places, reference::whole(tensor.view));
  return sort(std::move(places));
}

/// Equal bit for bit after a cast to the narrower of both types.
Result<bool> is_same_value(const Tensor& a, const Tensor& b) {
  if (!(a.view.shape == b.view.shape)) return false;
  const bool first_is_narrow = info(a.view.dtype).element_bits <= info(b.view.dtype).element_bits;
  const Tensor& narrow = first_is_narrow ? a : b;
  const Tensor& wide = first_is_narrow ? b : a;
  if (is_float(narrow.view.dtype) != is_float(wide.view.dtype)) return false;
  ASSAY_TRY(const Tensor cast, wide.view.dtype == narrow.view.dtype
                                   ? Result<Tensor>(wide)
                                   : reference::narrow(wide.view, narrow.view.dtype));
  if (info(narrow.view.dtype).element_bits < 8) return fail(Errc::Unsupported, "packed values");
  return has_equal_bytes(narrow.view, cast.view);
}

bool same_place(const run::TensorRecord& a, const run::TensorRecord& b) {
  return run::has_same_payload(a, b) && a.dtype == b.dtype && a.shape == b.shape;
}

}  // namespace

bool has_padded_columns(const Dims& mine, const Dims& golden) {
  if (mine.empty() || mine.size() != golden.size()) return false;
  return std::equal(mine.begin(), mine.end() - 1, golden.begin()) &&
         mine[mine.size() - 1] > golden[golden.size() - 1];
}

bool has_last_rows(const Dims& mine, const Dims& golden) {
  const size_t axes = mine.size();
  if (axes < 2 || axes != golden.size() || mine[axes - 2] >= golden[axes - 2]) return false;
  Dims as_many = golden;
  as_many[axes - 2] = mine[axes - 2];
  return mine == as_many;
}

namespace {

class Bench : public ValueJudge {
 public:
  Bench(const Scene& scene, const Replay& replay, FarOnes far_ones, Substitutes of_mine)
      : golden_(scene.golden),
        mine_(scene.mine),
        pairing_(scene.pairing),
        options_(scene.options),
        limit_(options_.r_limit > 0                     ? options_.r_limit
               : options_.level == CaptureLevel::Layers ? kLayerLimit
                                                        : kLimit),
        element_limit_(options_.r_element_limit > 0             ? options_.r_element_limit
                       : options_.level == CaptureLevel::Layers ? kLayerElementLimit
                                                                : kElementLimit),
        replay_(replay),
        gate_(scene.gate),
        far_ones_(far_ones),
        of_mine_(std::move(of_mine)),
        // Both were given the same inputs; of the run under test they may not have been captured.
        paddings_(Padding::of_steps(golden_)),
        has_ranks_(pair::ranks_of(*golden_.run).size() > 1) {}

  [[nodiscard]] double limit() const override { return limit_; }

  [[nodiscard]] Judged judge(size_t i, const std::vector<bool>& unusable) const override {
    const Boundary& boundary = replay_.boundaries()[i];
    Judged judged;
    judged.step.call = boundary.call;
    judged.step.use = boundary.use;
    judged.step.input = boundary.input;
    judged.step.owner = mine_.calls[boundary.call].module;
    if (Status status = judge_value(i, unusable, &judged); !status) {
      judged.step.reason = status.error().message;
      judged.step.suspicious = false;
      judged.finding.reset();
    }
    return judged;
  }

  void add_carried(size_t i, Judged* judged) const override {
    if (judged->carried.empty()) return;
    const Result<Region> whole = replay_.plan(i, {}, Carry::No);
    if (!whole) return;  // it was planned before, with the same operators
    judged->recorded.clear();
    for (const Region::Value& value : whole->values) {
      if (value.source == Region::Value::Source::Recorded)
        judged->recorded.push_back(value.boundary);
    }
  }

  [[nodiscard]] Effect effect(const Replayed& right, const Result<Replayed>& moved,
                              DType dtype) const override {
    if (!moved) return {};
    const TensorView& view = moved->reference.view;
    if (!(right.reference.view.shape == view.shape)) return {INFINITY, INFINITY};
    const Result<Gap> gap =
        measure_gap(view, right.reference.view, right.simulated.view, dtype, false);
    if (!gap) return {};
    return {excess_of_whole(*gap), measure::relative_l2(right.reference.view, view)};
  }

  [[nodiscard]] Effect effect(const Region& region, const Substitutes& others) const override {
    const Result<Replayed> right = replay_.run(region, {});
    return right ? effect(*right, replay_.run(region, {.of_mine = others}), region.dtype)
                 : Effect{};
  }

  [[nodiscard]] Result<Tensor> reference(size_t i) const override {
    ASSAY_TRY(const Region region, replay_.plan(i, {}));
    ASSAY_TRY(Replayed replayed, run(region, {}));
    return std::move(replayed.reference);
  }

  /// "output 1 of model.layers.0.mlp.gate has shape [17, 1] against golden's [17, 2]"
  [[nodiscard]] std::string shape_difference(size_t number) const override {
    const Boundary& boundary = replay_.boundaries()[number];
    const run::TensorRecord& mine = mine_.run->records[use_of(mine_, boundary).record];
    const run::TensorRecord& golden = golden_.run->records[boundary.golden_record];
    return value_text(number) + " has shape " + list_text(mine.shape->span()) +
           " against golden's " + list_text(golden.shape->span());
  }

 private:
  Status judge_value(size_t i, const std::vector<bool>& unusable, Judged* judged) const {
    const Boundary& boundary = replay_.boundaries()[i];
    const Use& use = use_of(mine_, boundary);
    const run::TensorRecord& record = mine_.run->records[use.record];
    if (!record.bytes) return fail(Errc::NotFound, "not captured in full");
    if (boundary.reshaped != kNoValue)
      return fail(Errc::Invalid, "program differs here, cannot judge: other shapes");
    judged->step.unknown_to_golden = boundary.golden == kNoValue;
    if (boundary.golden == kNoValue)
      return fail(Errc::NotFound, "golden has no such value: program differs here, cannot judge");
    const size_t before = replay_.recorded(boundary.golden, i, unusable);
    if (before == kNone) return judge_replayed(i, unusable, judged);
    judged->recorded.push_back(before);
    judged->handed_over = true;
    return judge_handed_over(i, before, judged);
  }

  [[nodiscard]] bool follows_other_integers(const Boundary& boundary) const {
    const ModuleCall& call = mine_.calls[boundary.call];
    return locate::follows_other_integers(golden_, mine_, pairing_,
                                          {call.module, call.rank, call.step, call.begin, call.end},
                                          boundary.call);
  }

  /// Is made by or of a module that is called several times in a step: of a loop over experts
  /// golden's record has the rounds of its own choice, in numbers.
  [[nodiscard]] bool has_loop(const Region& region) const {
    const auto is_called_again = [](const Program& program, std::string_view module, int rank,
                                    int64_t step) {
      return std::ranges::count_if(program.calls, [&](const ModuleCall& call) {
               return call.module == module && call.rank == rank && call.step == step;
             }) > 1;
    };
    const bool makes = std::ranges::any_of(region.operators, [&](const Region::Call& call) {
      const Operator& one = golden_.operators[call.op];
      return is_called_again(golden_, one.module, one.rank, one.step);
    });
    return makes || std::ranges::any_of(region.values, [&](const Region::Value& value) {
             if (value.source != Region::Value::Source::Recorded) return false;
             const ModuleCall& call = mine_.calls[replay_.boundaries()[value.boundary].call];
             return is_called_again(mine_, call.module, call.rank, call.step);
           });
  }

  [[nodiscard]] bool is_partial_sum(const Use& use) const {
    const auto joined = mine_.joined.find(use.record);
    return joined != mine_.joined.end() && joined->second.merge == pair::Merge::Sum;
  }

  /// What the ranks hold of a sum, added up in the type of the result: one rounding a rank.
  Result<Tensor> added_with_roundings(const Use& use, DType dtype) const {
    std::optional<Tensor> sum;
    for (const size_t part : mine_.joined.at(use.record).records) {
      ASSAY_TRY(const Tensor more, run::load_tensor(mine_.run->records[part]));
      if (!sum) {
        sum = more;
        continue;
      }
      ASSAY_TRY(reference::Wide both, reference::widen(sum->view));
      ASSAY_TRY(const reference::Wide wide, reference::widen(more.view));
      if (wide.size() != both.size()) return fail(Errc::Invalid, "partial sums of other shapes");
      for (size_t i = 0; i < wide.values.size(); ++i) both.values[i] += wide.values[i];
      const Tensor exact = reference::to_tensor(std::move(both));
      ASSAY_TRY(sum, reference::narrow(exact.view, dtype));
    }
    return *std::move(sum);
  }

  /// The value is one that was recorded before.
  Status judge_handed_over(size_t i, size_t before, Judged* judged) const {
    const Boundary& boundary = replay_.boundaries()[i];
    const Use& use = use_of(mine_, boundary);
    const Use& earlier = use_of(mine_, replay_.boundaries()[before]);
    // The first rank's bytes may be a value, and the part of another one that all ranks have.
    const bool is_part = mine_.joined.contains(use.record);
    if (is_part == mine_.joined.contains(earlier.record) &&
        same_place(mine_.run->records[use.record], mine_.run->records[earlier.record]))
      return {};
    ASSAY_TRY(const Tensor value, load_use(mine_, use));
    ASSAY_TRY(const Tensor source, load_use(mine_, earlier));
    if (!(value.view.shape == source.view.shape) ||
        is_float(value.view.dtype) != is_float(source.view.dtype))
      return fail(Errc::Invalid, "program differs here, cannot judge: other shapes");
    ASSAY_TRY(const bool same, is_same_value(value, source));
    if (same) return {};
    const DType narrower =
        info(value.view.dtype).element_bits <= info(source.view.dtype).element_bits
            ? value.view.dtype
            : source.view.dtype;
    const bool is_sum = !is_part && is_partial_sum(earlier);
    ASSAY_TRY(const Tensor rounded,
              is_sum ? added_with_roundings(earlier, value.view.dtype) : Result<Tensor>(source));
    ASSAY_TRY(const Gap gap, measure_gap(value.view, source.view, rounded.view, narrower, false));
    set(gap, &judged->step);
    judged->step.type = narrower;
    // An input must be what was handed over; an output may be rounded once more on its way out.
    judged->step.suspicious = (boundary.input && !is_sum) || is_beyond(gap);
    if (!judged->step.suspicious) return {};
    if (follows_other_integers(boundary)) return fail(Errc::Unsupported, kOtherIndices);
    const std::string& from = mine_.calls[replay_.boundaries()[before].call].module;
    const std::string& module = mine_.calls[boundary.call].module;
    Finding finding = make_finding(i, *judged, {module, common_module({module, from})});
    finding.kind = boundary.input ? FindingKind::Edge : FindingKind::Gap;
    finding.err_in = 0;
    finding.detail = std::string(boundary.input ? "input" : "output") + " is not the " +
                     (replay_.boundaries()[before].input ? "input" : "output") + " of " +
                     (from.empty() ? std::string("the model") : from) + " that it should be";
    judged->finding = std::move(finding);
    return {};
  }

  Status judge_replayed(size_t i, const std::vector<bool>& unusable, Judged* judged) const {
    const Boundary& boundary = replay_.boundaries()[i];
    ASSAY_TRY(const Region region, replay_.plan(i, unusable));
    for (const Region::Value& value : region.values) {
      if (value.source == Region::Value::Source::Recorded)
        judged->recorded.push_back(value.boundary);
    }
    judged->carried = region.carried;
    judged->step.operators = region.operators.size();
    const auto is_of_mine = [](const Region::Value& value) { return value.floating; };
    if (region.around != kNone && std::ranges::none_of(region.values, is_of_mine))
      return fail(Errc::Invalid, "program differs here, cannot judge: other shapes");
    const run::TensorRecord& record = mine_.run->records[use_of(mine_, boundary).record];
    if (record.dtype && is_float(*record.dtype) && !is_judged_type(region.dtype))
      return fail(Errc::Unsupported,
                  "no wider reference than " + std::string(name(region.dtype)) + " to judge by");
    judged->step.by_product = region.dtype == DType::Float32 &&
                              std::ranges::any_of(region.operators, [&](const Region::Call& call) {
                                return call.floating && is_product(golden_.operators[call.op].name);
                              });
    gate_->enter(region.bytes);
    const Status status = measure(i, region, judged);
    gate_->leave(region.bytes);
    ASSAY_TRY_STATUS(status);

    std::vector<std::string_view> modules;
    for (const Region::Call& call : region.operators) {
      judged->operators.push_back(call.op);
      if (call.floating) modules.push_back(golden_.operators[call.op].module);
    }
    for (const size_t number : region.carried) {
      const std::vector<std::string_view>& earlier = replay_.carried(number).modules;
      modules.insert(modules.end(), earlier.begin(), earlier.end());
    }
    Owner owner = name_owner(mine_.calls[boundary.call].module, boundary.input, modules);
    // A list of modules computes nothing: it was the module that made the value.
    const auto maker = std::ranges::find_if(region.operators.rbegin(), region.operators.rend(),
                                            &Region::Call::floating);
    if (boundary.input && maker != region.operators.rend() && !is_called(owner.module))
      owner.module = golden_.operators[maker->op].module;
    judged->step.owner = owner.module;
    if (!judged->step.suspicious) return {};
    // Only for what is said about it: without the values behind earlier steps it is as wrong.
    const Result<Region> whole = replay_.plan(i, unusable, Carry::No);
    if (whole) judged->step.operators = whole->operators.size();
    Finding finding = make_finding(i, *judged, std::move(owner));
    finding.err_in = error_of_inputs(whole ? *whole : region);
    finding.detail = detail_of(i, judged->step);
    if (region.around != kNone && has_other_count(region.around))
      blame_shape(region.around, &finding);
    judged->finding = std::move(finding);
    return {};
  }

  [[nodiscard]] bool is_called(std::string_view module) const {
    return std::ranges::any_of(golden_.calls,
                               [&](const ModuleCall& call) { return call.module == module; });
  }

  /// In all its calls of the step, of which there may be one for each expert, the module has there
  /// another number of values than golden's.
  [[nodiscard]] bool has_other_count(size_t boundary) const {
    const Boundary& place = replay_.boundaries()[boundary];
    const ModuleCall& call = mine_.calls[place.call];
    int64_t more = 0;
    for (const Program* program : {&mine_, &golden_}) {
      for (const ModuleCall& one : program->calls) {
        if (one.module != call.module || one.rank != call.rank || one.step != call.step) continue;
        for (const Use& use : place.input ? one.inputs : one.outputs) {
          if (use.slot != use_of(mine_, place).slot) continue;
          const int64_t count = elements_of(program->run->records[use.record]);
          more += program == &mine_ ? count : -count;
        }
      }
    }
    return more != 0;
  }

  /// The value was judged without one of mine of which there is more or less than golden has, and is
  /// wrong: that is the cause.
  void blame_shape(size_t other, Finding* finding) const {
    const Boundary& boundary = replay_.boundaries()[other];
    const ModuleCall& call = mine_.calls[boundary.call];
    const Use& use = use_of(mine_, boundary);
    finding->module = call.module;
    finding->also.clear();
    finding->node = call.module;
    finding->op_type = call.type;
    finding->slot = use.slot;
    finding->time = use.time;
    finding->mine_record = use.record;
    finding->golden_record = boundary.golden_record;
    finding->detail = shape_difference(other);
  }

  /// The cosine of the value's error and of the simulated one: kernels that round their operands err
  /// by the same in both.
  static double likeness(const Tensor& value, const Replayed& golden) {
    const Result<reference::Wide> mine = reference::widen(value.view);
    const Result<reference::Wide> exact = reference::widen(golden.reference.view);
    const Result<reference::Wide> noisy = reference::widen(golden.simulated.view);
    if (!mine || !exact || !noisy || mine->size() != exact->size() ||
        noisy->size() != exact->size())
      return NAN;
    double product = 0, of_mine = 0, of_noise = 0;
    for (size_t i = 0; i < exact->values.size(); ++i) {
      const double error = mine->values[i] - exact->values[i];
      const double noise = noisy->values[i] - exact->values[i];
      if (!std::isfinite(error) || !std::isfinite(noise)) continue;
      product += error * noise;
      of_mine += error * error;
      of_noise += noise * noise;
    }
    return product / std::sqrt(of_mine * of_noise);
  }

  /// Few sources of noise are no average: their error alone is beyond twice its deviation by chance,
  /// of one source in 5 cases of 100. What a healthy error may be, over the usual 2: where
  /// chi-square of k sources over k leaves one case in 100 000.
  [[nodiscard]] static double excess_of_few(const NoiseDraws& draws) {
    constexpr double kDeviations = 4.265;
    return std::max(1.0, usual_excess(draws.effective_count(), kDeviations) / kLimit);
  }

  /// A few elements have most of the error, as a channel that is much larger than the others: that
  /// the simulated noise is small at just these is no rare chance.
  static bool is_error_of_few(const Tensor& mine, const Tensor& reference) {
    const Result<reference::Wide> ours = reference::widen(mine.view);
    const Result<reference::Wide> theirs = reference::widen(reference.view);
    if (!ours || !theirs || ours->size() != theirs->size()) return false;
    double squares = 0, fourths = 0;
    for (size_t i = 0; i < ours->values.size(); ++i) {
      const double error = ours->values[i] - theirs->values[i];
      squares += error * error;
      fourths += error * error * error * error;
    }
    return std::isfinite(fourths) && squares * squares < kFewToAverage * fourths;
  }

  /// Of few values, of a row with one scale and of a single element the simulated noise is one
  /// draw, which may be small by chance. More draws say what it usually is.
  Status widen_lucky_floor(const Boundary& boundary, const Tensor& value, const Region& region,
                           const How& how, bool masks, Gap* gap) const {
    // Roundings of few values are moved to one side or the other: in 8 draws two of them go the
    // same way in one case of 256, and what should not cancel does. What still looks wrong has the
    // number of its sources counted by more of them, too.
    constexpr uint32_t kDraws = 8, kDrawsOfFew = 32;
    const bool is_few = value.view.element_count() <= kFewToAverage;
    NoiseDraws draws;
    Tensor reference;
    How drawn = how;
    Gap usual;
    for (const uint32_t count : {is_few ? kDrawsOfFew : kDraws, kDrawsOfFew}) {
      while (drawn.draw < count) {
        ++drawn.draw;
        ASSAY_TRY(const Replayed replayed, run(region, drawn));
        ASSAY_TRY_STATUS(draws.add(replayed.reference, replayed.simulated, region.dtype));
        reference = replayed.reference;
      }
      ASSAY_TRY(usual, measure_rows(boundary, value, {reference, draws.usual()}, region.dtype,
                                    masks, NoiseOf::Draws));
      if (!is_beyond(usual) || excess(usual) > kShown) break;  // few sources excuse less than that
    }
    const double few = excess_of_few(draws);
    gap->r = std::min(gap->r, usual.r) / few;
    gap->r_element = std::min(gap->r_element, usual.r_element) / few;
    gap->r_column = std::min(gap->r_column, usual.r_column) / few;
    gap->noise_floor = std::max(gap->noise_floor, usual.noise_floor) * few;
    return {};
  }

  /// Else a weight that was merged with others or had a factor folded into it is rounded in another
  /// way than golden's parts are, which moves all rows of a column by the same.
  [[nodiscard]] bool has_goldens_parameters(const Region& region) const {
    return replay_.has_parameters_of(region) &&
           std::ranges::none_of(options_.other_leaves, [&](const OtherLeaf& leaf) {
             return !leaf.buffer && replay_.reads(region, leaf.golden);
           });
  }

  /// Runs the region with golden's leaves rounded as mine holds them; while the value looks wrong,
  /// with leaves as golden has them, with leaves rounded on the fly, with what is made of leaves
  /// alone rounded, with the scores of attention stored as a chain of operators stores them, with
  /// residuals that were wider than they are recorded, and with the statistics of norms rounded.
  /// The smallest error counts.
  Status measure(size_t i, const Region& region, Judged* judged) const {
    const Boundary& boundary = replay_.boundaries()[i];
    ASSAY_TRY(Tensor value, load_use(mine_, use_of(mine_, boundary)));
    if (const size_t theirs = boundary.golden_record; theirs < golden_.run->records.size()) {
      const InternedDims shape = golden_.run->records[theirs].shape;
      if (shape && options_.padded && has_padded_columns(value.view.shape, *shape))
        value.view = reference::section(value.view, value.view.shape.size() - 1, 0,
                                        (*shape)[shape->size() - 1]);
    }
    const bool masks = std::ranges::none_of(region.operators, &Region::Call::floating) &&
                       !region.values[0].floating;
    const bool by_columns = has_goldens_parameters(region);
    Gap best;
    Replayed nearest;
    bool order_open = false, first = true;
    How way;
    std::vector<How> ways;
    const auto attempt = [&](const How& how) -> Status {
      ASSAY_TRY(Replayed replayed, run(region, how));
      ASSAY_TRY(Gap gap, measure_rows(boundary, value, {replayed.reference, replayed.simulated},
                                      region.dtype, masks));
      if (!by_columns) gap.r_column = 0;
      ways.push_back(how);
      order_open = order_open || replayed.order_open;
      if (first || excess(gap) < excess(best)) {
        best = gap;
        way = how;
        nearest = std::move(replayed);
      }
      first = false;
      return {};
    };
    for (const How& how :
         {How{}, How{.rounding = LeafRounding::None}, How{.rounding = LeafRounding::Narrowest},
          How{.rounding = LeafRounding::Prepared}, How{.kernel = AttentionKernel::Chain},
          How{.wide_residual = true}, How{.statistics = Statistics::Rounded}}) {
      if (!first && (!options_.probes.empty() || !is_beyond(best) || is_left(best))) break;
      if (how.kernel == AttentionKernel::Chain && !has_attention(region)) continue;
      ASSAY_TRY_STATUS(attempt(how));
    }
    if (is_beyond(best) && options_.probes.empty() && !is_left(best) &&
        (excess_of_whole(best) < kLuckyExcess || is_error_of_few(value, nearest.reference)))
      ASSAY_TRY_STATUS(widen_lucky_floor(boundary, value, region, way, masks, &best));
    set(best, &judged->step);
    judged->step.type = replay_.rounding_type(region);
    if (mine_.products != ProductType::Float32 && judged->step.by_product)
      judged->step.likeness = likeness(value, nearest);
    judged->step.suspicious = is_beyond(best);
    ASSAY_TRY_STATUS(add_narrowed_table(region, &judged->step));
    if (!judged->step.suspicious)
      return check_hidden_rows(boundary, value, nearest, region.dtype, masks);
    if (order_open) {
      ASSAY_TRY(const std::optional<OpenOrder> order, open_order(region));
      judged->order_open = order.has_value();
      if (order && !order->axis)
        return fail(Errc::Unsupported, "depends on the order of equal values in a sort");
      if (order) return judge_as_set(i, region, value, nearest, *order->axis, judged);
    }
    // Healthy reasons to be this far away, none of which golden's program can rule out.
    if (nearest.other_path ||
        ((nearest.other_choice || !nearest.choices.empty()) && has_loop(region)))
      return fail(Errc::Unsupported, kOtherIndices);
    if (is_of_other_ranks(region) &&
        measure::relative_l2(value.view, nearest.reference.view) <= kReplicaDifference)
      return fail(Errc::Unsupported, "is what other ranks gave golden, to their rounding");
    if (region.from_before)
      return fail(Errc::NotFound, "needs a value that was made before the capture began");
    if (nearest.tie_elsewhere) return fail(Errc::Unsupported, kOpenChoice);
    if (nearest.choices.empty()) return {};
    ASSAY_TRY_STATUS(judge_choices(region, way, value, nearest, masks, judged));
    if (judged->step.suspicious)
      ASSAY_TRY_STATUS(judge_choices_otherwise(region, ways, value, masks, judged));
    return {};
  }

  /// A table that mine makes of a narrower buffer is golden's to rounding, however far the buffer's
  /// own rounding moved it: that much would not be seen.
  Status add_narrowed_table(const Region& region, WalkStep* step) const {
    const Region::Value& table = region.values[0];
    const bool is_table = !table.learned && !table.floating;
    if (is_table || step->suspicious) step->narrowed = replay_.narrowed_buffer(region, !is_table);
    if (step->narrowed.empty() || step->suspicious) return {};
    ASSAY_TRY(const Replayed own, run(region, {}));
    ASSAY_TRY(const Replayed golden, run(region, {.rounding = LeafRounding::None}));
    const double moved = measure::relative_l2(golden.reference.view, own.reference.view);
    step->type = replay_.parameter_type(step->type);
    if (moved > limit_ * step->noise_floor)
      step->noise_floor = moved / limit_;
    else
      step->narrowed.clear();
    return {};
  }

  /// With what golden's program has of mine in place of its own.
  [[nodiscard]] Result<Replayed> run(const Region& region, How how) const {
    how.of_mine = of_mine_;
    return replay_.run(region, how);
  }

  /// Where zeros of the mask may mean tokens that are shown, those rows tell, too.
  Status check_hidden_rows(const Boundary& boundary, const Tensor& value, const Replayed& replayed,
                           DType dtype, bool masks) const {
    const auto padding = paddings_.find(mine_.calls[boundary.call].step);
    if (!shown_rows(boundary, value) || padding->second.is_certain()) return {};
    ASSAY_TRY(const Gap gap, measure_gap(value.view, replayed.reference.view,
                                         replayed.simulated.view, dtype, masks));
    if (excess_of_whole(gap) <= 1) return {};
    return fail(Errc::Unsupported,
                "attention_mask may hide the tokens at its zeros or show only these");
  }

  /// The nearest way by values may be another than that of the run under test: weights of another
  /// type can hide that a choice was close.
  Status judge_choices_otherwise(const Region& region, const std::vector<How>& ways,
                                 const Tensor& value, bool masks, Judged* judged) const {
    for (const How& way : ways) {
      ASSAY_TRY(const Replayed replayed, run(region, way));
      if (replayed.choices.empty()) continue;
      Judged other = *judged;
      const Status status = judge_choices(region, way, value, replayed, masks, &other);
      if (!status || other.step.suspicious) continue;
      *judged = std::move(other);
      return {};
    }
    return {};
  }

  static constexpr const char* kOtherIndices =
      "golden's operators follow other indices than those of the run under test";
  static constexpr const char* kOpenChoice =
      "rounding decides a selection in it (top-k or arg max)";

  /// Where rounding decides a choice only the tokens it is made for are excused, and of these only
  /// what another choice within the noise gives.
  Status judge_choices(const Region& region, How way, const Tensor& value, const Replayed& replayed,
                       bool masks, Judged* judged) const {
    if (is_another_choice(value, replayed)) return excuse(judged);
    const auto tokens = tokens_of(replayed.choices, value.view.shape);
    if (!tokens) return fail(Errc::Unsupported, kOpenChoice);
    way.order = TieOrder::RunnerUp;
    ASSAY_TRY(const Replayed runner_up, run(region, way));
    const auto measure = [&](bool with_open) -> Result<Gap> {
      ASSAY_TRY(const Compared some,
                compared_tokens(value, {replayed.reference, replayed.simulated},
                                {runner_up.reference, runner_up.simulated}, *tokens, with_open));
      ASSAY_TRY(Gap of_tokens, measure_gap(some.mine.view, some.golden.reference.view,
                                           some.golden.simulated.view, region.dtype, masks));
      of_tokens.r_column = 0;  // of one draw: nothing to accuse by
      return of_tokens;
    };
    ASSAY_TRY(Gap gap, measure(true));
    if (is_beyond(gap)) {
      ASSAY_TRY(gap, measure(false));
      if (!is_beyond(gap)) return fail(Errc::Unsupported, kOpenChoice);
    }
    set(gap, &judged->step);
    judged->step.suspicious = is_beyond(gap);
    return {};
  }

  static Status excuse(Judged* judged) {
    set({}, &judged->step);
    judged->step.suspicious = false;
    return {};
  }

  /// The places of a choice itself.
  static bool is_another_choice(const Tensor& value, const Replayed& replayed) {
    if (!is_integer(value.view.dtype)) return false;
    const Result<reference::Whole> right = reference::whole(replayed.reference.view);
    return right && std::ranges::any_of(replayed.choices, [&](const Choice& choice) {
             return choice.last_axis && choice.places.values == right->values &&
                    could_be_taken(choice, value.view);
           });
  }

  /// Padding tells nothing: what kernels compute there is theirs to choose.
  [[nodiscard]] std::optional<RowsOfTokens> shown_rows(const Boundary& boundary,
                                                       const Tensor& value) const {
    const auto padding = paddings_.find(mine_.calls[boundary.call].step);
    if (padding == paddings_.end() || !is_float(value.view.dtype)) return std::nullopt;
    return padding->second.shown_rows(value.view.shape);
  }

  static TensorView last_rows(const Tensor& tensor, const Tensor& like) {
    const size_t axis = tensor.view.shape.size() - 2;
    const int64_t count = like.view.shape[axis];
    return reference::section(tensor.view, axis, tensor.view.shape[axis] - count, count);
  }

  /// Over the rows that mine computed.
  [[nodiscard]] Result<Gap> measure_rows(const Boundary& boundary, const Tensor& value,
                                         const Replica& golden, DType dtype, bool masks,
                                         NoiseOf noise = NoiseOf::OneDraw) const {
    if (boundary.last_rows && has_last_rows(value.view.shape, golden.reference.view.shape))
      return measure_gap(value.view, last_rows(golden.reference, value),
                         last_rows(golden.simulated, value), dtype, masks, noise);
    const auto of_rows = [&](const auto& some) -> Result<Gap> {
      ASSAY_TRY(const Tensor mine, some_rows(value, some));
      ASSAY_TRY(const Tensor reference, some_rows(golden.reference, some));
      ASSAY_TRY(const Tensor simulated, some_rows(golden.simulated, some));
      return measure_gap(mine.view, reference.view, simulated.view, dtype, masks, noise);
    };
    if (const auto shown = shown_rows(boundary, value);
        shown && value.view.shape == golden.reference.view.shape) {
      return of_rows(*shown);
    }
    const auto rows = mine_.computed_rows.find(use_of(mine_, boundary).record);
    if (rows == mine_.computed_rows.end())
      return measure_gap(value.view, golden.reference.view, golden.simulated.view, dtype, masks,
                         noise);
    ASSAY_TRY(Gap gap, of_rows(rows->second));
    // Of one row the noise is one draw, where it is one scale's; the other rows say what it usually
    // is.
    const double usual = measure::relative_l2(golden.reference.view, golden.simulated.view);
    if (gap.noise_floor > 0 && std::isfinite(usual) && usual > gap.noise_floor) {
      const double smaller = gap.noise_floor / usual;
      gap.r *= smaller;
      gap.r_element *= smaller;
      gap.r_column *= smaller;
      gap.noise_floor = usual;
    }
    return gap;
  }

  [[nodiscard]] bool has_attention(const Region& region) const {
    return std::ranges::any_of(region.operators, [&](const Region::Call& call) {
      return reference::aten::class_of(golden_.operators[call.op].name) ==
             reference::aten::OperatorClass::Attention;
    });
  }

  /// How a value depends on an order that its program leaves open.
  struct OpenOrder {
    std::optional<size_t> axis;  // only that along it the same values come in another order
  };

  /// Nothing where it does not.
  [[nodiscard]] Result<std::optional<OpenOrder>> open_order(const Region& region) const {
    ASSAY_TRY(const Replayed one, run(region, {}));
    ASSAY_TRY(const Replayed other, run(region, {.order = TieOrder::Reversed}));
    ASSAY_TRY(const bool same, is_same_in_fp64(one.reference, other.reference));
    if (same) return std::nullopt;
    for (size_t axis = one.reference.view.shape.size(); axis-- > 0;) {
      ASSAY_TRY(const Tensor first, with_sorted_rows(one.reference, axis));
      ASSAY_TRY(const Tensor second, with_sorted_rows(other.reference, axis));
      ASSAY_TRY(const bool permuted, is_same_in_fp64(first, second));
      if (permuted) return OpenOrder{axis};
    }
    return OpenOrder{};
  }

  static Result<bool> is_same_in_fp64(const Tensor& a, const Tensor& b) {
    if (!is_float(a.view.dtype)) return is_same_value(a, b);
    constexpr double kSumsInAnotherOrder = 1e-9;
    return measure::relative_l2(a.view, b.view) < kSumsInAnotherOrder;
  }

  /// The value in whatever order along an axis.
  Status judge_as_set(size_t i, const Region& region, const Tensor& value, const Replayed& replayed,
                      size_t axis, Judged* judged) const {
    if (is_another_choice(value, replayed)) return excuse(judged);
    ASSAY_TRY(const Tensor mine, with_sorted_rows(value, axis));
    ASSAY_TRY(const Tensor reference, with_sorted_rows(replayed.reference, axis));
    ASSAY_TRY(const Tensor simulated, with_sorted_rows(replayed.simulated, axis));
    ASSAY_TRY(Gap gap, measure_rows(replay_.boundaries()[i], mine, {reference, simulated},
                                    region.dtype, false));
    gap.r_column = 0;  // of columns that are none
    set(gap, &judged->step);
    judged->step.suspicious = is_beyond(gap);
    if (judged->step.suspicious && !replayed.choices.empty())
      return fail(Errc::Unsupported, kOpenChoice);
    return {};
  }

  /// What no operator of this rank made is known to golden as it was; ranks of the run under test
  /// need not come to it with the same rounding.
  [[nodiscard]] bool is_of_other_ranks(const Region& region) const {
    return has_ranks_ && region.operators.empty() &&
           region.values[0].source == Region::Value::Source::Anonymous;
  }

  [[nodiscard]] bool is_beyond(const Gap& gap) const { return excess(gap) > 1; }

  [[nodiscard]] bool is_left(const Gap& gap) const {
    return far_ones_ == FarOnes::Left && excess(gap) > kShown;
  }

  [[nodiscard]] double excess(const Gap& gap) const {
    return std::max(excess_of_whole(gap), gap.r_column / kColumnLimit);
  }

  /// Without columns, whose noise in one draw is small by chance more often.
  [[nodiscard]] double excess_of_whole(const Gap& gap) const {
    return std::max(gap.r / limit_, gap.r_element / element_limit_);
  }

  static void set(const Gap& gap, WalkStep* step) {
    step->r = gap.r;
    step->r_element = gap.r_element;
    step->r_column = gap.r_column;
    step->err_own = gap.err_own;
    step->noise_floor = gap.noise_floor;
  }

  Finding make_finding(size_t i, const Judged& judged, Owner owner) const {
    const Boundary& boundary = replay_.boundaries()[i];
    const ModuleCall& call = mine_.calls[boundary.call];
    const Use& use = use_of(mine_, boundary);
    Finding finding;
    finding.kind = FindingKind::Gap;
    finding.confidence = judged.step.r > kMediumRatio ||
                                 judged.step.r_element > kMediumElementRatio ||
                                 judged.step.r_column > kMediumRatio
                             ? Confidence::Medium
                             : Confidence::Low;
    finding.rank = call.rank;
    finding.step = call.step;
    finding.module = std::move(owner.module);
    if (owner.also != finding.module) finding.also = std::move(owner.also);
    finding.node = call.module;
    const auto owning = std::ranges::find_if(
        golden_.calls, [&](const ModuleCall& one) { return one.module == finding.module; });
    const bool is_own = finding.module == call.module || owning == golden_.calls.end();
    finding.op_type = is_own ? call.type : owning->type;
    finding.slot = use.slot;
    finding.time = use.time;
    finding.mine_record = use.record;
    finding.golden_record = boundary.golden_record;
    finding.ratio = std::max({judged.step.r, judged.step.r_element, judged.step.r_column});
    finding.err_own = judged.step.err_own;
    finding.noise_floor = judged.step.noise_floor;
    finding.err_out = against_golden(boundary);
    return finding;
  }

  /// Relative L2 against golden's own value at the same place.
  [[nodiscard]] double against_golden(const Boundary& boundary) const {
    if (boundary.golden_record >= golden_.run->records.size()) return NAN;
    const Result<Tensor> ours = load_use(mine_, use_of(mine_, boundary));
    const Result<Tensor> theirs = run::load_tensor(golden_.run->records[boundary.golden_record]);
    return ours && theirs ? measure::relative_l2(ours->view, theirs->view) : NAN;
  }

  [[nodiscard]] double error_of_inputs(const Region& region) const {
    double worst = NAN;
    for (const Region::Value& value : region.values) {
      if (value.source != Region::Value::Source::Recorded) continue;
      worst = std::fmax(worst, against_golden(replay_.boundaries()[value.boundary]));
    }
    return worst;
  }

  /// "output 1 of model.layers.0.mlp.gate"
  [[nodiscard]] std::string value_text(size_t i) const {
    const Boundary& boundary = replay_.boundaries()[i];
    std::string text = boundary.input ? "input" : "output";
    if (const std::string& slot = use_of(mine_, boundary).slot; !slot.empty()) text += " " + slot;
    const std::string& module = mine_.calls[boundary.call].module;
    return text + " of " + (module.empty() ? std::string("the model") : module);
  }

  [[nodiscard]] std::string detail_of(size_t i, const WalkStep& step) const {
    const Boundary& boundary = replay_.boundaries()[i];
    std::string detail = value_text(i);
    const size_t count = step.operators;
    detail += count == 0 ? " is not what golden was given there"
                         : " is not what golden's " + std::to_string(count) +
                               (count == 1 ? " operator makes" : " operators make") +
                               " of the values before it";
    const std::optional<DType>& type = mine_.run->records[use_of(mine_, boundary).record].dtype;
    const std::optional<DType>& usual = replay_.type_at(i);
    if (!step.narrowed.empty()) detail += "; " + step.narrowed;
    if (type && usual && *type != *usual)
      detail += "; it is computed in " + std::string(name(*type)) + ", its peers in " +
                std::string(name(*usual));
    return detail;
  }

  const Program& golden_;
  const Program& mine_;
  const Pairing& pairing_;
  const WalkOptions& options_;
  double limit_;
  double element_limit_;
  const Replay& replay_;
  MemoryGate* gate_;
  FarOnes far_ones_;
  Substitutes of_mine_;
  std::map<int64_t, Padding> paddings_;  // by step
  bool has_ranks_;                       // golden is of several
};

}  // namespace

std::unique_ptr<const ValueJudge> make_value_judge(const Scene& scene, const Replay& replay,
                                                   FarOnes far_ones, Substitutes of_mine) {
  return std::make_unique<const Bench>(scene, replay, far_ones, std::move(of_mine));
}

}  // namespace assay::locate
