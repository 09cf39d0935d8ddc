// SPDX-License-Identifier: Apache-2.0
// The data flow of operators and modules. Operators say who made their inputs. Of modules, which
// do not, a value's maker is the one whose output has the same id, digest or bytes.
#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "locate/program/program.hpp"
#include "locate/program/storage_state.hpp"
#include "report/html/flow_builder.hpp"
#include "run/strided_payload.hpp"

namespace assay::report::html {
namespace {

using locate::ModuleCall;
using locate::Operator;
using locate::Program;
using locate::Use;
using run::TensorRecord;

/// What tells that two tensors are the same value.
struct Identity {
  uint64_t high = 0, low = 0;
  uint64_t scope = 0;  // rank, kind of identity, element type
  int64_t step = 0;    // where the order of steps is not known
  friend bool operator==(const Identity&, const Identity&) = default;
};
struct IdentityHash {
  size_t operator()(const Identity& one) const {
    constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;
    uint64_t hash = one.high;
    for (const uint64_t part : {one.low, one.scope, static_cast<uint64_t>(one.step)})
      hash = (hash ^ (hash >> 29) ^ part) * kSpread;
    return hash;
  }
};

/// A tensor of one number over and over is no evidence: masks, empty caches and biases are alike.
bool says_little(const TensorRecord& record) {
  return record.stats && !(record.stats->min < record.stats->max);
}

class ProgramFlow {
 public:
  explicit ProgramFlow(const run::Run& run)
      : run_(run),
        program_(locate::make_program(run, {}, locate::Arguments::Skip)),
        has_operators_(!program_.operators.empty()),
        builder_(run, has_operators_ ? FlowBasis::Operators : FlowBasis::EqualValues) {}

  DataFlow build() {
    places_.resize(run_.records.size());
    for (Operator& one : program_.operators) add_operator(&one);
    for (const ModuleCall& call : program_.calls) add_call(call);
    if (has_operators_) storages_.emplace(program_);
    link();
    add_parameters();
    return std::move(builder_.flow());
  }

 private:
  struct Place {
    FlowPlace at;
    const Use* use = nullptr;  // nullptr: the record is no operand
    bool output = false;
  };

  // ---- nodes ------------------------------------------------------------------------------------

  /// Takes the operator's names.
  void add_operator(Operator* one) {
    FlowNode node;
    node.name = std::move(one->node);
    node.type = std::move(one->name);
    node.module = std::move(one->module);
    node.rank = one->rank;
    node.step = one->step;
    node.call = one->module_call;
    node.begin = one->time;
    add(std::move(node), one->inputs, one->outputs);
  }

  void add_call(const ModuleCall& call) {
    FlowNode node;
    node.name = call.module;
    node.type = call.type;
    node.module = call.module;
    node.rank = call.rank;
    node.step = call.step;
    node.call = call.call;
    node.begin = call.begin;
    node.encloses = has_operators_ || !call.leaf;
    calls_of_module_[call.module].push_back(add(std::move(node), call.inputs, call.outputs));
  }

  uint32_t add(FlowNode node, const std::vector<Use>& inputs, const std::vector<Use>& outputs) {
    node.end = node.begin;
    const auto ports = [&](const std::vector<Use>& uses) {
      std::vector<FlowPort> list;
      list.reserve(uses.size());
      for (const Use& use : uses) {
        list.push_back({static_cast<uint32_t>(use.record), kNoIndex});
        node.end = std::max(node.end, use.time);
      }
      return list;
    };
    node.inputs = ports(inputs);
    node.outputs = ports(outputs);
    const uint32_t index = builder_.add_node(std::move(node));
    for (const bool output : {false, true}) {
      uint32_t port = 0;
      for (const Use& use : output ? outputs : inputs) {
        places_[use.record] = {{index, port++}, &use, output};
        builder_.flow().node_of_record[use.record] = index;
      }
    }
    return index;
  }

  // ---- values -----------------------------------------------------------------------------------

  /// Records stand in the order of execution; where that is not known, all outputs come first.
  void link() {
    for (const bool outputs : {true, false}) {
      if (run_.order_known && !outputs) break;
      for (size_t i = 0; i < run_.records.size(); ++i) {
        const Place& place = places_[i];
        if (place.use == nullptr || (!run_.order_known && place.output != outputs)) continue;
        if (!place.output) {
          link_input(place);
        } else if (place.at.node < program_.operators.size()) {
          link_operator_output(place);
        } else {
          link_call_output(place);
        }
      }
    }
  }

  void link_input(const Place& place) {
    const uint32_t value = value_of_input(*place.use);
    const auto is_own = [&](const FlowPlace& maker) { return maker.node == place.at.node; };
    if (std::ranges::any_of(builder_.value(value).makers, is_own)) return;
    builder_.read(place.at, value);
  }

  uint32_t value_of_input(const Use& use) {
    if (use.producer != locate::kNone) {
      const FlowPort& made =
          builder_.node(static_cast<uint32_t>(use.producer)).outputs[use.producer_output];
      if (made.value != kNoIndex) return made.value;
    }
    if (!use.leaf.empty()) return leaf_value(use.leaf, use.record);
    const std::optional<Identity> identity = identity_of(use);
    if (identity) {
      if (const auto known = values_.find(*identity); known != values_.end()) return known->second;
    }
    const uint32_t value = builder_.add_value();
    add_writers(use, value);
    if (identity) values_.emplace(*identity, value);
    return value;
  }

  /// No operator returned the value: it lies in a storage that these have written.
  void add_writers(const Use& use, uint32_t value) {
    if (!storages_ || !storages_->is_assembled(use.value)) return;
    const auto assembly = storages_->assembly(use.value);
    if (!assembly) return;
    for (const locate::Part& part : assembly->parts) {
      const locate::StorageState::Origin origin = storages_->origin(part.value);
      if (origin.op == locate::kNone) continue;
      builder_.value(value).makers.push_back(
          {static_cast<uint32_t>(origin.op), static_cast<uint32_t>(origin.output)});
    }
  }

  uint32_t leaf_value(const std::string& name, size_t record) {
    const int rank = run_.records[record].rank;
    const auto [found, is_new] = leaves_.try_emplace({rank, name}, 0);
    if (is_new) {
      found->second =
          builder_.add_value(name, run_.has_own_engine() ? FlowLeaf::Unknown : FlowLeaf::Parameter);
    }
    return found->second;
  }

  /// An operator that returns what it was given made nothing.
  void link_operator_output(const Place& place) {
    const std::optional<Identity> identity = identity_of(*place.use);
    if (identity) {
      const auto known = values_.find(*identity);
      if (known != values_.end() && reads(place.at.node, known->second)) {
        builder_.show(place.at, known->second);
        return;
      }
    }
    add_made(place, identity);
  }

  void link_call_output(const Place& place) {
    const std::optional<Identity> identity = identity_of(*place.use);
    const auto known = identity ? values_.find(*identity) : values_.end();
    if (known == values_.end()) {
      add_made(place, identity);
    } else if (is_made_inside(known->second, place.at.node)) {
      builder_.make(place.at, known->second);
    } else if (has_operators_) {
      builder_.show(place.at, known->second);  // handed through
    } else {
      add_made(place, identity);
    }
  }

  void add_made(const Place& place, const std::optional<Identity>& identity) {
    const uint32_t value = builder_.add_value();
    builder_.make(place.at, value);
    if (identity) values_.insert_or_assign(*identity, value);
  }

  [[nodiscard]] bool reads(uint32_t node, uint32_t value) {
    return std::ranges::any_of(builder_.node(node).inputs,
                               [&](const FlowPort& port) { return port.value == value; });
  }

  /// Or outside: where the order is not known, a module's output may stand in front of those of the
  /// modules inside it.
  bool is_made_inside(uint32_t value, uint32_t node) {
    const DataFlow& flow = builder_.flow();
    return std::ranges::any_of(flow.values[value].makers, [&](const FlowPlace& maker) {
      return flow.encloses(flow.nodes[node], flow.nodes[maker.node]) ||
             flow.encloses(flow.nodes[maker.node], flow.nodes[node]);
    });
  }

  [[nodiscard]] std::optional<Identity> identity_of(const Use& use) {
    enum Kind : uint64_t { kId, kDigest, kBytes };
    const TensorRecord& record = run_.records[use.record];
    Identity one;
    if (!run_.order_known) one.step = record.step;
    if (use.value != locate::kNoValue) {
      one.low = static_cast<uint64_t>(use.value);  // unique over ranks
      one.scope = kId;
      return one;
    }
    if (says_little(record) || !record.dtype) return std::nullopt;
    one.scope = static_cast<uint64_t>(static_cast<uint32_t>(record.rank)) << 16 |
                static_cast<uint64_t>(*record.dtype) << 8;
    if (record.digest) {
      one.high = record.digest->high;
      one.low = record.digest->low;
      one.scope |= kDigest;
      return one;
    }
    if (!record.bytes || !record.bytes->raw || record.bytes->size_bytes == 0) return std::nullopt;
    // Less than 2^24 files of less than 1 TiB.
    one.high = files_.try_emplace(record.bytes->file, files_.size()).first->second << 40 |
               record.bytes->size_bytes;
    // Of a view the order of its elements counts, too; offsets are less than 2^40.
    one.low = record.bytes->offset;
    if (run::is_strided(record)) one.low |= static_cast<uint64_t>(record.strides.handle()) << 40;
    one.scope |= kBytes;
    return one;
  }

  // ---- parameters -------------------------------------------------------------------------------

  /// Where they were captured. Without operators, which read them, they belong to their module.
  void add_parameters() {
    DataFlow& flow = builder_.flow();
    for (const auto& [name, record] : program_.leaves) {
      const uint32_t value = leaf_value(name, record);
      flow.values[value].record = static_cast<uint32_t>(record);
      if (run_.records[record].role != Role::Input) flow.values[value].leaf = FlowLeaf::Parameter;
      if (flow.value_of_record[record] == kNoIndex) flow.value_of_record[record] = value;
      if (has_operators_) continue;
      const size_t dot = name.rfind('.');
      const auto calls = calls_of_module_.find(
          dot == std::string::npos ? std::string_view() : std::string_view(name).substr(0, dot));
      if (calls == calls_of_module_.end()) continue;
      for (const uint32_t node : calls->second) {
        if (flow.nodes[node].rank == run_.records[record].rank) builder_.hold(node, value);
      }
    }
  }

  const run::Run& run_;
  Program program_;
  const bool has_operators_;
  FlowBuilder builder_;
  std::vector<Place> places_;  // by record
  std::optional<locate::StorageState> storages_;
  std::unordered_map<Identity, uint32_t, IdentityHash> values_;
  std::map<std::pair<int, std::string>, uint32_t> leaves_;
  std::unordered_map<std::string, uint64_t> files_;
  std::map<std::string, std::vector<uint32_t>, std::less<>> calls_of_module_;
};

}  // namespace

DataFlow flow_of_program(const run::Run& run) { return ProgramFlow(run).build(); }

}  // namespace assay::report::html
