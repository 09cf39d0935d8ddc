// SPDX-License-Identifier: Apache-2.0
// Exported functions with strings. Compiled twice, with _GLIBCXX_USE_CXX11_ABI 0 and 1, into one
// library: the names differ, the core behind them is one.
//
// Vectors are read as the three pointers they are. Their member functions would be instantiated
// under one name for two element sizes, and without optimisation the linker keeps only one of them.
#include "capture/atb/atb_interface.hpp"
#include "capture/atb/probe.hpp"

namespace {

namespace core = assay::capture::atb;
using core::Text;

Text text_of(const std::string& text) { return {text.data(), text.size()}; }

// Four strings in a row are one tensor: dtype, format, shape, path.
core::TensorTexts tensor_at(const void* first, size_t index) {
  const std::string* strings = static_cast<const std::string*>(first) + 4 * index;
  return {text_of(strings[0]), text_of(strings[1]), text_of(strings[2]), text_of(strings[3])};
}

// A vector is begin, end, end of storage.
const void* const* pointers_of(const void* vector) {
  return static_cast<const void* const*>(vector);
}

core::TensorList list_of(const void* vector) {
  const void* const* pointers = pointers_of(vector);
  const auto bytes = static_cast<const char*>(pointers[1]) - static_cast<const char*>(pointers[0]);
  return {pointers[0], static_cast<size_t>(bytes) / (4 * sizeof(std::string)), tensor_at};
}

}  // namespace

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t>& ids, const std::string& opType) {
  const void* const* pointers = pointers_of(&ids);
  const auto* first = static_cast<const int64_t*>(pointers[0]);
  const auto count = static_cast<const int64_t*>(pointers[1]) - first;
  return core::is_tensor_need_save(first, static_cast<size_t>(count), text_of(opType));
}

void Probe::SaveTensor(const std::string& format, const std::string& dtype, const std::string& dims,
                       const void* hostData, uint64_t dataSize, const std::string& filePath) {
  core::save_tensor(text_of(format), text_of(dtype), text_of(dims), hostData, dataSize,
                    text_of(filePath));
}

void Probe::SaveTiling(const uint8_t* buf, uint64_t size, const std::string& filePath) {
  core::save_tiling(buf, size, text_of(filePath));
}

void Probe::SaveParam(const std::string& param, const std::string& filePath) {
  core::save_param(text_of(param), text_of(filePath));
}

void Probe::ReportOperationSetupStatistic(size_t executeCount, const std::string& opName,
                                          const std::string& st) {
  core::report_setup_statistic(executeCount, text_of(opName), text_of(st));
}

void Probe::ReportOperationExecuteStatistic(size_t executeCount, const std::string& opName,
                                            const std::string& st) {
  core::report_execute_statistic(executeCount, text_of(opName), text_of(st));
}

void Probe::ReportOperationGraph(const std::string& opName, const std::string& graph) {
  core::report_operation_graph(text_of(opName), text_of(graph));
}

void Probe::ReportOperationIOTensor(size_t executeCount, const std::string& opName,
                                    const std::string& opParam, const std::vector<Tensor>& in,
                                    const std::vector<Tensor>& out) {
  core::report_operation_tensors(executeCount, text_of(opName), text_of(opParam), list_of(&in),
                                 list_of(&out));
}

void Probe::ReportKernelIOTensor(size_t executeCount, const std::string& opName,
                                 const std::string& opParam, const std::vector<Tensor>& in,
                                 const std::vector<Tensor>& out) {
  core::report_kernel_tensors(executeCount, text_of(opName), text_of(opParam), list_of(&in),
                              list_of(&out));
}

void Probe::ReportOverflowKernel(const std::string& kernelPath) {
  core::report_overflow(text_of(kernelPath));
}

bool Probe::IsSaveTensorInSpecificDir(const std::string& tensorDir) {
  return core::is_save_tensor_in_specific_dir(text_of(tensorDir));
}

}  // namespace atb

namespace atb_speed {

bool SpeedProbe::IsReportModelTopoInfo(const std::string& modelName) {
  return core::is_report_model(text_of(modelName));
}

void SpeedProbe::ReportModelTopoInfo(const std::string& modelName, const std::string& graph) {
  core::report_model(text_of(modelName), text_of(graph));
}

}  // namespace atb_speed
