// SPDX-License-Identifier: Apache-2.0
#include "run/stages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Named {
  int rank;
  const char* node;
};

/// One rank a stage, but for ranks of `tp`.
Run pipeline_of(const std::vector<Named>& nodes, int64_t stages, int tp = 1) {
  run::Run run;
  for (const Named& one : nodes) {
    TensorRecord record;
    record.rank = one.rank;
    record.node = one.node;
    record.leaf = std::string(one.node) + ".weight";
    run.records.push_back(record);
    run.parallel[one.rank]["pp"] = {.rank = one.rank / tp, .size = stages};
  }
  return run;
}

std::vector<std::string> nodes_of(const Run& run) {
  std::vector<std::string> nodes;
  for (const TensorRecord& record : run.records) nodes.push_back(record.node);
  return nodes;
}

TEST(NumberStagesOn, CountsLayersOnBehindThoseOfTheStagesBefore) {
  run::Run run = pipeline_of({{0, "model.embed_tokens"},
                              {0, "model.layers.0.mlp"},
                              {0, "model.layers.1.mlp"},
                              {1, "model.layers.0.mlp"},
                              {1, "model.layers.1"},
                              {1, "model.layers.2.mlp.up"},
                              {2, "model.layers.0.mlp"},
                              {2, "model.norm"}},
                             3);
  EXPECT_EQ(number_stages_on(&run),
            "3 stages of the pipeline number their layers from 0: they are numbered on, so that "
            "those of stage 1 begin with 2");
  EXPECT_THAT(nodes_of(run),
              ElementsAre("model.embed_tokens", "model.layers.0.mlp", "model.layers.1.mlp",
                          "model.layers.2.mlp", "model.layers.3", "model.layers.4.mlp.up",
                          "model.layers.5.mlp", "model.norm"));
  EXPECT_EQ(run.records[5].leaf, "model.layers.4.mlp.up.weight");
  EXPECT_THAT(number_stages_on(&run), IsEmpty());  // they are numbered through now
}

TEST(NumberStagesOn, LeavesStagesThatNumberThrough) {
  run::Run run =
      pipeline_of({{0, "model.layers.0"}, {0, "model.layers.1"}, {1, "model.layers.2"}}, 2);
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
  EXPECT_THAT(nodes_of(run), ElementsAre("model.layers.0", "model.layers.1", "model.layers.2"));
}

TEST(NumberStagesOn, RanksOfOneStageHaveTheSameLayers) {
  run::Run through =
      pipeline_of({{0, "layers.0"}, {1, "layers.0"}, {2, "layers.1"}, {3, "layers.1"}}, 2, 2);
  EXPECT_THAT(number_stages_on(&through), IsEmpty());
  run::Run alike =
      pipeline_of({{0, "layers.0"}, {1, "layers.0"}, {2, "layers.0"}, {3, "layers.0"}}, 2, 2);
  EXPECT_FALSE(number_stages_on(&alike).empty());
  EXPECT_THAT(nodes_of(alike), ElementsAre("layers.0", "layers.0", "layers.1", "layers.1"));
}

TEST(NumberStagesOn, NeedsToKnowTheStageOfEveryRank) {
  run::Run run = pipeline_of({{0, "layers.0"}, {1, "layers.0"}}, 2);
  run.parallel.erase(1);
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
  run.parallel.clear();
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
}

}  // namespace
}  // namespace assay::run
