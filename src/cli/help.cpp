// SPDX-License-Identifier: Apache-2.0
#include "cli/help.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/command.hpp"
#include "report/terminal_text.hpp"

namespace assay::cli {
namespace {

constexpr size_t kTextColumn = 24;
constexpr size_t kNarrowest = 40;
constexpr size_t kWidest = 1000;

std::string entry_lines(const HelpPage::Entry& entry, size_t width) {
  const std::string names = "  " + entry.names;
  if (entry.text.empty()) return names + "\n";
  std::string text = report::wrapped(entry.text, kTextColumn, width);
  // Short names share the first line with their text.
  if (names.size() + 2 <= kTextColumn) return names + text.substr(names.size());
  if (names.size() <= width) return names + "\n" + text;
  const size_t cut = names.find(' ', 2);
  return names.substr(0, cut) + "\n" +
         (cut == std::string::npos ? "" : report::wrapped(names.substr(cut + 1), 4, width)) + text;
}

/// Paragraphs are wrapped; lines that begin with a blank are examples, which must stay as they are typed.
std::string paragraphs(const std::string& text, size_t width) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with(' ')) {
      out += std::string(line) + "\n";
    } else {
      out += report::wrapped(line, 0, width);
    }
  }
  return out;
}

/// "{layer,module}" of a set of words, otherwise the option's own word or VALUE; empty for a switch.
std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  if (const size_t set = type.find('{'); set != std::string::npos) return type.substr(set);
  const std::string word = type.substr(0, type.find(':'));
  if (word == "INT" || word == "UINT" || word == "FLOAT") return "N";
  return word == "TEXT" || word.empty() ? "VALUE" : word;
}

std::string upper_case(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

std::string joined(const std::vector<std::string>& names, const char* dashes) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + (dashes + name);
  return text;
}

HelpPage::Entry entry_of(const CLI::Option& option) {
  std::string names = joined(option.get_lnames(), "--");
  const std::string short_names = joined(option.get_snames(), "-");
  if (!short_names.empty()) names += (names.empty() ? "" : ", ") + short_names;
  if (const std::string value = value_name(option); !value.empty()) names += " " + value;
  return {names, option.get_description()};
}

std::string title_of(const std::string& group) { return group == "Options" ? "options" : group; }

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    HelpPage page;
    page.usage = name;
    page.description = app->get_description();
    page.epilogue = app->get_footer();
    std::vector<HelpPage::Entry> positionals;
    for (const CLI::Option* option :
         app->get_options([](const CLI::Option* each) { return each->get_positional(); })) {
      const std::string word = upper_case(option->get_name(true));
      page.usage +=
          option->get_required() || option->nonpositional() ? " " + word : " [" + word + "]";
      positionals.push_back({word, option->get_description()});
    }
    if (!positionals.empty()) page.groups.emplace_back("arguments", positionals);
    for (const std::string& group : app->get_groups()) {
      std::vector<HelpPage::Entry> entries;
      for (const CLI::Option* option : app->get_options([&](const CLI::Option* each) {
             return each->get_group() == group && each->nonpositional();
           }))
        entries.push_back(entry_of(*option));
      if (!group.empty() && !entries.empty()) page.groups.emplace_back(title_of(group), entries);
    }
    const auto commands =
        app->get_subcommands([](const CLI::App* each) { return !each->get_name().empty(); });
    if (!commands.empty()) {
      std::vector<HelpPage::Entry> entries;
      for (const CLI::App* command : commands)
        entries.push_back({command->get_name(), command->get_description()});
      page.groups.insert(page.groups.begin(), {"commands", entries});
      page.usage += " COMMAND";
    }
    page.usage += " [OPTIONS]";
    return help_page_text(page, help_width());
  }
};

}  // namespace

size_t help_width() {
  const char* columns = std::getenv("COLUMNS");
  const auto wanted = parse_number<size_t>(columns == nullptr ? "" : columns);
  const size_t width =
      wanted && *wanted > 0 ? *wanted : static_cast<size_t>(terminal_width(STDOUT_FILENO));
  return std::clamp(width, kNarrowest, kWidest);
}

std::string usage_lines(const std::string& usage, size_t width) {
  const std::string text = "usage: " + usage;
  if (text.size() <= width) return text + "\n";
  std::string lines = report::wrapped(text, 7, width);
  return lines.substr(7);
}

std::string help_page_text(const HelpPage& page, size_t width) {
  std::string text = usage_lines(page.usage, width) + "\n" + paragraphs(page.description, width);
  for (const auto& [title, entries] : page.groups) {
    text += "\n" + title + ":\n";
    for (const HelpPage::Entry& entry : entries) text += entry_lines(entry, width);
  }
  if (!page.epilogue.empty()) text += "\n" + paragraphs(page.epilogue, width);
  return text;
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace assay::cli
