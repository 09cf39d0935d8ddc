// SPDX-License-Identifier: Apache-2.0
// The probe interface of the ATB acceleration library, as the library itself declares it: static functions whose
// default bodies do nothing, made to be interposed by a preloaded library.
// Names and signatures are the vendor's (hicann/ascend-transformer-boost: src/atb/utils/probe.h); 24 and 25 since
// CANN 8.3, 19 to 23 since the middle of 2024.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace atb {

class Probe {
 public:
  struct Tensor {
    std::string dtype;
    std::string format;
    std::string shape;
    std::string filePath;
  };

  static bool IsTensorNeedSave(const std::vector<int64_t>& ids, const std::string& opType);
  static bool IsSaveTensorData();
  static bool IsSaveTensorDesc();
  static bool IsExecuteCountInRange(const uint64_t executeCount);
  static bool IsSaveTensorBefore();
  static bool IsSaveTensorAfter();
  static void SaveTensor(const std::string& format, const std::string& dtype,
                         const std::string& dims, const void* hostData, uint64_t dataSize,
                         const std::string& filePath);
  static bool IsSaveTiling();
  static void SaveTiling(const uint8_t* data, uint64_t dataSize, const std::string& filePath);
  static bool ReportOperationStatisticEnable();
  static void ReportOperationSetupStatistic(size_t executeCount, const std::string& opName,
                                            const std::string& st);
  static void ReportOperationExecuteStatistic(size_t executeCount, const std::string& opName,
                                              const std::string& st);
  static bool ReportOperationGraphEnable();
  static void ReportOperationGraph(const std::string& opName, const std::string& graph);
  static bool ReportOperationIOTensorEnable();
  static void ReportOperationIOTensor(size_t executeCount, const std::string& opName,
                                      const std::string& opParam,
                                      const std::vector<Tensor>& inTensors,
                                      const std::vector<Tensor>& outTensors);
  static bool ReportKernelIOTensorEnable();
  static void ReportKernelIOTensor(size_t executeCount, const std::string& opName,
                                   const std::string& opParam, const std::vector<Tensor>& inTensors,
                                   const std::vector<Tensor>& outTensors);
  static void SaveParam(const std::string& param, const std::string& filePath);
  static bool IsSaveParam();
  static bool IsOverflowCheck();
  static bool IsOverflowStop();
  static void ReportOverflowKernel(const std::string& kernelPath);
  static void UpdateConfig();
  static bool IsSaveTensorInSpecificDir(const std::string& tensorDir);
};

}  // namespace atb

namespace atb_speed {

/// The model layer of MindIE has a second class of this kind.
class SpeedProbe {
 public:
  static bool IsReportModelTopoInfo(const std::string& modelName);
  static void ReportModelTopoInfo(const std::string& modelName, const std::string& graph);
};

}  // namespace atb_speed
