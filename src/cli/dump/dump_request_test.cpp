// SPDX-License-Identifier: Apache-2.0
#include "cli/dump/dump_request.hpp"

#include <gtest/gtest.h>

namespace assay::cli {
namespace {

/// The request, or the message of the usage error.
Result<DumpRequest> ask(const Words& words, DumpName name = DumpName::Msit) {
  DumpRequest request;
  const std::string program = name == DumpName::Assay ? "assay dump" : "msit llm dump";
  const Command command = dump_options({name, program}, request);
  ASSAY_TRY(const ParsedArguments parsed, parse_arguments(command, words));
  ASSAY_TRY_STATUS(complete_request(parsed, &request));
  ASSAY_TRY_STATUS(read_program(parsed, &request));
  return request;
}

std::string refusal(Words words, DumpName name = DumpName::Msit) {
  words.insert(words.begin(), {"--exec", "prog"});
  const Result<DumpRequest> request = ask(words, name);
  return request ? "accepted" : request.error().message;
}

TEST(DumpRequest, DefaultsAreThoseOfEachName) {
  const auto msit = ask({"--exec", "prog a"});
  ASSERT_TRUE(msit);
  EXPECT_EQ(msit->types, (Words{"tensor", "model"}));
  EXPECT_EQ(msit->save_time, 3);
  EXPECT_EQ(msit->range, "0,0");
  EXPECT_EQ(msit->output, "./");
  EXPECT_EQ(msit->command, (Words{"prog", "a"}));
  EXPECT_FALSE(msit->captures_torch());

  const auto ait = ask({"--exec", "prog"}, DumpName::Ait);
  ASSERT_TRUE(ait);
  EXPECT_EQ(ait->types, Words{"tensor"});
  EXPECT_EQ(ait->save_time, 1);
  EXPECT_EQ(refusal({"-time", "3"}), "accepted");
  EXPECT_EQ(refusal({"-time", "3"}, DumpName::Ait),  // its documents end at 2
            "argument --save-time/-time: 3 is an invalid int value");

  const auto assay = ask({"--", "prog", "-o", "x y"}, DumpName::Assay);
  ASSERT_TRUE(assay);
  EXPECT_EQ(assay->command, (Words{"prog", "-o", "x y"}));
  EXPECT_TRUE(assay->captures_torch() && assay->captures_atb());
}

TEST(DumpRequest, TypesAreCompleted) {
  EXPECT_EQ(ask({"--exec", "p", "--type", "onnx"})->types, (Words{"onnx", "model", "op"}));
  EXPECT_EQ(ask({"--exec", "p", "--type", "stats"})->types, (Words{"stats", "tensor"}));
  EXPECT_EQ(ask({"--exec", "p", "--type", "layer", "layer"})->types, Words{"layer"});
}

// What the original answers to each wrong value, one line a message.
TEST(DumpRequest, WrongValuesGiveTheOriginalsMessages) {
  EXPECT_EQ(refusal({"-ids", "2_,3"}),
            "argument --save-operation-ids/-ids: dym range string \"2_,3\" is not a legal string");
  EXPECT_EQ(refusal({"-er", "1,x"}),
            "argument --execute-range/-er: output size \"1,x\" is not a legal number");
  EXPECT_EQ(refusal({"-child", "maybe"}),
            "argument --save-operation-child/-child: Boolean value expected true, 1, false, 0 with "
            "case insensitive.");
  EXPECT_EQ(refusal({"-time", "5"}), "argument --save-time/-time: 5 is an invalid int value");
  EXPECT_EQ(refusal({"-time", "-1"}), "argument --save-time/-time: -1 is an invalid int value");
  EXPECT_EQ(refusal({"-time", "q"}),
            "argument --save-time/-time: invalid check_dump_time_integer value: 'q'");
  EXPECT_EQ(refusal({"-stp", "3"}), "argument --save-tensor-part/-stp: 3 is an invalid int value");
  EXPECT_EQ(refusal({"-device", "-1"}), "argument --device-id/-device: -1 is an invalid int value");
  EXPECT_EQ(refusal({"-seed", "x"}), "argument -seed: x can not convert to int.");
  EXPECT_EQ(refusal({"-opname", "a|b"}),
            "argument --operation-name/-opname: invalid safe_string value: 'a|b'");
  EXPECT_EQ(refusal({"--type", "x"}),
            "argument --type: invalid choice: 'x' (choose from 'model', 'layer', 'op', 'kernel', "
            "'tensor', 'cpu_profiling', 'onnx', 'stats')");
  EXPECT_EQ(refusal({"-l", "INFO"}),
            "argument --log-level/-l: invalid choice: 'INFO' (choose from 'debug', 'info', "
            "'warning', 'error', 'fatal', 'critical')");
}

TEST(DumpRequest, ExecRefusesWhatOnlyAShellUnderstands) {
  for (const char c : std::string("|&;$\\*?!#%@+^`\t\n")) {
    const std::string command = std::string("a ") + c + " b";
    const auto request = ask({"--exec", command});
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().message,
              "argument --exec: invalid safe_string value: '" + command + "'");
  }
  EXPECT_EQ(ask({"--exec", "caf\xc3\xa9"}).error().code, Errc::Usage);
}

TEST(DumpRequest, RangesThatCaptureNothingAreRefused) {
  EXPECT_NE(refusal({"-er", "3"}).find("give pairs"), std::string::npos);
  EXPECT_NE(refusal({"-er", "5,3"}).find("ends before it begins"), std::string::npos);
  EXPECT_EQ(ask({"--exec", "p", "-er", "3,5, 7,7"})->range, "3,5,7,7");
  EXPECT_EQ(ask({"--exec", "p", "-er", "all"})->range, "all");
}

TEST(DumpRequest, ListsMayHaveBlanksAsTheDocumentsWriteThem) {
  EXPECT_EQ(ask({"--exec", "p", "-ids", "2,", "3_1"})->ids, "2,3_1");
  EXPECT_EQ(ask({"--exec", "p", "-ids", "2, 3_1"})->ids, "2,3_1");
  EXPECT_EQ(ask({"--exec", "p", "-device", "0, 1"})->device, "0,1");
}

TEST(DumpRequest, NamesMayBeShortenedGluedAndAttached) {
  const auto request = ask({"--exec=p", "-er=1,2", "-ofolder", "--save-ti", "-sd", "-child=F"});
  ASSERT_FALSE(request);  // --save-time and --save-tiling
  EXPECT_EQ(request.error().message,
            "ambiguous option: --save-ti could match --save-time, --save-tiling");
  const auto clear = ask({"--exec=p", "-er=1,2", "-ofolder", "--save-til", "-sd", "-child=F"});
  ASSERT_TRUE(clear);
  EXPECT_EQ(clear->output, "folder");
  EXPECT_TRUE(clear->tiling && clear->description_only && !clear->child);
  EXPECT_EQ(refusal({"-s"}).substr(0, 35), "ambiguous option: -s could match -s");
}

TEST(DumpRequest, OperatorsAndWeightsNeedTheNativeLayout) {
  const auto request = ask({"--exec", "p", "--level", "operator", "--weights"}, DumpName::Assay);
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->operators);
  EXPECT_TRUE(request->weights);
  EXPECT_FALSE(ask({"--exec", "p"}, DumpName::Assay)->operators);
  const auto strict = [](Words more) {
    Words words = {"--exec", "p", "--layout", "strict"};
    words.insert(words.end(), more.begin(), more.end());
    return ask(words, DumpName::Assay).error();
  };
  EXPECT_EQ(strict({"--level", "operator"}).message,
            "argument --layout strict: not allowed with argument --level operator");
  EXPECT_EQ(strict({"--weights"}).code, Errc::Usage);
}

TEST(DumpRequest, SeedAloneIs2024) {
  EXPECT_EQ(ask({"--exec", "p", "-seed"})->seed, 2024);
  EXPECT_EQ(ask({"--exec", "p", "-seed", "3"})->seed, 3);
  // Python refuses to start with such a PYTHONHASHSEED.
  EXPECT_EQ(ask({"--exec", "p", "-seed", "-3"}).error().message,
            "argument -seed: -3 is no seed: Python takes 0 to 4294967295");
  EXPECT_EQ(ask({"--exec", "p"})->seed, std::nullopt);
}

TEST(DumpRequest, ExecIsRequiredUnlessACommandFollows) {
  EXPECT_EQ(ask({"-sd"}).error().message, "the following arguments are required: --exec");
  EXPECT_TRUE(ask({"-sd", "--", "prog"}));
  EXPECT_EQ(ask({"-sd", "--"}).error().message, "expected a command behind '--'");
  EXPECT_EQ(ask({"--exec", "p", "--", "prog"}).error().code, Errc::Usage);
  EXPECT_TRUE(ask({"--exec", ""})->command.empty());
}

TEST(SplitCommand, QuotesKeepWordsTogether) {
  EXPECT_EQ(*split_command("python -c \"print(1 > 0)\" 'a b'"),
            (Words{"python", "-c", "print(1 > 0)", "a b"}));
  EXPECT_EQ(*split_command("  a  \"\"  "), (Words{"a", ""}));
}

TEST(SplitCommand, RedirectionIsRefusedWithAdvice) {
  const auto words = split_command("a > b");
  ASSERT_FALSE(words);
  EXPECT_EQ(words.error().code, Errc::Invalid);
  EXPECT_NE(words.error().message.find("redirection ('>') is not supported, use a script"),
            std::string::npos);
  EXPECT_EQ(split_command("a 'b").error().code, Errc::Invalid);
  EXPECT_EQ(split_command("~/a").error().code, Errc::Invalid);
}

TEST(RangeOfSteps, TurnsAListIntoPairs) {
  EXPECT_EQ(*range_of_steps("0,2-4"), "0,0,2,4");
  EXPECT_EQ(*range_of_steps("all"), "all");
  EXPECT_FALSE(range_of_steps("4-2"));
  EXPECT_FALSE(range_of_steps("99999999999999999999"));
  EXPECT_EQ(*range_of_ranks("0,8-15"), "0,0,8,15");
  EXPECT_EQ(list_of_range("0,0,8,15"), "0,8-15");
  EXPECT_EQ(list_of_range("all"), "");
}

}  // namespace
}  // namespace assay::cli
