// SPDX-License-Identifier: Apache-2.0
// `assay completion SHELL`: scripts for bash, zsh and fish. What does not depend on commands is in completion.bash,
// completion.zsh and completion.fish; the lines made of the table replace @MARKS@ in them.
#include <memory>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "completion_script.hpp"

namespace assay::cli {
namespace {

/// A command under one of the names of the program.
struct Completed {
  const CommandRow* row;
  std::string_view program;  // "assay", or "msit" for both old names
  Command command;

  /// "dump dd"
  [[nodiscard]] std::string names(std::string_view separator, std::string_view before) const {
    std::string text = std::string(before) + std::string(row->name);
    if (!row->alias.empty())
      text += std::string(separator) + std::string(before) + std::string(row->alias);
    return text;
  }
};

std::vector<Completed> completed_commands() {
  std::vector<Completed> found;
  for (const CommandRow& row : all_commands()) {
    if (row.is_meant == nullptr) found.push_back({&row, "assay", row.make(assay_caller(row))});
  }
  for (const CommandRow& row : all_commands()) {
    if (row.is_old)
      found.push_back(
          {&row, "msit", row.make({DumpName::Msit, "msit llm " + std::string(row.name)})});
  }
  return found;
}

std::string names_of(std::string_view program) {
  std::string names;
  for (const CommandRow& row : all_commands()) {
    if (row.is_meant != nullptr || (program != "assay" && !row.is_old)) continue;
    names += (names.empty() ? "" : " ") + std::string(row.name);
    if (program != "assay" && !row.alias.empty()) names += " " + std::string(row.alias);
  }
  return names;
}

/// What completes a value: words, "@folders" or "@files".
std::string values_of(const Argument& argument) {
  if (!argument.choices.empty()) return joined(argument.choices, " ");
  if (argument.word == "COMMAND") return names_of("assay");
  for (const std::string_view folder : {"DIR", "FOLDER", "DUMPS", "OUTPUT", "OUTPUT_DIR"}) {
    if (argument.metavar == folder) return "@folders";
  }
  return "@files";
}

bool is_option(const Argument& argument) { return argument.names[0] != argument.word; }

std::string replaced(std::string text, std::string_view mark, const std::string& lines) {
  return text.replace(text.find(mark), mark.size(), lines);
}

// ---- bash ------------------------------------------------------------------------------------------------------------

std::string bash_values(const Completed& one, const Argument& argument) {
  std::string pattern;
  for (const std::string_view name : argument.names) {
    const std::string known(is_option(argument) ? name : "WORD");
    for (const std::string_view command : {one.row->name, one.row->alias}) {
      if (command.empty()) continue;
      pattern += (pattern.empty() ? "" : " | ") + ("\"" + std::string(one.program)) + " " +
                 std::string(command) + " " + known + "\"";
    }
  }
  return "    " + pattern + ") echo \"" + values_of(argument) + "\" ;;\n";
}

std::string bash_script() {
  std::string options;
  std::string values;
  for (const Completed& one : completed_commands()) {
    std::string names;
    for (const Argument& argument : one.command.arguments) {
      if (is_option(argument)) names += (names.empty() ? "" : " ") + joined(argument.names, " ");
      const std::string found = argument.takes == Takes::Nothing ? "@files" : values_of(argument);
      if (found != "@files") values += bash_values(one, argument);
    }
    const std::string before = "\"" + std::string(one.program) + "\" \"";
    options += "    " + one.names(" | ", std::string(one.program) + "\\ ") + ") echo \"" + names +
               "\" ;;\n";
  }
  std::string script = replaced(kBashScript, "@OPTIONS@\n", options);
  script = replaced(std::move(script), "@VALUES@\n", values);
  script = replaced(std::move(script), "@COMMANDS@", names_of("assay"));
  return replaced(std::move(script), "@OLD_COMMANDS@", names_of("msit"));
}

// ---- zsh -------------------------------------------------------------------------------------------------------------

/// With a backslash in front of each of the `special` characters.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// A word of a POSIX shell.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string zsh_values(const Argument& argument) {
  const std::string values = values_of(argument);
  if (values == "@folders") return "_files -/";
  return values == "@files" ? "_files" : "(" + values + ")";
}

/// '(--output -o)'{--output,-o}'[Folder for the report]:value:_files -/'
std::string zsh_argument(const Argument& argument) {
  const std::string value = ":value:" + zsh_values(argument);
  if (!is_option(argument)) return in_quotes(":" + std::string(argument.word) + value.substr(6));
  std::string about = "[" + escaped(argument.help, "[]:\\") + "]";
  if (argument.takes == Takes::One) about += value;
  if (argument.takes == Takes::ZeroOrOne) about += ":" + value;
  if (argument.takes == Takes::OneOrMore || argument.takes == Takes::ZeroOrMore)
    about += ":*-*" + value;
  const std::string names = joined(argument.names, ",");
  return "'(" + joined(argument.names, " ") + ")'" +
         (argument.names.size() > 1 ? "{" + names + "}" : names) + in_quotes(about);
}

std::string zsh_script() {
  std::string commands;
  std::string old_commands;
  std::string options;
  for (const Completed& one : completed_commands()) {
    const std::string line =
        "      " + in_quotes(std::string(one.row->name) + ":" + std::string(one.row->summary)) +
        "\n";
    (one.program == "assay" ? commands : old_commands) += line;
    options += "    (" + one.names("|", std::string(one.program) + "\\ ") + ")\n      _arguments";
    for (const Argument& argument : one.command.arguments)
      options += " \\\n        " + zsh_argument(argument);
    options += one.command.takes_command ? " \\\n        '*:::program:_normal'\n      ;;\n"
                                         : " \\\n        '*:file:_files'\n      ;;\n";
  }
  std::string script = replaced(kZshScript, "@COMMANDS@\n", commands);
  script = replaced(std::move(script), "@OLD_COMMANDS@\n", old_commands);
  return replaced(std::move(script), "@OPTIONS@\n", options);
}

// ---- fish ------------------------------------------------------------------------------------------------------------

std::string fish_quotes(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

std::string fish_argument(const Argument& argument) {
  std::string text;
  for (const std::string_view name :
       is_option(argument) ? argument.names : std::vector<std::string_view>()) {
    if (name.starts_with("--")) {
      text += " -l " + std::string(name.substr(2));
    } else {
      text += (name.size() == 2 ? " -s " : " -o ") + std::string(name.substr(1));
    }
  }
  const std::string values = values_of(argument);
  if (argument.takes != Takes::Nothing && is_option(argument)) text += " -r";
  if (argument.takes != Takes::Nothing && !values.starts_with('@'))
    text += " -f -a " + fish_quotes(values);
  if (argument.takes != Takes::Nothing && values == "@folders")
    text += " -f -a '(__fish_complete_directories)'";
  return text;
}

std::string fish_script() {
  std::string lines;
  for (const Completed& one : completed_commands()) {
    for (const std::string_view program : one.program == "assay"
                                              ? std::vector<std::string_view>{"assay"}
                                              : std::vector<std::string_view>{"msit", "ait"}) {
      const std::string start = "complete -c " + std::string(program) + " -n '";
      lines += start + "__assay_needs_command' -f -a " + std::string(one.row->name) + " -d " +
               fish_quotes(one.row->summary) + "\n";
      for (const Argument& argument : one.command.arguments) {
        const std::string row = fish_argument(argument);
        if (!row.empty())
          lines += start + "__assay_has_command " + one.names(" ", "") + "'" + row + " -d " +
                   fish_quotes(argument.help) + "\n";
      }
    }
  }
  return replaced(kFishScript, "@LINES@\n", lines);
}

int print_completion(const std::string& shell) {
  const std::string script = shell == "zsh"    ? zsh_script()
                             : shell == "fish" ? fish_script()
                                               : bash_script();
  return print_result(script, kSame);
}

}  // namespace

Command completion_command(const Caller& caller) {
  Command command(caller,
                  "Prints the completion of commands, options and their values for a shell.");
  const auto shell = std::make_shared<std::string>("bash");
  command.add("SHELL {bash,zsh,fish}", "bash, zsh or fish; bash without one", *shell);
  command.example =
      "eval \"$(assay completion bash)\"\n  assay completion fish | source\n"
      "  assay completion zsh > ~/.zfunc/_assay";
  command.run = [shell](const ParsedArguments&) { return print_completion(*shell); };
  return command;
}

}  // namespace assay::cli
