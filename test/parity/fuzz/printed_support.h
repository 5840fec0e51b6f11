// What a printed program starts and ends with. Text only; see print_cpp.
#pragma once

namespace overdrive::fuzz {

const char* printed_includes();
// leaf.h and functions.h, put in by the build.
const char* printed_definitions();
const char* printed_support();
const char* printed_main();

}  // namespace overdrive::fuzz
