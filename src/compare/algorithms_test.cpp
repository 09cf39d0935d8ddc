// SPDX-License-Identifier: Apache-2.0
// The helper process really runs here when a Python with NumPy is at hand; tests/cli/
// test_custom_algorithms.py always has one.
#include "compare/algorithms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "run/test_folder.hpp"

namespace assay::compare {
namespace {

using run::test::TestFolder;
using testing::HasSubstr;
using testing::StartsWith;

/// Sets a variable of the environment for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_.empty()) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, old_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string old_;
};

std::string python_with_numpy() {
  const char* named = std::getenv("ASSAY_PYTHON");
  for (const std::string& python :
       {std::string(named == nullptr ? "" : named),
        std::string(ASSAY_TEST_DATA "/../../.venv/bin/python"), std::string("python3")}) {
    if (!python.empty() && std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) == 0) {
      return python;
    }
  }
  return {};
}

std::string load_error(const std::string& spec) {
  const auto loaded = load_algorithms({spec});
  return loaded ? std::string("no error") : loaded.error().message;
}

class CustomAlgorithms : public testing::Test {
 protected:
  void SetUp() override {
    if (python().empty()) GTEST_SKIP() << "no Python with NumPy";
    interpreter_.emplace("ASSAY_PYTHON", python());
  }
  static const std::string& python() {
    static const std::string found = python_with_numpy();
    return found;
  }

  Result<std::vector<std::shared_ptr<Algorithm>>> load(const std::string& code,
                                                       std::vector<std::string> functions = {"f"}) {
    folder_.put("user.py", code);
    for (std::string& function : functions) function = (folder_ / "user.py") + ":" + function;
    return load_algorithms(functions);
  }
  std::string error_of(const std::string& code) {
    const auto loaded = load(code);
    return loaded ? std::string("no error") : loaded.error().message;
  }
  /// golden [1, 2, 3], mine [1, 2, 5]
  AlgorithmValue compute(Algorithm& algorithm) {
    return algorithm.compute(
        make_view(DType::Float32, {3}, std::as_bytes(std::span<const float>(golden_))).value(),
        make_view(DType::Float32, {3}, std::as_bytes(std::span<const float>(mine_))).value());
  }

  TestFolder folder_;
  std::optional<Variable> interpreter_;
  std::vector<float> golden_ = {1, 2, 3};
  std::vector<float> mine_ = {1, 2, 5};
};

TEST(LoadAlgorithms, UsesTheSentencesOfTheOriginal) {
  const TestFolder folder;
  folder.put("x.txt", "");
  const std::string form =
      "custom_compare_algorithm should be in format '{python_file_path}:{function_name}'";
  EXPECT_EQ(load_error("f.py"), form);
  EXPECT_EQ(load_error("a:b:c"), form);
  EXPECT_EQ(load_error((folder / "none.py") + ":f"),
            "custom_compare_algorithm specified " + (folder / "none.py") + " not exists");
  EXPECT_EQ(load_error((folder / "x.txt") + ":f"),
            "custom_compare_algorithm specified " + (folder / "x.txt") + " is not a py file");
}

TEST(LoadAlgorithms, SaysThatThePythonIsMissing) {
  const TestFolder folder;
  folder.put("x.py", "def f(a, b): return 0, ''\n");
  const Variable python("ASSAY_PYTHON", folder / "nowhere");
  EXPECT_THAT(load_error((folder / "x.py") + ":f"), HasSubstr("name one in ASSAY_PYTHON"));
}

TEST(LoadAlgorithms, CallsSharedLibraries) {
  const std::string library = ASSAY_TEST_ALGORITHM;
  const auto loaded = load_algorithms({library + ":largest_difference", library + ":always_fails"});
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ((*loaded)[0]->name(), "largest_difference");
  const std::vector<float> golden = {1, 2, 3, 4};
  const std::vector<double> mine = {1, 2, 3.5, 4};
  const TensorView g = make_view(DType::Float32, {4}, std::as_bytes(std::span(golden))).value();
  const TensorView m = make_view(DType::Float64, {2, 2}, std::as_bytes(std::span(mine))).value();
  const AlgorithmValue value = (*loaded)[0]->compute(g, m);
  EXPECT_EQ(std::get<double>(value.value), 0.5);
  EXPECT_EQ(value.message, "at 2");
  const AlgorithmValue failed = (*loaded)[1]->compute(g, m);
  EXPECT_EQ(failed.value.index(), 0u);
  EXPECT_EQ(failed.message, "always_fails: failed with status 7.");
  EXPECT_EQ(load_error(library + ":nothing"),
            "getting nothing from " + library + ":nothing failed");
}

TEST_F(CustomAlgorithms, GivesFlatFloat32ArraysToEachFunction) {
  const auto loaded = load(
      "def f(golden, my):\n"
      "    return float(abs(golden - my).max()), str(my.dtype)\n"
      "def count(golden, my):\n"
      "    return golden.size, ''\n"
      "def words(golden, my):\n"
      "    return 'ok', 'a, b'\n",
      {"f", "count", "words"});
  ASSERT_TRUE(loaded) << loaded.error().message;
  const AlgorithmValue value = compute(*(*loaded)[0]);
  EXPECT_EQ(std::get<double>(value.value), 2);
  EXPECT_EQ(value.message, "float32");
  EXPECT_EQ(std::get<int64_t>(compute(*(*loaded)[1]).value), 3);
  EXPECT_EQ(std::get<std::string>(compute(*(*loaded)[2]).value), "ok");
}

TEST_F(CustomAlgorithms, KeepsNonFiniteNumbers) {
  const auto loaded = load("def f(golden, my):\n    return float('-inf'), ''\n");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(std::get<double>(compute(*(*loaded)[0]).value), -INFINITY);
}

TEST_F(CustomAlgorithms, RefusesWithTheSentencesOfTheOriginal) {
  const std::string path = folder_ / "user.py";
  EXPECT_EQ(error_of("1/0\n"), "import user from " + folder_.path() + " failed");
  EXPECT_EQ(error_of("g = 1\n"), "getting f from " + path + ":f failed");
  EXPECT_EQ(error_of("def f(a): return 0, ''\n"),
            "function f signature should have exact two parameters");
  EXPECT_EQ(error_of("import numpy\ndef f(a: numpy.ndarray, b): raise KeyError(1)\n"),
            "function f should recieve 2 torch tensor parameters");
  const std::string wrong = "function f should return 2 value in type ((float, int, str), str)";
  EXPECT_EQ(error_of("def f(a, b): return 0.5\n"), wrong);
  EXPECT_EQ(error_of("def f(a, b): return None, ''\n"), wrong);
  EXPECT_EQ(error_of("def f(a, b): return 0, 1\n"), wrong);
}

TEST_F(CustomAlgorithms, TurnsAnExceptionIntoAMessage) {
  const auto loaded = load(
      "def f(golden, my):\n"
      "    if golden.size > 1: raise RuntimeError('no\\nway')\n"
      "    return 0, ''\n");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const AlgorithmValue value = compute(*(*loaded)[0]);
  EXPECT_EQ(value.value.index(), 0u);
  EXPECT_EQ(value.message, "f: RuntimeError: no way");
}

TEST_F(CustomAlgorithms, StartsAgainAfterTheProcessEnded) {
  const auto loaded = load(
      "import os\n"
      "def f(golden, my):\n"
      "    if golden.size > 1 and golden[0] == 9: os._exit(3)\n"
      "    return int(golden[0]), ''\n");
  ASSERT_TRUE(loaded) << loaded.error().message;
  golden_[0] = 9;
  EXPECT_EQ(compute(*(*loaded)[0]).message, "f: the Python process ended with exit status 3.");
  golden_[0] = 4;
  EXPECT_EQ(std::get<int64_t>(compute(*(*loaded)[0]).value), 4);
  golden_[0] = 9;
  for (int i = 0; i < 3; ++i) EXPECT_THAT(compute(*(*loaded)[0]).message, HasSubstr("exit status"));
  EXPECT_EQ(compute(*(*loaded)[0]).message,
            "f: switched off after 3 failures of its Python process in a row.");
}

TEST_F(CustomAlgorithms, EndsAFunctionThatNeverReturns) {
  const Variable timeout("ASSAY_ALGORITHM_TIMEOUT", "1");
  const auto loaded = load(
      "import time\n"
      "def f(golden, my):\n"
      "    while golden.size > 1: time.sleep(60)\n"
      "    return 0, ''\n");
  // Starting Python may take longer than a second on a loaded machine; then there is nothing to
  // test.
  if (!loaded) GTEST_SKIP() << loaded.error().message;
  EXPECT_EQ(compute(*(*loaded)[0]).message,
            "f: gave no answer within 1 s, its Python process was ended.");
}

TEST_F(CustomAlgorithms, IsNotDisturbedByWhatFunctionsPrint) {
  const auto loaded = load(
      "import os\n"
      "print('{\"ok\": false}')\n"
      "def f(golden, my):\n"
      "    print('{\"type\": \"int\"}'); os.write(1, b'raw\\n')\n"
      "    golden[0] = 7\n"
      "    return float(golden[0]), ''\n");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(std::get<double>(compute(*(*loaded)[0]).value), 7);
  EXPECT_EQ(golden_[0], 1);
}

}  // namespace
}  // namespace assay::compare
