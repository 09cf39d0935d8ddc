// SPDX-License-Identifier: Apache-2.0
#include "formats/cpu_profiling.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

// The texts that ATB 8.0 reports.
constexpr std::string_view kSetup =
    "totalTime:535, runnerCreateTime:120, runnerSetupTime:115, runnerFillHostTilingTime:40, "
    "setupTotalCount:1, setupCacheHitCount:0, setupCacheMissCount:1, opsInitLuanchBufferTime:0, "
    "tilingCacheHitCount:1, tilingCacheMissCount:0, tilingLocalCacheHitCount:1, "
    "tilingGlobalCacheHitCount:0, kernelCacheGetTilingTime:20, kernelCacheAddTilingTime:0, "
    "kernelCacheCompareRunInfoTime:10, kernelCacheGetRunInfoTime:6";
constexpr std::string_view kExecute =
    "totalTime:188, streamSyncTime:0, tillingCopyTime:69, kernelExecuteTime:41, launchTime:60, "
    "preLaunchTime:70";

std::string line(std::string_view op, std::string_view text) {
  return "[" + std::string(op) + "]:" + std::string(text) + "\n";
}

TEST(CpuProfilingCsv, HasTheHistoricalHeaderAndRow) {
  // The setup cells in the order of their names: AddTiling 0, CompareRunInfo 10, GetRunInfo 6,
  // GetTiling 20, Luanch 0, Create 120, FillHost 40, runnerSetup 115, hit 0, miss 1, count 1, ...
  const auto csv =
      cpu_profiling_csv(line("LinearOperation_4", kSetup) + line("LinearOperation_4", kExecute));
  ASSERT_TRUE(csv.has_value());
  EXPECT_EQ(*csv,
            "opname,execute_kernelExecuteTime,execute_launchTime,execute_preLaunchTime,"
            "execute_streamSyncTime,execute_tillingCopyTime,execute_totalTime,"
            "setup_kernelCacheAddTilingTime,setup_kernelCacheCompareRunInfoTime,"
            "setup_kernelCacheGetRunInfoTime,setup_kernelCacheGetTilingTime,"
            "setup_opsInitLuanchBufferTime,setup_runnerCreateTime,setup_runnerFillHostTilingTime,"
            "setup_runnerSetupTime,setup_setupCacheHitCount,setup_setupCacheMissCount,"
            "setup_setupTotalCount,setup_tilingCacheHitCount,setup_tilingCacheMissCount,"
            "setup_tilingGlobalCacheHitCount,setup_tilingLocalCacheHitCount,setup_totalTime\n"
            "LinearOperation_4,41,60,70,0,69,188,0,10,6,20,0,120,40,115,0,1,1,1,0,0,1,535\n");
}

TEST(CpuProfilingCsv, LeavesMissingCellsEmptyAndKeepsTheOrderOfOperations) {
  const auto csv = cpu_profiling_csv(line("B_1", "totalTime:3, runnerSetupTime:2") +
                                     line("A_0", "totalTime:9, kernelExecuteTime:8") +
                                     line("C_2", "nothing that counts"));
  ASSERT_TRUE(csv.has_value());
  EXPECT_EQ(*csv,
            "opname,execute_kernelExecuteTime,execute_totalTime,setup_runnerSetupTime,"
            "setup_totalTime\n"
            "B_1,,,2,3\n"
            "A_0,8,9,,\n"
            "C_2,,,,\n");
}

TEST(CpuProfilingCsv, LastReportOfEachKindCounts) {
  const auto csv =
      cpu_profiling_csv(line("A_0", "runnerSetupTime:1") + line("A_0", "runnerSetupTime:2") +
                        line("A_0", "runnerSetupTime:x"));
  ASSERT_TRUE(csv.has_value());
  EXPECT_EQ(*csv, "opname,setup_runnerSetupTime\nA_0,2\n");
}

TEST(CpuProfilingCsv, RefusesATextWithoutStatistics) {
  for (const char* text : {"", "hello\n", "[a-b]:runnerSetupTime:1\n", "A_0:runnerSetupTime:1\n"}) {
    const auto csv = cpu_profiling_csv(text);
    ASSERT_FALSE(csv.has_value()) << text;
    EXPECT_EQ(csv.error().code, Errc::Invalid);
  }
}

TEST(CpuProfilingCsv, ReadsATextThatWasCutOff) {
  const auto csv = cpu_profiling_csv("[A_0]:runnerSetupTime:12, totalTi");
  ASSERT_TRUE(csv.has_value());
  EXPECT_EQ(*csv, "opname,setup_runnerSetupTime\nA_0,12\n");
}

TEST(CpuProfilingText, IsTheOlderForm) {
  const std::string text = line("A_0", "totalTime:5, runnerSetupTime:1") +
                           line("A_0", "totalTime:7, kernelExecuteTime:3") +
                           line("B_1", "totalTime:2, runnerSetupTime:1");
  EXPECT_EQ(cpu_profiling_text(text),
            "A_0:\n[execute] totalTime:7, kernelExecuteTime:3\n"
            "[setup] totalTime:5, runnerSetupTime:1\n\n"
            "B_1:\n[execute] \n[setup] totalTime:2, runnerSetupTime:1\n\n");
}

TEST(AllZero, TellsAResetStatisticFromARealOne) {
  const auto of = [](std::string_view text) { return all_zero(read_cpu_statistics(text)); };
  EXPECT_TRUE(of("[A_0]:totalTime:0, runnerSetupTime:0\n"));
  EXPECT_FALSE(of("[A_0]:totalTime:0, runnerSetupTime:10\n"));
  EXPECT_FALSE(of("")) << "no number says nothing";
}

}  // namespace
}  // namespace assay::formats
