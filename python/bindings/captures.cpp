#include "python/bindings/captures.h"

#include "replay/apart.h"
#include "replay/optimizers/python_optimizers.h"
#include "replay/part/part_function.h"
#include "replay/record/apart_call.h"
#include "replay/record/recorder.h"
#include "replay/recording/eager_time.h"

#include <atomic>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace overdrive::python {
namespace {

using Tensors = std::vector<at::Tensor>;
using replay::Recorder;

// A call of a function of Python. A backward on another thread may run the function as well.
struct CallUnderWay {
  const Tensors& inputs;
  Tensors results = {};
  std::string reason = {};
};
thread_local CallUnderWay* call_under_way = nullptr;

CallUnderWay& under_way() {
  TORCH_CHECK(call_under_way, "no captured function runs on this thread.");
  return *call_under_way;
}

// Takes its inputs by Recording.inputs() and leaves its results by Recording.results(). 0: it has failed.
using Function = int();

template <typename Call>
Tensors run(const Call& function, const Tensors& inputs, const char* failed) {
  CallUnderWay call{.inputs = inputs};
  CallUnderWay* const before = std::exchange(call_under_way, &call);
  const bool done = function() != 0;
  call_under_way = before;
  TORCH_CHECK(done, call.reason.empty() ? failed : call.reason);
  return std::move(call.results);
}

}  // namespace

Capture::Capture(Function* function, const CallNumbers* numbers, CaptureOptions options, bool is_part)
    : function_(std::make_shared<Function*>(function)),
      step(
          [here = function_](const Tensors& inputs) {
            TORCH_CHECK(*here,
                        "The captured part is gone, and its function would have to run again; keep the part.");
            return run(*here, inputs, "The captured function failed.");
          },
          std::move(options),
          is_part ? replay::CapturedFunction::Kind::kPart : replay::CapturedFunction::Kind::kStep) {
  step.watch(&numbers->variant, sizeof numbers->variant);
  step.give_numbers({numbers->values, &numbers->count});
  step.limit(&numbers->closed);
}

namespace {

CapturePtr make(int64_t function, int64_t numbers, bool constant_numbers, bool constant_modes, int64_t programs,
                int64_t check_every, bool passes, int64_t lanes, int64_t eager_calls, bool always,
                bool is_part) {
  replay::define_python_optimizers();
  return hold<Capture>([&] {
    return Capture(at_address<Function>(function), at_address<const CallNumbers>(numbers),
                   {.constant_numbers = constant_numbers,
                    .constant_modes = constant_modes,
                    .programs = static_cast<size_t>(programs),
                    .check_every = static_cast<uint64_t>(check_every),
                    .passes = passes,
                    .lanes = static_cast<int>(lanes),
                    .eager_calls = static_cast<size_t>(eager_calls),
                    .always = always},
                   is_part);
  });
}

std::vector<int64_t> counts_of(const CapturePtr& capture) {
  const CaptureStats stats = (*capture)->step.stats();
  std::vector<int64_t> counts;
  for (const uint64_t count : {stats.calls, stats.eager, stats.recorded, stats.checked, stats.replayed,
                               stats.undone, stats.outdated, stats.backwards, stats.again, stats.weighed}) {
    counts.push_back(static_cast<int64_t>(count));
  }
  return counts;
}

std::tuple<std::string, std::string, int64_t, int64_t> as_tuple(const replay::Refusal& refusal,
                                                                uint64_t resting) {
  return {refusal.text, refusal.op, static_cast<int64_t>(refusal.kind), static_cast<int64_t>(resting)};
}

// What a captured function does in its call, on its thread.
struct Recording : torch::CustomClassHolder {};

// Why the function has failed, where nobody raises its error.
void note_failure(std::string reason) { under_way().reason = std::move(reason); }

void refuse(const std::string& reason) {
  if (Recorder* recorder = Recorder::active()) recorder->refuse(reason);
}

void note_unseen_numbers(const std::string& reason) {
  if (Recorder* recorder = Recorder::active()) recorder->note_unseen_numbers(reason);
}

void note_owners(const Tensors& tensors) {
  if (Recorder* recorder = Recorder::active()) recorder->note_owners(tensors);
}

bool knows(const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->knows_outside(tensor);
}

void keep_addresses(const Tensors& tensors) {
  if (Recorder* recorder = Recorder::active()) recorder->keep_addresses(tensors);
}

bool knew(int64_t address) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->knew_outside(at_address<const void>(address));
}

bool uses(const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->uses_memory_of(tensor);
}

bool is_made(const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->has_made(tensor);
}

// Functions that run apart, known by numbers. Null: none may be called.
std::atomic<int (*)(int64_t)> called_apart{nullptr};
std::atomic<void (*)(int64_t)> forgotten_apart{nullptr};

// A function that runs apart, which Python keeps as long as this lives.
struct ApartOfPython {
  explicit ApartOfPython(int64_t n) : number(n) {}
  ~ApartOfPython() {
    if (auto* told = forgotten_apart.load()) told(number);
  }
  ApartOfPython(const ApartOfPython&) = delete;
  ApartOfPython& operator=(const ApartOfPython&) = delete;
  const int64_t number;
};

Tensors call_apart(int64_t number, int64_t identity, const Tensors& inputs) {
  auto call = [kept = std::make_shared<ApartOfPython>(number)](const Tensors& given) {
    auto* function = called_apart.load();
    return run([&] { return function ? function(kept->number) : 0; }, given,
               "A function that runs apart failed.");
  };
  return replay::run_apart(replay::apart_function(std::move(call), at_address<const void>(identity)), inputs);
}

struct ApartCalls : torch::CustomClassHolder {};

using Told = void(const char*);
template <typename F>
F* told_at(int64_t address) {
  return address == 0 ? nullptr : at_address<F>(address);
}

}  // namespace

void add_captures(torch::Library& library) {
  library.class_<CapturePtr::element_type>("Capture")
      .def_static("make", &make)
      .def_static("free", [](const CapturePtr& capture) { capture->take(); })
      .def_static("call", [](const CapturePtr& capture,
                             const Tensors& inputs) { return (*capture)->step.call(inputs); })
      .def_static("reset", [](const CapturePtr& capture) { (*capture)->step.reset(); })
      .def_static("stats", &counts_of)
      // Whether a recording uses the memory of one of these tensors, which its call was not given.
      .def_static("has_met_one_of",
                  [](const CapturePtr& capture, const Tensors& tensors) {
                    return (*capture)->step.has_met_one_of(tensors);
                  })
      // Refusals as a sentence, an operator and a kind, and how many calls rest for it.
      .def_static("refusal",
                  [](const CapturePtr& capture) {
                    const auto& step = (*capture)->step;
                    return as_tuple(step.reason(), step.resting());
                  })
      .def_static("last_reason",
                  [](const CapturePtr& capture) { return as_tuple((*capture)->step.last_reason(), 0); })
      .def_static("has_differed", [](const CapturePtr& capture) { return (*capture)->step.has_differed(); })
      .def_static("explain", [](const CapturePtr& capture) { return (*capture)->step.explain_programs(); })
      .def_static("lanes_page", [](const CapturePtr& capture,
                                   const std::string& title) { return (*capture)->step.lanes_page(title); })
      // A number for the recordings that the last call belonged to, or the call under way; 0: there are none.
      // No two recordings of a process have the same number.
      .def_static("current",
                  [](const CapturePtr& capture) { return static_cast<int64_t>((*capture)->step.current()); });
  library.class_<Recording>("Recording")
      .def_static("inputs", [] { return under_way().inputs; })
      .def_static("results", [](const Tensors& results) { under_way().results = results; })
      .def_static("is_active", [] { return Recorder::active() != nullptr; })
      // While the function of a part runs once more in a backward: the variant of its call; else -1.
      .def_static("again", [] { return replay::PartFunction::running_again(); })
      // Operators are left out of the recording, or noted again.
      .def_static("pause", [](bool paused) { Recorder::pause(paused); })
      // How long the function alone took, in a call that is eager.
      .def_static("took", [](double seconds) { replay::EagerTime::give(seconds); })
      // Tensors that the program keeps.
      .def_static("owners", &note_owners)
      // Whether the call has used memory of the tensor that was there before it.
      .def_static("knows", &knows)
      // The same of one that may be gone, by Tensor._cdata, if its address was kept.
      .def_static("keep_addresses", &keep_addresses)
      .def_static("knew", &knew)
      .def_static("uses", &uses)
      // Whether the call has made it.
      .def_static("made", &is_made)
      // The call cannot be replayed, and this sentence says why.
      .def_static("refuse", &refuse)
      .def_static("failed", &note_failure)
      // Numbers by which the function changes what lives on: why they may change unseen, as a part of a
      // sentence; "": the caller looks at every one of them in every call.
      .def_static("unseen_numbers", &note_unseen_numbers)
      // Are called with the reasons of a refusal, and with the name of each operator that is noted; 0: nothing
      // is.
      .def_static("on_refusal", [](int64_t told) { Recorder::on_refusal(told_at<Told>(told)); })
      .def_static("on_operator", [](int64_t told) { Recorder::on_operator(told_at<Told>(told)); });
  library.class_<ApartCalls>("Apart")
      .def_static("call", &call_apart)
      // Inside of such a function, which has changed what the step looks at.
      .def_static("outdated", &replay::note_outdated_by_apart)
      // `called` is called by a function's number, as a captured function; `forgotten` is told when it is used
      // no more.
      .def_static("on_call", [](int64_t called, int64_t forgotten) {
        called_apart.store(told_at<int(int64_t)>(called));
        forgotten_apart.store(told_at<void(int64_t)>(forgotten));
      });
}

}  // namespace overdrive::python
