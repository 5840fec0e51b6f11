// Finds and reads the files of this folder. No state but the folder's name, which is set once
// before anything is read.
#pragma once

#include <string>

namespace overdrive::data {

// Reads from `folder` from now on. Without it: share/overdrive/data of the installation that the
// program belongs to, else the folder of the source tree.
void set_folder(const std::string& folder);

// The bytes of a file. Throws c10::Error naming the file when it cannot be read.
std::string read_file(const std::string& name);

}  // namespace overdrive::data
