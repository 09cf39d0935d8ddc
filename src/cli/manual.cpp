// SPDX-License-Identifier: Apache-2.0
// `assay man COMMAND`: the help of a command as a manual page (roff, man(7)); on a terminal as text.
#include <unistd.h>

#include <memory>

#include "base/ascii.hpp"
#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"

namespace assay::cli {
namespace {

/// A line in which nothing is a request or an escape.
std::string roff_text(std::string_view line) {
  std::string out = line.starts_with('.') || line.starts_with('\'') ? "\\&" : "";
  for (const char c : line) {
    if (c == '\\') {
      out += "\\e";
    } else {
      if (c == '-') out += '\\';
      out += c;
    }
  }
  return out + "\n";
}

/// Paragraphs; lines that begin with a blank stay as they are typed.
std::string roff_paragraphs(std::string_view text) {
  std::string out;
  bool typed = false;
  for (const std::string_view line : split(text, '\n')) {
    if (typed != line.starts_with(' ')) out += typed ? ".EE\n" : ".EX\n";
    typed = line.starts_with(' ');
    out += line.empty() ? ".PP\n" : roff_text(line);
  }
  return out + (typed ? ".EE\n" : "");
}

std::string manual_page(const std::string& name, std::string_view summary, const HelpPage& page) {
  std::string text = ".TH " + upper_case(name) + " 1 \"\" \"assay " ASSAY_VERSION "\" \"Assay\"\n" +
                     ".SH NAME\n" + name + " \\- " + roff_text(summary) + ".SH SYNOPSIS\n" +
                     roff_text(page.usage) + ".SH DESCRIPTION\n" + roff_text(page.description);
  for (const auto& [title, entries] : page.groups) {
    text += ".SH " + upper_case(title) + "\n";
    for (const HelpPage::Entry& entry : entries)
      text += ".TP\n.B " + roff_text(entry.names) + roff_text(entry.text);
  }
  return text + ".SH NOTES\n" + roff_paragraphs(page.epilogue);
}

struct Manual {
  std::string name;  // "assay-compare"
  std::string text;
};

Manual manual_of(const CommandRow* row) {
  if (row == nullptr)
    return {"assay", manual_page("assay", "names the first wrong operator", commands_page())};
  const std::string name = "assay-" + std::string(row->name);
  return {name, manual_page(name, row->summary, help_page(row->make(assay_caller(*row))))};
}

int write_all_manuals(const std::string& folder) {
  std::vector<Manual> manuals = {manual_of(nullptr)};
  for (const CommandRow& row : all_commands()) {
    if (!row.summary.empty()) manuals.push_back(manual_of(&row));
  }
  if (const Status made = make_directories(folder); !made) return report_error(made.error());
  for (const Manual& manual : manuals) {
    const Status written =
        write_file_atomically(folder + "/" + manual.name + ".1", as_bytes(manual.text));
    if (!written) return report_error(written.error());
  }
  return kSame;
}

struct ManualRequest {
  std::string command;
  std::string folder;
};

int run_man(const ManualRequest& request) {
  if (!request.folder.empty()) return write_all_manuals(request.folder);
  const CommandRow* row = find_command(request.command);
  if (row == nullptr && !request.command.empty()) return unknown_command(request.command);
  // Nobody reads roff on a screen.
  if (::isatty(STDOUT_FILENO) == 1)
    return print_help(row == nullptr ? commands_page() : help_page(row->make(assay_caller(*row))));
  return print_result(manual_of(row).text, kSame);
}

}  // namespace

Command man_command(const Caller& caller) {
  Command command(caller, "Prints the manual page of a command.");
  const auto request = std::make_shared<ManualRequest>();
  command.add("COMMAND", "The command; the page of assay without one", request->command);
  command.add("--output, -o DIR", "Write the pages of all commands into this folder",
              request->folder);
  command.example = "assay man compare | man -l -\n  assay man -o ~/.local/share/man/man1";
  command.run = [request](const ParsedArguments&) { return run_man(*request); };
  return command;
}

}  // namespace assay::cli
