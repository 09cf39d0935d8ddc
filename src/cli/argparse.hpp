// SPDX-License-Identifier: Apache-2.0
// A parser that behaves like Python's argparse, for the commands whose grammar is the original's: `-opt value`,
// `-opt=value`, unique beginnings of names, argparse's messages.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::cli {

enum class Takes : uint8_t { Nothing, ZeroOrOne, One, ZeroOrMore, OneOrMore };

struct Argument {
  std::string_view long_name;   // "--execute-range"; or the only name, with one dash: "-seed"
  std::string_view short_name;  // "-er", or empty
  Takes takes;
  std::string_view metavar;
  std::string_view help;
  bool required = false;
  std::vector<std::string_view> choices = {};
  /// What is wrong with a value: the message behind "argument --long/-short: ", or nothing.
  std::string (*problem)(std::string_view value) = nullptr;
  /// A value that ends with a comma goes on in the next word, as the original's documents write lists.
  bool comma_list = false;
  /// The next word is the value, whatever it begins with: a folder may be called "-x".
  bool any_word = false;
};

// Arguments that every old command has.
[[nodiscard]] Argument help_argument();
[[nodiscard]] Argument log_level_argument(std::vector<std::string_view> levels);

/// "--execute-range/-er"
[[nodiscard]] std::string display_name(const Argument& argument);

struct ParsedArguments {
  // Values by long name, in the order given; a switch that was given has an empty list.
  std::vector<std::pair<std::string_view, std::vector<std::string>>> values;
  std::vector<std::string> command;  // the words behind "--"
  bool has_command = false;

  /// The last values given for an option, or nullptr.
  [[nodiscard]] const std::vector<std::string>* find(std::string_view long_name) const;
  [[nodiscard]] std::string text(std::string_view long_name, std::string_view otherwise = {}) const;
  [[nodiscard]] bool given(std::string_view long_name) const { return find(long_name) != nullptr; }
};

struct Grammar {
  std::string program;      // "msit llm dump"
  std::string description;  // one sentence
  std::vector<Argument> arguments;
  std::string example;         // options of an example that works
  bool takes_command = false;  // "-- CMD ARGS" may follow the options
  bool bare_command = false;   // and without "--": the first word that is no option is the program
  std::string epilogue = {};   // printed below the options
  std::string_view positional =
      {};                        // long name of the option that the first word without one means
  std::string short_usage = {};  // in place of the list of all options: "[OPTIONS] -- CMD ARGS ..."
};

/// errors    Usage with argparse's message, without "error:"
[[nodiscard]] Result<ParsedArguments> parse_arguments(const Grammar& grammar,
                                                      const std::vector<std::string>& words);
[[nodiscard]] std::string usage_text(const Grammar& grammar);
[[nodiscard]] std::string help_text(const Grammar& grammar);
/// Prints usage and "<program>: error: <message>" to stderr. Returns argparse's exit status, 2.
int argparse_error(const Grammar& grammar, const std::string& message);

}  // namespace assay::cli
