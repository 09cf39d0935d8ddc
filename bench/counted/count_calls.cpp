// SPDX-License-Identifier: Apache-2.0
// Runs a command and counts the system calls of all its threads and processes, which no neighbour
// on the machine changes:   count_calls RESULT COMMAND [ARGS...]
//
// RESULT gets one JSON object: calls by group, bytes that read and write calls moved, and the page
// faults of the command. Exit status: that of the command; 126: it cannot be traced or started.
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

namespace {

// Calls that wait, or of which threads make as many as the machine's load decides, count nowhere.
const char* group_of(uint64_t number) {
  switch (number) {
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
#endif
    case SYS_openat:
      return "open";
#ifdef SYS_stat
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
    case SYS_readlink:
#endif
    case SYS_fstat:
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_faccessat:
    case SYS_readlinkat:
      return "stat";
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
      return "read";
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
      return "write";
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mremap:
    case SYS_madvise:
    case SYS_brk:
      return "memory";
    case SYS_getdents64:
      return "list";
#ifdef SYS_rename
    case SYS_rename:
    case SYS_unlink:
    case SYS_mkdir:
    case SYS_link:
#endif
    case SYS_renameat:
    case SYS_renameat2:
    case SYS_unlinkat:
    case SYS_mkdirat:
    case SYS_linkat:
      return "name";
    default:
      return nullptr;
  }
}

struct Counts {
  std::map<std::string, uint64_t> calls;
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
};

bool is_group(const char* group, const char* name) {
  return group != nullptr && std::strcmp(group, name) == 0;
}

// By thread: the group of the call that it is in.
using Running = std::map<pid_t, const char*>;

void count_stop(pid_t thread, Running* running, Counts* counts) {
  __ptrace_syscall_info info{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0) return;
  if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
    const char* const group = group_of(info.entry.nr);
    (*running)[thread] = group;
    if (group != nullptr) ++counts->calls[group];
  } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval > 0) {
    const char* const group = (*running)[thread];
    const auto bytes = static_cast<uint64_t>(info.exit.rval);
    if (is_group(group, "read")) counts->read_bytes += bytes;
    if (is_group(group, "write")) counts->written_bytes += bytes;
  }
}

// Until the last process has ended. Returns the wait status of `command`.
int trace(pid_t command, Counts* counts) {
  Running running;
  int result = 0;
  for (;;) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) return result;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread == command) result = status;
      continue;
    }
    if (!WIFSTOPPED(status)) continue;
    const int signal = WSTOPSIG(status);
    const bool is_event = (status >> 16) != 0 || signal == SIGTRAP;
    const bool is_call = signal == (SIGTRAP | 0x80);
    if (is_call) count_stop(thread, &running, counts);
    // A new thread begins with a stop of its own, which is no signal of the program.
    const bool is_first = signal == SIGSTOP && running.try_emplace(thread, nullptr).second;
    const long passed_on = is_call || is_event || is_first ? 0 : signal;
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, passed_on);
  }
}

bool write_result(const char* path, const Counts& counts) {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fputs("{", file);
  for (const auto& [group, count] : counts.calls)
    std::fprintf(file, "\"%s\": %llu, ", group.c_str(), static_cast<unsigned long long>(count));
  std::fprintf(file, "\"read bytes\": %llu, \"written bytes\": %llu, \"page faults\": %ld}\n",
               static_cast<unsigned long long>(counts.read_bytes),
               static_cast<unsigned long long>(counts.written_bytes), usage.ru_minflt);
  return std::fclose(file) == 0;
}

int complain(const char* what) {
  std::fprintf(stderr, "count_calls: %s: %s\n", what, std::strerror(errno));
  return 126;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: count_calls RESULT COMMAND [ARGS...]\n", stderr);
    return 126;
  }
  const pid_t command = ::fork();
  if (command < 0) return complain("fork");
  if (command == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(complain("ptrace"));
    ::raise(SIGSTOP);
    ::execvp(argv[2], argv + 2);
    ::_exit(complain(argv[2]));
  }
  int status = 0;
  if (::waitpid(command, &status, 0) != command) return complain("waitpid");
  if (!WIFSTOPPED(status)) return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
  constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                            PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SETOPTIONS, command, nullptr, kOptions) != 0) return complain("ptrace");
  ::ptrace(PTRACE_SYSCALL, command, nullptr, 0L);
  Counts counts;
  const int result = trace(command, &counts);
  if (!write_result(argv[1], counts)) return complain(argv[1]);
  return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}
