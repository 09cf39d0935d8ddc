// SPDX-License-Identifier: Apache-2.0
// Rules: python/cpython: Lib/argparse.py, _parse_optional and _get_option_tuples
#include "cli/argparse.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/suggest.hpp"
#include "base/text.hpp"
#include "cli/help.hpp"
#include "cli/list_text.hpp"

namespace assay::cli {
namespace {

constexpr int kArgparseError = 2;

std::string metavar_of(const Argument& argument) {
  if (argument.choices.empty()) return std::string(argument.metavar);
  std::string text = "{";
  for (const std::string_view choice : argument.choices) {
    text += (text.size() > 1 ? "," : "") + std::string(choice);
  }
  return text + "}";
}

std::string value_text(const Argument& argument) {
  const std::string metavar = metavar_of(argument);
  switch (argument.takes) {
    case Takes::Nothing:
      return {};
    case Takes::ZeroOrOne:
      return " [" + metavar + "]";
    case Takes::One:
      return " " + metavar;
    case Takes::ZeroOrMore:
      return " [" + metavar + " ...]";
    case Takes::OneOrMore:
      return " " + metavar + " [" + metavar + " ...]";
  }
  return {};
}

bool is_ours(const Grammar& grammar) { return grammar.program.starts_with("assay"); }

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

class Parser {
 public:
  Parser(const Grammar& grammar, const std::vector<std::string>& words)
      : grammar_(grammar), words_(words) {}

  Result<ParsedArguments> parse() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word == "--" && grammar_.takes_command) {
        parsed_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
        parsed_.has_command = true;
        break;
      }
      ASSAY_TRY(const Option option, find_option(word));
      if (option.argument == nullptr && !word.starts_with('-') && !grammar_.positional.empty() &&
          !parsed_.given(grammar_.positional)) {
        parsed_.values.emplace_back(grammar_.positional, std::vector<std::string>{word});
        continue;
      }
      if (option.argument == nullptr && !word.starts_with('-') && grammar_.bare_command &&
          unknown_.empty() && !parsed_.given("--exec")) {
        parsed_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_) - 1,
                               words_.end());
        parsed_.has_command = true;
        break;
      }
      if (option.argument == nullptr) {
        unknown_ += " " + (is_ours(grammar_) ? shortened(word) : word);
        if (unknown_option_.empty() && looks_like_option(word)) unknown_option_ = word;
        continue;
      }
      ASSAY_TRY(auto values, take_values(option));
      parsed_.values.emplace_back(option.argument->long_name, std::move(values));
    }
    if (parsed_.given("--help")) return std::move(parsed_);
    // Under our own name a wrong option is the first thing to say, and what was meant.
    if (is_ours(grammar_) && !unknown_option_.empty())
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

  [[nodiscard]] std::vector<std::string> option_names() const {
    std::vector<std::string> names;
    for (const Argument& argument : grammar_.arguments) {
      names.emplace_back(argument.long_name);
      if (!argument.short_name.empty()) names.emplace_back(argument.short_name);
    }
    return names;
  }

  [[nodiscard]] const Argument* exactly(std::string_view name) const {
    for (const Argument& argument : grammar_.arguments) {
      if (argument.long_name == name || argument.short_name == name) return &argument;
      // "--metric" for "-metric": two dashes are what people write before a word.
      if (argument.short_name.size() > 2 && name.starts_with('-') &&
          name.substr(1) == argument.short_name)
        return &argument;
    }
    return nullptr;
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
    if (!looks_like_option(name)) return Option{};

    std::vector<std::pair<std::string, Option>> candidates;
    const bool one_dash = !name.starts_with("--");
    for (const Argument& argument : grammar_.arguments) {
      for (const std::string_view candidate : {argument.long_name, argument.short_name}) {
        if (candidate.empty()) continue;
        // "-ofolder" is "-o folder".
        if (one_dash && candidate.size() == 2 && word.starts_with(candidate)) {
          candidates.emplace_back(candidate, Option{&argument, word.substr(2)});
        } else if (candidate.starts_with(name) && name != "--") {
          candidates.emplace_back(candidate, Option{&argument, attached});
        }
      }
    }
    if (candidates.size() == 1) return candidates[0].second;
    if (candidates.empty()) return Option{};
    std::string names;
    for (const auto& [candidate, option] : candidates) {
      names += (names.empty() ? "" : ", ") + candidate;
    }
    return fail(Errc::Usage, "ambiguous option: " + spelled + " could match " + names);
  }

  Result<std::vector<std::string>> take_values(const Option& option) {
    const Argument& argument = *option.argument;
    std::vector<std::string> values;
    if (argument.takes == Takes::Nothing) {
      if (!option.attached) return values;
      return fail(Errc::Usage, "argument " + display_name(argument) +
                                   ": ignored explicit argument '" + *option.attached + "'");
    }
    if (option.attached) values.push_back(*option.attached);
    const bool many = argument.takes == Takes::OneOrMore || argument.takes == Takes::ZeroOrMore;
    if (!option.attached && argument.any_word && next_ < words_.size() && words_[next_] != "--" &&
        exactly(words_[next_]) == nullptr)
      values.push_back(words_[next_++]);
    while (!option.attached && has_value() && (many || values.empty()) &&
           !begins_command(argument, values)) {
      values.push_back(words_[next_++]);
    }
    if (argument.comma_list && !values.empty()) {
      std::string& list = values.back();
      list = with_ascii_commas(list);
      while (list.ends_with(',') && has_value()) list += with_ascii_commas(words_[next_++]);
    }
    const bool may_be_empty =
        argument.takes == Takes::ZeroOrOne || argument.takes == Takes::ZeroOrMore;
    if (values.empty() && !may_be_empty) {
      return fail(Errc::Usage, "argument " + display_name(argument) + ": expected " +
                                   (many ? "at least one argument" : "one argument"));
    }
    for (const std::string& value : values) ASSAY_TRY_STATUS(check_value(argument, value));
    return values;
  }

  [[nodiscard]] bool has_value() const {
    return next_ < words_.size() && words_[next_] != "--" && !looks_like_option(words_[next_]);
  }

  /// Whether the next word is no value of an option that needs none, or no more: then it is the program.
  [[nodiscard]] bool begins_command(const Argument& argument,
                                    const std::vector<std::string>& values) const {
    if (!grammar_.bare_command || (values.empty() && argument.takes != Takes::ZeroOrOne))
      return false;
    if (words_[next_].find_first_of("0123456789") == 0) return false;  // a number that is wrong
    const bool can_tell = argument.problem != nullptr || !argument.choices.empty();
    return can_tell && !check_value(argument, words_[next_]);
  }

  /// The old names repeat all of a wrong value, as argparse does; ours its beginning.
  [[nodiscard]] std::string shown(const std::string& value) const {
    return is_ours(grammar_) ? shortened(value) : value;
  }

  [[nodiscard]] Status check_value(const Argument& argument, const std::string& value) const {
    const std::string where = "argument " + display_name(argument) + ": ";
    if (argument.problem != nullptr) {
      if (const std::string problem = argument.problem(value); !problem.empty()) {
        const std::string of_shown = argument.problem(shown(value));
        return fail(Errc::Usage, where + (of_shown.empty() ? problem : of_shown));
      }
    }
    const auto& choices = argument.choices;
    if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end())
      return {};
    std::string names;
    for (const std::string_view choice : choices) {
      names += (names.empty() ? "'" : ", '") + std::string(choice) + "'";
    }
    return fail(Errc::Usage,
                where + "invalid choice: '" + shown(value) + "' (choose from " + names + ")");
  }

  [[nodiscard]] Status check_required() const {
    std::string missing;
    for (const Argument& argument : grammar_.arguments) {
      // The words behind "--" stand for the option that names a command.
      const bool replaced = parsed_.has_command && argument.long_name == "--exec";
      if (argument.required && !replaced && !parsed_.given(argument.long_name)) {
        missing += (missing.empty() ? "" : ", ") + display_name(argument);
      }
    }
    if (missing.empty()) return {};
    if (missing == "--exec" && !grammar_.short_usage.empty())
      return fail(Errc::Usage,
                  "no program was given: " + grammar_.program + " " + grammar_.short_usage);
    return fail(Errc::Usage, "the following arguments are required: " + missing);
  }

  const Grammar& grammar_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  ParsedArguments parsed_;
  std::string unknown_;
  std::string unknown_option_;  // the first of them
};

}  // namespace

Argument help_argument() {
  return {"--help", "-h", Takes::Nothing, "", "show this help message and exit"};
}

Argument log_level_argument(std::vector<std::string_view> levels) {
  return {"--log-level",    "-l", Takes::One, "", "Log level, default info.", false,
          std::move(levels)};
}

std::string display_name(const Argument& argument) {
  std::string text(argument.long_name);
  if (!argument.short_name.empty()) text += "/" + std::string(argument.short_name);
  return text;
}

const std::vector<std::string>* ParsedArguments::find(std::string_view long_name) const {
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    if (value->first == long_name) return &value->second;
  }
  return nullptr;
}

std::string ParsedArguments::text(std::string_view long_name, std::string_view otherwise) const {
  const std::vector<std::string>* found = find(long_name);
  return found != nullptr && !found->empty() ? found->front() : std::string(otherwise);
}

Result<ParsedArguments> parse_arguments(const Grammar& grammar,
                                        const std::vector<std::string>& words) {
  return Parser(grammar, words).parse();
}

namespace {

std::string usage_of(const Grammar& grammar) {
  std::string text = grammar.program;
  if (!grammar.short_usage.empty()) return text + " " + grammar.short_usage;
  for (const Argument& argument : grammar.arguments) {
    const bool required = argument.required && !grammar.takes_command;
    if (is_ours(grammar) && !required) continue;  // the list below has them
    std::string word(argument.long_name == "--help" ? argument.short_name : argument.long_name);
    word += value_text(argument);
    text += required ? " " + word : " [" + word + "]";
  }
  if (is_ours(grammar)) text += " [OPTIONS]";
  if (grammar.takes_command) text += is_ours(grammar) ? " -- CMD ..." : " [-- CMD ...]";
  return text;
}

}  // namespace

std::string usage_text(const Grammar& grammar) { return "usage: " + usage_of(grammar) + "\n"; }

std::string help_text(const Grammar& grammar) {
  HelpPage page;
  page.usage = usage_of(grammar);
  page.description = grammar.description;
  std::vector<HelpPage::Entry> entries;
  for (const Argument& argument : grammar.arguments) {
    std::string names(argument.long_name);
    if (!argument.short_name.empty()) names += ", " + std::string(argument.short_name);
    entries.push_back({names + value_text(argument), std::string(argument.help)});
  }
  page.groups.emplace_back("options", std::move(entries));
  if (!grammar.epilogue.empty()) page.epilogue = grammar.epilogue + "\n\n";
  page.epilogue += "example:\n  " + grammar.program + " " + grammar.example;
  return help_page_text(page, help_width());
}

int argparse_error(const Grammar& grammar, const std::string& message) {
  std::fprintf(stderr, "%s%s: error: %s\n", usage_text(grammar).c_str(), grammar.program.c_str(),
               printable(message).c_str());
  return kArgparseError;
}

}  // namespace assay::cli
