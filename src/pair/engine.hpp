// SPDX-License-Identifier: Apache-2.0
// What an engine adds to pairing whose runs have graphs of operators in words of its own, and no
// modules. The edge hands the implementations in (engines/): nobody here knows which there are.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::pair {

struct Correspondence;
struct MatchOptions;
struct Matching;

using StepPairs = std::vector<std::pair<int64_t, int64_t>>;

/// Where a run of an engine holds the tensors of a run of modules.
struct EngineAlignment {
  EngineAlignment() = default;
  EngineAlignment(const EngineAlignment&) = delete;
  EngineAlignment& operator=(const EngineAlignment&) = delete;
  virtual ~EngineAlignment() = default;

  /// Pairs of the two runs, whichever of them is the engine's.
  /// errors  of match_runs()
  [[nodiscard]] virtual Result<Matching> match(const run::Run& golden, const run::Run& mine,
                                               const Correspondence& pairs,
                                               const MatchOptions& options) const = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  /// As people call it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// A program of this engine was captured.
  [[nodiscard]] virtual bool made(const run::Run& run) const = 0;
  /// modules  a run with modules
  /// own      made() by this engine
  /// steps    (modules, own) that the user says belong together; empty: by position and id of their
  ///          tokens
  /// errors   Usage: no tokens in common
  [[nodiscard]] virtual Result<std::shared_ptr<const EngineAlignment>> align(
      const run::Run& modules, const run::Run& own, const StepPairs& steps) const = 0;
};

/// Implementations outlive all that use them.
using Engines = std::span<const Engine* const>;

/// The engine that made one of the two runs and not the other; nullptr: both have the same words.
template <typename AnyEngine>
[[nodiscard]] const AnyEngine* engine_between(const run::Run& golden, const run::Run& mine,
                                              std::span<const AnyEngine* const> engines) {
  const auto found = std::ranges::find_if(
      engines, [&](const AnyEngine* engine) { return engine->made(golden) != engine->made(mine); });
  return found == engines.end() ? nullptr : *found;
}

}  // namespace assay::pair
