#include "inspect/watch_c_api.h"

#include "engine/base/c_error.h"
#include "inspect/cancel.h"
#include "inspect/error_note.h"
#include "inspect/nan_watch.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

struct overdrive_nan_watch {
  overdrive::NanWatch watch;
};

struct overdrive_cancel_token {
  overdrive::CancelToken token;
};

struct overdrive_stop_scope {
  overdrive::StopScope scope;
};

namespace {

using overdrive::base::without_throwing;

int write_text(const std::string& text, char* buffer, size_t size) {
  return std::snprintf(buffer, size, "%s", text.c_str());
}

overdrive::StopOptions stop_options(const overdrive_cancel_token* token, double seconds) {
  overdrive::StopOptions options;
  if (token != nullptr) options.token = token->token;
  // A deadline beyond a year is none: nanoseconds have an end.
  if (seconds >= 0 && seconds < 3e7) {
    options.deadline = std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
  }
  return options;
}

}  // namespace

extern "C" {

overdrive_nan_watch* overdrive_nan_watch_begin(void) {
  return without_throwing<overdrive_nan_watch*>(nullptr, [] { return new overdrive_nan_watch(); });
}

int overdrive_nan_watch_first(const overdrive_nan_watch* watch, char* buffer, size_t size) {
  return without_throwing(-1, [&] {
    const auto found = watch->watch.first();
    return write_text(found.has_value() ? found->text() : "", buffer, size);
  });
}

void overdrive_nan_watch_end(overdrive_nan_watch* watch) { delete watch; }

overdrive_cancel_token* overdrive_cancel_token_new(void) {
  return without_throwing<overdrive_cancel_token*>(nullptr, [] { return new overdrive_cancel_token(); });
}

void overdrive_cancel(overdrive_cancel_token* token) { token->token.cancel(); }

void overdrive_cancel_token_free(overdrive_cancel_token* token) { delete token; }

overdrive_stop_scope* overdrive_stop_begin(const overdrive_cancel_token* token, double seconds) {
  return without_throwing<overdrive_stop_scope*>(
      nullptr, [&] { return new overdrive_stop_scope{overdrive::StopScope(stop_options(token, seconds))}; });
}

overdrive_stop_scope* overdrive_stop_begin_with_progress(const overdrive_cancel_token* token, double seconds,
                                                         overdrive_progress progress, void* context) {
  return without_throwing<overdrive_stop_scope*>(nullptr, [&] {
    overdrive::StopOptions options = stop_options(token, seconds);
    const auto busy = std::make_shared<std::atomic<bool>>(false);
    options.progress = [=](size_t done, size_t total) {
      if (busy->exchange(true)) return;
      overdrive_progress_at at{done, total, context, 0};
      progress(&at);
      busy->store(false);
      if (at.go_on == 0) throw std::runtime_error("The progress function stopped a backward.");
    };
    return new overdrive_stop_scope{overdrive::StopScope(std::move(options))};
  });
}

int overdrive_stop_accumulated(const overdrive_stop_scope* scope, void** leaves, size_t size) {
  return without_throwing(-1, [&] {
    const std::vector<at::Tensor> all = scope->scope.accumulated();
    for (size_t i = 0; i < std::min(size, all.size()); ++i) leaves[i] = all[i].unsafeGetTensorImpl();
    return static_cast<int>(all.size());
  });
}

void overdrive_stop_end(overdrive_stop_scope* scope) { delete scope; }

int overdrive_last_error_note(char* buffer, size_t size) {
  return without_throwing(-1, [&] { return write_text(overdrive::last_error_note(), buffer, size); });
}

}  // extern "C"
