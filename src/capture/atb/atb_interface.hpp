// SPDX-License-Identifier: Apache-2.0
// The interface of the acceleration library that the probe stands in for. Names, signatures and
// order are the vendor's; a wrong one is another symbol, and the library keeps its empty body.
// AsdopsTensorToProbeTensor and AtbTensorToProbeTensor are the library's own and must not be
// defined here. IsSaveChild, IsSaveIntensor and IsSaveOuttensor were exported by all earlier
// probes, though the library does not call them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace atb {

class __attribute__((visibility("default"))) Probe {
 public:
  // Never touched through this type: its members and vectors of it mangle alike in both string
  // ABIs, with different sizes.
  struct Tensor {
    std::string dtype;
    std::string format;
    std::string shape;
    std::string filePath;
  };

  static bool IsTensorNeedSave(const std::vector<int64_t>& ids, const std::string& opType);
  static bool IsSaveTensorData();
  static bool IsSaveTensorDesc();
  static bool IsExecuteCountInRange(uint64_t executeCount);
  static bool IsSaveTensorBefore();
  static bool IsSaveTensorAfter();
  static void SaveTensor(const std::string& format, const std::string& dtype,
                         const std::string& dims, const void* hostData, uint64_t dataSize,
                         const std::string& filePath);
  static bool IsSaveTiling();
  static void SaveTiling(const uint8_t* buf, uint64_t size, const std::string& filePath);
  static bool ReportOperationStatisticEnable();
  static void ReportOperationSetupStatistic(size_t executeCount, const std::string& opName,
                                            const std::string& st);
  static void ReportOperationExecuteStatistic(size_t executeCount, const std::string& opName,
                                              const std::string& st);
  static bool ReportOperationGraphEnable();
  static void ReportOperationGraph(const std::string& opName, const std::string& graph);
  static bool ReportOperationIOTensorEnable();
  static void ReportOperationIOTensor(size_t executeCount, const std::string& opName,
                                      const std::string& opParam, const std::vector<Tensor>& in,
                                      const std::vector<Tensor>& out);
  static bool ReportKernelIOTensorEnable();
  static void ReportKernelIOTensor(size_t executeCount, const std::string& opName,
                                   const std::string& opParam, const std::vector<Tensor>& in,
                                   const std::vector<Tensor>& out);
  static void SaveParam(const std::string& param, const std::string& filePath);
  static bool IsSaveParam();
  static bool IsOverflowCheck();
  static bool IsOverflowStop();
  static void ReportOverflowKernel(const std::string& kernelPath);
  static void UpdateConfig();
  static bool IsSaveTensorInSpecificDir(const std::string& tensorDir);
  static bool IsSaveChild();
  static bool IsSaveIntensor();
  static bool IsSaveOuttensor();
};

}  // namespace atb

namespace atb_speed {

class __attribute__((visibility("default"))) SpeedProbe {
 public:
  static bool IsReportModelTopoInfo(const std::string& modelName);
  static void ReportModelTopoInfo(const std::string& modelName, const std::string& graph);
};

}  // namespace atb_speed
