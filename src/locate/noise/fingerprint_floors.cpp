// SPDX-License-Identifier: Apache-2.0
// Golden of every pair is made a fingerprint and opened again from memory; then its floors are
// measured as those of any runs with statistics only.
#include "locate/noise/fingerprint_floors.hpp"

#include <deque>

#include "locate/noise/floors.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/open.hpp"
#include "run/pair.hpp"

namespace assay::locate {
namespace {

Result<run::Run> as_fingerprint(const std::string& path) {
  ASSAY_TRY(run::Run golden, run::open_run(path));
  if (golden.has(run::Trait::WithoutValues)) return golden;
  ASSAY_TRY(const run::FingerprintFile file, run::make_fingerprint(golden, {.program = false}));
  return run::open_fingerprint(as_bytes(file.bytes), path);
}

}  // namespace

Result<std::string> measure_fingerprint_floors(
    const std::vector<std::pair<std::string, std::string>>& paths, int jobs,
    const std::atomic<bool>* interrupted) {
  std::deque<run::Run> opened;  // addresses stay
  std::vector<std::pair<const run::Run*, const run::Run*>> pairs;
  for (const auto& [golden, mine] : paths) {
    ASSAY_TRY(opened.emplace_back(), as_fingerprint(golden));
    ASSAY_TRY(opened.emplace_back(), run::open_run(mine));
    run::Run* both[] = {&opened[opened.size() - 2], &opened.back()};
    static_cast<void>(run::reconcile(both[0], both[1]));
    pairs.emplace_back(both[0], both[1]);
  }
  ASSAY_TRY(const FloorProfile profile,
            measure_floors(pairs, /*statistics=*/true, jobs, interrupted));
  for (const run::Run& run : opened) {
    if (const std::string damage = run.first_damage(); !damage.empty())
      return fail(Errc::Invalid, "the --floor-run " + run.path + " is damaged: " + damage);
  }
  return profile_text(profile);
}

}  // namespace assay::locate
