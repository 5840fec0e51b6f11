// How a command ends: its exit status, wrong calls, and Ctrl-C for whatever takes long. The signal handler only
// sets flags; everything else is the main thread's.
#pragma once

#include "inspect/cancel.h"

#include <functional>
#include <stdexcept>

namespace overdrive::harness {

constexpr int kFine = 0;
constexpr int kDifferenceFound = 1;
constexpr int kWrongCall = 2;
constexpr int kStopped = 130;  // by Ctrl-C, as a shell says it

// The user asked for something that cannot be done: one line, exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// From here on Ctrl-C asks the work to stop after the step at hand; a second one ends the process.
void stop_on_interrupt();
bool interrupted();
// Cancelled by the same Ctrl-C, for work whose backwards need not come to their end.
CancelToken interrupt_token();

// Runs work that ends early where it calls check_interrupt() after Ctrl-C.
void run_until_interrupt(const std::function<void()>& work);
void check_interrupt();

// The exit status of a comparison or measurement. Says on stderr when it was stopped.
int ending(bool difference_found = false);

}  // namespace overdrive::harness
