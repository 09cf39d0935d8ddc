// SPDX-License-Identifier: Apache-2.0
#include "run/records_line.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace assay::run {
namespace {

TEST(ParseRecordsLine, ReadsEveryKey) {
  const auto line = parse_records_line(
      R"({"n":12,"step":3,"node":"model.layers.0.mlp","type":"LlamaMLP","call":1,"order":40,"role":"input",)"
      R"("slot":"kwargs.mask","dtype":"bfloat16","shape":[1,3],"strides":[1,1],"file":"step-000003.safetensors",)"
      R"("offset":4096,"bytes":6,"same_as":2,"stats":{"count":3,"nan":1,"pos_inf":0,"neg_inf":0,"min":-1.5,"max":2,)"
      R"("mean":"NaN","l2":"Infinity"},"digest":"00112233445566778899aabbccddeeff"})");

  ASSERT_TRUE(line) << line.error().describe();
  EXPECT_EQ(line->number, 12);
  EXPECT_EQ(line->same_as, 2);
  const TensorRecord& record = line->record;
  EXPECT_EQ(record.step, 3);
  EXPECT_EQ(record.step_name, "3");
  EXPECT_EQ(record.node, "model.layers.0.mlp");
  EXPECT_EQ(record.op_type, "LlamaMLP");
  EXPECT_EQ(record.call, 1u);
  EXPECT_EQ(record.order, 40u);
  EXPECT_EQ(record.role, Role::Input);
  EXPECT_EQ(record.slot, "kwargs.mask");
  EXPECT_EQ(record.dtype, DType::BFloat16);
  EXPECT_EQ(record.shape, (Dims{1, 3}));
  EXPECT_EQ(record.strides, (Dims{1, 1}));
  ASSERT_TRUE(record.bytes);
  EXPECT_TRUE(record.bytes->raw);
  EXPECT_EQ(record.bytes->file, "step-000003.safetensors");
  EXPECT_EQ(record.bytes->offset, 4096u);
  EXPECT_EQ(record.bytes->size_bytes, 6u);
  ASSERT_TRUE(record.stats);
  EXPECT_EQ(record.stats->nan_count, 1);
  EXPECT_EQ(record.stats->min, -1.5);
  EXPECT_EQ(record.stats->max, 2.0);
  EXPECT_TRUE(std::isnan(record.stats->mean));
  EXPECT_TRUE(std::isinf(record.stats->l2_norm));
  ASSERT_TRUE(record.digest);
  EXPECT_EQ(record.digest->high, 0x0011223344556677u);
  EXPECT_TRUE(record.problem.empty());
}

TEST(ParseRecordsLine, ReadsWhatAtbSaysOfATensor) {
  const std::string start = R"({"n":0,"step":2,"node":"0_A/1_B","slot":"0_x","dtype":"float16",)";
  const auto line =
      parse_records_line(start + R"("shape":[4,16,16],"moment":"before","format":29})");
  ASSERT_TRUE(line) << line.error().describe();
  EXPECT_EQ(line->record.moment, Moment::Before);
  EXPECT_EQ(line->record.memory_format, "fractal_nz");
  EXPECT_EQ(line->record.shape, (Dims{4, 16, 16})) << "that of the memory";
  const auto plain = parse_records_line(start + R"("shape":[2],"moment":"after"})");
  EXPECT_EQ(plain->record.moment, Moment::After);
  EXPECT_EQ(plain->record.memory_format, "");
  EXPECT_FALSE(parse_records_line(start + R"("moment":"during"})"));
  EXPECT_FALSE(parse_records_line(start + R"("moment":"after","format":"29"})"));
}

TEST(ParseRecordsLine, ReadsASketch) {
  // 1.0 = 3f800000, -2.5 = c0200000
  const std::string zeros(8 * 14, '0');
  const auto line = parse_records_line(
      R"({"n":0,"stats":{"count":9,"l2":3,"sketch":"3f800000c0200000)" + zeros + "\"}}");
  ASSERT_TRUE(line) << line.error().describe();
  ASSERT_TRUE(line->record.stats->sketch);
  const stats::Sketch sketch = *line->record.stats->sketch;
  EXPECT_EQ(sketch[0], 1.0f);
  EXPECT_EQ(sketch[1], -2.5f);
  EXPECT_EQ(sketch[15], 0.0f);
  EXPECT_FALSE(parse_records_line(R"({"n":0,"stats":{"count":9}})")->record.stats->sketch);
}

TEST(ParseRecordsLine, RefusesWhatIsNoSketch) {
  const std::string zeros(8 * 15, '0');
  for (const std::string& text :
       {std::string(), zeros, zeros + "0000000g", zeros + "000000000", zeros + "7fc00000",
        zeros + "ff800000", zeros + "-0000001", zeros + "0x000001"}) {
    EXPECT_FALSE(parse_records_line(R"({"n":0,"stats":{"sketch":")" + text + "\"}}")) << text;
  }
  EXPECT_FALSE(parse_records_line(R"({"n":0,"stats":{"sketch":[1,2]}})"));
}

TEST(ParseRecordsLine, NamesWeightsLikeTheTorchTreeDoes) {
  const auto line = parse_records_line(R"({"n":0,"step":-1,"role":"weight"})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->record.step_name, "weights");
  EXPECT_EQ(line->record.role, Role::Weight);
}

TEST(ParseRecordsLine, KeepsValuesAsPythonPrintsThem) {
  const std::pair<std::string, std::string> expected[] = {
      {"true", "True"},
      {"false", "False"},
      {"null", "None"},
      {"\"eager\"", "eager"},
      {"\"true\"", "true"},
      {"\"\"", ""},
      {"\"\\u0041\"", "A"},
      {"0.5", "0.5"},
      {"-3", "-3"},
      {"9223372036854775807", "9223372036854775807"},
      {"18446744073709551615", "18446744073709551615"},
      {"[1, \"a\"]", "[1,\"a\"]"}};
  for (const auto& [json, text] : expected) {
    const std::string line = R"({"n":0,"kind":"value","value":)" + json + "}";
    EXPECT_EQ(parse_records_line(line).value().record.value, text) << json;
    EXPECT_EQ(parse_any_records_line(line).value().record.value, text) << json;
  }
}

TEST(ParseRecordsLine, KeepsTheReasonOfASkippedTensor) {
  const auto line = parse_records_line(R"({"n":0,"kind":"skipped","reason":"queue full"})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->record.problem, "not captured: queue full");
}

TEST(ParseRecordsLine, MarksRecordsThatContradictThemselves) {
  const auto problem = [](const std::string& keys) {
    const auto line =
        parse_records_line(R"({"n":0,"file":"step-000000.safetensors","offset":0,)" + keys + "}");
    EXPECT_TRUE(line) << keys;
    EXPECT_FALSE(line->record.bytes) << keys;
    return line->record.problem;
  };
  EXPECT_EQ(problem(R"("bytes":4,"dtype":"float32","shape":[2])"),
            "the record says 4 bytes, float32[2] has 8");
  EXPECT_EQ(problem(R"("bytes":4,"dtype":"float32","shape":[-1])"),
            "the record has the impossible shape [-1]");
  EXPECT_EQ(problem(R"("bytes":4,"dtype":"float33","shape":[1])"), "unknown dtype 'float33'");
  EXPECT_EQ(problem(R"("bytes":4,"dtype":"float32")"),
            "the record says where the bytes are but not their shape");
  // 2^62 * 4 elements overflow.
  EXPECT_NE(problem(R"("bytes":4,"dtype":"int8","shape":[4611686018427387904,4])"), "");
}

TEST(ParseRecordsLine, DoesNotFollowNamesOutOfTheFolder) {
  for (const char* name : {"../secret", "/etc/passwd", "..", "a/b"}) {
    const auto line = parse_records_line(R"({"n":0,"dtype":"int8","shape":[1],"bytes":1,"file":")" +
                                         std::string(name) + "\"}");
    ASSERT_TRUE(line) << name;
    EXPECT_FALSE(line->record.bytes) << name;
    EXPECT_NE(line->record.problem, "") << name;
  }
}

TEST(ParseRecordsLine, ReadsAnOperator) {
  const auto line = parse_records_line(
      R"({"n":4,"step":2,"node":"norm::aten.mean.dim.0","type":"aten.mean.dim","call":1,"order":7,"kind":"operator",)"
      R"("module":"norm","args":{"self":{"tensor":"self"}, "keepdim":true,"dim":[-1],"note":"}\"{"},"writes":["out"]})");

  ASSERT_TRUE(line) << line.error().describe();
  EXPECT_EQ(line->number, 4);
  ASSERT_TRUE(line->operation);
  const OperationRecord& operation = *line->operation;
  EXPECT_EQ(operation.step, 2);
  EXPECT_EQ(operation.node, "norm::aten.mean.dim.0");
  EXPECT_EQ(operation.op_type, "aten.mean.dim");
  EXPECT_EQ(operation.module, "norm");
  EXPECT_EQ(operation.module_call, 1u);
  // In the order of the schema and letter by letter, brackets in strings and all.
  EXPECT_EQ(operation.parameters,
            R"({"self":{"tensor":"self"}, "keepdim":true,"dim":[-1],"note":"}\"{"})");
  EXPECT_EQ(operation.writes, std::vector<std::string>{"out"});
}

TEST(ParseRecordsLine, TakesTheArgumentsThatTheParserTakes) {
  const auto parameters = [](const std::string& keys) {
    return parse_records_line("{\"n\":0,\"kind\":\"operator\"," + keys + "}")
        ->operation->parameters;
  };
  EXPECT_EQ(parameters(R"("\u0061rgs":{"dim":1})"), R"({"dim":1})");
  EXPECT_EQ(parameters(R"("args":{"dim":1},"args":{"dim":2})"), R"({"dim":2})");
  EXPECT_EQ(parameters(R"("node":"args","other":{"args":{"dim":1}},"args":{})"), "{}");
  EXPECT_EQ(parameters(R"("other":{"args":{"dim":1}})"), "");
}

TEST(ParseRecordsLine, ReadsWhichValueATensorIs) {
  const auto line = parse_records_line(
      R"({"n":5,"role":"input","slot":"self","vid":9,"storage":3,"storage_offset":64,"version":2,"from":4,"leaf":"norm.weight"})");
  ASSERT_TRUE(line) << line.error().describe();
  EXPECT_FALSE(line->operation);
  const TensorRecord& record = line->record;
  EXPECT_EQ(record.value_id, 9);
  EXPECT_EQ(record.storage_id, 3);
  EXPECT_EQ(record.storage_offset, 64);
  EXPECT_EQ(record.storage_version, 2);
  EXPECT_EQ(record.producer, 4);
  EXPECT_EQ(record.leaf, "norm.weight");

  const TensorRecord plain = parse_records_line(R"({"n":5})")->record;
  EXPECT_EQ(plain.value_id, -1);
  EXPECT_EQ(plain.storage_id, -1);
  EXPECT_EQ(plain.producer, -1);
}

TEST(ParseRecordsLine, ReadsAPlaceInTheBytesOfAnotherRecord) {
  const auto read = [](const std::string& keys) {
    return parse_records_line(R"({"n":5,"dtype":"float32",)" + keys + "}").value();
  };
  // [3, 2] transposed: element (i, j) of [2, 3] lies i + 2 j elements behind the begin, the last
  // one 1 + 2 * 2 = 5, so they span 6 elements.
  const RecordsLine transposed =
      read(R"("shape":[2,3],"strides":[1,2],"view":{"of":4,"file":"a","offset":64,"bytes":24})");
  EXPECT_EQ(transposed.record.problem, "");
  EXPECT_EQ(transposed.record.memory_format, "strided");
  EXPECT_EQ(transposed.same_as, 4);
  EXPECT_EQ(transposed.record.bytes->offset, 64u);
  EXPECT_EQ(transposed.record.bytes->size_bytes, 24u);
  // The second column of [3, 2]: elements 0, 2, 4.
  EXPECT_EQ(read(R"("shape":[3],"strides":[2],"view":{"of":4,"file":"a","offset":68,"bytes":20})")
                .record.problem,
            "");
  // The last row: a payload as any other.
  const RecordsLine row =
      read(R"("shape":[2],"strides":[1],"view":{"of":4,"file":"a","offset":80,"bytes":8})");
  EXPECT_EQ(row.record.problem, "");
  EXPECT_EQ(row.record.memory_format, "");
}

TEST(ParseRecordsLine, TrustsNoView) {
  const auto problem_of = [](const std::string& keys) {
    const auto line = parse_records_line("{\"n\":5," + keys + "}");
    EXPECT_TRUE(line) << keys;
    return line && !line->record.bytes ? line->record.problem.str() : "has bytes";
  };
  const std::string place = R"("view":{"of":4,"file":"a","offset":0,"bytes":24})";
  EXPECT_EQ(problem_of(R"("dtype":"float32","shape":[2,3],"strides":[1,3],)" + place),
            "the record says 24 bytes, strided[2, 3] has 32");  // (1 + 2 * 3 + 1) elements
  for (const char* strides : {"[0,1]", "[-1,2]", "[1,1]", "[4611686018427387904,1]", "[1]"}) {
    EXPECT_EQ(problem_of(R"("dtype":"float32","shape":[2,3],"strides":)" + std::string(strides) +
                         "," + place),
              "the record says 24 bytes, strided[2, 3] has none or too many")
        << strides;
  }
  EXPECT_EQ(problem_of(R"("dtype":"int4","shape":[2,3],"strides":[1,2],)" + place),
            "the record says 24 bytes, strided[2, 3] has none or too many");
  const std::string lacks = "the record is a view and has blocks, or no strides";
  EXPECT_EQ(problem_of(R"("dtype":"float32","shape":[2,3],)" + place), lacks);
  EXPECT_EQ(problem_of(R"("dtype":"q8_0","shape":[2,64],"strides":[1,2],)" + place), lacks);
  EXPECT_EQ(
      problem_of(R"("dtype":"float32","shape":[6],"strides":[1],"file":"b","bytes":24,)" + place),
      "the record is a view and has bytes of its own");
  EXPECT_EQ(problem_of(R"("dtype":"float32","shape":[2,3],"strides":[1,2],"view":{"of":4})"),
            "the record is a view of no file");
  EXPECT_EQ(
      problem_of(R"("dtype":"float32","shape":[1],"strides":[1],"view":{"of":4,"file":"../b"})"),
      "the record names '../b', which is no file of its folder");
  for (const char* view : {"3", "[]", "{}", R"({"of":-1})", R"({"of":"4"})"}) {
    EXPECT_FALSE(parse_records_line(
        R"({"n":5,"dtype":"float32","shape":[1],"strides":[1],"view":)" + std::string(view) + "}"))
        << view;
  }
}

TEST(ParseRecordsLine, LeavesToAnEarlierLineWhatThatSays) {
  TensorRecord earlier =
      parse_records_line(
          R"({"n":3,"step":0,"node":"m::aten.t.0","type":"aten.t","call":2,"order":9,"role":"input","slot":"self","dtype":"float32","shape":[2,3],"strides":[1,2],"vid":8,"leaf":"m.weight"})")
          ->record;
  auto line = parse_records_line(
      R"({"n":7,"step":1,"like":3,"device":"cuda:0","view":{"of":6,"file":"a","offset":64,"bytes":24},"vid":9})");
  ASSERT_TRUE(line) << line.error().describe();
  EXPECT_EQ(line->like, 3);
  ASSERT_TRUE(complete_line(earlier, &*line));
  EXPECT_TRUE(line->is_tensor);
  EXPECT_EQ(line->device, "cuda:0");
  const TensorRecord& record = line->record;
  EXPECT_EQ(record.problem, "");
  EXPECT_EQ(record.step, 1);
  EXPECT_EQ(record.step_name, "1");
  EXPECT_EQ(record.node, "m::aten.t.0");
  EXPECT_EQ(record.op_type, "aten.t");
  EXPECT_EQ(record.call, 2u);
  EXPECT_EQ(record.role, Role::Input);
  EXPECT_EQ(record.slot, "self");
  EXPECT_EQ(record.dtype, DType::Float32);
  EXPECT_EQ(*record.shape, (Dims{2, 3}));
  EXPECT_EQ(record.memory_format, "strided");
  EXPECT_EQ(record.value_id, 9);
  EXPECT_EQ(record.leaf, "m.weight");
  EXPECT_EQ(record.producer, -1);

  // Six floats have 24 bytes, whatever the line that is completed says.
  line = parse_records_line(R"({"n":7,"step":1,"like":3,"file":"a","offset":64,"bytes":20})");
  ASSERT_TRUE(complete_line(earlier, &*line));
  EXPECT_EQ(line->record.problem, "the record says 20 bytes, float32[2, 3] has 24");
  EXPECT_FALSE(line->record.bytes);
  // Values and what was not captured are written in full.
  earlier.not_captured = true;
  EXPECT_FALSE(complete_line(earlier, &*line));
  earlier.not_captured = false;
  earlier.value = "True";
  EXPECT_FALSE(complete_line(earlier, &*line));

  const OperationRecord operation =
      *parse_records_line(
           R"({"n":2,"step":0,"node":"m::aten.t.0","type":"aten.t","kind":"operator","module":"m","args":{"a":1},"writes":["a"]})")
           ->operation;
  line = parse_records_line(R"({"n":6,"step":1,"like":2})");
  complete_line(operation, &*line);
  EXPECT_EQ(line->operation->step, 1);
  EXPECT_EQ(line->operation->step_name, "1");
  EXPECT_EQ(line->operation->parameters, R"({"a":1})");
  EXPECT_EQ(line->operation->writes, std::vector<std::string>{"a"});
  for (const char* like : {"-1", "\"3\"", "1.5", "[3]"}) {
    EXPECT_FALSE(parse_records_line(R"({"n":7,"step":1,"like":)" + std::string(like) + "}"))
        << like;
  }
}

TEST(ParseRecordsLine, CountsValuesOfBlockTypesAndBytesOfBlocks) {
  // Two rows of two blocks of 34 bytes.
  const TensorRecord record =
      parse_records_line(
          R"({"n":0,"dtype":"q8_0","shape":[2,64],"ne":[64,2,1,1],"block":32,"block_bytes":34,"file":"a","offset":0,"bytes":136})")
          ->record;
  EXPECT_EQ(record.problem, "");
  EXPECT_EQ(record.dtype, DType::Float32);
  EXPECT_EQ(record.memory_format, "q8_0");
  EXPECT_TRUE(record.bytes);

  const auto problem_of = [](const char* text) { return parse_records_line(text)->record.problem; };
  EXPECT_EQ(
      problem_of(R"({"n":0,"dtype":"q8_0","shape":[2,64],"file":"a","offset":0,"bytes":512})"),
      "the record says 512 bytes, q8_0[2, 64] has 136");
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"q8_0","shape":[2,33],"file":"a","bytes":70})"),
            "the record says 70 bytes, q8_0[2, 33] has none or too many");
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"q8_0","shape":[32],"block":32,"block_bytes":36})"),
            "a block of q8_0 has 32 values in 36 bytes in this run, 32 in 34 are known");
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"q4_2","shape":[32]})"), "unknown dtype 'q4_2'");
}

TEST(ParseRecordsLine, HoldsTheSizesOfGgmlAgainstTheShape) {
  const auto problem_of = [](const char* text) { return parse_records_line(text)->record.problem; };
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"float32","shape":[5,4,64],"ne":[64,4,5,1]})"), "");
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"float32","shape":[1],"ne":[1,1,1,1]})"), "");
  EXPECT_EQ(problem_of(R"({"n":0,"dtype":"float32","shape":[4,5],"ne":[4,5,1,1]})"),
            "the record has the shape [4, 5], which is not the reverse of its ne [4, 5, 1, 1]");
}

TEST(ParseRecordsLine, RejectsWhatIsNoRecord) {
  for (const char* text : {"",
                           "[]",
                           "{",
                           R"({"n":-1})",
                           R"({"n":"0"})",
                           R"({"n":0,"role":"gradient"})",
                           R"({"n":0,"kind":"other"})",
                           R"({"n":0,"offset":18446744073709551615,"file":"a"})",
                           R"({"n":0,"shape":[1.5]})",
                           R"({"n":0,"shape":3})",
                           R"({"n":0,"stats":[]})",
                           R"({"n":0,"digest":"zz"})",
                           R"({"n":0,"call":4294967296})",
                           R"({"n":0,"vid":-1})",
                           R"({"n":0,"from":"3"})",
                           R"({"n":0,"storage_offset":-4})",
                           R"({"n":0,"leaf":7})",
                           R"({"n":0,"kind":"operator","args":[]})",
                           R"({"n":0,"kind":"operator","args":"{"})",
                           R"({"n":0,"kind":"operator","writes":"self"})",
                           R"({"n":0,"kind":"operator","writes":[1]})"}) {
    const auto line = parse_records_line(text);
    ASSERT_FALSE(line) << text;
    EXPECT_EQ(line.error().code, Errc::Invalid) << text;
  }
}

TEST(ParseRecordsLine, RefusesHugeNesting) {
  const std::string line = R"({"n":0,"kind":"value","value":)" + std::string(500'000, '[') +
                           std::string(500'000, ']') + "}";
  const auto parsed = parse_records_line(line);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Errc::TooLarge);
}

}  // namespace
}  // namespace assay::run
