#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace overdrive::bench {

double seconds_of(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::vector<double>> time_in_turns(const std::vector<Call>& calls, int rounds,
                                               double sample_seconds) {
  std::vector<int64_t> repeats;
  for (const Call& call : calls) {
    call();  // warms up
    repeats.push_back(std::max<int64_t>(1, static_cast<int64_t>(sample_seconds / seconds_of(call))));
  }
  std::vector<std::vector<double>> seconds(calls.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const size_t turn = round % 2 == 0 ? i : calls.size() - 1 - i;
      const double all = seconds_of([&] {
        for (int64_t n = 0; n < repeats[turn]; ++n) calls[turn]();
      });
      seconds[turn].push_back(all / static_cast<double>(repeats[turn]));
    }
  }
  return seconds;
}

}  // namespace overdrive::bench
