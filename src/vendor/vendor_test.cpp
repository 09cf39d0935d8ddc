// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "report/table.hpp"
#include "vendor/ait/metrics.hpp"
#include "vendor/compat.hpp"

namespace assay::vendor {
namespace {

std::vector<std::string> columns(const char* name, const compare::Comparison& comparison) {
  return report::names_of(report::columns_of(comparison, compat(name)->style, true));
}

TEST(Compat, KnowsThreeNames) {
  EXPECT_TRUE(compat("none") && compat("msit") && compat("ait-0.2"));
  EXPECT_EQ(compat("Msit").error().code, Errc::Usage);
}

TEST(Compat, OursHasTheOriginalsColumnsOnTheLeftAndNoNameTwice) {
  for (const bool statistics : {false, true}) {
    for (const bool weights : {false, true}) {
      compare::Comparison comparison;
      comparison.statistics = statistics;
      comparison.weights = weights;
      const std::vector<std::string> ours = columns("none", comparison);
      const std::vector<std::string> original = columns("msit", comparison);
      ASSERT_GT(ours.size(), original.size());
      EXPECT_TRUE(std::equal(original.begin(), original.end(), ours.begin()));
      EXPECT_EQ(std::set<std::string>(ours.begin(), ours.end()).size(), ours.size());
    }
  }
}

TEST(Compat, TheUsersMetricsStandBehindTheReason) {
  compare::Comparison comparison;
  comparison.algorithms = {"mine"};
  EXPECT_EQ(columns("msit", comparison).size(), 25u);
  EXPECT_EQ(columns("msit", comparison).back(), "mine");
  EXPECT_EQ(columns("ait-0.2", comparison).size(), 19u);  // which knew none
}

TEST(Ait, MetricsByHand) {
  // |b/a - 1|: 0 and 0.25; sum (b - a)^2 / sum a^2 = 1/25; 29 / (5 sqrt(34)) = 0.99469.
  const std::vector<float> golden = {3, 4};
  const std::vector<float> mine = {3, 5};
  const auto view = [](const std::vector<float>& values) {
    return *make_view(DType::Float32, {2}, std::as_bytes(std::span(values)));
  };
  const std::vector<compare::AlgorithmValue> values = ait::metrics(view(golden), view(mine));
  ASSERT_EQ(values.size(), ait::kMetricNames.size());
  EXPECT_EQ(std::get<std::string>(values[0].value), "0.994692");
  EXPECT_EQ(std::get<double>(values[1].value), 0.25);
  EXPECT_EQ(std::get<double>(values[2].value), 0.125);
  EXPECT_EQ(std::get<double>(values[3].value), static_cast<double>(0.04f));
  const std::vector<float> zeros = {0, 0};
  EXPECT_EQ(ait::metrics(view(golden), view(zeros))[0].message,
            "Cannot compare by Cosine Similarity. All the values in my_data are zeros.");
}

TEST(Ait, ItsOwnValuesStandUnderTheCommonNames) {
  compare::Row row;
  row.metrics.emplace();
  row.metrics->cosine_similarity = 0.5;
  row.custom = {
      {1.0, ""}, {"0.994692", ""}, {0.25, ""}, {0.125, ""}, {0.04, ""}};  // the first: the user's
  compare::Sheet sheet;
  sheet.rows = {row};
  const report::Table table = report::build_table({}, sheet, {.style = compat("ait-0.2")->style});
  const auto place = std::ranges::find(table.columns, "cosine_similarity") - table.columns.begin();
  EXPECT_EQ(table.rows[0][static_cast<size_t>(place)].text, "0.994692");
}

}  // namespace
}  // namespace assay::vendor
