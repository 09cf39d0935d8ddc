// SPDX-License-Identifier: Apache-2.0
// Rows of the table from their text, the parser, and the help. Rules: python/cpython:
// Lib/argparse.py, _parse_optional and _get_option_tuples
#include "cli/argparse.hpp"

#include <algorithm>
#include <cstdio>

#include "base/suggest.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/answer.hpp"
#include "cli/command.hpp"
#include "cli/list_text.hpp"
#include "cli/ranges.hpp"

namespace assay::cli {
namespace {

constexpr std::string_view kOurName = "assay ";

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Underscores are the spelling of the first day's long names.
std::string with_dashes(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

bool looks_like_number(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         word.find_first_not_of("0123456789.", 1) == std::string_view::npos;
}

// A word with one or two dashes in front, unless it is a negative number or holds a blank.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !looks_like_number(word) &&
         word.find(' ') == std::string_view::npos;
}

/// What a row says about its value: "[{abs,cos_sim} ...]".
void read_value(std::string_view value, Argument* argument) {
  const bool optional = value.starts_with('[');
  if (optional) value = value.substr(1, value.size() - 2);
  constexpr std::string_view kMore = " ...";
  const bool many = value.ends_with(kMore);
  if (many) value.remove_suffix(kMore.size());
  argument->metavar = value;
  if (value.starts_with('{')) argument->choices = split(value.substr(1, value.size() - 2), ',');
  argument->takes = optional ? (many ? Takes::ZeroOrMore : Takes::ZeroOrOne)
                             : (many ? Takes::OneOrMore : Takes::One);
}

class Parser {
 public:
  Parser(const Command& command, const Words& words) : command_(command), words_(words) {}

  Result<ParsedArguments> parse() {
    while (next_ < words_.size() && !parsed_.has_command) {
      const std::string& word = words_[next_++];
      if (word == "--" && !only_words_ && (command_.takes_command || has_positional())) {
        only_words_ = true;
        if (command_.takes_command) take_command(next_);
        continue;
      }
      ASSAY_TRY(const Option option, only_words_ ? Option{} : find_option(word));
      if (option.argument != nullptr) {
        ASSAY_TRY(auto values, take_values(option));
        ASSAY_TRY_STATUS(keep(*option.argument, values));
      } else {
        ASSAY_TRY_STATUS(take_word(word));
      }
    }
    if (parsed_.given("--help")) return std::move(parsed_);
    // Under our own name a wrong option is the first thing to say, and what was meant.
    if (command_.caller.is_ours() && !unknown_option_.empty())
      return fail(Errc::Usage, unknown_word_text("option", unknown_option_, option_names()));
    ASSAY_TRY_STATUS(check_required());
    if (!unknown_.empty()) return fail(Errc::Usage, "unrecognized arguments:" + unknown_);
    return std::move(parsed_);
  }

 private:
  struct Option {
    const Argument* argument = nullptr;
    std::optional<std::string> attached;  // behind '=', or glued to a one-letter name
  };

  void take_command(size_t first) {
    parsed_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(first), words_.end());
    parsed_.has_command = true;
  }

  [[nodiscard]] bool has_positional() const {
    return std::any_of(command_.arguments.begin(), command_.arguments.end(),
                       [](const Argument& argument) { return !argument.word.empty(); });
  }

  /// A word that is no option: the next one that may be given without a name, the program, or one
  /// too many.
  Status take_word(const std::string& word) {
    const bool is_option = !only_words_ && looks_like_option(word);
    for (const Argument& argument : command_.arguments) {
      const bool takes_more = argument.takes == Takes::OneOrMore && !argument.is_option();
      if (is_option || argument.word.empty() || (parsed_.given(argument.names[0]) && !takes_more))
        continue;
      ASSAY_TRY_STATUS(check_value(argument, word));
      return keep(argument, {word});
    }
    if (!word.starts_with('-') && command_.bare_command && unknown_.empty() &&
        !parsed_.given("--exec")) {
      take_command(next_ - 1);
      return {};
    }
    unknown_ += " " + shown(word);
    if (is_option && unknown_option_.empty()) unknown_option_ = word;
    return {};
  }

  Status keep(const Argument& argument, const Words& values) {
    parsed_.names.push_back(argument.names[0]);
    if (const Status stored = argument.store(values); !stored)
      return fail(Errc::Usage,
                  "argument " + argument.display_name() + ": " + stored.error().describe());
    return {};
  }

  [[nodiscard]] std::vector<std::string> option_names() const {
    std::vector<std::string> names;
    for (const Argument& argument : command_.arguments)
      names.insert(names.end(), argument.names.begin(), argument.names.end());
    return names;
  }

  [[nodiscard]] const Argument* exactly(std::string_view name) const {
    const auto found = std::find_if(
        command_.arguments.begin(), command_.arguments.end(),
        [name](const Argument& argument) { return name[0] == '-' && argument.has_name(name); });
    return found == command_.arguments.end() ? nullptr : &*found;
  }

  // The option that a word means: exact, or the beginning of exactly one name.
  Result<Option> find_option(const std::string& word) const {
    if (!word.starts_with('-') || word.size() < 2) return Option{};
    const size_t equals = word.find('=');
    const std::string spelled = word.substr(0, equals);
    const std::string name = with_dashes(spelled);
    std::optional<std::string> attached;
    if (equals != std::string::npos) attached = word.substr(equals + 1);
    if (const Argument* argument = exactly(name)) return Option{argument, attached};
    if (!looks_like_option(name) || name == "--") return Option{};

    std::vector<std::pair<std::string_view, Option>> candidates;
    const bool one_dash = !name.starts_with("--");
    for (const Argument& argument : command_.arguments) {
      for (const std::string_view candidate : argument.names) {
        // "-ofolder" is "-o folder".
        if (one_dash && candidate.size() == 2 && word.starts_with(candidate)) {
          candidates.emplace_back(candidate, Option{&argument, word.substr(2)});
        } else if (candidate.starts_with(name)) {
          candidates.emplace_back(candidate, Option{&argument, attached});
        }
      }
    }
    if (candidates.size() == 1) return candidates[0].second;
    if (candidates.empty()) return Option{};
    std::vector<std::string_view> names;
    for (const auto& [candidate, option] : candidates) names.push_back(candidate);
    return fail(Errc::Usage,
                "ambiguous option: " + spelled + " could match " + joined(names, ", "));
  }

  Result<Words> take_values(const Option& option) {
    const Argument& argument = *option.argument;
    const std::string where = "argument " + argument.display_name() + ": ";
    Words values;
    if (argument.takes == Takes::Nothing) {
      if (!option.attached) return values;
      return fail(Errc::Usage, where + "ignored explicit argument '" + *option.attached + "'");
    }
    if (option.attached) values.push_back(*option.attached);
    const bool many = argument.takes == Takes::OneOrMore || argument.takes == Takes::ZeroOrMore;
    while (!option.attached && has_value(argument) && (many || values.empty()) &&
           !begins_command(argument, values)) {
      values.push_back(words_[next_++]);
    }
    if (argument.comma_list && !values.empty()) take_rest_of_list(argument, &values.back());
    if (values.empty() && (argument.takes == Takes::One || argument.takes == Takes::OneOrMore)) {
      return fail(Errc::Usage,
                  where + "expected " + (many ? "at least one argument" : "one argument"));
    }
    for (const std::string& value : values) ASSAY_TRY_STATUS(check_value(argument, value));
    return values;
  }

  /// "2, 3": the original's documents write lists with blanks.
  void take_rest_of_list(const Argument& argument, std::string* list) {
    *list = with_ascii_commas(*list);
    while (list->ends_with(',') && has_value(argument)) *list += with_ascii_commas(words_[next_++]);
  }

  /// Under our own name a folder may be called "-x" or "--steps=0": only the names of options are
  /// none.
  [[nodiscard]] bool has_value(const Argument& argument) const {
    if (next_ == words_.size() || words_[next_] == "--") return false;
    const std::string& word = words_[next_];
    if (!looks_like_option(word)) return true;
    return command_.caller.is_ours() && argument.takes == Takes::One && exactly(word) == nullptr;
  }

  /// Whether the next word is no value of an option that needs none, or no more: then it is the
  /// program.
  [[nodiscard]] bool begins_command(const Argument& argument, const Words& values) const {
    if (!command_.bare_command || (values.empty() && argument.takes != Takes::ZeroOrOne))
      return false;
    if (words_[next_].find_first_of("0123456789") == 0) return false;  // a number that is wrong
    const bool can_tell = argument.problem != nullptr || !argument.choices.empty();
    return can_tell && !check_value(argument, words_[next_]);
  }

  /// The old names repeat all of a wrong value, as argparse does; ours its beginning.
  [[nodiscard]] std::string shown(const std::string& value) const {
    return command_.caller.is_ours() ? shortened(value) : value;
  }

  [[nodiscard]] Status check_value(const Argument& argument, const std::string& value) const {
    const std::string where = "argument " + argument.display_name() + ": ";
    if (argument.problem != nullptr) {
      if (const std::string problem = argument.problem(value); !problem.empty()) {
        const std::string of_shown = argument.problem(shown(value));
        return fail(Errc::Usage, where + (of_shown.empty() ? problem : of_shown));
      }
    }
    if (argument.choices.empty() || contains(argument.choices, value) ||
        contains(argument.old_choices, value))
      return {};
    return fail(Errc::Usage, where + "invalid choice: '" + shown(value) + "' (choose from '" +
                                 joined(argument.choices, "', '") + "')");
  }

  [[nodiscard]] Status check_required() const {
    std::string missing;
    for (const Argument& argument : command_.arguments) {
      // The words behind "--" stand for the option that names a command.
      const bool replaced = parsed_.has_command && argument.names[0] == "--exec";
      if (argument.required && !replaced && !parsed_.given(argument.names[0]))
        missing += (missing.empty() ? "" : ", ") + argument.display_name();
    }
    if (missing.empty()) return {};
    if (missing == "--exec" && !command_.short_usage.empty())
      return fail(Errc::Usage,
                  "no program was given: " + command_.caller.program + " " + command_.short_usage);
    return fail(Errc::Usage, "the following arguments are required: " + missing);
  }

  const Command& command_;
  const Words& words_;
  size_t next_ = 0;
  bool only_words_ = false;  // behind "--"
  ParsedArguments parsed_;
  std::string unknown_;
  std::string unknown_option_;  // the first of them
};

/// What can be given by a name, too: nearly always given, so not in brackets.
bool is_word_with_names(const Argument& argument) {
  return !argument.word.empty() && argument.is_option();
}

std::string usage_of(const Command& command) {
  std::string text = command.caller.program;
  if (!command.short_usage.empty()) return text + " " + command.short_usage;
  for (const Argument& argument : command.arguments) {
    const bool required =
        (argument.required || is_word_with_names(argument)) && !command.takes_command;
    std::string word(argument.names[0] == "--help" ? "-h" : argument.names[0]);
    if (!argument.word.empty()) {
      word = argument.word;
      if (argument.takes == Takes::OneOrMore && !argument.is_option()) word += " ...";
    } else if (command.caller.is_ours() && !required) {
      continue;  // the list below has them
    } else {
      word += argument.value_text();
    }
    text += required ? " " + word : " [" + word + "]";
  }
  if (command.caller.is_ours()) text += " [OPTIONS]";
  if (command.takes_command) text += command.caller.is_ours() ? " -- CMD ..." : " [-- CMD ...]";
  return text;
}

}  // namespace

std::string joined(const std::vector<std::string_view>& words, std::string_view separator) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

Argument argument_from(std::string_view row) {
  Argument argument;
  constexpr std::string_view kBetween = ", ";
  for (size_t comma = row.find(kBetween); true; comma = row.find(kBetween)) {
    const std::string_view name = row.substr(0, std::min(comma, row.find(' ')));
    if (name.starts_with('-')) {
      argument.names.push_back(name);
    } else {
      argument.word = name;
    }
    if (comma == std::string_view::npos) break;
    row.remove_prefix(comma + kBetween.size());
  }
  if (const size_t blank = row.find(' '); blank != std::string_view::npos)
    read_value(row.substr(blank + 1), &argument);
  if (argument.names.empty()) {
    const bool many = argument.metavar == "...";
    argument.takes = many ? Takes::OneOrMore : Takes::One;
    argument.metavar = {};
    argument.names.push_back(argument.word);
  }
  return argument;
}

bool Argument::has_name(std::string_view name) const {
  if (contains(names, name) || contains(old_names, name)) return true;
  // "--metric" for "-metric": two dashes are what people write before a word.
  return std::any_of(names.begin(), names.end(), [name](std::string_view known) {
    return known.size() > 2 && name.substr(1) == known;
  });
}

std::string Argument::display_name() const { return joined(names, "/"); }

std::string Argument::value_text() const {
  const std::string value(metavar);
  switch (takes) {
    case Takes::Nothing:
      return {};
    case Takes::ZeroOrOne:
      return " [" + value + "]";
    case Takes::One:
      return " " + value;
    case Takes::ZeroOrMore:
      return " [" + value + " ...]";
    case Takes::OneOrMore:
      return " " + value + " [" + value + " ...]";
  }
  return {};
}

bool ParsedArguments::given(std::string_view name) const { return contains(names, name); }

Store added_to(Words& target) {
  return [&target](const Words& values) -> Status {
    target.insert(target.end(), values.begin(), values.end());
    return {};
  };
}

Command::Command(Caller called_as, std::string sentence)
    : caller(std::move(called_as)), description(std::move(sentence)) {
  add("--help, -h", "show this help message and exit", [](const Words&) { return Status(); });
}

void add_jobs(Command& command, int& jobs, std::string_view help) {
  command.add("--jobs, -j N", help, Store([&jobs](const Words& values) -> Status {
                ASSAY_TRY_STATUS(into(jobs)(values));
                set_default_job_count(jobs);
                return {};
              }),
              whole_number(0, kMaxJobs));
}

void add_log_level(Command& command, std::string& level) {
  command.add("--log-level, -l {debug,info,warning,error,fatal,critical}",
              "Log level, default info.", level);
}

Argument& Command::add_row(std::string_view row, std::string_view help, Store store,
                           Check problem) {
  Argument& argument = arguments.emplace_back(argument_from(row));
  argument.help = help;
  argument.group = group_;
  argument.store = std::move(store);
  argument.problem = std::move(problem);
  return argument;
}

Result<ParsedArguments> parse_arguments(const Command& command, const Words& words) {
  ASSAY_TRY(ParsedArguments parsed, Parser(command, words).parse());
  parsed.all = words;
  return parsed;
}

HelpPage help_page(const Command& command) {
  HelpPage page;
  page.usage = usage_of(command);
  page.description = command.description;
  for (const Argument& argument : command.arguments) {
    if (!argument.word.empty())
      page.group("arguments").push_back({std::string(argument.word), std::string(argument.help)});
  }
  for (const Argument& argument : command.arguments) {
    if (!argument.is_option()) continue;
    page.group(argument.group)
        .push_back(
            {joined(argument.names, ", ") + argument.value_text(), std::string(argument.help)});
  }
  page.epilogue = "example:\n  " + command.example;
  if (!command.epilogue.empty()) page.epilogue += "\n\n" + command.epilogue;
  return page;
}

namespace {

/// --json stands among the options, as far as words that cannot be parsed tell.
bool wants_json(const Words& words) {
  const auto end = std::ranges::find(words, "--");
  return std::find(words.begin(), end, "--json") != end;
}

int usage_error(const Command& command, const Words& words, const std::string& message) {
  const Caller& caller = command.caller;
  if (command.ends_with_next) {
    const std::string_view name = std::string_view(caller.program).substr(kOurName.size());
    return report_failure(name, {Errc::Usage, {}, std::nullopt, message}, {}, wants_json(words));
  }
  if (caller.is_ours()) return report_usage(message, caller.program + " --help");
  std::fprintf(stderr, "usage: %s\n%s: error: %s\n", usage_of(command).c_str(),
               caller.program.c_str(), printable(message).c_str());
  return kUsageOrInput;
}

}  // namespace

int run_command(const Command& command, const Words& words) {
  const Result<ParsedArguments> parsed = parse_arguments(command, words);
  if (!parsed) return usage_error(command, words, parsed.error().message);
  if (parsed->given("--help")) return print_help(help_page(command));
  if (command.check) {
    if (const Status fits = command.check(*parsed); !fits)
      return usage_error(command, words, fits.error().message);
  }
  return command.run(*parsed);
}

}  // namespace assay::cli
