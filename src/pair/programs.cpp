// SPDX-License-Identifier: Apache-2.0
// By (rank, step, module, call number); within one by the names of operators.
#include "pair/programs.hpp"

#include <map>
#include <tuple>
#include <unordered_map>

#include "pair/align.hpp"

namespace assay::pair {
namespace {

using CallKey = std::tuple<int, int64_t, std::string_view, uint32_t>;

CallKey key_of(const Execution& one) { return {one.rank, one.step, one.module, one.call}; }

/// Operators of one call of a module, in execution order.
struct Stream {
  std::vector<size_t> golden;
  std::vector<size_t> mine;
};

class Names {
 public:
  std::vector<uint32_t> numbers_of(std::span<const Execution> executions,
                                   const std::vector<size_t>& chosen) {
    std::vector<uint32_t> numbers;
    numbers.reserve(chosen.size());
    for (const size_t i : chosen) {
      const auto next = static_cast<uint32_t>(numbers_.size());
      numbers.push_back(numbers_.try_emplace(executions[i].name, next).first->second);
    }
    return numbers;
  }

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

class OperatorPairer {
 public:
  OperatorPairer(std::span<const Execution> golden, std::span<const Execution> mine)
      : golden_(golden), mine_(mine) {
    pairs_.golden_of.assign(mine.size(), kNoPartner);
    pairs_.mine_of.assign(golden.size(), kNoPartner);
    pairs_.equal_stream.assign(mine.size(), false);
  }

  OperatorPairs pair() {
    std::map<CallKey, Stream> streams;
    for (size_t i = 0; i < golden_.size(); ++i) {
      if (!golden_[i].name.empty()) streams[key_of(golden_[i])].golden.push_back(i);
    }
    for (size_t i = 0; i < mine_.size(); ++i) {
      if (!mine_[i].name.empty()) streams[key_of(mine_[i])].mine.push_back(i);
    }
    std::map<CallKey, bool> equal;
    for (const auto& [key, stream] : streams) equal[key] = pair_stream(stream);
    for (size_t i = 0; i < mine_.size(); ++i) {
      const auto found = equal.find(key_of(mine_[i]));
      pairs_.equal_stream[i] = found != equal.end() && found->second;
    }
    return std::move(pairs_);
  }

 private:
  /// returns  true when the names of both sides are equal
  bool pair_stream(const Stream& stream) {
    Names names;
    const std::vector<uint32_t> golden = names.numbers_of(golden_, stream.golden);
    const std::vector<uint32_t> mine = names.numbers_of(mine_, stream.mine);
    size_t paired = 0;
    for (const MatchingBlock& block : matching_blocks(golden, mine)) {
      for (size_t i = 0; i < block.size; ++i) {
        pairs_.golden_of[stream.mine[block.b + i]] = stream.golden[block.a + i];
        pairs_.mine_of[stream.golden[block.a + i]] = stream.mine[block.b + i];
      }
      paired += block.size;
    }
    pairs_.paired += paired;
    pairs_.unpaired += mine.size() - paired;
    return paired == mine.size() && paired == golden.size();
  }

  std::span<const Execution> golden_;
  std::span<const Execution> mine_;
  OperatorPairs pairs_;
};

}  // namespace

OperatorPairs pair_operators(std::span<const Execution> golden, std::span<const Execution> mine) {
  return OperatorPairer(golden, mine).pair();
}

CallPairs pair_calls(std::span<const Execution> golden, std::span<const Execution> mine) {
  CallPairs pairs{std::vector<size_t>(mine.size(), kNoPartner),
                  std::vector<size_t>(golden.size(), kNoPartner)};
  std::map<CallKey, size_t> golden_calls;
  for (size_t i = 0; i < golden.size(); ++i) golden_calls.emplace(key_of(golden[i]), i);
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto found = golden_calls.find(key_of(mine[i]));
    if (found == golden_calls.end()) continue;
    pairs.golden_of[i] = found->second;
    pairs.mine_of[found->second] = i;
  }
  return pairs;
}

}  // namespace assay::pair
