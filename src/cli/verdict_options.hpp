// SPDX-License-Identifier: Apache-2.0
// What `assay compare` and `assay locate` share: options of the verdict, and making one.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/argparse.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::cli {

/// The options as the user gave them; docs/commands/locate.md.
struct VerdictRequest {
  std::string own_error = "auto";       // auto exact inferred off
  std::vector<std::string> floor_runs;  // "GOLDEN:MINE", or PATH: another run of golden's model
  std::string floor_file;               // a stored profile to judge by
  std::string save_floor;               // where the measured profile goes
  std::string golden_weights;           // a checkpoint with the weights of a golden fingerprint
  std::string slice;                    // a module, "module:slot", "token 3"; empty: everything
  bool why = false;                     // list what the verdict stands on
  bool tokens = false;                  // list what the runs choose
  run::PartRunner* parts = nullptr;     // who judges operators; null: this process
  int jobs = 0;
  uint64_t max_memory = 0;  // 0: the library's own
  /// What the command does besides, and what the user says corresponds; the rest is found above.
  locate::Asked asked = {};
  const locate::SeenValues* seen = nullptr;  // of mine; null: nothing
};

void add_verdict_options(Command& command, VerdictRequest& request);

/// What the verdict depends on goes along with the command that comes next.
///
/// floors   there are some: of the options, or golden's own
[[nodiscard]] locate::Asked asked_of(const VerdictRequest& request, bool floors);

/// Options that exclude each other, a file of --floor that cannot be read: said before anything is
/// captured or compared.
[[nodiscard]] Status check_verdict_request(const VerdictRequest& request);

/// Measures or reads the floors that were asked for, stores them, and finds the verdict.
///
/// golden_path   the other side of a --floor-run that names one run only
/// notes         gets a sentence for everything that was decided for the user
/// errors        Usage (options that exclude each other, an unknown slice) | Interrupted | of
///               reading and writing
[[nodiscard]] Result<locate::Verdict> find_verdict(
    const run::Run& golden, const run::Run& mine, const pair::Correspondence& pairs,
    const VerdictRequest& request, const std::function<void(size_t done, size_t total)>& progress,
    std::vector<std::string>* notes);

/// "G:M" -> (G, M): the colon is the one that leaves two names that exist; a path without partner
/// goes with golden.
/// errors  Usage
[[nodiscard]] Result<std::pair<std::string, std::string>> parse_floor_run(
    const std::string& text, const std::string& golden_path);

/// kSame: clean, or clean up to a near tie; kDiffers: a wrong operator is named; kCannotJudge.
[[nodiscard]] int exit_status_of(const locate::Verdict& verdict);

}  // namespace assay::cli
