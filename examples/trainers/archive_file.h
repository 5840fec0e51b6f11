// A look at a file of torch::save() or TorchScript before LibTorch reads it: such a file is a zip archive, and
// its directory says how much memory the reading takes. Any thread. Leaves the content to LibTorch, which
// checks the CRC of each part.
#pragma once

#include <string>

namespace overdrive::trainers {

// Throws c10::Error with the file and the place when the file is no regular file, when its directory is
// damaged, or when a part claims more bytes than the file can hold.
// `what` is the word for such a file in the error.
void check_archive(const std::string& path, const std::string& what);

}  // namespace overdrive::trainers
