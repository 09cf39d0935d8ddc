// SPDX-License-Identifier: Apache-2.0
// `assay completion SHELL`: scripts for bash, zsh and fish. What does not depend on commands is in
// completion.bash, completion.zsh and completion.fish; the lines made of the table replace @MARKS@
// in them.
#include <memory>

#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "completion_script.hpp"

namespace assay::cli {
namespace {

using Names = std::vector<std::string_view>;

/// A command under one of the names of the program.
struct Completed {
  std::string_view program;  // "assay", or "msit" for both old names
  Names names;               // "dump", "dd"
  std::string_view summary;
  Command command;
};

/// A row that stands for a command of that program; older grammars of one are none, nor is what
/// only programs start.
bool is_of(const CommandRow& row, bool old) {
  return row.is_meant == nullptr && !row.summary.empty() && (!old || row.is_old);
}

std::vector<Completed> completed_commands() {
  std::vector<Completed> found;
  for (const std::string_view program : {"assay", "msit"}) {
    const bool old = program == "msit";
    for (const CommandRow& row : all_commands()) {
      if (!is_of(row, old)) continue;
      Names names = {row.name};
      if (!row.alias.empty()) names.push_back(row.alias);
      const Caller caller =
          old ? Caller{DumpName::Msit, "msit llm " + std::string(row.name)} : assay_caller(row);
      found.push_back({program, std::move(names), row.summary, row.make(caller)});
    }
  }
  return found;
}

/// The commands of a program; of an old one with their aliases.
std::string names_of(std::string_view program) {
  const bool old = program == "msit";
  Names names;
  for (const CommandRow& row : all_commands()) {
    if (!is_of(row, old)) continue;
    names.push_back(row.name);
    if (old && !row.alias.empty()) names.push_back(row.alias);
  }
  return joined(names, " ");
}

/// What completes a value: words, "@folders" or "@files"; "" where there is none.
std::string values_of(const Argument& argument) {
  if (argument.takes == Takes::Nothing) return {};
  if (!argument.choices.empty()) return joined(argument.choices, " ");
  if (argument.word == "COMMAND") return names_of("assay");
  for (const std::string_view folder : {"DIR", "FOLDER", "DUMPS", "OUTPUT", "OUTPUT_DIR"}) {
    if (argument.metavar == folder) return "@folders";
  }
  return "@files";
}

std::string replaced(std::string text, std::string_view mark, const std::string& lines) {
  return text.replace(text.find(mark), mark.size(), lines);
}

/// "(assay\ dump|assay\ dd)": the pattern of a command in a `case` of bash and zsh.
std::string pattern_of(const Completed& one) {
  std::string pattern;
  for (const std::string_view name : one.names)
    pattern += (pattern.empty() ? "(" : "|") + std::string(one.program) + "\\ " + std::string(name);
  return pattern + ")";
}

/// With a backslash in front of each of the `special` characters.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// ---- bash ---------------------------------------------------------------------------------------

/// "--type npy,bin -t npy,bin --force - -h -": each option, then its values; WORD stands for what
/// has no name.
std::string bash_script() {
  std::string table;
  for (const Completed& one : completed_commands()) {
    std::string words;
    for (const Argument& argument : one.command.arguments) {
      std::string values = values_of(argument);
      for (char& c : values) c = c == ' ' ? ',' : c;
      for (const std::string_view name : argument.is_option() ? argument.names : Names{"WORD"})
        words += " " + std::string(name) + " " + (values.empty() ? "-" : values);
    }
    table += "    " + pattern_of(one) + " echo \"" + words.substr(1) + "\" ;;\n";
  }
  std::string script = replaced(kBashScript, "@TABLE@\n", table);
  script = replaced(std::move(script), "@COMMANDS@", names_of("assay"));
  return replaced(std::move(script), "@OLD_COMMANDS@", names_of("msit"));
}

// ---- zsh ----------------------------------------------------------------------------------------

/// '(--output -o)'{--output,-o}'[Folder for the report]:value:_files -/'
std::string zsh_argument(const Argument& argument) {
  std::string values = values_of(argument);
  values = values == "@folders" ? "_files -/" : values == "@files" ? "_files" : "(" + values + ")";
  if (!argument.is_option())
    return in_shell_quotes(":" + std::string(argument.word) + ":" + values);
  std::string about = "[" + escaped(argument.help, "[]:\\") + "]";
  if (argument.takes == Takes::ZeroOrOne) about += ":";
  if (argument.takes == Takes::OneOrMore || argument.takes == Takes::ZeroOrMore) about += ":*-*";
  if (argument.takes != Takes::Nothing) about += ":value:" + values;
  const std::string names = joined(argument.names, ",");
  return "'(" + joined(argument.names, " ") + ")'" +
         (argument.names.size() > 1 ? "{" + names + "}" : names) + in_shell_quotes(about);
}

std::string zsh_script() {
  std::string commands;
  std::string old_commands;
  std::string options;
  for (const Completed& one : completed_commands()) {
    (one.program == "assay" ? commands : old_commands) +=
        "      " + in_shell_quotes(std::string(one.names[0]) + ":" + std::string(one.summary)) +
        "\n";
    options += "    " + pattern_of(one) + "\n      _arguments";
    for (const Argument& argument : one.command.arguments)
      options += " \\\n        " + zsh_argument(argument);
    options += one.command.takes_command ? " \\\n        '*:::program:_normal'\n      ;;\n"
                                         : " \\\n        '*:file:_files'\n      ;;\n";
  }
  std::string script = replaced(kZshScript, "@COMMANDS@\n", commands);
  script = replaced(std::move(script), "@OLD_COMMANDS@\n", old_commands);
  return replaced(std::move(script), "@OPTIONS@\n", options);
}

// ---- fish ---------------------------------------------------------------------------------------

std::string fish_quotes(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

/// " -l output -s o -r -f -a '(__fish_complete_directories)'"
std::string fish_argument(const Argument& argument) {
  std::string text;
  for (const std::string_view name : argument.is_option() ? argument.names : Names()) {
    const std::string_view kind = name.starts_with("--") ? " -l "
                                  : name.size() == 2     ? " -s "
                                                         : " -o ";
    text += std::string(kind) + std::string(name.substr(kind == " -l " ? 2 : 1));
  }
  const std::string values = values_of(argument);
  if (!values.empty() && argument.is_option()) text += " -r";
  if (values == "@folders") text += " -f -a '(__fish_complete_directories)'";
  if (!values.empty() && !values.starts_with('@')) text += " -f -a " + fish_quotes(values);
  return text;
}

std::string fish_script() {
  std::string lines;
  for (const Completed& one : completed_commands()) {
    for (const std::string_view program :
         one.program == "assay" ? Names{"assay"} : Names{"msit", "ait"}) {
      const std::string start = "complete -c " + std::string(program) + " -n '";
      lines += start + "__assay_needs_command' -f -a " + std::string(one.names[0]) + " -d " +
               fish_quotes(one.summary) + "\n";
      for (const Argument& argument : one.command.arguments) {
        if (const std::string row = fish_argument(argument); !row.empty())
          lines += start + "__assay_has_command " + joined(one.names, " ") + "'" + row + " -d " +
                   fish_quotes(argument.help) + "\n";
      }
    }
  }
  return replaced(kFishScript, "@LINES@\n", lines);
}

}  // namespace

Command completion_command(const Caller& caller) {
  Command command(caller,
                  "Prints the completion of commands, options and their values for a shell.");
  const auto script = std::make_shared<std::string (*)()>(bash_script);
  command.add("SHELL {bash,zsh,fish}", "bash, zsh or fish; bash without one",
              chosen(*script, {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}}));
  command.example =
      "eval \"$(assay completion bash)\"\n  assay completion fish | source\n"
      "  assay completion zsh > ~/.zfunc/_assay";
  command.run = [script](const ParsedArguments&) { return print_result((*script)(), kSame); };
  return command;
}

}  // namespace assay::cli
