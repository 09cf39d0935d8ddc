// SPDX-License-Identifier: Apache-2.0
// Operators of two programs, module call by module call.   localisation 3
#include "locate/pairing.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "locate/align.hpp"

namespace assay::locate {
namespace {

using CallKey = std::tuple<int, int64_t, std::string_view, uint32_t>;  // rank step module call

struct Stream {
  std::vector<size_t> golden;  // operators, in execution order
  std::vector<size_t> mine;
};

class Names {
 public:
  uint32_t number(std::string_view name) {
    return numbers_.try_emplace(name, static_cast<uint32_t>(numbers_.size())).first->second;
  }

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

class Pairer {
 public:
  Pairer(const Program& golden, const Program& mine) : golden_(golden), mine_(mine) {
    pairing_.golden_of.assign(mine.operators.size(), kNone);
    pairing_.mine_of.assign(golden.operators.size(), kNone);
    pairing_.equal_stream.assign(mine.operators.size(), false);
    pairing_.golden_call_of.assign(mine.calls.size(), kNone);
    pairing_.mine_call_of.assign(golden.calls.size(), kNone);
  }

  Pairing pair() {
    if (!mine_.regrouped) pair_operators();
    pair_calls();
    return std::move(pairing_);
  }

 private:
  template <typename Execution>
  [[nodiscard]] static CallKey key_of(const Execution& one, uint32_t call) {
    return {one.rank, one.step, one.module, call};
  }

  void pair_operators() {
    std::map<CallKey, Stream> streams;
    for (size_t i = 0; i < golden_.operators.size(); ++i) {
      const Operator& one = golden_.operators[i];
      if (!is_transparent(one.name)) streams[key_of(one, one.module_call)].golden.push_back(i);
    }
    for (size_t i = 0; i < mine_.operators.size(); ++i) {
      const Operator& one = mine_.operators[i];
      if (!is_transparent(one.name)) streams[key_of(one, one.module_call)].mine.push_back(i);
    }
    std::set<CallKey> equal;
    for (const auto& [key, stream] : streams) {
      if (pair_stream(stream)) equal.insert(key);
    }
    for (size_t i = 0; i < mine_.operators.size(); ++i) {
      const Operator& one = mine_.operators[i];
      pairing_.equal_stream[i] = equal.contains(key_of(one, one.module_call));
    }
  }

  /// returns  true when the names of both sides are equal
  bool pair_stream(const Stream& stream) {
    Names names;
    const auto numbers_of = [&](const Program& program, const std::vector<size_t>& operators) {
      std::vector<uint32_t> numbers;
      numbers.reserve(operators.size());
      for (const size_t i : operators) numbers.push_back(names.number(program.operators[i].name));
      return numbers;
    };
    const std::vector<uint32_t> golden = numbers_of(golden_, stream.golden);
    const std::vector<uint32_t> mine = numbers_of(mine_, stream.mine);
    size_t paired = 0;
    for (const MatchingBlock& block : matching_blocks(golden, mine)) {
      for (size_t i = 0; i < block.size; ++i) {
        pairing_.golden_of[stream.mine[block.b + i]] = stream.golden[block.a + i];
        pairing_.mine_of[stream.golden[block.a + i]] = stream.mine[block.b + i];
      }
      paired += block.size;
    }
    pairing_.paired += paired;
    pairing_.unpaired += mine.size() - paired;
    return paired == mine.size() && paired == golden.size();
  }

  void pair_calls() {
    std::map<CallKey, size_t> golden_calls;
    for (size_t i = 0; i < golden_.calls.size(); ++i)
      golden_calls.emplace(key_of(golden_.calls[i], golden_.calls[i].call), i);
    for (size_t i = 0; i < mine_.calls.size(); ++i) {
      const auto found = golden_calls.find(key_of(mine_.calls[i], mine_.calls[i].call));
      if (found == golden_calls.end()) continue;
      pairing_.golden_call_of[i] = found->second;
      pairing_.mine_call_of[found->second] = i;
      const ModuleCall& golden = golden_.calls[found->second];
      if (!equal_shapes(golden.inputs, mine_.calls[i].inputs) ||
          !equal_shapes(golden.outputs, mine_.calls[i].outputs)) {
        pairing_.same_shapes = false;
      }
    }
  }

  /// Of the slots that both sides have with a shape.
  [[nodiscard]] bool equal_shapes(const std::vector<Use>& golden,
                                  const std::vector<Use>& mine) const {
    for (const Use& use : mine) {
      const auto partner = std::ranges::find(golden, use.slot, &Use::slot);
      if (partner == golden.end()) continue;
      const std::optional<Dims>& theirs = golden_.run->records[partner->record].shape;
      const std::optional<Dims>& ours = mine_.run->records[use.record].shape;
      if (theirs && ours && !(*theirs == *ours)) return false;
    }
    return true;
  }

  const Program& golden_;
  const Program& mine_;
  Pairing pairing_;
};

}  // namespace

Pairing pair_programs(const Program& golden, const Program& mine) {
  return Pairer(golden, mine).pair();
}

}  // namespace assay::locate
