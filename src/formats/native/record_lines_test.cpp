// SPDX-License-Identifier: Apache-2.0
#include "formats/native/record_lines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/node.hpp"

namespace assay::native {
namespace {

const RecordNode kNode{"model.\"norm\"", "Norm"};
const std::string kOperation = "aten.mul.Tensor";
const std::string kSlot = "self";

stats::TensorStats statistics_of(double mean) {
  return {.count = 4, .min = -0.1, .max = 1e300, .mean = mean, .l2_norm = 3, .sketch = {}};
}

Record tensor_record(uint64_t number, uint64_t order, const std::string* operation, double mean,
                     int64_t same_as = -1) {
  Record record;
  record.number = number;
  record.node = &kNode;
  record.slot = &kSlot;
  record.order = order;
  record.operation = operation;
  record.dtype_name = "float32";
  record.same_as = same_as;
  record.stats = statistics_of(mean);
  return record;
}

// The plain twin: a writer that has seen nothing before.
std::string alone(const RecordBatch& batch, size_t index) {
  RecordBatch single = batch;
  single.records = {batch.records[index]};
  RecordLines lines;
  lines.begin(single);
  lines.append(0);
  return std::string(lines.text());
}

std::string together(RecordLines& lines, const RecordBatch& batch) {
  lines.begin(batch);
  for (size_t i = 0; i < batch.records.size(); ++i) lines.append(i);
  return std::string(lines.text());
}

std::string one_by_one(const RecordBatch& batch) {
  std::string text;
  for (size_t i = 0; i < batch.records.size(); ++i) text += alone(batch, i);
  return text;
}

TEST(RecordLines, RemembersNothingThatChangesTheText) {
  // Two calls of one operator, a record of the module itself, and statistics that are shared, that
  // only claim to be, and that differ in the sign of a zero.
  RecordBatch first;
  first.records = {
      tensor_record(0, 5, &kOperation, 0.5),     tensor_record(1, 5, &kOperation, 0.5, 0),
      tensor_record(2, 6, &kOperation, 0.25, 1), tensor_record(3, 7, nullptr, 0.0),
      tensor_record(4, 7, nullptr, -0.0, 3),     tensor_record(5, 7, nullptr, NAN),
      tensor_record(6, 8, nullptr, NAN, 5)};
  RecordBatch second;
  second.records = {tensor_record(7, 5, &kOperation, 0.5, 0), tensor_record(8, 5, nullptr, 0.5, 0),
                    tensor_record(9, 5, nullptr, 0.75, 0), tensor_record(10, 5, nullptr, 0.5, 7),
                    tensor_record(11, 9, nullptr, 1.0, 99)};
  RecordLines lines;
  EXPECT_EQ(together(lines, first), one_by_one(first));
  EXPECT_EQ(together(lines, second), one_by_one(second));
}

TEST(RecordLines, LeavesOutCountsOfZero) {
  RecordBatch batch;
  batch.records = {tensor_record(0, 5, nullptr, 0.5), tensor_record(1, 5, nullptr, 0.5)};
  batch.records[1].stats->nan_count = 2;
  RecordLines lines;
  EXPECT_EQ(
      together(lines, batch),
      R"({"n":0,"step":0,"node":"model.\"norm\"","type":"Norm","order":5,"role":"output","slot":"self",)"
      R"("dtype":"float32","stats":{"count":4,"min":-0.1,"max":1e+300,"mean":0.5,"l2":3}})"
      "\n"
      R"({"n":1,"step":0,"node":"model.\"norm\"","type":"Norm","order":5,"role":"output","slot":"self",)"
      R"("dtype":"float32","stats":{"count":4,"nan":2,"min":-0.1,"max":1e+300,"mean":0.5,"l2":3}})"
      "\n");
}

TEST(RecordLines, LeaveToALineOfAnEarlierStepWhatThatSays) {
  const std::string file = "f", leaf = "m.weight", list = R"(["self"])";
  const auto step_of = [&](uint64_t first, int64_t step, std::vector<int64_t> sizes) {
    RecordBatch batch;
    for (uint64_t i = 0; i < 4; ++i) {
      Record record = tensor_record(first + i, 5, i < 3 ? &kOperation : nullptr, 0.5,
                                    i == 2 ? static_cast<int64_t>(first) + 1 : -1);
      record.step = step;
      record.role = i == 1 ? Role::Input : Role::Output;
      record.call = i == 2 ? 1 : 0;
      if (i == 0) {
        record.kind = RecordKind::Operator;
        record.stats.reset();
        record.writes = &list;
        batch.set_text(record, R"({"self":1})");
      } else {
        record.value = {.id = 7, .storage = 3, .producer = 0, .leaf = i == 1 ? &leaf : nullptr};
        record.payload = PayloadLocation{&file, 64, 16};
        batch.set_dims(record, sizes, std::vector<int64_t>{1});
        record.repeats = i == 2;
      }
      batch.records.push_back(record);
    }
    return batch;
  };
  RecordLines lines;
  const RecordBatch first = step_of(0, 0, {4});
  EXPECT_EQ(together(lines, first), one_by_one(first));
  const std::string own =
      R"("file":"f","offset":64,"bytes":16,"stats":{"count":4,"min":-0.1,"max":1e+300,"mean":0.5,"l2":3})";
  const std::string ids = R"("vid":7,"storage":3,"from":0}
)";
  EXPECT_EQ(together(lines, step_of(4, 1, {4})),
            "{\"n\":4,\"step\":1,\"like\":0}\n"
            "{\"n\":5,\"step\":1,\"like\":1," +
                own + "," + ids + "{\"n\":6,\"step\":1,\"like\":2,\"same_as\":5," + ids +
                "{\"n\":7,\"step\":1,\"like\":3," + own + "," + ids);
  // Another shape is written in full, and referred to from then on.
  const RecordBatch other = step_of(8, 2, {2});
  const std::string text = together(lines, other);
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            one_by_one(other).substr(one_by_one(other).find('\n') + 1));
  EXPECT_TRUE(text.starts_with("{\"n\":8,\"step\":2,\"like\":0}\n"));
  EXPECT_THAT(together(lines, step_of(12, 3, {2})),
              testing::HasSubstr("{\"n\":13,\"step\":3,\"like\":9,"));
}

TEST(RecordLines, KeepWhatTheyReferToForAsManyLinesAsTheyHave) {
  // 10 000 nodes: more than the table begins with.
  std::vector<RecordNode> nodes(10'000);
  RecordBatch steps[2];
  for (uint64_t i = 0; i < 20'000; ++i) {
    Record record = tensor_record(i, 5, nullptr, 0.5);
    // In another order in the second step.
    record.node = &nodes[i < 10'000 ? i : 19'999 - i];
    record.step = i < 10'000 ? 0 : 1;
    steps[record.step].records.push_back(record);
  }
  RecordLines lines;
  EXPECT_EQ(together(lines, steps[0]).find("\"like\""), std::string::npos);
  const std::string text = together(lines, steps[1]);
  for (uint64_t i = 10'000; i < 20'000; i += 999) {
    const std::string begin =
        "{\"n\":" + std::to_string(i) + ",\"step\":1,\"like\":" + std::to_string(19'999 - i) + ",";
    EXPECT_NE(text.find(begin), std::string::npos) << begin;
  }
}

TEST(RecordLines, TellWhereAViewLies) {
  const std::string file = "step-000000.safetensors";
  RecordBatch batch;
  batch.records = {tensor_record(0, 5, nullptr, 0.5), tensor_record(1, 5, nullptr, 0.5, 0)};
  batch.records[1].payload = PayloadLocation{&file, 4100, 20};
  batch.records[1].is_view = true;
  RecordLines lines;
  EXPECT_THAT(
      together(lines, batch),
      testing::HasSubstr(
          R"("view":{"of":0,"file":"step-000000.safetensors","offset":4100,"bytes":20},"stats":)"));
}

TEST(RecordLines, WriteASketchAsTheBitsOfItsFloats) {
  // 1.5 = 3fc00000, -0.1f = bdcccccd; shared by a second line, and not by one whose sketch is
  // another.
  RecordBatch batch;
  batch.records = {tensor_record(0, 5, nullptr, 0.5), tensor_record(1, 5, nullptr, 0.5, 0),
                   tensor_record(2, 5, nullptr, 0.5, 0), tensor_record(3, 5, nullptr, 0.5, 0)};
  stats::Sketch sketch{};
  sketch[0] = 1.5f;
  sketch[15] = -0.1f;
  for (size_t i = 0; i < 3; ++i) batch.records[i].stats->sketch = sketch;
  (*batch.records[2].stats->sketch)[7] = 1.0f;
  RecordLines lines;
  const std::string text = together(lines, batch);
  EXPECT_EQ(text, one_by_one(batch));
  const std::string expected =
      R"("l2":3,"sketch":"3fc00000)" + std::string(8 * 14, '0') + "bdcccccd\"}";
  EXPECT_NE(text.find(expected), std::string::npos) << text;
  EXPECT_NE(text.find(expected, text.find(expected) + 1), std::string::npos);
  EXPECT_NE(text.find("3f800000"), std::string::npos);
  EXPECT_EQ(text.rfind("sketch"), text.rfind("sketch", text.find(R"({"n":3)")));
}

TEST(RecordText, KeepsItsTextWhenItGrows) {
  // 100 000 bytes: more than it begins with.
  RecordText text;
  std::string expected;
  for (int i = 0; i < 10'000; ++i) {
    text += "0123456789";
    expected += "0123456789";
  }
  text.append_copy(99'995, 5);
  EXPECT_EQ(text.text(), expected + "56789");
  text.clear();
  EXPECT_EQ(text.text(), "");
}

}  // namespace
}  // namespace assay::native
