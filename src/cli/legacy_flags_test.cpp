// SPDX-License-Identifier: Apache-2.0
#include "cli/legacy_flags.hpp"

#include <gtest/gtest.h>

namespace assay::cli {
namespace {

using Words = std::vector<std::string>;

TEST(RewriteLegacyFlags, ReplacesWholeTokens) {
  EXPECT_EQ(rewrite_legacy_flags({"compare", "-gp", "a", "-mp", "b", "-cl", "layer", "-st"}),
            (Words{"compare", "--golden-path", "a", "--my-path", "b", "--cmp-level", "layer",
                   "--stats"}));
}

TEST(RewriteLegacyFlags, KeepsTheValueBehindAnEqualsSign) {
  EXPECT_EQ(rewrite_legacy_flags({"opcheck", "-ids=2_1", "-pmode=force_fp32"}),
            (Words{"opcheck", "--operation-ids=2_1", "--precision-mode=force_fp32"}));
}

TEST(RewriteLegacyFlags, KnowsTheNamesOfOpcheck) {
  EXPECT_EQ(rewrite_legacy_flags({"opcheck", "-ids", "24_1", "-metric", "abs"}),
            (Words{"opcheck", "--operation-ids", "24_1", "--precision-metric", "abs"}));
}

TEST(RewriteLegacyFlags, TurnsUnderscoresOfOldLongNamesIntoDashes) {
  EXPECT_EQ(rewrite_legacy_flags({"compare", "--golden_path=a_b", "--my_path", "c_d"}),
            (Words{"compare", "--golden-path=a_b", "--my-path", "c_d"}));
}

TEST(RewriteLegacyFlags, LeavesTheProgramBehindTwoDashesAlone) {
  const Words words = {"compare", "--", "python", "-gp", "--golden_path"};
  EXPECT_EQ(rewrite_legacy_flags(words), words);
}

TEST(RewriteLegacyFlags, LeavesOneLetterNamesAndUnknownOnesAlone) {
  const Words words = {"compare", "-o", "-gpx", "--some_thing", "-", "gp"};
  EXPECT_EQ(rewrite_legacy_flags(words), words);
}

}  // namespace
}  // namespace assay::cli
