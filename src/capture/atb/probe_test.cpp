// SPDX-License-Identifier: Apache-2.0
#include "capture/atb/probe.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "capture/atb/selection.hpp"
#include "capture/common/host_guard.hpp"

namespace assay::capture::atb {
namespace {

std::string folder;  // removed at exit, after the probe has written its summary into it

void remove_folder() { std::filesystem::remove_all(folder); }

bool need_save() {
  const int64_t ids[] = {2, 0};
  return is_tensor_need_save(ids, 2, {"LinearOperation", 15});
}

// One test: the probe's state is the process's.
TEST(Probe, StaysOutOfItselfAndSwitchesOffAtAnException) {
  std::string pattern = (std::filesystem::temp_directory_path() / "assay_core_XXXXXX").string();
  folder = mkdtemp(pattern.data());
  std::atexit(remove_folder);
  setenv("ATB_OUTPUT_DIR", folder.c_str(), 1);
  setenv("ATB_DUMP_TYPE", "tensor|op", 1);
  setenv("ASSAY_PROBE_DISK_RESERVE", "0", 1);
  testing::internal::CaptureStderr();

  // Our own code calls something that calls us: nothing happens, not even the first call.
  inside_probe = true;
  EXPECT_FALSE(need_save());
  inside_probe = false;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(need_save());
  EXPECT_FALSE(inside_probe);

  // Something throws in the middle: one line, and off from then on.
  const TensorList throwing = {nullptr, 1, [](const void*, size_t) -> TensorTexts {
                                 throw std::runtime_error("a broken vector");
                               }};
  report_operation_tensors(0, {"A_1", 3}, {"{}", 2}, throwing, {nullptr, 0, nullptr});
  EXPECT_FALSE(need_save());
  EXPECT_FALSE(ask(kGateOperation));
  report_operation_tensors(0, {"A_1", 3}, {"{}", 2}, throwing, {nullptr, 0, nullptr});
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "assay: error: ReportOperationIOTensor: a broken vector; capture off, the run continues\n");
}

}  // namespace
}  // namespace assay::capture::atb
