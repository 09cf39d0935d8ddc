// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program that uses the acceleration library, writes down every call of the probe interface: one line
// a call, in order, tab separated: number of the calling thread, function, arguments. Lists are joined by ',', tensors
// as dtype;format;shape;path joined by '|'; the data of SaveTensor and SaveTiling as size and FNV-1a sum.
//
//   ATB_CALL_LOG       the file; without it nothing is written and every answer is no
//   ATB_CALL_LOG_NO    names of questions to answer with no, joined by ','; all others are answered with yes
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "probe.h"

namespace {

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

int thread_number() {
  static std::atomic<int> next{0};
  thread_local const int number = next++;
  return number;
}

// One write a line into a file opened for appending: a forked child goes on in the same file.
void log(std::string line) {
  static const std::string path = variable("ATB_CALL_LOG");
  if (path.empty()) return;
  static const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0640);
  line = std::to_string(thread_number()) + '\t' + line + '\n';
  if (write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
}

bool answer(const std::string& name, const std::string& arguments = "") {
  static const bool on = *variable("ATB_CALL_LOG") != '\0';
  static const std::string denied = ',' + std::string(variable("ATB_CALL_LOG_NO")) + ',';
  log(arguments.empty() ? name : name + '\t' + arguments);
  return on && denied.find(',' + name + ',') == std::string::npos;
}

std::string joined(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string joined(const std::vector<atb::Probe::Tensor>& tensors) {
  std::string text;
  for (const auto& tensor : tensors) {
    text += (text.empty() ? "" : "|") + tensor.dtype + ';' + tensor.format + ';' + tensor.shape +
            ';' + tensor.filePath;
  }
  return text;
}

std::string sum_of(const void* data, uint64_t size) {
  uint64_t sum = 14695981039346656037U;
  for (uint64_t i = 0; i < size; ++i) {
    sum = (sum ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211U;
  }
  return std::to_string(size) + '\t' + std::to_string(sum);
}

}  // namespace

namespace atb {

bool Probe::IsTensorNeedSave(const std::vector<int64_t>& ids, const std::string& opType) {
  return answer("IsTensorNeedSave", joined(ids) + '\t' + opType);
}
bool Probe::IsSaveTensorData() { return answer("IsSaveTensorData"); }
bool Probe::IsSaveTensorDesc() { return answer("IsSaveTensorDesc"); }
bool Probe::IsExecuteCountInRange(const uint64_t executeCount) {
  return answer("IsExecuteCountInRange", std::to_string(executeCount));
}
bool Probe::IsSaveTensorBefore() { return answer("IsSaveTensorBefore"); }
bool Probe::IsSaveTensorAfter() { return answer("IsSaveTensorAfter"); }
void Probe::SaveTensor(const std::string& format, const std::string& dtype, const std::string& dims,
                       const void* hostData, uint64_t dataSize, const std::string& filePath) {
  log("SaveTensor\t" + format + '\t' + dtype + '\t' + dims + '\t' + sum_of(hostData, dataSize) +
      '\t' + filePath);
}
bool Probe::IsSaveTiling() { return answer("IsSaveTiling"); }
void Probe::SaveTiling(const uint8_t* data, uint64_t dataSize, const std::string& filePath) {
  log("SaveTiling\t" + sum_of(data, dataSize) + '\t' + filePath);
}
bool Probe::ReportOperationStatisticEnable() { return answer("ReportOperationStatisticEnable"); }
void Probe::ReportOperationSetupStatistic(size_t executeCount, const std::string& opName,
                                          const std::string& st) {
  log("ReportOperationSetupStatistic\t" + std::to_string(executeCount) + '\t' + opName + '\t' + st);
}
void Probe::ReportOperationExecuteStatistic(size_t executeCount, const std::string& opName,
                                            const std::string& st) {
  log("ReportOperationExecuteStatistic\t" + std::to_string(executeCount) + '\t' + opName + '\t' +
      st);
}
bool Probe::ReportOperationGraphEnable() { return answer("ReportOperationGraphEnable"); }
void Probe::ReportOperationGraph(const std::string& opName, const std::string& graph) {
  log("ReportOperationGraph\t" + opName + '\t' + graph);
}
bool Probe::ReportOperationIOTensorEnable() { return answer("ReportOperationIOTensorEnable"); }
void Probe::ReportOperationIOTensor(size_t executeCount, const std::string& opName,
                                    const std::string& opParam,
                                    const std::vector<Tensor>& inTensors,
                                    const std::vector<Tensor>& outTensors) {
  log("ReportOperationIOTensor\t" + std::to_string(executeCount) + '\t' + opName + '\t' + opParam +
      '\t' + joined(inTensors) + '\t' + joined(outTensors));
}
bool Probe::ReportKernelIOTensorEnable() { return answer("ReportKernelIOTensorEnable"); }
void Probe::ReportKernelIOTensor(size_t executeCount, const std::string& opName,
                                 const std::string& opParam, const std::vector<Tensor>& inTensors,
                                 const std::vector<Tensor>& outTensors) {
  log("ReportKernelIOTensor\t" + std::to_string(executeCount) + '\t' + opName + '\t' + opParam +
      '\t' + joined(inTensors) + '\t' + joined(outTensors));
}
void Probe::SaveParam(const std::string& param, const std::string& filePath) {
  log("SaveParam\t" + param + '\t' + filePath);
}
bool Probe::IsSaveParam() { return answer("IsSaveParam"); }
bool Probe::IsOverflowCheck() { return answer("IsOverflowCheck"); }
bool Probe::IsOverflowStop() { return answer("IsOverflowStop"); }
void Probe::ReportOverflowKernel(const std::string& kernelPath) {
  log("ReportOverflowKernel\t" + kernelPath);
}
void Probe::UpdateConfig() { log("UpdateConfig"); }
bool Probe::IsSaveTensorInSpecificDir(const std::string& tensorDir) {
  return answer("IsSaveTensorInSpecificDir", tensorDir);
}

}  // namespace atb

namespace atb_speed {

bool SpeedProbe::IsReportModelTopoInfo(const std::string& modelName) {
  return answer("IsReportModelTopoInfo", modelName);
}
void SpeedProbe::ReportModelTopoInfo(const std::string& modelName, const std::string& graph) {
  log("ReportModelTopoInfo\t" + modelName + '\t' + graph);
}

}  // namespace atb_speed
