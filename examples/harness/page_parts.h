// The files of page/, put into the program by CMake. Constants.
#pragma once

namespace overdrive::cli {

extern const char* const kPage;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace overdrive::cli
