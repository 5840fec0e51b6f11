#include "examples/harness/launch.h"

#include "bench/support/program_run.h"
#include "examples/harness/ending.h"
#include "examples/trainers/process_group.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

namespace overdrive::harness {

void end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(30);

struct Child {
  int rank = 0;
  pid_t pid = 0;
  bool ended = false;
};

// The arguments of all ranks but 0: no files of their own.
std::vector<std::string> quiet_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool writes = arguments[i] == "--save" || arguments[i] == "--json";
    if (writes) ++i;
    const bool joined = !writes && (arguments[i].starts_with("--save=") || arguments[i].starts_with("--json="));
    if (!writes && !joined) kept.push_back(arguments[i]);
  }
  if (std::find(kept.begin(), kept.end(), "--quiet") == kept.end()) kept.emplace_back("--quiet");
  return kept;
}

class Children {
 public:
  Children(const std::vector<std::string>& arguments, int world, uint16_t port) {
    for (int rank = 0; rank < world; ++rank) {
      auto own = rank == 0 ? arguments : quiet_arguments(arguments);
      own.insert(own.end(), {"--rank", std::to_string(rank), "--port", std::to_string(port)});
      own.insert(own.begin(), "/proc/self/exe");
      // A process group of its own: the terminal's Ctrl-C is for us, and we pass it on once.
      children_.push_back({.rank = rank, .pid = bench::start_program({.arguments = own})});
    }
  }
  ~Children() { signal_all(SIGKILL); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  int wait() {
    bool passed_on = false, failed = false;
    Clock::time_point limit = Clock::time_point::max();
    while (std::any_of(children_.begin(), children_.end(), [](const Child& child) { return !child.ended; })) {
      for (Child& child : children_) {
        if (!child.ended && !look_after(child) && !failed) {
          failed = true;
          limit = Clock::now() + kPatience;
        }
      }
      if (interrupted() && !passed_on) {
        signal_all(SIGINT);
        passed_on = true;
      }
      if (Clock::now() > limit) {
        std::fprintf(stderr, "overdrive: the other ranks did not end by themselves; ending them.\n");
        signal_all(SIGKILL);
        limit = Clock::time_point::max();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return failed ? kWrongCall : kFine;
  }

 private:
  // False when it has just ended and not well.
  static bool look_after(Child& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) != child.pid) return true;
    child.ended = true;
    if (WIFSIGNALED(status)) {
      std::fprintf(stderr, "overdrive: rank %d (process %d) was ended by signal %d (%s).\n", child.rank,
                   child.pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
      return false;
    }
    return WEXITSTATUS(status) == kFine;  // else it has said why
  }

  void signal_all(int signal) const {
    for (const Child& child : children_) {
      if (!child.ended) kill(child.pid, signal);
    }
  }

  std::vector<Child> children_;
};

}  // namespace

int launch(const std::vector<std::string>& arguments, int world) {
  stop_on_interrupt();
  const trainers::StoreServer store;
  return Children(arguments, world, store.port()).wait();
}

}  // namespace overdrive::harness
