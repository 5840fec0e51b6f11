// What a hand-over between two threads costs without any engine: a mutex and a condition variable. Starts a
// thread and joins it.
#pragma once

namespace overdrive::bench {

// Median nanoseconds of one hand-over, of `rounds` rounds of 200.
double bare_hand_over_ns(int rounds);

}  // namespace overdrive::bench
