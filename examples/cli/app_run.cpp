#include "examples/cli/app_run.h"

#include "examples/cli/argument_pointers.h"
#include "examples/cli/cli.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace overdrive::cli {

namespace {

// A file in memory: the program may write as much as it likes before anybody reads.
class Captured {
 public:
  explicit Captured(const char* name) : file_(memfd_create(name, MFD_CLOEXEC)) {
    if (file_ < 0)
      throw UsageError(std::string("cannot capture what a program prints: ") + std::strerror(errno) + ".");
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

std::vector<std::string> changed_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : changes) all.push_back(name + "=" + value);
  return all;
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

AppRun run_app(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& changes) {
  const Captured out("out"), err("err");
  auto environment = changed_environment(changes);
  auto own_arguments = arguments;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.file(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.file(), STDERR_FILENO);
  pid_t pid = 0;
  const auto start = std::chrono::steady_clock::now();
  const int error = posix_spawnp(&pid, arguments.at(0).c_str(), &files, nullptr,
                                 pointers_to(own_arguments).data(), pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw UsageError("cannot start \"" + arguments[0] + "\": " + std::strerror(error) + ".");
  int status = 0;
  rusage usage{};
  while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  AppRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  run.peak_kib = usage.ru_maxrss;
  run.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  run.out = out.text();
  run.err = err.text();
  return run;
}

}  // namespace overdrive::cli
