// SPDX-License-Identifier: Apache-2.0
#include "pair/mapping_tables.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace assay::pair {
namespace {

NamePattern glob(const std::string& text) {
  NamePattern pattern;
  pattern.glob = text;
  return pattern;
}

TEST(NamePattern, GlobsMatchTheWholeName) {
  EXPECT_TRUE(glob("RmsNormOperation_#").matches("RmsNormOperation_13"));
  EXPECT_FALSE(glob("RmsNormOperation_#").matches("RmsNormOperation_13_0"));
  EXPECT_FALSE(glob("RmsNormOperation_#").matches("RmsNormOperation_"));
  EXPECT_TRUE(glob("*.self_attn.?_proj").matches("root.model.layers.3.self_attn.q_proj"));
  EXPECT_FALSE(glob("*.self_attn.?_proj").matches("root.model.layers.3.self_attn.qk_proj"));
  EXPECT_TRUE(glob("*").matches(""));
  EXPECT_FALSE(glob("?").matches(""));
  EXPECT_TRUE(glob("a*b*c").matches("aXbYbZc"));
  EXPECT_FALSE(glob("a*b*c").matches("aXcYb"));
}

TEST(NamePattern, EndsInTimeForPatternsOfManyStars) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "*a";
  EXPECT_FALSE(glob(pattern + "b").matches(std::string(5000, 'a')));
}

TEST(NamePattern, WordsMustAllOccurAndNoneOfTheOthers) {
  NamePattern pattern;
  pattern.all = {"mlp", "linear"};
  pattern.any = {"up", "gate"};
  pattern.none = {"quant"};
  EXPECT_TRUE(pattern.matches("0_mlp/1_linear_up"));
  EXPECT_FALSE(pattern.matches("0_mlp/1_linear_down"));
  EXPECT_FALSE(pattern.matches("0_mlp/1_linear_up_quant"));
  EXPECT_FALSE(pattern.matches("0_MLP/1_linear_up"));
  NamePattern any_case = pattern;
  any_case.ignore_case = true;
  EXPECT_TRUE(any_case.matches("0_MLP/1_Linear_Up"));
}

TEST(BuiltinTables, HoldTheOriginalsRules) {
  const MappingTables& tables = builtin_tables();
  EXPECT_EQ(tables.float_type("LinearQuantOperation"), "LinearOperation");
  EXPECT_EQ(tables.float_type("Other"), "Other");
  EXPECT_EQ(tables.layer_special.size(), 5u);
  EXPECT_EQ(tables.enhanced_name.size(), 10u);
  ASSERT_EQ(tables.types.size(), 4u);
  // "CommonLayer_outtensor0": what stands behind the first _ is the tensor's file.
  const auto common = std::find_if(tables.types.begin(), tables.types.end(),
                                   [](const TypeRule& rule) { return rule.mine == "CommonLayer"; });
  ASSERT_NE(common, tables.types.end());
  EXPECT_EQ(common->mine_at, "outtensor0");
  EXPECT_EQ(common->golden.front(), (std::pair<std::string, Location>{"GLMBlock", "output_0"}));
}

class UserFile : public testing::Test {
 protected:
  UserFile() { std::filesystem::create_directories(folder_); }
  ~UserFile() override { std::filesystem::remove_all(folder_); }
  Result<MappingTables> read(const std::string& text) {
    std::ofstream(folder_ / "op_mapping_file.json") << text;
    return tables_with_user_file(folder_.string());
  }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("assay_mapping_" +
       std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(UserFile, ReplacesEqualKeysAndAddsOthers) {
  const auto tables =
      read(R"({"RmsNormOperation": "MyNorm", "NewOperation": ["A", "B_output_1"]})");
  ASSERT_TRUE(tables);
  EXPECT_EQ(tables->types.size(), builtin_tables().types.size() + 1);
  const TypeRule& added = tables->types.back();
  EXPECT_EQ(added.mine, "NewOperation");
  EXPECT_EQ(added.golden[1], (std::pair<std::string, Location>{"B", "output_1"}));
  const auto norm = std::find_if(tables->types.begin(), tables->types.end(),
                                 [](const TypeRule& r) { return r.mine == "RmsNormOperation"; });
  ASSERT_EQ(norm->golden.size(), 1u);
  EXPECT_EQ(norm->golden[0].first, "MyNorm");
}

TEST_F(UserFile, MayBeMissingInAFolderButNotByItsName) {
  EXPECT_TRUE(tables_with_user_file(folder_.string()));
  EXPECT_FALSE(tables_with_user_file((folder_ / "none.json").string()));
}

TEST_F(UserFile, IsNamedWhenItIsWrong) {
  for (const char* text : {"[]", "{", R"({"a b": "C"})", R"({"A": 3})", R"({"A": ["b-c"]})",
                           R"({"rules": [{"mine": "x"}]})", "\x93\xff"}) {
    const auto tables = read(text);
    ASSERT_FALSE(tables) << text;
    EXPECT_TRUE(tables.error().message.starts_with("Invalid op_mapping file: ")) << text;
  }
}

}  // namespace
}  // namespace assay::pair
