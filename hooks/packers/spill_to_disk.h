// Saved tensors go to a file and come back from it. One thread per hook writes; a tensor stays in memory until
// its bytes are in the file, so writing goes on beside the forward. Any thread may pack and unpack.
//
// The file belongs to the graph whose tensors it holds, is readable by its owner alone and has no name, so
// nothing is left after a crash. A tensor that is changed after it was saved is an error when it is unpacked,
// in every scope: the change may have come in the middle of the write. When a write fails, its tensor stays in
// memory and can be unpacked; the next pack throws an error that names the file.
#pragma once

#include "hooks/interface/saved_tensor_hooks.h"

#include <cstdint>
#include <string>

namespace overdrive::hooks {

struct SpillOptions {  // The folder, and limits of memory.
  // A folder; empty: TMPDIR, or /tmp where that is not set.
  std::string folder = {};
  // Smaller tensors stay in memory: a system call costs more than they hold.
  int64_t min_bytes = 4096;
  // Bytes that may wait to be written; a pack beyond them waits until there is room.
  int64_t max_waiting_bytes = int64_t{256} << 20;
  // The system keeps a copy of a file in memory (its page cache) until it has another use for that memory,
  // which suits most programs. With true each tensor is flushed to the disk and no copy stays: memory is free
  // at once and for certain, as where a container's limit counts cached pages, and each tensor comes from the
  // disk again.
  bool drop_cached = false;
};

OVERDRIVE_API HooksPtr spill_to_disk(SpillOptions options = {});  // Throws where the folder takes no file.

}  // namespace overdrive::hooks
