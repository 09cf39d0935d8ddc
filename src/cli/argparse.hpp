// SPDX-License-Identifier: Apache-2.0
// The one grammar of every command, under every name: a table of options, and a parser that behaves
// like Python's argparse (`-opt value`, `-opt=value`, unique beginnings of names, its messages).
// Values go where the row says.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "cli/help.hpp"

namespace assay::cli {

using Words = std::vector<std::string>;

/// The name the program was started under decides defaults, dump root and the voice of messages.
enum class DumpName : uint8_t { Assay, Msit, Ait };

struct Caller {
  DumpName name = DumpName::Assay;
  std::string program;  // what usage and messages call the command: "msit llm dump"
  [[nodiscard]] bool is_ours() const { return name == DumpName::Assay; }
};

enum class Takes : uint8_t { Nothing, ZeroOrOne, One, ZeroOrMore, OneOrMore };

/// What is wrong with a value: the message behind "argument --long/-short: ", or nothing.
using Check = std::function<std::string(std::string_view value)>;
/// Puts the values of one occurrence of an option where they belong. A later occurrence wins.
using Store = std::function<Status(const Words& values)>;

/// A row of the table. Its first part is written as the help shows it: "--execute-range, -er
/// RANGE".
struct Argument {
  std::string_view word;                // "GOLDEN" of what may be given without a name
  std::vector<std::string_view> names;  // "--execute-range", "-er"
  Takes takes = Takes::Nothing;
  std::string_view metavar;
  std::vector<std::string_view> choices;
  std::string_view help;
  std::string_view group;
  Store store;
  Check problem;
  std::vector<std::string_view> old_names = {};    // spellings that parse and are not shown
  std::vector<std::string_view> old_choices = {};  // likewise
  bool required = false;
  bool comma_list = false;  // a value that ends with a comma goes on in the next word

  [[nodiscard]] bool has_name(std::string_view name) const;
  /// It may be given by a name; false of what is a word alone.
  [[nodiscard]] bool is_option() const { return names[0] != word; }
  /// "--execute-range/-er", "RUN"
  [[nodiscard]] std::string display_name() const;
  /// " RANGE", " {a,b} [{a,b} ...]": what follows the names
  [[nodiscard]] std::string value_text() const;
};

[[nodiscard]] std::string joined(const std::vector<std::string_view>& words,
                                 std::string_view separator);

/// "--type, -t {npy,bin} ..." or "RUN" or "RUN, --input, -i DIR". The value: X one, [X] at most
/// one, X ... one or more, [X ...] any number; {a,b} are the choices.
[[nodiscard]] Argument argument_from(std::string_view row);

/// What was given, beside the values, which are stored.
struct ParsedArguments {
  std::vector<std::string_view> names;  // the first name of each option
  Words command;                        // the words behind "--"
  Words all;                            // as they were given
  bool has_command = false;
  [[nodiscard]] bool given(std::string_view name) const;
};

template <typename T>
struct NumberIn {
  using Type = T;
};
template <typename T>
struct NumberIn<std::optional<T>> {
  using Type = T;
};

/// Into a switch, a text, a list of texts or a number, whose text was checked before.
template <typename T>
Store into(T& target) {
  return [&target](const Words& values) -> Status {
    if constexpr (std::is_same_v<T, bool>) {
      target = true;
    } else if constexpr (std::is_same_v<T, Words>) {
      target = values;
    } else if constexpr (std::is_assignable_v<T&, std::string>) {
      target = values.empty() ? std::string() : values.front();
    } else {
      std::string_view text = values.front();
      if (text.starts_with('+')) text.remove_prefix(1);  // Python's int() and float() take it
      const auto number = parse_number<typename NumberIn<T>::Type>(text);
      if (!number) return fail(Errc::Usage, "'" + values.front() + "' is no number");
      target = *number;
    }
    return {};
  };
}

/// Of an option that may be repeated: values are added to those before.
[[nodiscard]] Store added_to(Words& target);

/// What `parse` makes of the text; its error is the option's. An empty text says nothing.
template <typename T, typename Parse>
Store parsed_into(T& target, Parse parse) {
  return [&target, parse](const Words& values) -> Status {
    if (values.front().empty()) return {};
    ASSAY_TRY(target, parse(values.front()));
    return {};
  };
}

/// The value that stands beside the chosen word.
template <typename T>
Store chosen(T& target,
             std::vector<std::pair<std::string_view, std::type_identity_t<T>>> meanings) {
  return [&target, meanings = std::move(meanings)](const Words& values) -> Status {
    for (const auto& [word, meaning] : meanings) {
      if (word == values.front()) target = meaning;
    }
    return {};
  };
}

/// One command under one name: its rows, and what is done when they were read.
struct Command {
  Command(Caller called_as, std::string sentence);

  Caller caller;
  std::string description;  // one sentence
  std::string example;      // that works; several lines where one is not enough
  std::string epilogue = {};
  bool takes_command = false;   // "-- CMD ARGS" may follow the options
  bool bare_command = false;    // and without "--": the first word that is no option is the program
  bool ends_with_next = false;  // every outcome names one command that goes on, wrong options, too
  std::string short_usage = {};  // in place of the list of all options: "[OPTIONS] -- CMD ARGS ..."
  std::vector<Argument> arguments;
  /// What the options mean together, before anything is done. errors  Usage
  std::function<Status(const ParsedArguments&)> check = {};
  /// The process' exit status. Holds what the rows store into.
  std::function<int(const ParsedArguments&)> run;

  /// Adds a row to the group. `target` is what into() takes, or a Store.
  template <typename T>
  Argument& add(std::string_view row, std::string_view help, T&& target, Check problem = {}) {
    if constexpr (std::is_convertible_v<T, Store>) {
      return add_row(row, help, std::forward<T>(target), std::move(problem));
    } else {
      return add_row(row, help, into(target), std::move(problem));
    }
  }
  /// A row that cannot be left out.
  template <typename T>
  Argument& require(std::string_view row, std::string_view help, T&& target, Check problem = {}) {
    Argument& added = add(row, help, std::forward<T>(target), std::move(problem));
    added.required = true;
    return added;
  }
  /// A row whose value is a list with commas, which may go on in the next word.
  template <typename T>
  Argument& add_list(std::string_view row, std::string_view help, T&& target, Check problem = {}) {
    Argument& added = add(row, help, std::forward<T>(target), std::move(problem));
    added.comma_list = true;
    return added;
  }
  /// The title of the rows that follow, in the help.
  void in_group(std::string_view title) { group_ = title; }

 private:
  Argument& add_row(std::string_view row, std::string_view help, Store store, Check problem);
  std::string_view group_ = "options";
};

/// --jobs: at most so many threads in the whole command, 0: one a core.
void add_jobs(Command& command, int& jobs, std::string_view help = "Threads; default: one a core");
/// --log-level of commands whose voice is a log under the old names.
void add_log_level(Command& command, std::string& level);

/// Reads the words into the rows' targets.
/// errors    Usage with argparse's message, without "error:"
[[nodiscard]] Result<ParsedArguments> parse_arguments(const Command& command, const Words& words);
[[nodiscard]] HelpPage help_page(const Command& command);
/// Parses, answers --help and wrong usage, runs. Wrong usage is told in the name's own words: ours
/// with what to type next, the old names' as argparse's.
int run_command(const Command& command, const Words& words);

}  // namespace assay::cli
