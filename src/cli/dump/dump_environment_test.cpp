// SPDX-License-Identifier: Apache-2.0
#include "cli/dump/dump_environment.hpp"

#include <gtest/gtest.h>

#include <map>

namespace assay::cli {
namespace {

const DumpPlaces kPlaces{"/d", "msit_dump_20260105_020000", "20260105_020000", "", "/d/4711"};

std::map<std::string, std::optional<std::string>> variables(const DumpRequest& request,
                                                            const DumpPlaces& places = kPlaces) {
  std::map<std::string, std::optional<std::string>> out;
  for (const auto& [name, value] :
       dump_environment(request, places, {"/l/libatb_probe.so", "/l/python"}, "/x.so", "")) {
    EXPECT_TRUE(out.emplace(name, value).second) << name << " twice";
  }
  return out;
}

// What the original exports, for a plain `msit llm dump --exec prog -o /d`.
TEST(DumpEnvironment, DefaultsGiveTheValuesOfTheOriginal) {
  DumpRequest request;
  request.types = {"tensor", "model"};
  auto got = variables(request);
  EXPECT_EQ(got["ATB_OUTPUT_DIR"], "/d/");
  EXPECT_EQ(got["ATB_TIMESTAMP"], "20260105_020000");
  EXPECT_EQ(got["ATB_DUMP_TYPE"], "tensor|model");
  EXPECT_EQ(got["ATB_SAVE_TENSOR"], "1");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_TIME"], "1");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER"], "1");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_RANGE"], "0,0");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_PART"], "2");
  EXPECT_EQ(got["ATB_SAVE_CHILD"], "1");
  EXPECT_EQ(got["ATB_SAVE_TILING"], "0");
  EXPECT_EQ(got["ATB_AIT_LOG_LEVEL"], "1");
  EXPECT_EQ(got["LD_PRELOAD"], "/l/libatb_probe.so:/x.so");
  EXPECT_EQ(got["PYTHONPATH"], "/l/python");
  // Not asked for, so an inherited value must not survive.
  for (const char* name : {"ATB_SAVE_TENSOR_IDS", "ATB_SAVE_TENSOR_RUNNER", "ATB_DEVICE_ID",
                           "ATB_SAVE_TENSOR_STATISTICS", "ATB_DUMP_SUB_PROC_INFO_SAVE_PATH",
                           "ATB_DUMP_CONFIG", "ATB_CHECK_TYPE", "ATB_EXIT"}) {
    EXPECT_EQ(got.at(name), std::nullopt) << name;
  }
}

TEST(DumpEnvironment, EveryOptionReachesItsVariable) {
  DumpRequest request;
  request.types = {"onnx", "model", "op", "stats", "tensor"};
  request.save_time = 0;
  request.description_only = true;
  request.ids = "2,3_1";
  request.operation_names = "SelfAttention,linear";
  request.child = false;
  request.device = "0,1";
  request.symlink = true;
  request.tiling = true;
  request.log_level = "critical";
  request.seed = 7;
  request.filter_rows = true;
  DumpPlaces places = kPlaces;
  places.config_path = "/c.json";
  auto got = variables(request, places);
  EXPECT_EQ(got["ATB_SAVE_TENSOR"], "2");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_TIME"], "0");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER"], "0");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_IDS"], "2,3_1");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_RUNNER"], "selfattention,linear");
  EXPECT_EQ(got["ATB_SAVE_TENSOR_STATISTICS"], "1");
  EXPECT_EQ(got["ATB_SAVE_CHILD"], "0");
  EXPECT_EQ(got["ATB_SAVE_SYMLINK"], "1");
  EXPECT_EQ(got["ATB_SAVE_TILING"], "1");
  EXPECT_EQ(got["ATB_DEVICE_ID"], "0,1");
  EXPECT_EQ(got["ATB_DUMP_CONFIG"], "/c.json");
  EXPECT_EQ(got["ATB_DUMP_SUB_PROC_INFO_SAVE_PATH"], "/d/4711");
  EXPECT_EQ(got["ATB_AIT_LOG_LEVEL"], "5");
  EXPECT_EQ(got["ASSAY_PROBE_FILTER_ROWS"], "1");
  EXPECT_EQ(got["PYTHONHASHSEED"], "7");
  EXPECT_EQ(got["HCCL_DETERMINISTIC"], "true");
}

TEST(DumpEnvironment, ThePyTorchSideGetsTheSameChoice) {
  DumpRequest request;
  request.types = {"tensor", "model"};
  request.range = "0,0,2,4";
  request.modules = {"model.*.mlp"};
  request.operators = true;
  request.digest = true;
  request.weights = true;
  request.ranks = "0,0,8,15";
  EXPECT_EQ(variables(request)["ASSAY_TORCH_DUMP"],
            "{\"output\":\"/"
            "d\",\"layout\":\"native\",\"level\":\"operator\",\"weights\":true,\"steps\":\"0,2-4\","
            "\"modules\":[\"model.*.mlp\"],"
            "\"statistics\":false,\"full\":true,\"digest\":true,\"report_dir\":\"/d/"
            "4711\",\"ranks\":\"0,8-15\",\"parallel\":\"\",\"node_memory\":0,\"disk_budget\":0,"
            "\"seed\":null}");
}

TEST(DumpEnvironment, WithoutLibrariesNothingIsPreloaded) {
  const auto changes = dump_environment({}, kPlaces, {}, "", "");
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0], (EnvironmentChange{"ASSAY_GGML_DUMP", std::nullopt}));
  EXPECT_EQ(changes[1], (EnvironmentChange{"ASSAY_DUMP_OUTPUT", std::nullopt}));
  EXPECT_EQ(changes[2], (EnvironmentChange{"ASSAY_DUMP_COMMAND", std::nullopt}));
  EXPECT_EQ(changes[3], (EnvironmentChange{"ASSAY_TORCH_DUMP", std::nullopt}));
}

TEST(DumpEnvironment, TheGgmlProbeStandsBehindTheOtherAndGetsItsRequest) {
  DumpRequest request;
  request.types = {"tensor", "model"};
  request.range = "0,0,2,4";
  request.range_given = true;
  request.modules = {"ffn_*"};
  request.exclude = {"ffn_up-*"};
  request.operation_names = "MUL_MAT,rope";
  request.tensor_part = 1;
  request.digest = true;
  request.weights = true;
  std::map<std::string, std::optional<std::string>> got;
  for (const auto& [name, value] : dump_environment(
           request, kPlaces, {"/l/libatb_probe.so", "", "/l/libggml_probe.so"}, "/x.so", ""))
    got[name] = value;
  EXPECT_EQ(got["LD_PRELOAD"], "/l/libatb_probe.so:/l/libggml_probe.so:/x.so");
  EXPECT_EQ(
      got["ASSAY_GGML_DUMP"],
      R"({"output":"/d","steps":"0,0,2,4","first_only":false,"names":["ffn_*"],"exclude":["ffn_up-*"],"types":["mul_mat","rope"],)"
      R"("full":true,"statistics":false,"digest":true,"inputs":false,"outputs":true,"weights":true,"caches":false,)"
      R"("report_dir":"/d/4711","config":"",)"
      R"("queue_bytes":67108864,"drop_when_full":false,"sync":false})");
}

TEST(DumpEnvironment, WithoutTheGgmlProbeAnInheritedRequestIsRemoved) {
  DumpRequest request;
  request.types = {"tensor"};
  EXPECT_EQ(variables(request).at("ASSAY_GGML_DUMP"), std::nullopt);
}

}  // namespace
}  // namespace assay::cli
