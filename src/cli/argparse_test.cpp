// SPDX-License-Identifier: Apache-2.0
#include "cli/argparse.hpp"

#include <gtest/gtest.h>

#include "cli/ranges.hpp"

namespace assay::cli {
namespace {

struct Request {
  std::string golden;
  std::string mine;
  Words algorithms;
  Words patterns;
  std::optional<double> limit;
  int level = 0;
  bool statistics = false;
};

/// A command with a row of each kind.
Command command_for(Request& request, DumpName name = DumpName::Assay) {
  Command command({name, name == DumpName::Assay ? "assay try" : "msit llm try"}, "Tries.");
  command.add("GOLDEN, --golden-path, -gp PATH", "reference", request.golden);
  command.add("MINE", "under test", request.mine);
  command.add("--algorithms, -alg SPEC ...", "columns", request.algorithms);
  command.add("--pattern PATTERN", "repeatable", added_to(request.patterns));
  command.add("--limit N", "limit", request.limit, number(0, 1));
  command.add("--level, -l {low,high}", "level", chosen(request.level, {{"low", 1}, {"high", 2}}));
  command.add("--stats", "switch", request.statistics).old_names = {"-st"};
  return command;
}

/// What is wrong with the words; empty when nothing is.
std::string read(const Words& words, Request* request, DumpName name = DumpName::Assay) {
  const auto parsed = parse_arguments(command_for(*request, name), words);
  return parsed ? std::string() : parsed.error().message;
}

TEST(ArgumentFrom, ReadsNamesAndValueAsTheHelpShowsThem) {
  const Argument one = argument_from("RUN, --input, -i DIR");
  EXPECT_EQ(one.word, "RUN");
  EXPECT_EQ(one.display_name(), "--input/-i");
  EXPECT_EQ(one.takes, Takes::One);
  EXPECT_EQ(one.metavar, "DIR");

  const Argument metrics = argument_from("--metric, -m [{abs,kl} ...]");
  EXPECT_EQ(metrics.takes, Takes::ZeroOrMore);
  EXPECT_EQ(metrics.choices, (std::vector<std::string_view>{"abs", "kl"}));
  EXPECT_EQ(metrics.value_text(), " [{abs,kl} ...]");

  EXPECT_EQ(argument_from("-seed [SEED]").takes, Takes::ZeroOrOne);
  EXPECT_EQ(argument_from("--type T ...").value_text(), " T [T ...]");
  EXPECT_EQ(argument_from("--weight, -w").takes, Takes::Nothing);
  EXPECT_EQ(argument_from("FILE").display_name(), "FILE");
}

TEST(ParseArguments, PutsValuesWhereTheRowsSay) {
  Request request;
  EXPECT_EQ(
      read({"g", "--limit", "0.5", "m", "--level=high", "-alg", "a", "b", "--stats"}, &request),
      "");
  EXPECT_EQ(request.golden, "g");
  EXPECT_EQ(request.mine, "m");
  EXPECT_EQ(request.limit, 0.5);
  EXPECT_EQ(request.level, 2);
  EXPECT_EQ(request.algorithms, (Words{"a", "b"}));
  EXPECT_TRUE(request.statistics);
}

TEST(ParseArguments, TheLastOccurrenceWinsUnlessValuesAreAdded) {
  Request request;
  EXPECT_EQ(read({"--pattern", "a", "-l", "low", "--pattern", "b", "-l", "high"}, &request), "");
  EXPECT_EQ(request.patterns, (Words{"a", "b"}));
  EXPECT_EQ(request.level, 2);
}

TEST(ParseArguments, AWordGoesToTheFirstRowThatHasNoneYet) {
  Request request;
  EXPECT_EQ(read({"-gp", "g", "m"}, &request), "");
  EXPECT_EQ(request.golden, "g");
  EXPECT_EQ(request.mine, "m");
  EXPECT_EQ(read({"g", "m", "x"}, &request), "unrecognized arguments: x");
}

TEST(ParseArguments, WordsBehindTwoDashesAreNoOptions) {
  Request request;
  EXPECT_EQ(read({"--", "--limit", "-x"}, &request), "");
  EXPECT_EQ(request.golden, "--limit");
  EXPECT_EQ(request.mine, "-x");
  EXPECT_EQ(request.limit, std::nullopt);
}

TEST(ParseArguments, UnderstandsOldSpellingsAndBeginnings) {
  Request request;
  EXPECT_EQ(read({"--golden_path=a_b", "-st", "--lim", "1", "--alg", "x", "-llow"}, &request), "");
  EXPECT_EQ(request.golden, "a_b");
  EXPECT_TRUE(request.statistics);
  EXPECT_EQ(request.limit, 1);
  EXPECT_EQ(request.algorithms, Words{"x"});
  EXPECT_EQ(request.level, 1);
  EXPECT_EQ(read({"--l", "1"}, &request), "ambiguous option: --l could match --limit, --level");
}

TEST(ParseArguments, SaysWhatIsWrong) {
  Request request;
  EXPECT_EQ(read({"--limit", "2"}, &request),
            "argument --limit: expected a number from 0 to 1, not '2'");
  EXPECT_EQ(read({"--limit"}, &request), "argument --limit: expected one argument");
  EXPECT_EQ(read({"--level", "x"}, &request),
            "argument --level/-l: invalid choice: 'x' (choose from 'low', 'high')");
  EXPECT_EQ(read({"--stats=1"}, &request), "argument --stats: ignored explicit argument '1'");
  EXPECT_EQ(read({"--lmiit", "1"}, &request), "unknown option --lmiit; did you mean --limit?");
  EXPECT_EQ(read({"--lmiit", "1"}, &request, DumpName::Msit), "unrecognized arguments: --lmiit");
}

TEST(ParseArguments, OurOwnNameTakesAFolderWithADash) {
  Request request;
  EXPECT_EQ(read({"-gp", "-x"}, &request), "");
  EXPECT_EQ(request.golden, "-x");
  EXPECT_EQ(read({"-gp", "-x"}, &request, DumpName::Msit),
            "argument --golden-path/-gp: expected one argument");
  EXPECT_EQ(read({"-gp", "--stats"}, &request),
            "argument --golden-path/-gp: expected one argument");
}

TEST(ParseArguments, AnErrorOfAStoreIsTheOptions) {
  Command command({DumpName::Assay, "assay try"}, "Tries.");
  int even = 0;
  const auto parse = [](const std::string& text) -> Result<int> {
    return text == "2" ? Result<int>(2) : fail(Errc::Usage, text + " is odd");
  };
  command.add("--even N", "", parsed_into(even, parse));
  EXPECT_EQ(parse_arguments(command, {"--even", "3"}).error().message, "argument --even: 3 is odd");
  ASSERT_TRUE(parse_arguments(command, {"--even", "2"}));
  EXPECT_EQ(even, 2);
  EXPECT_TRUE(parse_arguments(command, {"--even", ""}));  // says nothing
  EXPECT_EQ(even, 2);
}

}  // namespace
}  // namespace assay::cli
