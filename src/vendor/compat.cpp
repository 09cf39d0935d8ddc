// SPDX-License-Identifier: Apache-2.0
// One row for each name that `--compat` takes: the conventions of its comparison and the style of
// its report.
#include "vendor/compat.hpp"

#include "vendor/ait/metrics.hpp"
#include "vendor/ait/report.hpp"
#include "vendor/msit/comparison.hpp"
#include "vendor/msit/report.hpp"

namespace assay::vendor {

Result<Compat> compat(std::string_view name) {
  if (name == "none") return Compat{name, {}, report::kOurStyle};
  if (name == "msit") return Compat{name, msit::conventions(), msit::kStyle};
  if (name != "ait-0.2") {
    return fail(Errc::Usage,
                "compat must be 'none', 'msit' or 'ait-0.2', not '" + std::string(name) + "'");
  }
  // It paired and filtered as msit does, and knew no levels: without one named, each pair is in its
  // report once.
  Compat ait{name, msit::conventions(), ait::style(), compare::LevelChoice::Api};
  ait.conventions.more_values = ait::metrics;
  return ait;
}

}  // namespace assay::vendor
