#include "bench/support/program_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace overdrive::bench {
namespace {

using Clock = std::chrono::steady_clock;

// A file in memory: the program may write as much as it likes before anybody reads.
class Captured {
 public:
  explicit Captured(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (file_ < 0)
      throw std::runtime_error(std::string("cannot capture output: ") + std::strerror(errno) + ".");
  }
  ~Captured() { close(file_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  int file() const { return file_; }
  std::string text() const {
    std::string all(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    for (size_t done = 0; done < all.size();) {
      const ssize_t got = pread(file_, all.data() + done, all.size() - done, static_cast<off_t>(done));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return all;
  }

 private:
  const int file_;
};

std::vector<std::string> environment_of(const ProgramCall& call) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const bool is_left_out = std::any_of(call.left_out.begin(), call.left_out.end(),
                                         [&](const std::string& prefix) { return text.starts_with(prefix); });
    if (!is_left_out && !call.set.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : call.set) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t spawn(const ProgramCall& call, const posix_spawn_file_actions_t* files, short flags) {
  auto arguments = call.arguments;
  auto environment = environment_of(call);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, flags);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments.at(0).c_str(), files, &attributes,
                                 pointers_to(arguments).data(), pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    throw std::runtime_error("cannot start \"" + call.arguments[0] + "\": " + std::strerror(error) + ".");
  return pid;
}

// Waits for the end of the process, which comes by SIGALRM when the time is over.
int wait_for(pid_t pid, int seconds_at_most, rusage& usage) {
  int status = 0;
  const auto limit = Clock::now() + std::chrono::seconds(seconds_at_most);
  bool ended_by_us = false;
  for (;;) {
    const bool looks_on = seconds_at_most > 0 && !ended_by_us;
    const pid_t ended = wait4(pid, &status, looks_on ? WNOHANG : 0, &usage);
    if (ended == pid || (ended < 0 && errno != EINTR)) return status;
    if (!looks_on) continue;
    if (Clock::now() > limit) {
      kill(pid, SIGALRM);
      ended_by_us = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

std::map<std::string, std::string> preloading(const std::string& library, const std::string& others) {
  if (library.find(':') != library.npos) {
    throw std::runtime_error(library + " cannot be preloaded, because LD_PRELOAD has no way to write a colon");
  }
  const std::string more = others.empty() ? "" : ":" + others;
  if (library.find(' ') == library.npos) return {{"LD_PRELOAD", library + more}};
  const std::filesystem::path path(library);
  const char* folders = std::getenv("LD_LIBRARY_PATH");
  const std::string searched = folders != nullptr && *folders != '\0' ? std::string(":") + folders : "";
  return {{"LD_PRELOAD", path.filename().string() + more},
          {"LD_LIBRARY_PATH", path.parent_path().string() + searched}};
}

ProgramRun run_program(const ProgramCall& call) {
  const Captured out("out"), err("err");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.file(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.file(), STDERR_FILENO);
  const auto start = Clock::now();
  pid_t pid = 0;
  try {
    pid = spawn(call, &files, 0);
  } catch (...) {
    posix_spawn_file_actions_destroy(&files);
    throw;
  }
  posix_spawn_file_actions_destroy(&files);
  rusage usage{};
  const int status = wait_for(pid, call.seconds_at_most, usage);
  ProgramRun run;
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  run.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  run.peak_kib = usage.ru_maxrss;
  run.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  run.out = out.text();
  run.err = err.text();
  return run;
}

pid_t start_program(const ProgramCall& call) { return spawn(call, nullptr, POSIX_SPAWN_SETPGROUP); }

}  // namespace overdrive::bench
