// SPDX-License-Identifier: Apache-2.0
// `assay twin`: reads the options and has Python do it (python/assay/twin).
#include <memory>

#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/python_driver.hpp"
#include "cli/ranges.hpp"

namespace assay::cli {
namespace {

struct TwinOptions {
  std::string model;
  std::string output;
  bool check = false;
  bool same_size = false;
  bool no_float16_limit = false;
  bool json = false;
  int layers = 4;
  int width = 128;
  int64_t seed = 0;
  std::string gguf_type = "f32";
};

std::vector<std::string> python_words(const TwinOptions& options) {
  Words words = python_driver("from assay.twin.__main__ import main", "twin", "assay help twin");
  words.emplace_back(options.check ? "check" : "make");
  if (options.json) words.emplace_back("--json");
  if (options.check) {
    words.insert(words.end(), {"--", options.model});
    return words;
  }
  words.insert(words.end(),
               {"--output=" + options.output, "--layers=" + std::to_string(options.layers),
                "--width=" + std::to_string(options.width),
                "--seed=" + std::to_string(options.seed), "--gguf-type=" + options.gguf_type});
  if (options.same_size) words.emplace_back("--same-size");
  if (options.no_float16_limit) words.emplace_back("--no-float16-limit");
  words.insert(words.end(), {"--", options.model});
  return words;
}

Status check_options(const TwinOptions& options, const ParsedArguments& given) {
  if (!options.check && options.output.empty())
    return fail(Errc::Usage, "a twin is written to a folder: -o DIR");
  for (const std::string_view name : {"--output", "--layers", "--width", "--seed", "--gguf-type",
                                      "--same-size", "--no-float16-limit"}) {
    if (options.check && given.given(name))
      return fail(Errc::Usage, std::string(name) + " is of no use with --check");
  }
  return {};
}

}  // namespace

Command twin_command(const Caller& caller) {
  Command command(caller,
                  "Writes a small random checkpoint of a model's architecture, or checks one");
  const auto options = std::make_shared<TwinOptions>();
  command.require("MODEL", "A config.json, a folder with one, or a GGUF file; with --check, a twin",
                  options->model);
  command.add("--output, -o DIR", "The folder to write", options->output);
  command.add("--check", "Load a twin, run it, and hold it against its description",
              options->check);
  command.add("--layers N", "About so many; every kind of layer stays (default: 4)",
              options->layers, whole_number(1, 1000));
  command.add("--width N", "About so wide (default: 128)", options->width, whole_number(8, 8192));
  command.add("--seed N", "Of weights and tokens (default: 0)", options->seed,
              whole_number(0, 2147483647));
  command.add("--same-size", "Keep all sizes, of a model that is small already",
              options->same_size);
  command.add("--no-float16-limit", "No activation near 65504", options->no_float16_limit);
  command.add("--gguf-type {f32,f16,q8_0,none}",
              "Of the matrices in model.gguf, where the family has a converter (default: f32)",
              options->gguf_type);
  command.add("--json", "One JSON object for programs", options->json);
  command.example = "assay twin Meta-Llama-3-8B/config.json -o tiny\nassay twin --check tiny";
  command.ends_with_next = true;
  command.check = [options](const ParsedArguments& given) {
    return check_options(*options, given);
  };
  command.run = [options](const ParsedArguments&) {
    const Result<ChildEnd> end = run_program(python_words(*options), {});
    if (end) return end->exit_status;
    return report_failure("twin", end.error(), {}, options->json, "assay doctor");
  };
  return command;
}

}  // namespace assay::cli
