#include "test/support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

extern char** environ;

namespace overdrive::test {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close_write_end();
    close(read_end);
  }
  void close_write_end() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

std::vector<std::string> child_environment(const Environment& set) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) {
    if (std::strncmp(*entry, "OVERDRIVE", 9) != 0 && std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) {
      entries.emplace_back(*entry);
    }
  }
  for (const auto& [name, value] : set) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Both pipes at once, or a child that fills one would wait for ever while we read the other.
void drain(Pipe& out, std::string& out_text, Pipe& err, std::string& err_text) {
  pollfd open[] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
  std::string* texts[] = {&out_text, &err_text};
  for (int left = 2; left > 0;) {
    poll(open, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t n = read(open[i].fd, bytes, sizeof bytes);
      if (n > 0) {
        texts[i]->append(bytes, static_cast<size_t>(n));
      } else {
        open[i].fd = -1;
        --left;
      }
    }
  }
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& argv, const Environment& set) {
  std::vector<std::string> arguments = argv;
  std::vector<std::string> entries = child_environment(set);
  Pipe out, err;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    alarm(180);  // survives exec
    dup2(out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    execve(arguments[0].c_str(), pointers(arguments).data(), pointers(entries).data());
    _exit(127);
  }
  out.close_write_end();
  err.close_write_end();
  ChildResult result;
  drain(out, result.out, err, result.err);
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return result;
}

}  // namespace overdrive::test
