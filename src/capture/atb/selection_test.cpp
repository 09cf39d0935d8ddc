// SPDX-License-Identifier: Apache-2.0
// The truth tables of the selection, row by row as the original's documentation states them.
#include "capture/atb/selection.hpp"

#include <gtest/gtest.h>

#include <map>

namespace assay::capture::atb {
namespace {

using Variables = std::map<std::string, std::string>;

Settings from(const Variables& variables) {
  return settings_from_environment([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Settings tensors_with(Variables variables) {
  variables.try_emplace("ATB_DUMP_TYPE", "tensor");
  return from(variables);
}

bool need(const Settings& settings, std::vector<int64_t> ids, std::string_view type = "Linear") {
  return needs_save(settings, ids, type);
}

bool opens(const Settings& settings, Gate gate) { return (gates_of(settings) & gate) != 0; }

TEST(Selection, NothingSetMeansOff) {
  const Settings settings = from({});
  EXPECT_EQ(gates_of(settings), kGatesKnown);
  EXPECT_FALSE(need(settings, {0}));
  EXPECT_FALSE(in_range(settings, 0));
}

TEST(Selection, TypesOpenTheirGatesAndNoOthers) {
  struct Row {
    const char* types;
    bool tensor, graph, operation, kernel, statistic, model, desc;
  };
  const Row rows[] = {
      {"tensor", true, false, false, false, false, false, true},
      {"layer", false, true, false, false, false, false, false},
      {"model", false, true, false, false, false, true, false},
      {"op", false, false, true, false, false, false, true},
      {"kernel", false, false, false, true, false, false, true},
      {"cpu_profiling", false, false, false, false, true, false, false},
      {"stats", true, false, false, false, false, false, true},
      {"tensor|model|op", true, true, true, false, false, true, true},
      {"TENSOR", false, false, false, false, false, false, false},
      {"tensors|xop", false, false, false, false, false, false, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.types);
    const Settings settings = from({{"ATB_DUMP_TYPE", row.types}});
    EXPECT_EQ(opens(settings, kGateTensor), row.tensor);
    EXPECT_EQ(opens(settings, kGateParam), row.tensor);
    EXPECT_EQ(opens(settings, kGateGraph), row.graph);
    EXPECT_EQ(opens(settings, kGateOperation), row.operation);
    EXPECT_EQ(opens(settings, kGateKernel), row.kernel);
    EXPECT_EQ(opens(settings, kGateStatistic), row.statistic);
    EXPECT_EQ(opens(settings, kGateModel), row.model);
    EXPECT_EQ(opens(settings, kGateDesc), row.desc);
  }
}

TEST(Selection, DataIsAskedForByDataOrStatistics) {
  EXPECT_TRUE(opens(tensors_with({{"ATB_SAVE_TENSOR", "1"}}), kGateData));
  EXPECT_FALSE(opens(tensors_with({{"ATB_SAVE_TENSOR", "2"}}), kGateData));
  EXPECT_FALSE(opens(tensors_with({}), kGateData));
  EXPECT_TRUE(opens(tensors_with({{"ATB_SAVE_TENSOR", "2"}, {"ATB_SAVE_TENSOR_STATISTICS", "1"}}),
                    kGateData));
  EXPECT_TRUE(opens(from({{"ATB_DUMP_TYPE", "stats"}}), kGateData));
  EXPECT_TRUE(opens(tensors_with({{"ATB_SAVE_TILING", "1"}}), kGateTiling));
  EXPECT_FALSE(opens(tensors_with({{"ATB_SAVE_TILING", "0"}}), kGateTiling));
  EXPECT_TRUE(opens(from({{"ATB_CHECK_TYPE", "1"}}), kGateOverflowCheck));
  EXPECT_TRUE(opens(from({{"ATB_CHECK_TYPE", "01"}}), kGateOverflowCheck));
  EXPECT_FALSE(opens(from({{"ATB_CHECK_TYPE", "2"}}), kGateOverflowCheck));
  EXPECT_TRUE(opens(from({{"ATB_EXIT", "1"}}), kGateOverflowStop));
}

TEST(Selection, IdsMatchThemselvesAndWithChildTheNodesBelow) {
  const Settings with_child =
      tensors_with({{"ATB_SAVE_TENSOR_IDS", "24_1,2_3_5"}, {"ATB_SAVE_CHILD", "1"}});
  EXPECT_TRUE(need(with_child, {24, 1}));
  EXPECT_TRUE(need(with_child, {24, 1, 0}));
  EXPECT_TRUE(need(with_child, {2, 3, 5}));
  EXPECT_TRUE(need(with_child, {2, 3, 5, 1, 0}));
  EXPECT_FALSE(need(with_child, {24, 10}));
  EXPECT_FALSE(need(with_child, {2, 3}));
  EXPECT_FALSE(need(with_child, {24}));

  const Settings alone =
      tensors_with({{"ATB_SAVE_TENSOR_IDS", " 24_1 , ,2_3_5"}, {"ATB_SAVE_CHILD", "0"}});
  EXPECT_TRUE(need(alone, {24, 1}));
  EXPECT_TRUE(need(alone, {2, 3, 5}));
  EXPECT_FALSE(need(alone, {24, 1, 0}));
  EXPECT_FALSE(need(alone, {}));
}

TEST(Selection, NamesArePrefixesInAnyCase) {
  const Settings settings = tensors_with({{"ATB_SAVE_TENSOR_RUNNER", "linear,SelfAtt"}});
  EXPECT_TRUE(need(settings, {1, 2}, "LinearOperation"));
  EXPECT_TRUE(need(settings, {1}, "LINEARParallelOperation"));
  EXPECT_TRUE(need(settings, {1}, "SelfAttentionOperation"));
  EXPECT_FALSE(need(settings, {1}, "MyLinearOperation"));
  EXPECT_FALSE(need(settings, {1}, "Elewise"));
  // An empty name begins every name.
  EXPECT_TRUE(need(tensors_with({{"ATB_SAVE_TENSOR_RUNNER", "linear,"}}), {1}, "Elewise"));
}

TEST(Selection, IdsOrNames) {
  const Settings both =
      tensors_with({{"ATB_SAVE_TENSOR_IDS", "3"}, {"ATB_SAVE_TENSOR_RUNNER", "linear"}});
  EXPECT_TRUE(need(both, {3}, "Elewise"));
  EXPECT_TRUE(need(both, {4}, "LinearOperation"));
  EXPECT_FALSE(need(both, {4}, "Elewise"));
}

TEST(Selection, WithoutIdsAndNamesEverythingOrTopLevelOnly) {
  EXPECT_TRUE(need(tensors_with({}), {1, 2, 3}));
  EXPECT_TRUE(need(tensors_with({{"ATB_SAVE_CHILD", "1"}}), {1, 2, 3}));
  EXPECT_TRUE(need(tensors_with({{"ATB_SAVE_CHILD", "0"}}), {1}));
  EXPECT_FALSE(need(tensors_with({{"ATB_SAVE_CHILD", "0"}}), {1, 2}));
}

TEST(Selection, RunsInRange) {
  const auto in = [](const char* range, uint64_t n) {
    return in_range(tensors_with({{"ATB_SAVE_TENSOR_RANGE", range}}), n);
  };
  // first and last of each pair, both included
  for (const uint64_t n : {3u, 4u, 5u, 7u}) EXPECT_TRUE(in("3,5,7,7", n)) << n;
  for (const uint64_t n : {0u, 2u, 6u, 8u}) EXPECT_FALSE(in("3,5,7,7", n)) << n;
  // a trailing odd number, a reversed pair: nothing
  for (const uint64_t n : {0u, 3u, 5u}) EXPECT_FALSE(in("3", n) || in("5,3", n) || in("", n)) << n;
  EXPECT_TRUE(in("0,0,9", 0));
  EXPECT_FALSE(in("0,0,9", 9));
  EXPECT_TRUE(in("all", 123456789));
  EXPECT_FALSE(in("none", 0));
  EXPECT_TRUE(in(" 1 , 2 ", 2));
  // what is no int counts as 0
  EXPECT_TRUE(in("x,1", 1));
  EXPECT_FALSE(in("1,99999999999", 5));
  EXPECT_FALSE(in_range(tensors_with({}), 0));
}

TEST(Selection, SaveTimesAndParts) {
  // Four choices of the command by three parts; for each: before in, before out, after in, after
  // out.
  struct Row {
    const char *time, *both, *part;
    bool asks_before, asks_after, keeps[4];
  };
  const Row rows[] = {
      {"0", "0", "0", true, false, {true, false, true, false}},
      {"0", "0", "1", true, false, {false, true, false, true}},
      {"0", "0", "2", true, false, {true, true, true, true}},
      {"1", "0", "0", false, true, {true, false, true, false}},
      {"1", "0", "1", false, true, {false, true, false, true}},
      {"1", "0", "2", false, true, {true, true, true, true}},
      {"2", "0", "0", true, true, {true, false, true, false}},
      {"2", "0", "1", true, true, {false, true, false, true}},
      {"2", "0", "2", true, true, {true, true, true, true}},
      {"1", "1", "0", true, true, {true, false, false, false}},
      {"1", "1", "1", true, true, {false, false, false, true}},
      {"1", "1", "2", true, true, {true, false, false, true}},
  };
  const char* files[] = {"before/intensor0.bin", "before/outtensor0.bin", "after/intensor0.bin",
                         "after/outtensor0.bin"};
  for (const Row& row : rows) {
    const Settings settings = tensors_with({{"ATB_SAVE_TENSOR_TIME", row.time},
                                            {"ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER", row.both},
                                            {"ATB_SAVE_TENSOR_PART", row.part}});
    EXPECT_EQ(opens(settings, kGateBefore), row.asks_before);
    EXPECT_EQ(opens(settings, kGateAfter), row.asks_after);
    for (size_t i = 0; i < 4; ++i) {
      const std::string path = std::string("0_1/0/2_before_Layer/") + files[i];
      const bool kept = wants_part(settings, path) && wants_time(settings, path);
      EXPECT_EQ(kept, row.keeps[i]) << row.time << row.both << row.part << " " << files[i];
    }
  }
}

TEST(Selection, UnsetTimeAsksForBothAndFiltersNothing) {
  const Settings settings = tensors_with({{"ATB_SAVE_TENSOR_PART", "2"}});
  EXPECT_TRUE(opens(settings, kGateBefore));
  EXPECT_TRUE(opens(settings, kGateAfter));
  EXPECT_TRUE(wants_time(settings, "0_1/0/2_A/before/outtensor0.bin"));
  EXPECT_FALSE(wants_part(tensors_with({}), "0_1/0/2_A/before/intensor0.bin"));
}

TEST(Selection, DevicesAreAListOfNumbers) {
  const Settings two = tensors_with({{"ATB_DEVICE_ID", "0, 2"}});
  EXPECT_TRUE(device_matches(two, "0_39943/0/1_A/before/intensor0.bin"));
  EXPECT_TRUE(device_matches(two, "2_39943/0"));
  EXPECT_FALSE(device_matches(two, "1_39943/0"));
  EXPECT_FALSE(device_matches(two, "20_39943/0"));
  EXPECT_TRUE(device_matches(tensors_with({}), "7_1/0"));
}

Settings dynamic(const char* json, Variables variables = {}) {
  variables.try_emplace("ATB_DUMP_TYPE", "tensor");
  variables.try_emplace("ATB_DUMP_CONFIG", "/config.json");
  return with_config(from(variables), parse_dynamic_config(json).value());
}

TEST(DynamicSelection, LibraryIsToldToSaveAndFoldersDecide) {
  const Settings settings =
      dynamic(R"({"dump_enable":"true","er":"0,0","ids":"2","child":"false"})");
  EXPECT_TRUE(need(settings, {99, 1}));
  EXPECT_TRUE(in_directory(settings, "0_1/0/2_Layer"));
  EXPECT_FALSE(in_directory(settings, "0_1/0/2_Layer/0_Linear"));
  EXPECT_FALSE(in_directory(settings, "0_1/0/3_Layer"));
  EXPECT_FALSE(in_directory(settings, "0_1/0"));
  EXPECT_FALSE(in_directory(settings, ""));
  EXPECT_TRUE(in_range(settings, 0));
  EXPECT_FALSE(in_range(settings, 1));
}

TEST(DynamicSelection, ChildTrueTakesTheNodesBelow) {
  const Settings settings =
      dynamic(R"({"dump_enable":"true","ids":"2,24_1","child":"true","er":"all"})");
  EXPECT_TRUE(in_directory(settings, "0_1/0/2_Layer/0_Linear/0_MatMulKernel"));
  EXPECT_TRUE(in_directory(settings, "0_1/0/24_Layer/1_Linear"));
  EXPECT_FALSE(in_directory(settings, "0_1/0/24_Layer/10_Linear"));
  EXPECT_FALSE(in_directory(settings, "0_1/0/24_Layer"));
  EXPECT_TRUE(in_range(settings, 77));
}

TEST(DynamicSelection, WithoutIdsChildFalseLimitsToLayers) {
  const Settings layers = dynamic(R"({"dump_enable":"true","child":"false"})");
  EXPECT_TRUE(in_directory(layers, "0_1/0/2_Layer"));
  EXPECT_FALSE(in_directory(layers, "0_1/0/2_Layer/0_Linear"));
  const Settings all = dynamic(R"({"dump_enable":"true"})");
  EXPECT_TRUE(in_directory(all, "0_1/0/2_Layer/0_Linear"));
}

TEST(DynamicSelection, NamesOfTheEnvironmentCompareTheLastFolder) {
  const Settings settings = dynamic(R"({"dump_enable":"true","device":"0"})",
                                    {{"ATB_SAVE_TENSOR_RUNNER", "linear,matmul"}});
  EXPECT_TRUE(in_directory(settings, "0_1/0/2_Layer/0_LinearOperation"));
  EXPECT_TRUE(in_directory(settings, "0_1/0/2_Layer/0_Elewise/1_MatMulKernel"));
  EXPECT_FALSE(in_directory(settings, "0_1/0/2_Layer/0_LinearOperation/0_CastKernel"));
  EXPECT_FALSE(in_directory(settings, "1_1/0/2_Layer/0_LinearOperation"));
}

TEST(DynamicSelection, DisabledOrUnreadFileCapturesNothing) {
  const Settings disabled = dynamic(R"({"dump_enable":"false","er":"all"})");
  EXPECT_FALSE(in_range(disabled, 0));
  EXPECT_FALSE(in_directory(disabled, "0_1/0/2_Layer"));
  EXPECT_TRUE(need(disabled, {1}));  // so that it can be enabled later
  const Settings unread =
      with_config(from({{"ATB_DUMP_TYPE", "tensor"}, {"ATB_DUMP_CONFIG", "/c"}}), std::nullopt);
  EXPECT_FALSE(in_range(unread, 0));
  EXPECT_FALSE(in_directory(unread, "0_1/0/2_Layer"));
  EXPECT_TRUE(opens(unread, kGateDynamic));
}

TEST(MsprobeSelection, RulesOfTheOtherSchema) {
  const auto settings = [](const char* more) {
    return dynamic((std::string(R"({"dump_enable":true,"exec_range":"all")") + more + "}").c_str(),
                   {{"ATB_DUMP_TYPE", ""}});
  };
  // neither ids nor names: layers, unless children are asked for
  EXPECT_TRUE(in_directory(settings(""), "0_1/0/2_Layer"));
  EXPECT_FALSE(in_directory(settings(""), "0_1/0/2_Layer/0_Linear"));
  EXPECT_TRUE(in_directory(settings(R"(,"save_child":true)"), "0_1/0/2_Layer/0_Linear"));
  // ids
  EXPECT_TRUE(in_directory(settings(R"(,"ids":"2_0")"), "0_1/0/2_Layer/0_Linear"));
  EXPECT_FALSE(in_directory(settings(R"(,"ids":"2_0")"), "0_1/0/2_Layer/0_Linear/1_K"));
  // names: the last one, or with children any one on the way
  const char* linear = "0_1/0/2_Prefill_layer/0_Attention/1_LinearOperation";
  const char* kernel = "0_1/0/2_Prefill_layer/0_Attention/1_LinearOperation/0_MatMulKernel";
  EXPECT_TRUE(in_directory(settings(R"(,"op_name":"Linear")"), linear));
  EXPECT_FALSE(in_directory(settings(R"(,"op_name":"Attention")"), linear));
  EXPECT_TRUE(in_directory(settings(R"(,"op_name":"attention","save_child":true)"), linear));
  EXPECT_TRUE(in_directory(settings(R"(,"op_name":"linear","save_child":true)"), kernel));
  EXPECT_TRUE(in_directory(settings(R"(,"op_name":"prefill","save_child":true)"), kernel));
  EXPECT_FALSE(in_directory(settings(R"(,"op_name":"layer","save_child":true)"), linear));
}

TEST(MsprobeSelection, TaskDecidesWhatIsStored) {
  const auto stored = [](const char* task) {
    return dynamic((std::string(R"({"dump_enable":true,"task":")") + task + "\"}").c_str());
  };
  EXPECT_TRUE(stored("tensor").save_data);
  EXPECT_FALSE(stored("tensor").statistics);
  EXPECT_FALSE(stored("statistics").save_data);
  EXPECT_TRUE(stored("statistics").statistics);
  EXPECT_TRUE(stored("all").data_with_statistics);
  EXPECT_FALSE(wants_time(stored("all"), "0_1/0/2_A/before/outtensor0.bin"));
}

TEST(Selection, HostileValuesAreIgnoredWithASentence) {
  for (const char* value : {"", " ", "-1", "99999999999999999999", "0x10", "1e9", "nan", "\xFF\xFE",
                            "../../etc/passwd", "%s%n", "3;rm -rf /"}) {
    Variables variables{{"ATB_DUMP_TYPE", "tensor"}};
    for (const char* name :
         {"ATB_SAVE_TENSOR", "ATB_SAVE_TENSOR_TIME", "ATB_SAVE_TENSOR_PART", "ATB_SAVE_CHILD",
          "ATB_SAVE_TENSOR_IDS", "ATB_SAVE_TENSOR_RUNNER", "ATB_SAVE_TENSOR_RANGE", "ATB_DEVICE_ID",
          "ATB_SAVE_TILING", "ATB_TIMESTAMP", "ATB_AIT_LOG_LEVEL", "ASSAY_PROBE_QUEUE_BYTES",
          "ASSAY_PROBE_ON_FULL", "ASSAY_PROBE_SYNC", "ASSAY_PROBE_RELOAD_MS"}) {
      variables[name] = value;
    }
    const Settings settings = from(variables);
    EXPECT_EQ(settings.save_time, 1);
    EXPECT_FALSE(settings.part.has_value());
    EXPECT_EQ(settings.queue_bytes, 256ull << 20);
    EXPECT_EQ(settings.dump_name.find('/'), std::string::npos);
    EXPECT_FALSE(settings.warnings.empty());
    (void)need(settings, {1, 2});
    (void)in_range(settings, UINT64_MAX);
  }
}

TEST(Selection, DumpFolderNames) {
  EXPECT_EQ(from({}).dump_name, "msit_dump");
  EXPECT_EQ(from({{"ATB_TIMESTAMP", "20260105_020000"}}).dump_name, "msit_dump_20260105_020000");
  EXPECT_EQ(from({{"ASSAY_ATB_DUMP_NAME", "ait_dump"}}).dump_name, "ait_dump");
  EXPECT_EQ(from({{"ASSAY_ATB_DUMP_NAME", ".."}}).dump_name, "_");
  EXPECT_EQ(from({{"ASSAY_ATB_DUMP_NAME", "a/../b c"}}).dump_name, "a_.._b_c");
}

TEST(Selection, RowsAreFilteredOnlyWhenAsked) {
  const Variables base{{"ATB_DUMP_TYPE", "op"},
                       {"ATB_SAVE_TENSOR_RANGE", "0,0"},
                       {"ATB_SAVE_TENSOR_IDS", "2"},
                       {"ATB_SAVE_CHILD", "1"}};
  EXPECT_TRUE(row_matches(from(base), 5, "LinearOperation_7_0"));
  Variables filtered = base;
  filtered["ASSAY_PROBE_FILTER_ROWS"] = "1";
  const Settings settings = from(filtered);
  EXPECT_TRUE(row_matches(settings, 0, "LinearOperation_2_0"));
  EXPECT_TRUE(row_matches(settings, 0, "Decoder_layer_2"));
  EXPECT_FALSE(row_matches(settings, 0, "LinearOperation_7_2"));
  EXPECT_FALSE(row_matches(settings, 1, "LinearOperation_2_0"));
}

}  // namespace
}  // namespace assay::capture::atb
