#include "python/bindings/bindings.h"

#include "inspect/inspect.h"

#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace overdrive::python {
namespace {

using TracePtr = HeldPtr<inspect::Trace>;
using GraphPtr = HeldPtr<inspect::Graph>;
using NanWatchPtr = HeldPtr<NanWatch>;
using TokenPtr = HeldPtr<CancelToken>;
using StopPtr = HeldPtr<StopScope>;

// Text, JSON and page.
using Texts = std::tuple<std::string, std::string, std::string>;

template <typename Found>
Texts texts_of(const Found& found, const std::string& title) {
  std::ostringstream printed;
  printed << found;
  return {printed.str(), to_json(found), to_html(found, title)};
}

// A step of Python, which returns 0 when it has failed. That ends the measurement as an exception does.
std::function<void()> step_at(int64_t address) {
  return [step = at_address<int()>(address)] { TORCH_CHECK(step() != 0, "the step failed."); };
}

GraphPtr read_graph(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& leaves,
                    const std::vector<std::string>& names) {
  TORCH_CHECK(leaves.size() == names.size(), "a name is missing.");
  inspect::LeafNames named;
  for (size_t i = 0; i < leaves.size(); ++i) named.emplace_back(names[i], leaves[i]);
  return hold<inspect::Graph>([&] { return inspect::graph(tensors, named); });
}

// What a progress function of Python reads and writes.
struct ProgressAt {
  size_t done, total;  // nodes
  int go_on;           // 0; a function that leaves it so stops the backward
};

// One call at a time: a node that begins meanwhile, on another thread, has none.
std::function<void(size_t, size_t)> progress_at(int64_t address) {
  const auto busy = std::make_shared<std::atomic<bool>>(false);
  return [=, progress = at_address<void(ProgressAt*)>(address)](size_t done, size_t total) {
    if (busy->exchange(true)) return;
    ProgressAt at{done, total, 0};
    progress(&at);
    busy->store(false);
    if (at.go_on == 0) throw std::runtime_error("The progress function stopped a backward.");
  };
}

// No deadline where `seconds` is below 0, no progress where its address is 0.
StopPtr begin_stop(const std::optional<TokenPtr>& token, double seconds, int64_t progress) {
  StopOptions options;
  if (token.has_value()) options.token = **token.value();
  // A deadline beyond a year is none: nanoseconds have an end.
  if (seconds >= 0 && seconds < 3e7) {
    options.deadline = std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
  if (progress != 0) options.progress = progress_at(progress);
  return hold<StopScope>([&] { return StopScope(std::move(options)); });
}

// Text, done nodes, all nodes and leaves; "" where no backward was stopped.
std::tuple<std::string, int64_t, int64_t, std::vector<at::Tensor>> stopped(const StopPtr& scope) {
  const auto error = (*scope)->stopped();
  if (!error.has_value()) return {};
  return {error->what(), error->done(), error->total(), error->accumulated()};
}

// Functions without an object.
struct Inspect : torch::CustomClassHolder {};

}  // namespace

void add_inspect(torch::Library& library) {
  library.class_<TracePtr::element_type>("Trace")
      .def_static("begin",
                  [](const std::string& file, bool forward, bool live_bytes) {
                    return hold<inspect::Trace>(
                        [&] { return inspect::Trace(file, {.forward = forward, .live_bytes = live_bytes}); });
                  })
      .def_static("end", [](const TracePtr& trace) { trace->take()->close(); });
  library.class_<GraphPtr::element_type>("Graph")
      .def_static("read", &read_graph)
      .def_static("add_times",
                  [](const GraphPtr& graph, const std::string& trace_file) {
                    return static_cast<int64_t>(inspect::add_times(**graph, trace_file));
                  })
      .def_static("json", [](const GraphPtr& graph) { return inspect::to_json(**graph); })
      .def_static("dot", [](const GraphPtr& graph) { return inspect::to_dot(**graph); })
      .def_static("html", [](const GraphPtr& graph, const std::string& title) {
        return inspect::to_html(**graph, title);
      });
  library.class_<NanWatchPtr::element_type>("NanWatch")
      .def_static("begin", [] { return hold<NanWatch>([] { return NanWatch(); }); })
      .def_static("first",
                  [](const NanWatchPtr& watch) {
                    const auto found = (*watch)->first();
                    return found.has_value() ? found->text() : std::string();
                  })
      .def_static("end", [](const NanWatchPtr& watch) { watch->take(); });
  // Any thread cancels.
  library.class_<TokenPtr::element_type>("CancelToken")
      .def_static("make", [] { return hold<CancelToken>([] { return CancelToken(); }); })
      .def_static("cancel", [](const TokenPtr& token) { (*token)->cancel(); });
  library.class_<StopPtr::element_type>("StopScope")
      .def_static("begin", &begin_stop)
      .def_static("stopped", &stopped)
      .def_static("end", [](const StopPtr& scope) { scope->take(); });
  library.class_<Inspect>("Inspect")
      .def_static("profile",
                  [](int64_t step, const std::string& title) {
                    return texts_of(inspect::profile(step_at(step)), title);
                  })
      .def_static("memory_timeline",
                  [](int64_t step, const std::string& title) {
                    return texts_of(inspect::memory_timeline(step_at(step)), title);
                  })
      .def_static("last_error_note", [] { return overdrive::last_error_note(); });
}

}  // namespace overdrive::python
