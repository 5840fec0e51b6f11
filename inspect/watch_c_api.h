/* NaN watches, stopping and error notes for other languages. Nothing here throws; a failure is a null pointer
   or -1, and overdrive_last_error() of engine/c_api.h tells why. Texts are cut to `size` and always terminated;
   the result is the length of the whole text without the final zero, as snprintf has it. */
#ifndef OVERDRIVE_INSPECT_WATCH_C_API_H
#define OVERDRIVE_INSPECT_WATCH_C_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct overdrive_nan_watch overdrive_nan_watch;
typedef struct overdrive_cancel_token overdrive_cancel_token;
typedef struct overdrive_stop_scope overdrive_stop_scope;

__attribute__((visibility("default"))) overdrive_nan_watch* overdrive_nan_watch_begin(void);
/* A sentence about what was found first; "" when nothing was. */
__attribute__((visibility("default"))) int overdrive_nan_watch_first(const overdrive_nan_watch* watch,
                                                                     char* buffer, size_t size);
__attribute__((visibility("default"))) void overdrive_nan_watch_end(overdrive_nan_watch* watch);

__attribute__((visibility("default"))) overdrive_cancel_token* overdrive_cancel_token_new(void);
__attribute__((visibility("default"))) void overdrive_cancel(overdrive_cancel_token* token);
__attribute__((visibility("default"))) void overdrive_cancel_token_free(overdrive_cancel_token* token);
/* Backwards that this thread begins stop when the token is cancelled, or `seconds` from now; below 0: no
   deadline. Ended on the same thread. */
__attribute__((visibility("default"))) overdrive_stop_scope* overdrive_stop_begin(
    const overdrive_cancel_token* token, double seconds);
typedef struct overdrive_progress_at {
  size_t done, total; /* nodes */
  void* context;
  int go_on; /* 0; a function that leaves it so stops the backward */
} overdrive_progress_at;
typedef void (*overdrive_progress)(overdrive_progress_at* at);
/* Also calls `progress` before each node of the outermost backwards and once at their end, on the thread of the
   node. One call at a time: a node that begins meanwhile, on another thread, has none. */
__attribute__((visibility("default"))) overdrive_stop_scope* overdrive_stop_begin_with_progress(
    const overdrive_cancel_token* token, double seconds, overdrive_progress progress, void* context);
/* The leaves that the last backward of the scope had added a gradient to when it failed. A leaf is the address
   of its c10::TensorImpl, as long as the scope lives and begins no other backward. Writes at most `size`, and
   returns how many there are. */
__attribute__((visibility("default"))) int overdrive_stop_accumulated(const overdrive_stop_scope* scope,
                                                                      void** leaves, size_t size);
__attribute__((visibility("default"))) void overdrive_stop_end(overdrive_stop_scope* scope);

/* The note of the last error that a node threw on this thread or on a worker of the engine. */
__attribute__((visibility("default"))) int overdrive_last_error_note(char* buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
