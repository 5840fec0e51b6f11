#include "inspect/errors/call_stack.h"

#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace overdrive::inspect {
namespace {
using torch::unwind::Frame;

template <size_t size>
bool has_one_of(std::string_view text, const std::array<std::string_view, size>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != text.npos; });
}

// The dispatcher with its kernels, this library, and what runs below main() or a thread's function.
bool is_of_the_program(void* address) {
  constexpr std::array<std::string_view, 8> kOthers = {"libtorch", "libc10",    "liboverdrive", "libc.so",
                                                       "libc-",    "libstdc++", "libpthread",   "ld-linux"};
  const auto library = torch::unwind::libraryFor(address);
  if (!library.has_value()) return false;
  const std::string_view path = library->first, name = path.substr(path.rfind('/') + 1);
  return std::none_of(kOthers.begin(), kOthers.end(),
                      [&](std::string_view other) { return name.starts_with(other); });
}

// Functions of LibTorch's headers and of the standard library's that the compiler put into the program, and the
// start of the process, which has no file.
bool is_worth_a_line(const Frame& frame) {
  constexpr std::array<std::string_view, 5> kHeaders = {"/include/torch/", "/include/ATen/", "/include/c10/",
                                                        "/include/overdrive/", "/c++/"};
  return frame.funcname != "_start" && !has_one_of(frame.filename, kHeaders);
}

// Not of the packages torch and overdrive, and not of the interpreter's start.
bool is_of_the_python_program(const Frame& frame) {
  constexpr std::array<std::string_view, 12> kOthers = {
      "-packages/torch/",    "/python/torch/",         "<frozen ",          "/overdrive/__",
      "/overdrive/native/",  "/overdrive/values/",     "/overdrive/reads/", "/overdrive/numbers/",
      "/overdrive/effects/", "/overdrive/optimizers/", "/overdrive/step/",  "/overdrive/tools/"};
  return !has_one_of(frame.filename, kOthers);
}

bool is_known(const Frame& frame) {
  return !frame.filename.empty() && frame.filename.find("??") == std::string::npos;
}

// In this process where its reader understands the debug information, else by the program addr2line.
std::vector<Frame> frames_of(const std::vector<void*>& addresses) {
  std::vector<Frame> frames;
  try {
    frames = torch::unwind::symbolize(addresses, torch::unwind::Mode::fast);
  } catch (const std::exception&) {
  }
  if (std::any_of(frames.begin(), frames.end(), is_known)) return frames;
  return torch::unwind::symbolize(addresses, torch::unwind::Mode::addr2line);
}

std::vector<Frame> frames_of(torch::CapturedTraceback& python) {
  const torch::SymbolizedTracebacks named = torch::symbolize({&python});
  std::vector<Frame> frames;
  for (const uint64_t index : named.tracebacks.at(0)) frames.push_back(named.all_frames.at(index));
  return frames;
}

std::string lines_of(const std::vector<Frame>& frames, bool (*wanted)(const Frame&)) {
  const bool none = std::none_of(frames.begin(), frames.end(), wanted);
  std::string text;
  for (const Frame& frame : frames) {
    if (!none && !wanted(frame)) continue;
    text += "  " + frame.funcname;
    if (is_known(frame)) text += " at " + frame.filename + ":" + std::to_string(frame.lineno);
    text += "\n";
  }
  return text;
}

// Whether the calling thread may hold the GIL. Python's function is looked up by name: no header of Python's is
// used.
bool is_of_python() {
  using GetThisThreadState = void* (*)();
  static const auto kGet =
      reinterpret_cast<GetThisThreadState>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  return kGet != nullptr && kGet() != nullptr;
}

}  // namespace

CallStack CallStack::here(Language language) {
  CallStack stack;
  if (language == Language::kAny && is_of_python()) {
    stack.python_ = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
    return stack;
  }
  try {
    stack.addresses_ = torch::unwind::unwind();
  } catch (const std::exception&) {  // not on this processor
  }
  return stack;
}

std::string CallStack::text() const {
  if (python_ != nullptr) return lines_of(frames_of(*python_), &is_of_the_python_program);
  if (addresses_.empty()) return "";
  std::vector<void*> own;
  std::copy_if(addresses_.begin(), addresses_.end(), std::back_inserter(own), is_of_the_program);
  return lines_of(frames_of(own.empty() ? addresses_ : own), &is_worth_a_line);
}

}  // namespace overdrive::inspect
