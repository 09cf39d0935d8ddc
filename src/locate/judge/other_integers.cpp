// SPDX-License-Identifier: Apache-2.0
// Looks at every call of mine around the stretch: its integer inputs are held against those in the
// same slots of golden's call.
#include "locate/judge/other_integers.hpp"

#include <algorithm>

#include "locate/noise/gap.hpp"
#include "locate/program/owner.hpp"

namespace assay::locate {
namespace {

bool has_other_integers(const Program& golden, const Use& theirs, const Program& mine,
                        const Use& ours) {
  const std::optional<DType>& type = mine.run->records[ours.record].dtype;
  if (!type || !is_integer(*type)) return false;
  const Result<Tensor> of_mine = load_use(mine, ours);
  const Result<Tensor> of_golden = load_use(golden, theirs);
  if (!of_mine || !of_golden || !(of_mine->view.shape == of_golden->view.shape)) return false;
  const Result<bool> same = equal_integers(of_mine->view, of_golden->view);
  return same && !*same;
}

bool is_around(const ModuleCall& call, const Stretch& stretch) {
  return call.rank == stretch.rank && call.step == stretch.step && call.begin <= stretch.begin &&
         stretch.end <= call.end && is_inside(stretch.module, call.module);
}

}  // namespace

bool follows_other_integers(const Program& golden, const Program& mine, const Pairing& pairing,
                            const Stretch& stretch, size_t except) {
  for (size_t i = 0; i < mine.calls.size(); ++i) {
    const ModuleCall& around = mine.calls[i];
    const size_t partner = i < pairing.golden_call_of.size() ? pairing.golden_call_of[i] : kNone;
    if (partner == kNone || i == except || !is_around(around, stretch)) continue;
    const std::vector<Use>& theirs = golden.calls[partner].inputs;
    for (const Use& use : around.inputs) {
      const auto found = std::ranges::find(theirs, use.slot, &Use::slot);
      if (found != theirs.end() && has_other_integers(golden, *found, mine, use)) return true;
    }
  }
  return false;
}

}  // namespace assay::locate
