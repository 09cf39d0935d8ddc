// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"

#include <gtest/gtest.h>

#include <set>

namespace assay::cli {
namespace {

/// Every command under every name that it has.
std::vector<Command> all_under_all_names() {
  std::vector<Command> commands;
  for (const CommandRow& row : all_commands()) {
    commands.push_back(row.make(assay_caller(row)));
    if (!row.is_old) continue;
    for (const auto& [name, word] : {std::pair(DumpName::Msit, "msit"), {DumpName::Ait, "ait"}})
      commands.push_back(row.make({name, word + (" llm " + std::string(row.name))}));
  }
  return commands;
}

TEST(Commands, EveryRowIsWellFormed) {
  for (const Command& command : all_under_all_names()) {
    SCOPED_TRACE(command.caller.program);
    EXPECT_TRUE(command.example.starts_with(command.caller.program) ||
                command.example.find("assay ") != std::string::npos);
    EXPECT_TRUE(command.run != nullptr);
    std::set<std::string_view> names;
    for (const Argument& argument : command.arguments) {
      SCOPED_TRACE(argument.names[0]);
      EXPECT_FALSE(argument.help.empty());
      EXPECT_TRUE(argument.store != nullptr);
      EXPECT_EQ(argument.metavar.find_first_of(" []"), std::string_view::npos);
      for (const std::string_view name : argument.names) {
        EXPECT_TRUE(name.starts_with('-') || name == argument.word);
        EXPECT_TRUE(names.insert(name).second) << name << " twice";
      }
      for (const std::string_view name : argument.old_names)
        EXPECT_TRUE(names.insert(name).second) << name << " twice";
    }
  }
}

TEST(Commands, EverySpellingMeansItsRow) {
  for (const Command& command : all_under_all_names()) {
    for (const Argument& argument : command.arguments) {
      std::vector<std::string_view> names = argument.names;
      names.insert(names.end(), argument.old_names.begin(), argument.old_names.end());
      for (const std::string_view name : names) {
        if (name == argument.word || name == "--help" || name == "-h") continue;
        SCOPED_TRACE(command.caller.program + " " + std::string(name));
        // A value that is missing, or one too many, is answered with the row's own names.
        const bool takes_one = argument.takes == Takes::One || argument.takes == Takes::OneOrMore;
        const Words words = {std::string(name) + (argument.takes == Takes::Nothing ? "=x" : "")};
        if (argument.takes != Takes::Nothing && !takes_one) continue;
        const auto parsed = parse_arguments(command, words);
        ASSERT_FALSE(parsed);
        EXPECT_TRUE(
            parsed.error().message.starts_with("argument " + argument.display_name() + ": "))
            << parsed.error().message;
      }
    }
  }
}

TEST(Commands, EveryOptionIsInTheHelp) {
  for (const Command& command : all_under_all_names()) {
    const std::string page = help_page_text(help_page(command), 1000);
    for (const Argument& argument : command.arguments) {
      for (const std::string_view name : argument.names)
        EXPECT_NE(page.find("  " + std::string(name)) & page.find(", " + std::string(name)),
                  std::string::npos)
            << command.caller.program << " " << name;
      EXPECT_NE(page.find(argument.help), std::string::npos) << argument.help;
    }
  }
}

TEST(Commands, AreFoundByNameAndAliasAndByTheWordsBehind) {
  EXPECT_EQ(find_command("dd"), find_command("dump"));
  EXPECT_EQ(find_command("nope"), nullptr);
  EXPECT_EQ(find_command(""), nullptr);
  EXPECT_EQ(find_command("convert", {"a", "b.npy"})->make, convert_command);
  EXPECT_EQ(find_command("convert", {"-d", "a"})->make, dump_convert_command);
  EXPECT_EQ(find_command("convert", {"-target=numpy"})->make, older_convert_command);
}

}  // namespace
}  // namespace assay::cli
