// A web page that needs nothing but itself: it carries its data as JSON and draws from it. Pure functions of
// their arguments, without LibTorch. The looks of all pages of the project are in style.css.
#pragma once

#include <string>

namespace overdrive::inspect {

// The files of this folder, put into the library by CMake.
extern const char* const kPageFrame;
extern const char* const kPageStyle;
extern const char* const kGraphStyle;
extern const char* const kGraphScript;
extern const char* const kNumbersStyle;  // and script: before those of memory, profile and lanes
extern const char* const kNumbersScript;
extern const char* const kMemoryStyle;
extern const char* const kMemoryScript;
extern const char* const kProfileStyle;
extern const char* const kProfileScript;
extern const char* const kLanesStyle;
extern const char* const kLanesScript;

// The page, with `json` as its data. `style` follows the style of all pages.
std::string page_of(const std::string& title, const std::string& style, const std::string& script,
                    const std::string& json);

}  // namespace overdrive::inspect
