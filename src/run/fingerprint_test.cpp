// SPDX-License-Identifier: Apache-2.0
// Fingerprints of native runs written by hand, and files that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "formats/gzip.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/lend.hpp"
#include "run/load.hpp"
#include "run/logits.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/test_folder.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::run {
namespace {

using nlohmann::json;
using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// x = [1.5, -2] times w = [0.5, 0.25], in two steps. Header of 64 bytes, then x, w, y: 8 bytes each.
constexpr std::string_view kManifest =
    R"({"format":"assay-run","version":1,"complete":true,"tool":"assay 0.1.0","host":{"torch":"2.13.0",)"
    R"("hostname":"secret","program":["/usr/bin/python","run.py","/home/me/model"]},"config":{"level":"operator"}})";
constexpr std::string_view kTree =
    R"({"name":"","type":"Model","children":[{"name":"mul","type":"Mul","parameters":[{"name":"w","dtype":"float32"}],)"
    R"("children":[]}]})";

std::string tensor(int number, int step, std::string_view more, int offset) {
  return "{\"n\":" + std::to_string(number) + ",\"step\":" + std::to_string(step) + "," +
         std::string(more) +
         R"(,"dtype":"float32","shape":[2],"strides":[1],"file":"step-000000.safetensors","offset":)" +
         std::to_string(offset) + ",\"bytes\":8";
}

std::string step_lines(int step) {
  const int n = 10 * step;
  const int y = 2 + step;  // its value id
  const std::string id = "\"vid\":" + std::to_string(y) + ",\"storage\":" + std::to_string(y);
  const std::string op = R"("node":"mul::aten.mul.Tensor.0","type":"aten.mul.Tensor","order":2,)";
  std::string lines;
  lines += tensor(n, step, R"("node":"mul","type":"Mul","order":1,"role":"input","slot":"0")", 64) +
           R"(,"vid":0,"storage":0})" + "\n";
  lines +=
      "{\"n\":" + std::to_string(n + 1) + ",\"step\":" + std::to_string(step) + "," + op +
      R"("kind":"operator","module":"mul","args":{"self":{"tensor":"self"},"other":{"tensor":"other"}}})" +
      "\n";
  lines += tensor(n + 2, step, op + R"("role":"input","slot":"self")", 64) +
           R"(,"vid":0,"storage":0})" + "\n";
  lines += tensor(n + 3, step, op + R"("role":"input","slot":"other")", 72) +
           R"(,"vid":1,"storage":1,"leaf":"mul.w"})" + "\n";
  lines += tensor(n + 4, step, op + R"("role":"output","slot":"")", 80) + "," + id + "}\n";
  lines +=
      tensor(n + 5, step, R"("node":"mul","type":"Mul","order":1,"role":"output","slot":"")", 80) +
      R"(,"stats":{"count":2,"min":-0.5,"max":0.75,"mean":0.125,"l2":0.90138781886599728},)" + id +
      ",\"from\":" + std::to_string(n + 4) + "}\n";
  return lines;
}

void put_run(const TestFolder& folder) {
  const std::vector<float> values = {1.5F, -2.F, 0.5F, 0.25F, 0.75F, -0.5F};
  folder.put("golden/manifest.json", kManifest);
  folder.put("golden/rank0/topology.json", kTree);
  folder.put("golden/rank0/step-000000.safetensors",
             std::string(64, '\0') + std::string(reinterpret_cast<const char*>(values.data()), 24));
  folder.put("golden/rank0/records.jsonl", step_lines(0) + step_lines(1));
}

using CapturedRun = Run;  // tests have a member of that name

class Fingerprint : public testing::Test {
 protected:
  void SetUp() override {
    put_run(folder_);
    golden_ = open_run(folder_ / "golden").value();
    ASSERT_TRUE(golden_.warnings.empty()) << golden_.warnings[0];
  }

  CapturedRun fingerprint(const FingerprintOptions& options = {}) {
    file_ = make_fingerprint(golden_, options).value();
    folder_.put("golden.json.gz", file_.bytes);
    return open_run(folder_ / "golden.json.gz").value();
  }

  /// What reading says of the file with some change of its JSON.
  Error error_of(const std::function<void(json&)>& change) {
    const std::string text =
        formats::gunzip(as_bytes(make_fingerprint(golden_, {}).value().bytes), 1 << 20).value();
    json document = json::parse(text);
    change(document);
    const std::string file = formats::gzip(document.dump()).value();
    const Result<CapturedRun> run = open_fingerprint(as_bytes(file), "f");
    return run ? Error{Errc::Internal, {}, std::nullopt, "it was read"} : run.error();
  }

  TestFolder folder_;
  CapturedRun golden_;
  FingerprintFile file_;
};

TEST_F(Fingerprint, HoldsTheProgram) {
  const CapturedRun read = fingerprint();

  EXPECT_EQ(read.layout, Layout::Fingerprint);
  ASSERT_EQ(read.records.size(), golden_.records.size());
  for (size_t i = 0; i < read.records.size(); ++i) {
    const TensorRecord& one = read.records[i];
    const TensorRecord& other = golden_.records[i];
    EXPECT_EQ(one.node, other.node);
    EXPECT_EQ(one.op_type, other.op_type);
    EXPECT_EQ(one.step_name, other.step_name);
    EXPECT_EQ(one.step, other.step);
    EXPECT_EQ(one.call, other.call);
    EXPECT_EQ(one.role, other.role);
    EXPECT_EQ(one.slot, other.slot);
    EXPECT_EQ(one.order, other.order);
    EXPECT_EQ(one.dtype, other.dtype);
    EXPECT_EQ(one.shape, other.shape);
    EXPECT_EQ(one.strides, other.strides);
    EXPECT_EQ(one.value_id, other.value_id);  // given in order here, too
    EXPECT_EQ(one.storage_id, other.storage_id);
    EXPECT_EQ(one.producer, other.producer);
    EXPECT_EQ(one.leaf, other.leaf);
  }
  ASSERT_EQ(read.operations.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read.operations[i].node, "mul::aten.mul.Tensor.0");
    EXPECT_EQ(read.operations[i].parameters, golden_.operations[i].parameters);
    EXPECT_EQ(read.operations[i].module, "mul");
    EXPECT_EQ(read.operations[i].order, golden_.operations[i].order);
  }
  ASSERT_TRUE(read.topology);
  EXPECT_EQ(read.topology->children.at(0).parameter_types.at("w"), "float32");
  EXPECT_EQ(file_.operators, 2u);
  EXPECT_EQ(file_.steps, 2u);
}

TEST_F(Fingerprint, HoldsStatisticsDigestsAndWhatNobodyElseHas) {
  const CapturedRun read = fingerprint();

  const TensorRecord& input = read.records[1];  // of the operator
  const TensorRecord& weight = read.records[2];
  const TensorRecord& output = read.records[4];  // of the module
  EXPECT_EQ(floats_of(load_tensor(input).value()), (std::vector<float>{1.5F, -2.F}));
  EXPECT_EQ(input.digest, stats::digest_of(load_tensor(golden_.records[1])->view));
  EXPECT_FALSE(weight.bytes);
  EXPECT_EQ(weight.digest, stats::digest_of(load_tensor(golden_.records[2])->view));
  EXPECT_FALSE(output.bytes);
  ASSERT_TRUE(output.stats);
  EXPECT_EQ(output.stats->max, 0.75);
  EXPECT_NEAR(output.stats->l2_norm, 0.90138781886599728, 1e-5);
  EXPECT_EQ(load_tensor(output).error().code, Errc::NotFound);
}

TEST_F(Fingerprint, SaysNothingOfTheMachine) {
  const CapturedRun read = fingerprint();

  EXPECT_EQ(read.properties.at("host.program"), R"(["python","run.py","model"])");
  EXPECT_EQ(read.properties.at("host.torch"), "2.13.0");
  EXPECT_FALSE(read.properties.contains("host.hostname"));
  const std::string text = formats::gunzip(as_bytes(file_.bytes), 1 << 20).value();
  EXPECT_THAT(text, testing::Not(HasSubstr("home")));
  EXPECT_THAT(text, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(text, testing::Not(HasSubstr(folder_.path())));
}

TEST_F(Fingerprint, IsTheSameEveryTime) {
  EXPECT_EQ(make_fingerprint(golden_, {})->bytes, make_fingerprint(golden_, {})->bytes);
}

TEST_F(Fingerprint, OfAFingerprintIsTheSameFile) {
  const CapturedRun read = fingerprint();
  EXPECT_EQ(make_fingerprint(read, {})->bytes, file_.bytes);
}

TEST_F(Fingerprint, BorrowsWeightsByTheirDigest) {
  CapturedRun read = fingerprint();
  CapturedRun other = golden_;
  for (TensorRecord& record : other.records) record.leaf = "another name";

  const std::vector<std::string> notes = lend_values(&read, other);

  EXPECT_THAT(notes, ElementsAre(HasSubstr("1 of 1 weight that the fingerprint")));
  EXPECT_EQ(floats_of(load_tensor(read.records[2]).value()), (std::vector<float>{0.5F, 0.25F}));
  EXPECT_FALSE(read.records[4].bytes);  // what was computed is not lent
}

TEST_F(Fingerprint, BorrowsNothingOfAnotherValue) {
  CapturedRun read = fingerprint();
  CapturedRun other = golden_;
  for (TensorRecord& record : other.records) record.bytes->offset = 80;
  EXPECT_TRUE(lend_values(&read, other).empty());
  EXPECT_FALSE(read.records[2].bytes);
}

TEST_F(Fingerprint, IsNotMadeOfADamagedRun) {
  folder_.put("golden/rank0/step-000000.safetensors", std::string(80, '\0'));
  golden_ = open_run(folder_ / "golden").value();
  EXPECT_THAT(make_fingerprint(golden_, {}).error().message, HasSubstr("is damaged"));
}

TEST_F(Fingerprint, IsNotMadeOfAnotherLayout) {
  golden_.layout = Layout::TorchTree;
  EXPECT_EQ(make_fingerprint(golden_, {}).error().code, Errc::Unsupported);
}

TEST_F(Fingerprint, IsNotMadeOfNothing) {
  golden_.records.clear();
  golden_.operations.clear();
  EXPECT_THAT(make_fingerprint(golden_, {}).error().message, HasSubstr("nothing to keep"));
}

TEST_F(Fingerprint, OfAnotherVersionIsRefused) {
  EXPECT_EQ(error_of([](json& d) { d["version"] = 2; }).code, Errc::Unsupported);
  EXPECT_EQ(error_of([](json& d) { d["format"] = "x"; }).code, Errc::BadMagic);
}

TEST_F(Fingerprint, RefusesWhatDoesNotFitTogether) {
  const auto is_invalid = [this](const std::function<void(json&)>& change) {
    return error_of(change).code == Errc::Invalid;
  };
  for (const char* table : {"texts", "forms", "lists", "groups", "kept", "digests", "statistics"}) {
    EXPECT_TRUE(is_invalid([&](json& d) { d.erase(table); })) << table;
    EXPECT_TRUE(is_invalid([&](json& d) { d[table] = 7; })) << table;
  }
  EXPECT_TRUE(is_invalid([](json& d) { d["digests"] = "!?!="; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["digests"] = ""; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["kept"][0] = "AAAA"; }));  // three bytes for two floats
  EXPECT_TRUE(is_invalid([](json& d) { d["kept"].push_back("AAAA"); }));
  EXPECT_TRUE(is_invalid([](json& d) { d["statistics"]["l2"] = "AAAA"; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["forms"][0][1] = {-1}; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["forms"][0][1] = {INT64_MAX, INT64_MAX}; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["forms"][0][2] = {1, 1}; }));
  EXPECT_TRUE(is_invalid([](json& d) { d["groups"][1]["step"] = 0; }));  // twice
  EXPECT_TRUE(is_invalid([](json& d) { d["groups"][0]["columns"]["of"] = 1000; }));
}

// Every number of every column, larger and smaller than anything that means something there.
TEST_F(Fingerprint, RefusesNumbersThatMeanNothing) {
  const std::string text =
      formats::gunzip(as_bytes(make_fingerprint(golden_, {}).value().bytes), 1 << 20).value();
  const json document = json::parse(text);
  for (const json& column : document["groups"][0]["columns"]) {
    const auto list = column.get<size_t>();
    for (size_t i = 0; i < document["lists"][list].size(); ++i) {
      for (const int64_t wrong : {INT64_MIN, INT64_MAX}) {
        const Error error = error_of([&](json& d) { d["lists"][list][i] = wrong; });
        const bool may_be_anything = error.message == "it was read" && wrong > 0;
        EXPECT_TRUE(error.code == Errc::Invalid || may_be_anything) << list << " " << i;
      }
      EXPECT_EQ(error_of([&](json& d) { d["lists"][list].push_back(0); }).code, Errc::Invalid);
    }
  }
}

TEST_F(Fingerprint, IsBounded) {
  // Fifty thousand records in each of fifty groups that share their columns.
  const Error rows = error_of([](json& d) {
    d["lists"] = json::array();
    d["lists"].push_back(std::vector<int>(50000, 0));
    const json all = {{"of", 0},   {"node", 0}, {"type", 0},  {"call", 0},
                      {"role", 0}, {"slot", 0}, {"state", 0}, {"text", 0}};
    d["kept"] = json::array();
    d["digests"] = "";
    d["groups"] = json::array();
    for (int step = 0; step < 50; ++step)
      d["groups"].push_back({{"rank", 0}, {"step", step}, {"columns", all}});
  });
  EXPECT_EQ(rows.code, Errc::TooLarge) << rows.message;
  // One long name in many records.
  const Error names = error_of([](json& d) {
    d["texts"] = json::array();
    d["texts"].push_back(std::string(100000, 'x'));
    d["lists"] = json::array();
    d["lists"].push_back(std::vector<int>(100000, 0));
    d["lists"].push_back(std::vector<int>(100000, 1));
    d["kept"] = json::array();
    d["digests"] = "";
    const json all = {{"of", 0},   {"node", 0}, {"type", 0},  {"call", 0},
                      {"role", 0}, {"slot", 0}, {"state", 1}, {"text", 0}};
    d["groups"] = json::array();
    d["groups"].push_back({{"rank", 0}, {"step", 0}, {"columns", all}});
  });
  EXPECT_EQ(names.code, Errc::TooLarge) << names.message;
  // One element that stands for 2^40.
  EXPECT_EQ(error_of([](json& d) {
              d["forms"][0][1] = {int64_t{1} << 40};
              d["kept"][0] = base64(std::string(4, 'x'));
            }).code,
            Errc::Invalid);
}

// Token t has the logit 7 t mod 40 at the last position: all numbers below 40, each once.
TEST(TopChoices, AreTheLargestOfTheLastPosition) {
  std::vector<float> values;
  for (int position = 0; position < 2; ++position) {
    for (int token = 0; token < 40; ++token)
      values.push_back(static_cast<float>(position == 0 ? -token : (token * 7) % 40));
  }
  const TensorView view =
      make_view(DType::Float32, Dims{1, 2, 40}, std::as_bytes(std::span(values))).value();
  const std::optional<TopChoices> choices = top_choices(view);
  ASSERT_TRUE(choices);
  EXPECT_EQ(choices->vocabulary, 40);
  ASSERT_EQ(choices->rows.size(), 1u);
  ASSERT_EQ(choices->rows[0].size(), kTopChoices);
  for (size_t i = 0; i < kTopChoices; ++i) {
    EXPECT_EQ(choices->rows[0][i].logit, 39.0 - static_cast<double>(i));
    EXPECT_EQ(choices->rows[0][i].token * 7 % 40, 39 - static_cast<int64_t>(i));
  }
}

TEST_F(Fingerprint, HoldsTheChoicesOfLogits) {
  for (TensorRecord& record : golden_.records) {
    if (record.is_of_operator() || record.role != Role::Output) continue;
    record.node = "";
    record.slot = "logits";
    record.shape = Dims{1, 2};
    record.strides = Dims{2, 1};
  }
  const CapturedRun read = fingerprint();
  ASSERT_TRUE(read.records[4].choices());
  EXPECT_EQ(read.records[4].choices()->vocabulary, 2);
  EXPECT_EQ(read.records[4].choices()->rows.at(0).at(0).token, 0);  // 0.75 against -0.5
  EXPECT_EQ(read.records[4].choices()->rows.at(0).at(0).logit, 0.75);
  EXPECT_EQ(read.records[4].choices()->rows.at(0).at(1).logit, -0.5);
  EXPECT_EQ(error_of([](json& d) { d["choices"]["tokens"][1] = 7; }).code, Errc::Invalid);
  EXPECT_EQ(error_of([](json& d) { d["choices"]["tokens"][0] = 7; }).code, Errc::Invalid);
  EXPECT_EQ(error_of([](json& d) { d["choices"]["logits"] = ""; }).code, Errc::Invalid);
  EXPECT_EQ(error_of([](json& d) { d["choices"]["tokens"].push_back(2); }).code, Errc::Invalid);
}

TEST(OpenFingerprint, SaysWhatAGzipFileIsNot) {
  const TestFolder folder;
  folder.put("a.gz", formats::gzip("no JSON").value());
  EXPECT_EQ(open_run(folder / "a.gz").error().code, Errc::Invalid);
  folder.put("b.gz", formats::gzip("{}").value());
  EXPECT_EQ(open_run(folder / "b.gz").error().code, Errc::BadMagic);
  folder.put("c.gz", formats::gzip("{}").value().substr(0, 12));
  EXPECT_EQ(open_run(folder / "c.gz").error().code, Errc::Truncated);
}

}  // namespace
}  // namespace assay::run
