#include "replay/c_api.h"

#include "engine/base/c_error.h"
#include "replay/python_operators.h"
#include "replay/record/recorder.h"
#include "replay/step_operators.h"

#include <cstdio>
#include <memory>

namespace {

using overdrive::base::without_throwing;

template <typename Text>
int write_text(const overdrive_capture* capture, char* buffer, size_t size, const Text& text) {
  return without_throwing(-1, [&] {
    TORCH_CHECK(capture != nullptr, "a captured step is missing.");
    return std::snprintf(buffer, size, "%s", text(capture->step).c_str());
  });
}

}  // namespace

extern "C" {

overdrive_capture* overdrive_capture_new(overdrive_capture_function function, int constant_numbers,
                                         int constant_modes, size_t programs, uint64_t check_every, int passes,
                                         int lanes, int is_part) {
  return without_throwing<overdrive_capture*>(nullptr, [&] {
    TORCH_CHECK(function != nullptr, "capture() was given no function.");
    overdrive::replay::register_python_operators();
    // The step calls the object that it lies in, which therefore has an address first.
    auto address = std::make_shared<overdrive_capture*>(nullptr);
    auto call = [address](const std::vector<at::Tensor>& inputs) {
      TORCH_CHECK(*address,
                  "The captured part is gone, and its function would have to run again; keep the part.");
      return overdrive::replay::call_outside(**address, inputs);
    };
    *address = new overdrive_capture{.function = function,
                                     .address = address,
                                     .step = {std::move(call),
                                              {.constant_numbers = constant_numbers != 0,
                                               .constant_modes = constant_modes != 0,
                                               .programs = programs,
                                               .check_every = check_every,
                                               .passes = passes != 0,
                                               .lanes = lanes},
                                              is_part != 0 ? overdrive::replay::CapturedFunction::Kind::kPart
                                                           : overdrive::replay::CapturedFunction::Kind::kStep}};
    return *address;
  });
}

void overdrive_capture_free(overdrive_capture* capture) {
  if (capture) *capture->address = nullptr;
  delete capture;
}

int overdrive_capture_watch(overdrive_capture* capture, const int64_t* number) {
  return without_throwing(0, [&] {
    TORCH_CHECK(capture != nullptr && number != nullptr, "a captured step or a number is missing.");
    capture->step.watch(number, sizeof *number);
    return 1;
  });
}

int overdrive_capture_numbers(overdrive_capture* capture, const double* numbers, const int64_t* count) {
  return without_throwing(0, [&] {
    TORCH_CHECK(capture != nullptr && numbers != nullptr && count != nullptr,
                "a captured step or its numbers are missing.");
    capture->step.give_numbers({numbers, count});
    return 1;
  });
}

int overdrive_capture_reset(overdrive_capture* capture) {
  return without_throwing(0, [&] {
    TORCH_CHECK(capture != nullptr, "a captured step is missing.");
    capture->step.reset();
    return 1;
  });
}

int overdrive_capture_stats(const overdrive_capture* capture, uint64_t counts[9]) {
  return without_throwing(0, [&] {
    TORCH_CHECK(capture != nullptr, "a captured step is missing.");
    const overdrive::CaptureStats stats = capture->step.stats();
    const auto all = {stats.calls,  stats.eager,    stats.recorded,  stats.checked, stats.replayed,
                      stats.undone, stats.outdated, stats.backwards, stats.again};
    std::copy(all.begin(), all.end(), counts);
    return 1;
  });
}

int overdrive_capture_refusal(const overdrive_capture* capture, char* buffer, size_t size) {
  return write_text(capture, buffer, size, [](const auto& step) { return step.refusal(); });
}

int overdrive_capture_explain(const overdrive_capture* capture, char* buffer, size_t size) {
  return write_text(capture, buffer, size, [](const auto& step) { return step.explain(); });
}

uint64_t overdrive_capture_current(const overdrive_capture* capture) {
  return capture ? capture->step.current() : 0;
}

int overdrive_capture_recording(void) { return overdrive::replay::Recorder::active() != nullptr; }

int64_t overdrive_capture_again(void) { return overdrive::replay::PartFunction::running_again(); }

void overdrive_capture_pause(int paused) { overdrive::replay::Recorder::pause(paused != 0); }

void overdrive_capture_on_refusal(void (*told)(const char* reason)) {
  overdrive::replay::Recorder::on_refusal(told);
}

void overdrive_capture_on_operator(void (*told)(const char* name)) {
  overdrive::replay::Recorder::on_operator(told);
}

void overdrive_capture_on_apart(int (*called)(int64_t number), void (*forgotten)(int64_t number)) {
  (void)without_throwing(0, [&] {
    overdrive::replay::register_python_operators();
    overdrive::replay::call_apart_outside(called, forgotten);
    return 1;
  });
}

void overdrive_capture_unseen_numbers(const char* reason) {
  if (auto* recorder = overdrive::replay::Recorder::active()) recorder->note_unseen_numbers(reason);
}

int overdrive_step_operators(void) {
  return without_throwing(0, [] {
    overdrive::replay::register_step_operators();
    return 1;
  });
}

void overdrive_capture_refuse(const char* reason) {
  if (auto* recorder = overdrive::replay::Recorder::active()) recorder->refuse(reason);
}
}
