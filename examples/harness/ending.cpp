#include "examples/harness/ending.h"

#include <csignal>
#include <cstdio>

namespace overdrive::harness {

namespace {

volatile std::sig_atomic_t stop_asked = 0;

// Made before the handler that uses it.
CancelToken& token() {
  static CancelToken of_ctrl_c;
  return of_ctrl_c;
}

struct Interrupted {};

}  // namespace

CancelToken interrupt_token() { return token(); }

void stop_on_interrupt() {
  token();
  struct sigaction action {};
  action.sa_handler = [](int) {
    stop_asked = 1;
    token().cancel();
  };
  action.sa_flags = SA_RESETHAND;  // the second Ctrl-C finds the default again
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return stop_asked != 0; }

void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

void run_until_interrupt(const std::function<void()>& work) {
  stop_on_interrupt();
  try {
    work();
  } catch (const Interrupted&) {  // ending() says it
  }
}

int ending(bool difference_found) {
  if (interrupted()) std::fputs("overdrive: stopped; the results are those until then.\n", stderr);
  if (difference_found) return kDifferenceFound;
  return interrupted() ? kStopped : kFine;
}

}  // namespace overdrive::harness
