// SPDX-License-Identifier: Apache-2.0
#include "run/parallel_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::run {
namespace {

using testing::HasSubstr;

TEST(ParallelSizes, NumberRanksTheFastestFirst) {
  const auto sizes = parse_parallel("tensor=2, pp=3,DP=1,ep=4");
  ASSERT_TRUE(sizes) << sizes.error().describe();
  EXPECT_EQ(sizes->job_size(), 24);
  // 17 = 1 + 2 * (2 + 3 * 2)
  const native::ParallelPlaces places = sizes->places_of(17);
  EXPECT_EQ(places.at("tp"), (native::ParallelPlace{1, 2}));
  EXPECT_EQ(places.at("pp"), (native::ParallelPlace{2, 3}));
  EXPECT_EQ(places.at("ep"), (native::ParallelPlace{2, 4}));
  EXPECT_FALSE(places.contains("dp"));  // a group of one tells nothing
}

TEST(ParallelSizes, RefuseWhatIsNone) {
  const auto why = [](const char* text) { return parse_parallel(text).error().describe(); };
  for (const char* text : {"tp", "tp=", "tp=two", "tp=2,,dp=2", "", "tp=2;dp=2", "tp==2", "=2="})
    EXPECT_THAT(why(text), HasSubstr("is not like 'tp=2,pp=2,dp=2'")) << text;
  EXPECT_THAT(why("zp=2"), HasSubstr("'zp' is no kind of group (tp, pp, dp, ep, cp)"));
  EXPECT_THAT(why("=2"), HasSubstr("'' is no kind of group"));
  EXPECT_THAT(why("tp=2,tensor=2"), HasSubstr("'tensor' is there twice, or smaller than 1"));
  EXPECT_THAT(why("tp=0"), HasSubstr("smaller than 1"));
  EXPECT_THAT(why("tp=-4"), HasSubstr("smaller than 1"));
  EXPECT_THAT(why("tp=65536,dp=65536"), HasSubstr("no job has so many ranks"));
  EXPECT_THAT(why("tp=99999999999999999999"), HasSubstr("is not like"));
}

}  // namespace
}  // namespace assay::run
