// What the parts of the fake accelerator share: its allocator and how its kernels are reported. Not
// for tests.
#pragma once

#include "test/support/fake/accelerator.h"
#include "test/support/fake/happens_before.h"

namespace overdrive::test::fake {

HappensBefore& checker();
c10::Allocator& allocator();
// Whether it is the beginning of a block of the host's memory that the accelerator locked.
bool is_page_locked(const void* memory);

// Tells the watcher of on_kernel(). Before the work, without a lock.
void announce(const std::string& op, int device);
// Tells the checker. After the work, when what it made is known.
void account(const std::string& op, int device, const std::vector<const void*>& reads,
             const std::vector<const void*>& writes);
int stream_number(const c10::Stream& stream);

}  // namespace overdrive::test::fake
