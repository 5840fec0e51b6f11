#include "inspect/look_c_api.h"

#include "engine/base/c_error.h"
#include "inspect/cost/memory_timeline.h"
#include "inspect/cost/profile.h"
#include "inspect/graph/graph.h"

#include <cstdio>
#include <sstream>
#include <string>
#include <utility>

struct overdrive_graph {
  overdrive::inspect::Graph graph;
};

struct overdrive_profile {
  overdrive::inspect::Profile profile;
};

struct overdrive_memory {
  overdrive::inspect::MemoryTimeline timeline;
};

namespace {

using overdrive::base::without_throwing;

// The tensor is alive at its owner, and gets one more owner.
at::Tensor tensor_at(const void* address) {
  TORCH_CHECK(address != nullptr, "a tensor is missing.");
  auto* impl = static_cast<c10::TensorImpl*>(const_cast<void*>(address));
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(impl));
}

template <typename Value>
std::string printed_text(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

[[noreturn]] void refuse(const std::string& format, const char* known) {
  TORCH_CHECK(false, "the format is \"", format, "\", but must be ", known, ".");
}

// `text` makes the text of a format.
template <typename Text>
int write(const char* format, char* buffer, size_t size, Text&& text) {
  return without_throwing(-1, [&] {
    const std::string whole = text(std::string(format != nullptr ? format : ""));
    return std::snprintf(buffer, size, "%s", whole.c_str());
  });
}

// A step that fails ends the measurement as an exception does.
std::function<void()> called(overdrive_step step, void* context) {
  TORCH_CHECK(step != nullptr, "the step is missing.");
  return [=] { TORCH_CHECK(step(context) != 0, "the step failed."); };
}

}  // namespace

extern "C" {

overdrive_graph* overdrive_graph_read(const void* const* tensors, size_t num_tensors, const void* const* leaves,
                                      const char* const* names, size_t num_leaves) {
  return without_throwing<overdrive_graph*>(nullptr, [&] {
    std::vector<at::Tensor> roots;
    for (size_t i = 0; i < num_tensors; ++i) roots.push_back(tensor_at(tensors[i]));
    overdrive::inspect::LeafNames named;
    for (size_t i = 0; i < num_leaves; ++i) named.emplace_back(names[i], tensor_at(leaves[i]));
    return new overdrive_graph{overdrive::inspect::graph(roots, named)};
  });
}

int overdrive_graph_add_times(overdrive_graph* graph, const char* trace_file) {
  return without_throwing(-1, [&] {
    TORCH_CHECK(trace_file != nullptr, "the file of the trace is missing.");
    return static_cast<int>(add_times(graph->graph, trace_file));
  });
}

int overdrive_graph_text(const overdrive_graph* graph, const char* format, const char* title, char* buffer,
                         size_t size) {
  return write(format, buffer, size, [&](const std::string& wanted) {
    if (wanted == "json") return to_json(graph->graph);
    if (wanted == "dot") return to_dot(graph->graph);
    if (wanted == "html") return to_html(graph->graph, title != nullptr ? title : "backward");
    refuse(wanted, "\"json\", \"dot\" or \"html\"");
  });
}

void overdrive_graph_free(overdrive_graph* graph) { delete graph; }

overdrive_profile* overdrive_profile_step(overdrive_step step, void* context) {
  return without_throwing<overdrive_profile*>(
      nullptr, [&] { return new overdrive_profile{overdrive::inspect::profile(called(step, context))}; });
}

int overdrive_profile_text(const overdrive_profile* profile, const char* format, char* buffer, size_t size) {
  return write(format, buffer, size, [&](const std::string& wanted) {
    if (wanted == "json") return to_json(profile->profile);
    if (wanted == "text") return printed_text(profile->profile);
    refuse(wanted, "\"json\" or \"text\"");
  });
}

int overdrive_profile_page(const overdrive_profile* profile, const char* title, char* buffer, size_t size) {
  return write("html", buffer, size, [&](const std::string&) {
    return to_html(profile->profile, title != nullptr ? title : "step");
  });
}

void overdrive_profile_free(overdrive_profile* profile) { delete profile; }

overdrive_memory* overdrive_memory_step(overdrive_step step, void* context) {
  return without_throwing<overdrive_memory*>(nullptr, [&] {
    return new overdrive_memory{overdrive::inspect::memory_timeline(called(step, context))};
  });
}

int overdrive_memory_text(const overdrive_memory* memory, const char* format, const char* title, char* buffer,
                          size_t size) {
  return write(format, buffer, size, [&](const std::string& wanted) {
    if (wanted == "json") return to_json(memory->timeline);
    if (wanted == "text") return printed_text(memory->timeline);
    if (wanted == "html") return to_html(memory->timeline, title != nullptr ? title : "step");
    refuse(wanted, "\"json\", \"text\" or \"html\"");
  });
}

void overdrive_memory_free(overdrive_memory* memory) { delete memory; }

}  // extern "C"
