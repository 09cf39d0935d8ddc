// SPDX-License-Identifier: Apache-2.0
#include "capture/common/dynamic_config.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace assay::capture {
namespace {

TEST(DynamicConfig, ReadsTheCommandsSchema) {
  const auto config = parse_dynamic_config(
      R"({"dump_enable":"true","er":"0,0","ids":"0,1,2","child":"true","device":""})");
  ASSERT_TRUE(config.has_value());
  EXPECT_FALSE(config->msprobe);
  EXPECT_TRUE(config->enabled);
  EXPECT_EQ(config->range, "0,0");
  EXPECT_EQ(config->ids, "0,1,2");
  EXPECT_TRUE(config->child);
  // Only these words count.
  EXPECT_FALSE(parse_dynamic_config(R"({"dump_enable":"True"})")->enabled);
  EXPECT_FALSE(parse_dynamic_config(R"({"dump_enable":"true","child":"yes"})")->child);
  // Defaults, also for empty texts.
  const auto defaults = parse_dynamic_config(R"({"dump_enable":"","er":"","child":""})");
  EXPECT_FALSE(defaults->enabled);
  EXPECT_EQ(defaults->range, "0,0");
  EXPECT_TRUE(defaults->child);
}

TEST(DynamicConfig, ReadsMsprobesSchema) {
  const auto config = parse_dynamic_config(
      R"({"task":"statistics","dump_enable":true,"exec_range":"all","ids":"","op_name":"Linear",)"
      R"("save_child":true,"device":"0","filter_level":2})");
  ASSERT_TRUE(config.has_value());
  EXPECT_TRUE(config->msprobe);
  EXPECT_TRUE(config->enabled);
  EXPECT_FALSE(config->data);
  EXPECT_TRUE(config->statistics);
  EXPECT_EQ(config->filter_level, 2);
  EXPECT_EQ(config->names, "Linear");
}

TEST(DynamicConfig, WrongTypesNeverThrow) {
  // The command's schema: the file does not count, the old values stay.
  EXPECT_EQ(parse_dynamic_config(R"({"dump_enable":"true","er":3})").error().code, Errc::Invalid);
  EXPECT_EQ(parse_dynamic_config(R"({"dump_enable":"true","ids":null})").error().code,
            Errc::Invalid);
  // msprobe's: the default counts, with a sentence.
  const auto odd = parse_dynamic_config(
      R"({"dump_enable":true,"task":7,"exec_range":[],"save_child":"yes","filter_level":1.5})");
  ASSERT_TRUE(odd.has_value());
  EXPECT_EQ(odd->warnings.size(), 4u);
  EXPECT_EQ(odd->range, "0,0");
  EXPECT_EQ(parse_dynamic_config(R"({"dump_enable":true,"task":"dance"})")->warnings.size(), 1u);
  for (const char* text : {"", "{", "[]", "null", "7", "\xFF\xFE", "{\"er\":\"\\ud800\"}"}) {
    EXPECT_EQ(parse_dynamic_config(text).error().code, Errc::Invalid) << text;
  }
  EXPECT_EQ(parse_dynamic_config(std::string(100'000, '[')).error().code, Errc::Invalid);
}

class DynamicConfigFileTest : public ::testing::Test {
 protected:
  DynamicConfigFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "assay_config_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/config.json";
  }
  ~DynamicConfigFileTest() override { std::filesystem::remove_all(folder_); }
  // Through a new file, as editors do: another inode at least.
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_ + ".new") << text;
    chmod((path_ + ".new").c_str(), mode);
    std::filesystem::rename(path_ + ".new", path_);
  }
  std::string folder_;
  std::string path_;
};

TEST_F(DynamicConfigFileTest, GivesEachStateOfTheFileOnce) {
  DynamicConfigFile file(path_);
  EXPECT_EQ(file.reload().error().code, Errc::NotFound);
  EXPECT_FALSE(file.reload().value().has_value());  // told once
  write(R"({"dump_enable":"true"})");
  ASSERT_TRUE(file.reload().value().has_value());
  EXPECT_FALSE(file.reload().value().has_value());
  write(R"({"dump_enable":)");
  EXPECT_EQ(file.reload().error().code, Errc::Invalid);
  EXPECT_FALSE(file.reload().value().has_value());
  write(R"({"dump_enable":"false"})");
  EXPECT_FALSE(file.reload().value()->enabled);
}

TEST_F(DynamicConfigFileTest, RefusesWhatOthersCanWriteAndWhatIsNoFile) {
  write("{}", 0620);
  EXPECT_EQ(DynamicConfigFile(path_).reload().error().code, Errc::Permission);
  write("{}", 0602);
  EXPECT_EQ(DynamicConfigFile(path_).reload().error().code, Errc::Permission);
  write(std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(DynamicConfigFile(path_).reload().error().code, Errc::TooLarge);
  std::filesystem::remove(path_);
  mkfifo(path_.c_str(), 0600);  // must not wait for a writer
  EXPECT_EQ(DynamicConfigFile(path_).reload().error().code, Errc::Unsupported);
  EXPECT_EQ(DynamicConfigFile(folder_).reload().error().code, Errc::Unsupported);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/hostname", path_);
  EXPECT_FALSE(DynamicConfigFile(path_).reload().has_value());
}

}  // namespace
}  // namespace assay::capture
