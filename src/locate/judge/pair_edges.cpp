// SPDX-License-Identifier: Apache-2.0
// Who made the inputs of paired operators.   docs/localisation.md, "Pair tests"
#include <algorithm>
#include <set>
#include <unordered_map>

#include "locate/judge/pair_tests.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "run/strided_payload.hpp"

namespace assay::locate {
namespace {

/// Where a value comes from when casts and clones are looked through.
struct Source {
  enum class Kind : uint8_t {
    Operator,   // made by one
    Named,      // a parameter or buffer
    Anonymous,  // position ids, masks, constants, what the host gave
    Unknown,    // undefined memory, or a storage whose writer is not known
  };
  Kind kind = Kind::Unknown;
  size_t op = kNone;
  size_t output = 0;
  std::string_view leaf;
  size_t record = kNone;  // of the value at its source
};

/// Sources of one program.
class Sources {
 public:
  explicit Sources(const Program& program) : program_(program) {
    for (size_t i = 0; i < program.operators.size(); ++i) {
      const Operator& one = program.operators[i];
      if (one.writes.empty()) continue;
      for (size_t output = 0; output < one.outputs.size(); ++output) {
        const run::TensorRecord& record = program.run->records[one.outputs[output].record];
        if (record.storage_id >= 0)
          writers_[key_of(record)].push_back({one.outputs[output].time, i, output});
      }
    }
  }

  [[nodiscard]] Source of(const Use& input) const {
    const Use* use = &input;
    // Producers stand before their consumers, so the way back ends; a damaged run is stopped by the
    // count.
    for (size_t steps = 0; steps <= program_.operators.size(); ++steps) {
      if (use->producer == kNone) return leaf_of(*use);
      const Operator& one = program_.operators[use->producer];
      if (!is_transparent(one.name)) return operator_of(use->producer, use->producer_output);
      if (one.inputs.empty()) break;  // empty: nothing defined these values
      use = &one.inputs.front();
    }
    return {};
  }

 private:
  struct Write {
    uint64_t time = 0;
    size_t op = kNone;
    size_t output = 0;
  };
  using StorageKey = uint64_t;

  static StorageKey key_of(const run::TensorRecord& record) {
    return static_cast<uint64_t>(static_cast<uint32_t>(record.rank)) << 40U ^
           static_cast<uint64_t>(record.storage_id);
  }

  [[nodiscard]] Source operator_of(size_t op, size_t output) const {
    const Operator& one = program_.operators[op];
    const size_t record = output < one.outputs.size() ? one.outputs[output].record : kNone;
    return {Source::Kind::Operator, op, output, {}, record};
  }

  [[nodiscard]] Source leaf_of(const Use& use) const {
    if (!use.leaf.empty()) return {Source::Kind::Named, kNone, 0, use.leaf, use.record};
    const run::TensorRecord& record = program_.run->records[use.record];
    if (record.storage_version == 0) return {Source::Kind::Anonymous, kNone, 0, {}, use.record};
    // Written through another view of the storage: a cache whose slices are filled.
    const auto found = writers_.find(key_of(record));
    if (found == writers_.end()) return {};
    const auto after = std::ranges::lower_bound(found->second, use.time, {}, &Write::time);
    if (after == found->second.begin()) return {};
    const Write& last = *std::prev(after);
    return {Source::Kind::Operator, last.op, last.output, {}, kNone};
  }

  const Program& program_;
  std::unordered_map<StorageKey, std::vector<Write>> writers_;  // ascending times within a rank
};

/// Both in the narrower of the two types, bit by bit but for NaN payloads. Nothing when they cannot
/// be compared.
std::optional<bool> equal_after_cast(const TensorView& a, const TensorView& b) {
  const bool a_is_narrower = info(a.dtype).element_bits <= info(b.dtype).element_bits;
  const TensorView& narrow = a_is_narrower ? a : b;
  const TensorView& other = a_is_narrower ? b : a;
  if (a.dtype == b.dtype) {
    const Result<WeightDifference> difference = weight_difference(a, b);
    if (!difference) return std::nullopt;
    return difference->half_ulp == 0;
  }
  const Result<Tensor> cast = reference::narrow(other, narrow.dtype);
  if (!cast) return std::nullopt;
  const Result<WeightDifference> difference = weight_difference(cast->view, narrow);
  if (!difference) return std::nullopt;
  return difference->half_ulp == 0;
}

class EdgeTest {
 public:
  EdgeTest(const PairContext& pair, PairTests* tests)
      : pair_(pair), tests_(tests), golden_sources_(pair.golden), mine_sources_(pair.mine) {}

  void run() {
    for (size_t i = 0; i < pair_.mine.operators.size() && !pair_.stopped(); ++i) {
      const size_t partner = pair_.pairing.golden_of[i];
      if (partner == kNone) continue;
      const Operator& golden = pair_.golden.operators[partner];
      for (const Use& mine : pair_.mine.operators[i].inputs) {
        if (!test_received(i, partner, mine)) continue;
        const auto other = std::ranges::find(golden.inputs, mine.slot, &Use::slot);
        if (other != golden.inputs.end()) test_input(i, partner, *other, mine);
      }
    }
  }

 private:
  /// A consumer must see the bytes that the producer of the same value wrote: an overwritten
  /// buffer, a race or a stale cache shows here.
  /// returns  false when it does not
  bool test_received(size_t op, size_t partner, const Use& mine) {
    if (mine.producer == kNone || mine.value == kNoValue) return true;
    const Operator& producer = pair_.mine.operators[mine.producer];
    if (mine.producer_output >= producer.outputs.size()) return true;
    const Use& made = producer.outputs[mine.producer_output];
    if (made.value != mine.value) return true;  // a view's place, or written to in between
    const run::TensorRecord& written = pair_.mine.run->records[made.record];
    const run::TensorRecord& read = pair_.mine.run->records[mine.record];
    if (!written.bytes || !read.bytes || run::has_same_payload(written, read)) return true;
    if (equal_content(pair_.mine, made.record, pair_.mine, mine.record).value_or(true)) return true;
    add_edge(op, partner, mine, "did not receive what " + operator_text(producer) + " wrote");
    return false;
  }

  [[nodiscard]] static std::optional<bool> equal_content(const Program& a, size_t a_record,
                                                         const Program& b, size_t b_record) {
    const Result<Tensor> first = run::load_tensor(a.run->records[a_record]);
    const Result<Tensor> second = run::load_tensor(b.run->records[b_record]);
    if (!first || !second) return std::nullopt;
    return equal_after_cast(first->view, second->view);
  }

  void test_input(size_t op, size_t partner, const Use& golden, const Use& mine) {
    const Source theirs = golden_sources_.of(golden);
    const Source ours = mine_sources_.of(mine);
    using Kind = Source::Kind;
    if (theirs.kind == Kind::Unknown || ours.kind == Kind::Unknown) return;
    if (theirs.kind == Kind::Anonymous && ours.kind == Kind::Anonymous) {
      test_constant(op, partner, mine, theirs.record, ours.record);
    } else if (theirs.kind == Kind::Operator) {
      test_producer(op, partner, mine, theirs, ours);
    } else if (theirs.kind != ours.kind || theirs.leaf != ours.leaf) {
      test_leaf(op, partner, mine, theirs, ours);
    }
  }

  /// Golden's input was computed: that of the run under test must be what its partner of that
  /// operator computed.
  void test_producer(size_t op, size_t partner, const Use& mine, const Source& theirs,
                     const Source& ours) {
    const size_t expected = pair_.pairing.mine_of[theirs.op];
    if (expected == kNone) return;  // the topology differs there, and was named for it
    if (ours.kind == Source::Kind::Operator && ours.op == expected &&
        ours.output == theirs.output) {
      return;
    }
    const Operator& producer = pair_.mine.operators[expected];
    if (theirs.output >= producer.outputs.size()) return;
    const size_t made = producer.outputs[theirs.output].record;
    const std::optional<bool> equal = equal_content(pair_.mine, made, pair_.mine, mine.record);
    if (!equal || *equal) return;
    add_edge(op, partner, mine,
             "reads " + source_text(ours) + " instead of " + operator_text(producer));
  }

  /// Golden reads a leaf where mine reads something else: the values must be the leaf's.
  void test_leaf(size_t op, size_t partner, const Use& mine, const Source& theirs,
                 const Source& ours) {
    // A parameter that only has another name is compared by the weight test.
    if (ours.kind == Source::Kind::Named && !pair_.golden.leaves.contains(std::string(ours.leaf)))
      return;
    const std::optional<WeightDifference> difference = other_constant(theirs.record, mine.record);
    if (!difference) return;
    add_edge(op, partner, mine,
             "reads " + source_text(ours) + " instead of " + source_text(theirs));
    tests_->findings.back().golden_record = theirs.record;
    tests_->findings.back().ratio = difference->half_ulp;
  }

  /// How a value that no operator made differs; nothing: it does not, or cannot be told.
  [[nodiscard]] std::optional<WeightDifference> other_constant(size_t golden_record,
                                                               size_t mine_record) const {
    const Result<Tensor> golden = run::load_tensor(pair_.golden.run->records[golden_record]);
    const Result<Tensor> value = run::load_tensor(pair_.mine.run->records[mine_record]);
    if (!golden || !value) return std::nullopt;
    if (!(golden->view.shape == value->view.shape) && !pair_.pairing.same_shapes)
      return std::nullopt;
    Result<WeightDifference> difference = constant_difference(golden->view, value->view);
    if (!difference || difference->half_ulp <= kWeightLimit) return std::nullopt;
    return *std::move(difference);
  }

  void test_constant(size_t op, size_t partner, const Use& mine, size_t golden_record,
                     size_t mine_record) {
    if (!compared_.insert({golden_record, mine_record}).second) return;
    const run::TensorRecord& record = pair_.mine.run->records[mine_record];
    const auto value_key = std::pair(record.rank, record.value_id);
    if (record.value_id >= 0 && constants_.contains(value_key)) return;
    const std::optional<WeightDifference> difference = other_constant(golden_record, mine_record);
    if (!difference) return;
    if (record.value_id >= 0) constants_.insert(value_key);
    Finding finding = finding_at(pair_, FindingKind::Constant, op, partner);
    finding.slot = mine.slot;
    finding.mine_record = mine_record;
    finding.golden_record = golden_record;
    finding.ratio = difference->half_ulp;
    finding.detail =
        difference->shape_differs
            ? "shape " + list_text(record.shape->span()) + " against golden's " +
                  list_text(pair_.golden.run->records[golden_record].shape->span())
            : "element " + std::to_string(difference->worst) + " differs from golden's constant";
    tests_->findings.push_back(std::move(finding));
  }

  void add_edge(size_t op, size_t partner, const Use& mine, const std::string& what) {
    Finding finding = finding_at(pair_, FindingKind::Edge, op, partner);
    finding.slot = mine.slot;
    finding.mine_record = mine.record;
    finding.detail = "input '" + mine.slot + "' " + what;
    tests_->findings.push_back(std::move(finding));
  }

  [[nodiscard]] std::string source_text(const Source& source) const {
    if (source.kind == Source::Kind::Operator)
      return operator_text(pair_.mine.operators[source.op]);
    return source.kind == Source::Kind::Named ? std::string(source.leaf) : "a constant";
  }

  const PairContext& pair_;
  PairTests* tests_;
  Sources golden_sources_;
  Sources mine_sources_;
  std::set<std::pair<size_t, size_t>> compared_;  // golden's record, the other's
  std::set<std::pair<int, int64_t>> constants_;   // values of mine that were named: rank, id
};

}  // namespace

void test_edges(const PairContext& pair, PairTests* tests) { EdgeTest(pair, tests).run(); }

}  // namespace assay::locate
