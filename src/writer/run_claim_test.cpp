// SPDX-License-Identifier: Apache-2.0
#include "writer/run_claim.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace assay::writer {
namespace {

namespace fs = std::filesystem;

native::Manifest minimal() {
  native::Manifest manifest;
  manifest.tool = "assay 0";
  manifest.host_json = manifest.config_json = "{}";
  manifest.started = "2026-01-01T00:00:00Z";
  return manifest;
}

TEST(Manifest, EndsWithTheDigestOfWhatStandsBefore) {
  native::Manifest manifest = minimal();
  manifest.id = "0123456789abcdef0123456789abcdef";
  manifest.files.push_back({"records.jsonl", 12, 1, {1, 2}});
  const std::string text = manifest.to_json();
  const size_t end = text.find(",\n \"seal\":\"");
  ASSERT_NE(end, std::string::npos);
  const std::string digest = stats::digest_text(stats::digest_bytes(as_bytes(text.substr(0, end))));
  EXPECT_EQ(text.substr(end), ",\n \"seal\":\"" + digest + "\"}\n");
  EXPECT_NE(text.find("\"id\":\"0123456789abcdef0123456789abcdef\""), std::string::npos);
  EXPECT_NE(
      text.find(
          R"({"file":"records.jsonl","bytes":12,"entries":1,"digest":"00000000000000010000000000000002"})"),
      std::string::npos);
}

TEST(Manifest, IdsDiffer) {
  EXPECT_EQ(new_run_id().size(), 32u);
  EXPECT_NE(new_run_id(), new_run_id());
}

class ClaimRun : public testing::Test {
 protected:
  ClaimRun() {
    std::string pattern = (fs::temp_directory_path() / "assay-claim-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    ::unsetenv("ASSAY_RUN_ID");
  }
  ~ClaimRun() override {
    ::unsetenv("ASSAY_RUN_ID");
    fs::remove_all(folder_);
  }
  [[nodiscard]] RunClaim claim() const {
    const auto claim = claim_run(folder_ + "/manifest.json", minimal());
    EXPECT_TRUE(claim.has_value());
    return *claim;
  }
  std::string folder_;
};

TEST_F(ClaimRun, TheSecondProcessJoinsTheRunOfTheFirst) {
  const RunClaim first = claim();
  const RunClaim second = claim();
  EXPECT_TRUE(first.is_first);
  EXPECT_FALSE(second.is_first);
  EXPECT_EQ(first.id, second.id);
}

TEST_F(ClaimRun, AManifestWithoutIdLeavesEachItsOwn) {
  ASSERT_TRUE(write_manifest(folder_ + "/manifest.json", minimal()));
  EXPECT_FALSE(claim().is_first);
  EXPECT_NE(claim().id, claim().id);
}

TEST_F(ClaimRun, TheEnvironmentNamesOneForHostsThatShareNoFolder) {
  ::setenv("ASSAY_RUN_ID", "ffffffffffffffffffffffffffffffff", 1);
  EXPECT_EQ(claim().id, "ffffffffffffffffffffffffffffffff");
  ::setenv("ASSAY_RUN_ID", "mine", 1);  // no id
  EXPECT_EQ(claim().id, "ffffffffffffffffffffffffffffffff");
}

}  // namespace
}  // namespace assay::writer
