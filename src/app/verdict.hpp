// SPDX-License-Identifier: Apache-2.0
// The verdict on two open runs, as a user asks for it: the one way in to locate().
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "locate/noise/floors.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::app {

/// Paths of golden and mine, healthy runs of another prompt. An empty golden: the one of the
/// verdict.
using FloorRuns = std::vector<std::pair<std::string, std::string>>;

/// docs/commands/locate.md
struct VerdictRequest {
  std::string own_error = "auto";    // auto exact inferred off
  FloorRuns floor_runs = {};         // noise is measured on them
  std::string floor_file = {};       // a stored profile to judge by
  std::string save_floor = {};       // where the measured profile goes
  std::string golden_weights = {};   // a checkpoint with the weights of a golden fingerprint
  std::string slice = {};            // a module, "module:slot", "token 3"; empty: everything
  bool why = false;                  // list what the verdict stands on
  bool tokens = false;               // list what the runs choose
  run::PartRunner* parts = nullptr;  // who judges operators; null: this process
  int jobs = 0;
  uint64_t max_memory = 0;  // 0: the library's own
  /// What the door does besides, and what the user says corresponds; the rest is found above.
  locate::Asked asked = {};
  const locate::SeenValues* seen = nullptr;  // of mine; null: nothing
  std::function<void(size_t done, size_t total)> progress = {};
  const std::atomic<bool>* interrupted = nullptr;
};

/// "G:M" -> (G, M): the colon is the one that leaves two names that exist; a path alone is mine's.
/// errors  Usage
[[nodiscard]] Result<std::pair<std::string, std::string>> parse_floor_run(std::string_view text);

/// What the verdict depends on goes along with the command that comes next.
///
/// floors   there are some: of the request, or golden's own
[[nodiscard]] locate::Asked asked_of(const VerdictRequest& request, bool floors);

/// Options that exclude each other, a file of floors that cannot be read: said before anything is
/// captured or compared.
/// errors  Usage | of reading the file
[[nodiscard]] Status check(const VerdictRequest& request);

/// Measures or reads the floors that were asked for, stores them, and finds the verdict.
///
/// notes         gets a sentence for everything that was decided for the user
/// errors        Usage (options that exclude each other, an unknown slice) | Interrupted | of
///               reading and writing
[[nodiscard]] Result<locate::Verdict> find_verdict(const run::Run& golden, const run::Run& mine,
                                                   const pair::Correspondence& pairs,
                                                   const VerdictRequest& request,
                                                   std::vector<std::string>* notes);

}  // namespace assay::app
