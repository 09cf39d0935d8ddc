// SPDX-License-Identifier: Apache-2.0
// The empty bodies of the acceleration library's probe interface: nobody looks, nothing happens. Only
// IsSaveTensorInSpecificDir says yes, as the real one does.
#include "probe.h"

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t>&, const std::string&) { return false; }
bool Probe::IsSaveTensorData() { return false; }
bool Probe::IsSaveTensorDesc() { return false; }
bool Probe::IsExecuteCountInRange(const uint64_t) { return false; }
bool Probe::IsSaveTensorBefore() { return false; }
bool Probe::IsSaveTensorAfter() { return false; }
void Probe::SaveTensor(const std::string&, const std::string&, const std::string&, const void*,
                       uint64_t, const std::string&) {}
bool Probe::IsSaveTiling() { return false; }
void Probe::SaveTiling(const uint8_t*, uint64_t, const std::string&) {}
bool Probe::ReportOperationStatisticEnable() { return false; }
void Probe::ReportOperationSetupStatistic(size_t, const std::string&, const std::string&) {}
void Probe::ReportOperationExecuteStatistic(size_t, const std::string&, const std::string&) {}
bool Probe::ReportOperationGraphEnable() { return false; }
void Probe::ReportOperationGraph(const std::string&, const std::string&) {}
bool Probe::ReportOperationIOTensorEnable() { return false; }
void Probe::ReportOperationIOTensor(size_t, const std::string&, const std::string&,
                                    const std::vector<Tensor>&, const std::vector<Tensor>&) {}
bool Probe::ReportKernelIOTensorEnable() { return false; }
void Probe::ReportKernelIOTensor(size_t, const std::string&, const std::string&,
                                 const std::vector<Tensor>&, const std::vector<Tensor>&) {}
void Probe::SaveParam(const std::string&, const std::string&) {}
bool Probe::IsSaveParam() { return false; }
bool Probe::IsOverflowCheck() { return false; }
bool Probe::IsOverflowStop() { return false; }
void Probe::ReportOverflowKernel(const std::string&) {}
void Probe::UpdateConfig() {}
bool Probe::IsSaveTensorInSpecificDir(const std::string&) { return true; }

}  // namespace atb

namespace atb_speed {

bool SpeedProbe::IsReportModelTopoInfo(const std::string&) { return false; }
void SpeedProbe::ReportModelTopoInfo(const std::string&, const std::string&) {}

}  // namespace atb_speed
