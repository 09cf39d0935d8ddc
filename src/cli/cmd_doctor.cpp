// SPDX-License-Identifier: Apache-2.0
// `assay doctor`: what can be captured on this machine, and why something cannot.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

#include "base/json_text.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "cli/commands.hpp"
#include "cli/dump/probe_library.hpp"
#include "cli/output.hpp"
#include "cli/ranges.hpp"

namespace assay::cli {
namespace {

struct DoctorOptions {
  bool json = false;
  double timeout_s = 20;
};

enum class State : uint8_t { Ok, Missing, Problem };
struct Finding {
  State state = State::Ok;
  std::string subject;  // "cpu", "python"
  std::string detail;   // what was found
  std::string why;      // what it matters for; shown when it is not ok
};

std::string_view state_name(State state) {
  switch (state) {
    case State::Ok:
      return "ok";
    case State::Missing:
      return "missing";
    case State::Problem:
      return "problem";
  }
  return "";
}

// ---- the machine --------------------------------------------------------------------------------

/// Text behind "key :" or "key:" in a /proc file.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

std::string simd_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                  __builtin_cpu_supports("fma");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return v4 ? "x86-64-v4 (AVX-512)" : v3 ? "x86-64-v3 (AVX2)" : "x86-64 (SSE2)";
#elif defined(__aarch64__)
  return "aarch64 (NEON)";
#else
  return "generic";
#endif
}

Finding check_cpu() {
  utsname system{};
  ::uname(&system);
  std::string model = proc_value("/proc/cpuinfo", "model name");
  if (model.empty()) model = system.machine;
  return {
      State::Ok, "cpu",
      model + ", " + simd_level() + ", " + std::to_string(resolve_job_count(0)) + " cores usable",
      ""};
}

Finding check_memory() {
  const std::string available = proc_value("/proc/meminfo", "MemAvailable");  // "123456 kB"
  const uint64_t size_bytes = std::strtoull(available.c_str(), nullptr, 10) * 1024;
  constexpr uint64_t kComfortable = uint64_t{1} << 30;
  const bool enough = size_bytes >= kComfortable;
  return {enough ? State::Ok : State::Problem, "memory", human_bytes(size_bytes) + " available",
          enough
              ? ""
              : "a capture queues up to 268 MB before it slows the host down; lower queue_bytes"};
}

Finding check_disk() {
  struct statvfs disk{};
  char folder[4096];
  const std::string here = ::getcwd(folder, sizeof(folder)) == nullptr ? "." : folder;
  if (::statvfs(".", &disk) != 0) {
    return {State::Problem, "disk", here + ": " + std::strerror(errno),
            "captures are written below this folder by default"};
  }
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  constexpr uint64_t kComfortable = uint64_t{5} << 30;
  if (::access(".", W_OK) != 0) {
    return {State::Problem, "disk", here + " is not writable",
            "captures are written below this folder by default"};
  }
  const bool enough = free_bytes >= kComfortable;
  return {enough ? State::Ok : State::Problem, "disk", human_bytes(free_bytes) + " free at " + here,
          enough ? ""
                 : "a full dump of one step of a large model takes gigabytes; choose another "
                   "folder or statistics only"};
}

// ---- programs and libraries ---------------------------------------------------------------------

struct ChildResult {
  bool finished = false;
  int exit_status = -1;
  std::string output;
};

/// Runs a program without a shell and collects its stdout, at most 64 kB. It is killed when the
/// time is over.
ChildResult run_child(const std::vector<std::string>& arguments, double timeout_s) {
  ChildResult result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return result;
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return result;
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  bool at_end = false;
  while (!at_end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd waiting{ends[0], POLLIN, 0};
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) <= 0) break;
    char block[4096];
    const ssize_t count = ::read(ends[0], block, sizeof(block));
    at_end = count <= 0;
    if (count > 0 && result.output.size() < 65536)
      result.output.append(block, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  if (!at_end) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.finished = at_end && WIFEXITED(status);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

/// Versions by package metadata: importing torch would take seconds.
constexpr const char* kPythonProbe = R"(
import platform
try:
    from importlib.metadata import version, PackageNotFoundError
except ImportError:
    version = None
print("python", platform.python_version())
for name in ("torch", "assay-llm", "numpy", "transformers", "torch_npu"):
    try:
        print(name.replace("assay-llm", "assay"), version(name))
    except Exception:
        pass
)";

std::vector<std::string> find_pythons() {
  std::vector<std::string> candidates;
  if (const std::string active = environment("VIRTUAL_ENV"); !active.empty())
    candidates.push_back(active + "/bin/python3");
  candidates.emplace_back(".venv/bin/python3");
  const std::string path = environment("PATH");
  for (const std::string_view folder : split(path, ':')) {
    if (folder.empty()) continue;
    candidates.push_back(std::string(folder) + "/python3");
    candidates.push_back(std::string(folder) + "/python");
  }
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) != 0) continue;
    // Environments link to one program but differ in their packages, so the folder tells them
    // apart.
    char* real_folder = ::realpath(candidate.substr(0, candidate.rfind('/')).c_str(), nullptr);
    const std::string key = real_folder == nullptr ? candidate : real_folder;
    std::free(real_folder);
    if (seen.insert(key).second) found.push_back(candidate);
  }
  return found;
}

/// (2, 10) of "2.10.0+cpu"
std::pair<int, int> major_minor(const std::string& version) {
  char* end = nullptr;
  const long major = std::strtol(version.c_str(), &end, 10);
  const long minor = *end == '.' ? std::strtol(end + 1, nullptr, 10) : 0;
  return {static_cast<int>(major), static_cast<int>(minor)};
}

Finding check_python(const std::string& program, double timeout_s) {
  const ChildResult child = run_child({program, "-c", kPythonProbe}, timeout_s);
  if (!child.finished) {
    return {
        State::Problem, "python",
        program + " did not answer within " + std::to_string(static_cast<int>(timeout_s)) + " s",
        "PyTorch programs are captured inside their own Python"};
  }
  if (child.exit_status != 0) {
    return {State::Problem, "python",
            program + " ended with status " + std::to_string(child.exit_status),
            "PyTorch programs are captured inside their own Python"};
  }
  std::string detail = program + ":";
  std::string torch;
  bool has_assay = false;
  for (const std::string_view line : split(child.output, '\n')) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) continue;
    detail += (detail.ends_with(':') ? " " : ", ") + std::string(line);
    if (line.starts_with("torch ")) torch = line.substr(space + 1);
    has_assay |= line.starts_with("assay ");
  }
  if (torch.empty()) {
    return {State::Missing, "torch", detail + ", no torch",
            "models run by this Python cannot be captured by the PyTorch hooks"};
  }
  if (!has_assay) {
    return {State::Missing, "assay for torch", detail + ", no assay",
            "`pip install assay-llm` with this Python to capture its models"};
  }
  const bool fast = major_minor(torch) >= std::pair(2, 10);
  return {State::Ok, "torch", detail,
          fast ? ""
               : "torch below 2.10 has no DLPack exchange table: tensors are read through "
                 "attributes, slower"};
}

/// Folders that the dynamic linker looks into, as far as this can be known without it.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  const std::string path = environment("LD_LIBRARY_PATH");
  for (const std::string_view folder : split(path, ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  utsname system{};
  ::uname(&system);
  const std::string triplet = std::string(system.machine) + "-linux-gnu";
  for (const std::string& folder :
       {std::string("/usr/lib/") + triplet, std::string("/lib/") + triplet,
        std::string("/usr/lib64"), std::string("/usr/lib"), std::string("/usr/local/lib"),
        std::string("/usr/local/cuda/lib64")}) {
    folders.push_back(folder);
  }
  return folders;
}

std::string find_library(const std::string& file_name) {
  for (const std::string& folder : library_folders()) {
    if (exists(folder + "/" + file_name)) return folder + "/" + file_name;
  }
  return {};
}

Finding check_library(const std::string& subject, const std::string& file_name,
                      const std::string& why) {
  const std::string found = find_library(file_name);
  if (found.empty())
    return {State::Missing, subject, file_name + " is in none of the library folders", why};
  return {State::Ok, subject, found, ""};
}

Finding check_cuda() {
  const std::string driver = find_library("libcuda.so.1");
  const bool device = exists("/dev/nvidiactl");
  if (driver.empty() && !device) {
    return {State::Missing, "cuda", "no libcuda.so.1, no /dev/nvidiactl",
            "models on an NVIDIA device; nothing else needs it"};
  }
  if (driver.empty())
    return {State::Problem, "cuda", "/dev/nvidiactl without libcuda.so.1",
            "the driver's library is not installed"};
  if (!device)
    return {State::Problem, "cuda", driver + " without /dev/nvidiactl",
            "no device is visible, the driver is not loaded or a container hides it"};
  return {State::Ok, "cuda", driver, ""};
}

/// A folder named by an environment variable of a vendor's set_env.sh, and one file that proves it.
Finding check_home(const std::string& subject, const std::vector<const char*>& variables,
                   const std::string& proof, const std::string& why) {
  std::string names;
  for (const char* variable : variables) {
    names += (names.empty() ? "" : ", ") + std::string(variable);
    const std::string folder = environment(variable);
    if (folder.empty()) continue;
    if (!exists(folder)) {
      return {State::Problem, subject, std::string(variable) + "=" + folder + " does not exist",
              why};
    }
    if (!exists(folder + "/" + proof)) {
      return {State::Problem, subject, std::string(variable) + "=" + folder + " has no " + proof,
              why};
    }
    return {State::Ok, subject, std::string(variable) + "=" + folder, ""};
  }
  return {State::Missing, subject, names + " not set", why};
}

Finding check_probes() {
  const std::string folder = own_library_folder();
  if (folder.empty()) {
    return {State::Missing, "probes",
            "no lib/assay/libatb_probe.so beside this command's bin folder",
            "assay dump cannot capture ATB programs; install the wheel again"};
  }
  if (folder.find_first_of(" :") != std::string::npos) {
    return {State::Problem, "probes", folder,
            "LD_PRELOAD cannot hold a path with blanks or colons; install assay elsewhere"};
  }
  return {State::Ok, "probes", folder, ""};
}

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings = {check_cpu(), check_memory(), check_disk(), check_probes()};
  const std::vector<std::string> pythons = find_pythons();
  if (pythons.empty()) {
    findings.push_back({State::Missing, "python", "no python3 on PATH, in VIRTUAL_ENV or .venv",
                        "PyTorch programs are captured inside their own Python"});
  }
  for (const std::string& python : pythons)
    findings.push_back(check_python(python, options.timeout_s));
  findings.push_back(check_library("libgomp", "libgomp.so.1",
                                   "GNU OpenMP of the system; torch brings its own copy, llama.cpp "
                                   "builds usually need this one"));
  findings.push_back(check_cuda());
  findings.push_back(check_home("cann", {"ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"}, "lib64",
                                "programs on Ascend devices; source the toolkit's set_env.sh"));
  findings.push_back(check_home("atb", {"ATB_HOME_PATH"}, "lib/libatb.so",
                                "programs of the ATB acceleration library; source its set_env.sh"));
  return findings;
}

int run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine(options);
  Output out;
  if (options.json) {
    out.add("{\"checks\":[");
    const char* comma = "\n";
    for (const Finding& finding : findings) {
      JsonObject json;
      json.add("check", finding.subject).add("state", state_name(finding.state));
      out.add(comma + json.add("detail", finding.detail).add("why", finding.why).text());
      comma = ",\n";
    }
    out.add("\n]}\n");
  } else {
    const bool colour = use_colour(STDOUT_FILENO);
    for (const Finding& finding : findings) {
      std::string state(state_name(finding.state));
      state.resize(9, ' ');
      if (colour) {
        const char* code = finding.state == State::Ok        ? "\033[32m"
                           : finding.state == State::Missing ? "\033[33m"
                                                             : "\033[31m";
        state = code + state + "\033[0m";
      }
      std::string subject = finding.subject;
      subject.resize(std::max<size_t>(subject.size() + 1, 16), ' ');
      out.line(state + subject + printable(finding.detail));
      if (!finding.why.empty()) out.line(std::string(25, ' ') + finding.why);
    }
  }
  if (const Status written = out.finish(); !written) return report_error(written.error());
  return kSame;
}

}  // namespace

Command doctor_command(const Caller& caller) {
  Command command(caller, "Says what can be captured on this machine and why something cannot");
  const auto options = std::make_shared<DoctorOptions>();
  command.add("--json", "One JSON object for programs", options->json);
  command.add("--timeout N", "Seconds that each Python may take to answer", options->timeout_s,
              number(0.1, 600));
  command.example = "assay doctor";
  command.run = [options](const ParsedArguments&) { return run_doctor(*options); };
  return command;
}

}  // namespace assay::cli
