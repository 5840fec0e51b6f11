#include "inspect/forward_frames.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace overdrive::inspect {
namespace {
using torch::unwind::Frame;

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
  const std::string_view file = frame.filename;
  return frame.funcname != "_start" &&
         std::none_of(kHeaders.begin(), kHeaders.end(),
                      [&](std::string_view part) { return file.find(part) != file.npos; });
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

std::string lines_of(const std::vector<Frame>& frames) {
  std::string text;
  for (const Frame& frame : frames) {
    text += "  " + frame.funcname;
    if (is_known(frame)) text += " at " + frame.filename + ":" + std::to_string(frame.lineno);
    text += "\n";
  }
  return text;
}

}  // namespace

std::unique_ptr<torch::autograd::AnomalyMetadata> ForwardFrames::make() {
  return std::make_unique<ForwardFrames>();
}

void ForwardFrames::store_stack() {
  try {
    addresses_ = torch::unwind::unwind();
  } catch (const std::exception&) {  // not on this processor: the host has another way
    AnomalyMetadata::store_stack();
  }
}

void ForwardFrames::assign_parent(const base::NodePtr& parent) {
  parent_ = parent;
  AnomalyMetadata::assign_parent(parent);
}

std::string ForwardFrames::text() const {
  if (addresses_.empty()) return "";
  std::vector<void*> own;
  std::copy_if(addresses_.begin(), addresses_.end(), std::back_inserter(own), is_of_the_program);
  std::vector<Frame> frames = frames_of(own.empty() ? addresses_ : own), short_list;
  std::copy_if(frames.begin(), frames.end(), std::back_inserter(short_list), is_worth_a_line);
  return lines_of(short_list.empty() ? frames : short_list);
}

void ForwardFrames::print_stack(const std::string& node_name) {
  if (addresses_.empty()) return AnomalyMetadata::print_stack(node_name);
  TORCH_WARN("Error detected in ", node_name, ". Traceback of forward call that caused the error:\n", text());
  for (auto parent = parent_; parent != nullptr;) {
    auto* of_parent = dynamic_cast<ForwardFrames*>(parent->metadata());
    TORCH_WARN("\n\nPrevious calculation was induced by ", parent->name(),
               ". Traceback of forward call that induced the previous calculation:\n",
               of_parent != nullptr ? of_parent->text() : "  (not recorded)\n");
    parent = of_parent != nullptr ? of_parent->parent_ : nullptr;
  }
}

}  // namespace overdrive::inspect
