// SPDX-License-Identifier: Apache-2.0
// A part of an ATB dump, which users may name down to the folder of one operation.
//   docs/formats/atb-tree.md
#pragma once
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

struct AtbPart {
  /// Of the run count that the part lies in, or of all that was named.
  Run run;
  /// The node that was named: "0_Prefill_layer/1_LinearOperation"; empty: all of them.
  std::string below;
  /// With the folders of all processes; empty when the path does not tell.
  std::string dump_folder;

  [[nodiscard]] bool holds(const TensorRecord& record) const;
};

/// errors   of open_run()
[[nodiscard]] Result<AtbPart> open_atb_part(const std::string& path);

}  // namespace assay::run
