// Counts the bytes that CPU tensors take, by standing in front of LibTorch's allocator. Put in
// once and left there: memory may outlive any scope. Any thread may allocate; read the figures
// while no other thread does.
#pragma once

#include <cstdint>

namespace overdrive::fuzz {

void count_memory();
// Bytes taken now, and the most there were since the last reset_peak().
int64_t bytes_now();
int64_t bytes_peak();
void reset_peak();

}  // namespace overdrive::fuzz
