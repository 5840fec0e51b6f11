// A comparison as one web page that needs nothing but itself: charts, figures, the machine and the versions.
// The page carries the whole JSON document and draws from it. A pure function of the document.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace overdrive::harness {

std::string page_of(const nlohmann::json& document);

// The files of page/, put into the program by CMake.
extern const char* const kPage;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace overdrive::harness
