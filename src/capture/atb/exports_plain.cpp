// SPDX-License-Identifier: Apache-2.0
// Exported functions without strings: one symbol for both string ABIs.
#include "capture/atb/atb_interface.hpp"
#include "capture/atb/probe.hpp"
#include "capture/atb/selection.hpp"

namespace atb {

namespace core = assay::capture::atb;

bool Probe::IsSaveTensorData() { return core::ask(core::kGateData); }
bool Probe::IsSaveTensorDesc() { return core::ask(core::kGateDesc); }
bool Probe::IsSaveTensorBefore() { return core::ask(core::kGateBefore); }
bool Probe::IsSaveTensorAfter() { return core::ask(core::kGateAfter); }
bool Probe::IsSaveTiling() { return core::ask(core::kGateTiling); }
bool Probe::IsSaveParam() { return core::ask(core::kGateParam); }
bool Probe::IsSaveChild() { return core::ask(core::kGateChild); }
bool Probe::IsSaveIntensor() { return core::ask(core::kGateInputs); }
bool Probe::IsSaveOuttensor() { return core::ask(core::kGateOutputs); }
bool Probe::ReportOperationStatisticEnable() { return core::ask(core::kGateStatistic); }
bool Probe::ReportOperationGraphEnable() { return core::ask(core::kGateGraph); }
bool Probe::ReportOperationIOTensorEnable() { return core::ask(core::kGateOperation); }
bool Probe::ReportKernelIOTensorEnable() { return core::ask(core::kGateKernel); }
bool Probe::IsOverflowCheck() { return core::ask(core::kGateOverflowCheck); }
bool Probe::IsOverflowStop() { return core::ask(core::kGateOverflowStop); }
bool Probe::IsExecuteCountInRange(uint64_t executeCount) {
  return core::is_execute_count_in_range(executeCount);
}
void Probe::UpdateConfig() { core::update_config(); }

}  // namespace atb
