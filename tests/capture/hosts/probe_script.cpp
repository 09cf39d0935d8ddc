// SPDX-License-Identifier: Apache-2.0
// A host that plays the acceleration library: runs a script of steps, each of which makes the calls
// of the probe interface that the real library makes there. Linked to the stub libatb.so of one
// string ABI; what a preloaded probe does with the calls is the test's matter.
//
//   usage: probe_script STEP...          stdout: one line "done" at the end, nothing else
//   The folders of tensors begin with "0_<pid>" as the real ones do, unless `pid=TEXT` was given.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "probe.h"

using atb::Probe;

namespace {

std::string process_text;  // "" for the true pid
std::string device_text = "0";
bool has_specific_dir =
    true;  // releases before CANN 8.3 have neither this question nor UpdateConfig

bool dir_is_wanted(const std::string& dir) {
  return !has_specific_dir || Probe::IsSaveTensorInSpecificDir(dir);
}

void update_config() {
  if (has_specific_dir) Probe::UpdateConfig();
}

std::string process_name() {
  return process_text.empty() ? std::to_string(getpid()) : process_text;
}

// 2x3 fp16: 1, -2, 0.5, 0, 3.25, 65504
const unsigned char kHalves[12] = {0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38,
                                   0x00, 0x00, 0x80, 0x42, 0xff, 0x7b};

struct Tensor {
  std::string dtype = "1";
  std::string dims = "2,3";
  std::vector<unsigned char> bytes{kHalves, kHalves + sizeof(kHalves)};
};

struct Node {
  std::string type;
  bool is_graph = false;
  std::vector<Node> children;
  std::vector<std::string> kernels;
  std::string param = "{\"transposeB\":true}";

  std::vector<int64_t> ids = {};
  std::string dir = {};
  bool need = false;
  std::vector<char> kernel_need = {};
  uint64_t execute_count = 0;

  std::string name() const {
    std::string text = type;
    for (int64_t id : ids) text += "_" + std::to_string(id);
    return text;
  }
};

void assign_ids(Node& node, std::vector<int64_t> ids) {
  node.ids = ids;
  for (size_t i = 0; i < node.children.size(); ++i) {
    std::vector<int64_t> child = ids;
    child.push_back(static_cast<int64_t>(i));
    assign_ids(node.children[i], child);
  }
}

void set_dirs(Node& node, const std::string& dir) {
  node.dir = dir;
  for (size_t i = 0; i < node.children.size(); ++i) {
    set_dirs(node.children[i], dir + "/" + std::to_string(i) + "_" + node.children[i].type);
  }
}

// A node's own children before the node.
void ask_need(Node& node) {
  for (Node& child : node.children) ask_need(child);
  node.need = Probe::IsTensorNeedSave(node.ids, node.type);
  node.kernel_need.clear();
  for (size_t k = 0; k < node.kernels.size(); ++k) {
    std::vector<int64_t> ids = node.ids;
    ids.push_back(static_cast<int64_t>(k));
    node.kernel_need.push_back(Probe::IsTensorNeedSave(ids, node.type) ? 1 : 0);
  }
}

std::string graph_json(const Node& node) {
  std::string nodes;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const Node& child = node.children[i];
    std::string json = graph_json(child);
    json.insert(1, "\"inTensorIds\":[0],\"outTensorIds\":[" +
                       std::string(i + 1 == node.children.size() ? "1" : "2") + "],");
    nodes += (nodes.empty() ? "" : ",") + json;
  }
  return "{\"inTensorNum\":1,\"internalTensorNum\":" +
         std::string(node.children.size() > 1 ? "1" : "0") + ",\"nodes\":[" + nodes +
         "],\"opName\":\"" + node.name() + "\",\"opType\":\"" + node.type +
         "\",\"outTensorNum\":1,\"param\":" + (node.is_graph ? "\"\"" : node.param) + "}";
}

void save_group(const std::string& dir, const char* when) {
  Probe::IsSaveTensorData();
  const Tensor in;
  Tensor out;
  out.bytes[0] = 0x01;  // other bytes than the input's
  Probe::SaveTensor("2", in.dtype, in.dims, in.bytes.data(), in.bytes.size(),
                    dir + "/" + when + "/intensor0.bin");
  Probe::SaveTensor("2", out.dtype, out.dims, out.bytes.data(), out.bytes.size(),
                    dir + "/" + when + "/outtensor0.bin");
}

// The library's two helpers that are not probe points.
std::vector<Probe::Tensor> described(const std::string& dir, bool before, const char* which) {
  Probe::Tensor tensor;
  tensor.dtype = "float16";
  tensor.format = "nd";
  tensor.shape = "2,3";
  tensor.filePath = dir + (before ? "/before/" : "/after/") + which + "0.bin";
  return {tensor};
}

void setup(Node& node, uint64_t count, bool first) {
  if (first) {
    ask_need(node);
    if (Probe::ReportOperationGraphEnable()) {
      Probe::ReportOperationGraph(node.name(), graph_json(node));
    }
  }
  node.need = Probe::IsTensorNeedSave(node.ids, node.type);
  if (Probe::IsSaveTensorDesc()) {
    set_dirs(node, device_text + "_" + process_name() + "/" + std::to_string(count) + "/" +
                       std::to_string(node.ids[0]) + "_" + node.type);
  }
  update_config();
}

void fill_tiling(Node& node, const std::vector<unsigned char>& tiling) {
  for (Node& child : node.children) fill_tiling(child, tiling);
  for (size_t k = 0; k < node.kernels.size(); ++k) {
    const std::string dir = node.dir + "/" + std::to_string(k) + "_" + node.kernels[k];
    if (node.kernel_need[k] && Probe::IsExecuteCountInRange(node.execute_count) &&
        Probe::IsSaveTiling() && dir_is_wanted(dir)) {
      Probe::SaveTiling(tiling.data(), tiling.size(), dir + "/kernel_tilingdata.bin");
    }
  }
}

void run_kernels(Node& node, uint64_t n) {
  for (size_t k = 0; k < node.kernels.size(); ++k) {
    const std::string dir = node.dir + "/" + std::to_string(k) + "_" + node.kernels[k];
    const bool need = node.kernel_need[k] != 0;
    if (need && Probe::IsExecuteCountInRange(n) && Probe::IsSaveTensorBefore() &&
        dir_is_wanted(dir)) {
      save_group(dir, "before");
    }
    if (Probe::IsOverflowCheck()) {
      Probe::ReportOverflowKernel(node.name() + ":" + node.kernels[k]);
      if (Probe::IsOverflowStop()) return;
    }
    if (Probe::ReportKernelIOTensorEnable()) {
      const bool before = Probe::IsSaveTensorBefore();
      Probe::ReportKernelIOTensor(n, node.kernels[k], "{}", described(node.dir, before, "intensor"),
                                  described(node.dir, before, "outtensor"));
    }
    if (need && Probe::IsExecuteCountInRange(n) && Probe::IsSaveTensorAfter() &&
        dir_is_wanted(dir)) {
      save_group(dir, "after");
    }
  }
}

void execute(Node& node) {
  const uint64_t n = node.execute_count;
  const auto wanted = [&] {
    return Probe::IsExecuteCountInRange(n) && node.need && dir_is_wanted(node.dir);
  };
  if (wanted() && Probe::IsSaveTensorBefore()) save_group(node.dir, "before");
  for (Node& child : node.children) execute(child);
  run_kernels(node, n);
  if (wanted() && Probe::IsSaveTensorAfter()) save_group(node.dir, "after");
  if (wanted() && Probe::IsSaveParam() && !node.is_graph) {
    Probe::SaveParam(node.param, node.dir + "/op_param.json");
  }
  if (Probe::ReportOperationIOTensorEnable() && !node.is_graph) {
    const bool before = Probe::IsSaveTensorBefore();
    Probe::ReportOperationIOTensor(n, node.name(), node.param,
                                   described(node.dir, before, "intensor"),
                                   described(node.dir, before, "outtensor"));
  }
  ++node.execute_count;
}

/// A top-level operation: Setup and Execute `runs` times.
class Operation {
 public:
  Operation(Node node, int64_t id) : node_(std::move(node)) { assign_ids(node_, {id}); }

  void run() {
    setup(node_, count_, count_ == 0);
    std::vector<unsigned char> tiling(32, 7);
    fill_tiling(node_, tiling);
    ++count_;
    if (Probe::ReportOperationStatisticEnable()) {
      Probe::ReportOperationSetupStatistic(count_, node_.name(),
                                           "totalTime:535, runnerCreateTime:120");
    }
    execute(node_);
    if (Probe::ReportOperationStatisticEnable()) {
      Probe::ReportOperationExecuteStatistic(count_, node_.name(),
                                             "totalTime:188, kernelExecuteTime:41");
    }
  }
  /// Execute without Setup: the same paths again.
  void run_again() { execute(node_); }

 private:
  Node node_;
  uint64_t count_ = 0;
};

Node linear() { return Node{"LinearOperation", false, {}, {"MatMulKernel", "AddKernel"}}; }

Node decoder() {
  const Node attention{
      "Attention", true, {Node{"NormOperation", false, {}, {"NormKernel"}}, linear()}, {}};
  return Node{
      "Decoder_layer", true, {attention, Node{"ElewiseOperation", false, {}, {"AddKernel"}}}, {}};
}

void report_model() {
  if (!atb_speed::SpeedProbe::IsReportModelTopoInfo("M")) return;
  atb_speed::SpeedProbe::ReportModelTopoInfo(
      "M",
      "{\"inTensors\":[\"M_input_0\"],\"modelName\":\"M\",\"nodes\":[{\"inTensors\":[\"M_input_0\"]"
      ","
      "\"opName\":\"WordEmbedding\",\"outTensors\":[\"M_internal_0\"]},{\"inTensors\":"
      "[\"M_internal_0\"],\"opName\":\"Decoder_layer\",\"outTensors\":[\"M_output_0\"]}],"
      "\"outTensors\":[\"M_output_0\"],\"internalTensors\":[\"M_internal_0\"]}");
}

/// A small model: an embedding, run once, and a decoder of three levels, run `runs` times.
void nested(int runs) {
  Operation embedding(Node{"WordEmbedding", false, {}, {"GatherKernel"}}, 0);
  Operation layer(decoder(), 1);
  embedding.run();
  for (int i = 0; i < runs; ++i) {
    layer.run();
    report_model();
  }
}

void save(const std::string& dtype, const std::string& dims, const void* data, uint64_t size,
          const std::string& file) {
  Probe::SaveTensor("2", dtype, dims, data, size,
                    device_text + "_" + process_name() + "/0/0_Op/after/" + file);
}

// Values on which tests and tools agree by hand.
void odd_tensors() {
  save("1", "2,3", kHalves, sizeof(kHalves), "outtensor0.bin");
  save("1", "", kHalves, 2, "outtensor1.bin");  // rank 0
  const float none = 0;
  save("0", "0,4", &none, 0, "outtensor2.bin");  // no elements
  save("0", "0,4", nullptr, 0, "outtensor3.bin");
  save("0", "4", nullptr, 16, "outtensor4.bin");
  save("0", "4", &none, 20ull << 30, "outtensor5.bin");
  save("0", "4", &none, UINT64_MAX, "outtensor6.bin");
  save("0", "1", &none, 9ull << 30, "outtensor7.bin");  // 4 bytes that claim to be 9 GiB
  save("1", std::string(60, '1'), kHalves, sizeof(kHalves), "outtensor8.bin");
  save("1\nevil=1", "2,3", kHalves, sizeof(kHalves), "outtensor9.bin");
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves), "../../outside/outtensor0.bin");
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves), "/outside/outtensor0.bin");
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves), "");
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves),
                    device_text + "_" + process_name() + "/0/0_a plug:in*/after/outtensor0.bin");
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves),
                    device_text + "_" + process_name() + "/0/0_" + std::string(300, 'x') +
                        "/after/outtensor0.bin");
  std::string deep = device_text + "_" + process_name() + "/0";
  for (int i = 0; i < 40; ++i) deep += "/" + std::to_string(i) + "_g";
  Probe::SaveTensor("2", "1", "2,3", kHalves, sizeof(kHalves), deep + "/after/outtensor0.bin");
  Probe::SaveTiling(nullptr, 32, "0_1/0/0_Op/0_K/kernel_tilingdata.bin");
  Probe::SaveTiling(reinterpret_cast<const uint8_t*>(16), 32,
                    "0_1/0/0_Op/0_K/kernel_tilingdata.bin");
  Probe::ReportOperationGraph("X_0", "{\"broken\":");
  Probe::ReportOperationGraph("", "");
  Probe::ReportOperationIOTensor(0, "=evil()", "{}", {}, {});
}

void identical_tensors() {
  std::vector<unsigned char> big(4096, 3);
  for (int i = 0; i < 3; ++i) {
    save("4", "4096", big.data(), big.size(), "outtensor" + std::to_string(i) + ".bin");
  }
  big[0] = 4;  // the file that the others lead to gets other bytes
  save("4", "4096", big.data(), big.size(), "outtensor0.bin");
}

void large_tensors(int count) {
  std::vector<unsigned char> big(1 << 20);
  for (int i = 0; i < count; ++i) {
    std::memset(big.data(), i, big.size());
    save("4", "1048576", big.data(), big.size(), "outtensor" + std::to_string(i) + ".bin");
  }
}

void threads() {
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([t] {
      Operation operation(linear(), 10 + t);
      for (int i = 0; i < 25; ++i) {
        operation.run();
        Probe::UpdateConfig();
        Probe::IsSaveTensorInSpecificDir("0_1/0/1_X");
      }
    });
  }
  for (std::thread& thread : all) thread.join();
}

int forked(void (*leave)(int)) {
  const pid_t child = fork();
  if (child == 0) {
    Operation operation(linear(), 5);
    operation.run();
    leave(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

/// Calls the probe when the host's static objects are destroyed, long after atexit handlers that
/// were registered later.
struct LateCaller {
  bool armed = false;
  ~LateCaller() {
    if (!armed) return;
    save("1", "2,3", kHalves, sizeof(kHalves), "outtensor99.bin");
    Probe::IsOverflowCheck();
  }
};
LateCaller late_caller;

// One of our threads has the probe's name and runs with every signal blocked that can be.
bool writer_thread_is_quiet() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return false;
  bool quiet = false;
  while (const dirent* entry = readdir(tasks)) {
    const std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream name_file(folder + "/comm");
    std::string name;
    std::getline(name_file, name);
    if (name != "assay-probe") continue;
    std::ifstream status(folder + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      const unsigned long long blocked = std::stoull(line.substr(7), nullptr, 16);
      const auto is_blocked = [blocked](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
      quiet = is_blocked(SIGINT) && is_blocked(SIGTERM) && is_blocked(SIGALRM) &&
              is_blocked(SIGCHLD) && is_blocked(SIGUSR1) && is_blocked(SIGXFSZ);
    }
  }
  closedir(tasks);
  return quiet;
}

// A tensor for whose copy no memory is left.
void save_without_memory() {
  std::vector<unsigned char> big(64 << 20);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  std::ifstream statm("/proc/self/statm");
  unsigned long long pages = 0;
  statm >> pages;
  const rlimit tight{static_cast<rlim_t>(pages) * 4096 + (8 << 20), before.rlim_max};
  setrlimit(RLIMIT_AS, &tight);
  save("4", "67108864", big.data(), big.size(), "outtensor0.bin");
  setrlimit(RLIMIT_AS, &before);
}

// A timer that ends the host while the main thread saves one tensor after another.
void exit_in_handler() {
  struct sigaction action{};
  action.sa_handler = [](int) { std::exit(9); };
  sigaction(SIGALRM, &action, nullptr);
  itimerval soon{};
  soon.it_value.tv_usec = 20'000;
  std::vector<unsigned char> big(4 << 20, 1);
  setitimer(ITIMER_REAL, &soon, nullptr);
  while (true) save("4", "4194304", big.data(), big.size(), "outtensor0.bin");
}

// What a library must leave as it found it.
bool host_state_is_untouched() {
  errno = 77;
  std::fesetround(FE_DOWNWARD);
  std::feclearexcept(FE_ALL_EXCEPT);
  char before[4096];
  char after[4096];
  if (getcwd(before, sizeof(before)) == nullptr) return false;
  struct sigaction handlers[2];
  sigaction(SIGTERM, nullptr, &handlers[0]);
  sigset_t masks[2];
  pthread_sigmask(SIG_BLOCK, nullptr, &masks[0]);
  const float values[4] = {1.0f, -__builtin_inff(), __builtin_nanf(""), 1e30f};
  errno = 77;
  save("0", "4", values, sizeof(values), "outtensor0.bin");
  const bool same_errno = errno == 77;
  const bool same_rounding = std::fegetround() == FE_DOWNWARD;
  const bool same_flags = std::fetestexcept(FE_ALL_EXCEPT) == 0;
  std::fesetround(FE_TONEAREST);
  sigaction(SIGTERM, nullptr, &handlers[1]);
  pthread_sigmask(SIG_BLOCK, nullptr, &masks[1]);
  return same_errno && same_rounding && same_flags && getcwd(after, sizeof(after)) != nullptr &&
         std::strcmp(before, after) == 0 && handlers[0].sa_handler == handlers[1].sa_handler &&
         std::memcmp(&masks[0], &masks[1], sizeof(masks[0])) == 0;
}

void step(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (name == "pid") process_text = value;
  if (name == "old") has_specific_dir = false;
  if (name == "device") device_text = value;
  if (name == "nested") nested(std::atoi(value.c_str()));
  if (name == "two") {  // two top-level operations with counts of their own
    Operation prefill(linear(), 0);
    Operation decode(linear(), 1);
    for (int i = 0; i < 2; ++i) prefill.run();
    for (int i = 0; i < 3; ++i) decode.run();
  }
  if (name == "again") {
    Operation operation(linear(), 0);
    operation.run();
    operation.run_again();
  }
  if (name == "odd") odd_tensors();
  if (name == "identical") identical_tensors();
  if (name == "large") large_tensors(std::atoi(value.c_str()));
  if (name == "threads") threads();
  if (name == "fork") {
    if (forked(std::exit) != 0) std::exit(3);
  }
  if (name == "fork_exit_now") {
    if (forked(_exit) != 0) std::exit(3);
  }
  if (name == "thread") {
    // It names itself once it runs; on a busy machine that may be later than now.
    bool quiet = false;
    for (int i = 0; i < 100'000 && !quiet; ++i) {
      quiet = writer_thread_is_quiet();
      std::this_thread::yield();
    }
    if (!quiet) std::exit(10);
  }
  if (name == "no_memory") save_without_memory();
  if (name == "exit_in_handler") exit_in_handler();
  if (name == "late") late_caller.armed = true;
  if (name == "state" && !host_state_is_untouched()) std::exit(4);
  if (name == "locale" && std::setlocale(LC_ALL, value.c_str()) == nullptr) std::exit(5);
  if (name == "close_all") {
    for (int fd = 3; fd < 256; ++fd) close(fd);
  }
  if (name == "steal_stderr") {  // somebody's data file becomes descriptor 2
    if (dup2(open(value.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2) != 2) std::exit(6);
  }
  if (name == "close_stdin") close(0);
  if (name == "chdir" && chdir(value.c_str()) != 0) std::exit(7);
  if (name == "file_limit") {
    const rlimit limit{static_cast<rlim_t>(std::atoi(value.c_str())), RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (name == "descriptor_limit") {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(std::atoi(value.c_str()));
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (name == "config") Probe::UpdateConfig();
  if (name == "write") {  // write=PATH:TEXT
    const size_t colon = value.find(':');
    const std::string path = value.substr(0, colon);
    const std::string temporary = path + ".new";
    if (FILE* file = std::fopen(temporary.c_str(), "w")) {
      std::fputs(value.substr(colon + 1).c_str(), file);
      std::fclose(file);
      std::rename(temporary.c_str(), path.c_str());
    }
  }
  if (name == "remove") {
    if (std::system(("rm -rf '" + value + "'").c_str()) != 0) std::exit(8);
  }
  if (name == "_exit") _exit(0);
  if (name == "pause") usleep(static_cast<useconds_t>(std::atoi(value.c_str())) * 1000);
  if (name == "kill") raise(SIGKILL);
  if (name == "abort") std::abort();
  if (name == "stale") {  // Setup and tiling of a captured graph that runs again
    for (int i = 0; i < 2; ++i) {
      Probe::ReportOperationSetupStatistic(7, "Graph_0", "totalTime:0, runnerCreateTime:0");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) step(argv[i]);
  std::puts("done");
  return 0;
}
