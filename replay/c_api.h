/* Captured steps for other languages. Nothing here throws; a failure is a null pointer or 0, and
   overdrive_last_error() of engine/c_api.h tells why. Tensors cross by operators: see python_operators.h. */
#ifndef OVERDRIVE_REPLAY_C_API_H
#define OVERDRIVE_REPLAY_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct overdrive_capture overdrive_capture;

/* The captured function: takes its inputs by overdrive::capture_inputs, leaves its results by
   overdrive::capture_results, on the thread of the call. 0 when it failed. */
typedef int (*overdrive_capture_function)(void);

/* The options are those of CaptureOptions. */
__attribute__((visibility("default"))) overdrive_capture* overdrive_capture_new(
    overdrive_capture_function function, int constant_numbers, int constant_modes, size_t programs,
    uint64_t check_every);
__attribute__((visibility("default"))) void overdrive_capture_free(overdrive_capture* capture);
/* A recording for each value of the number, which must outlive the capture. */
__attribute__((visibility("default"))) int overdrive_capture_watch(overdrive_capture* capture,
                                                                   const int64_t* number);
__attribute__((visibility("default"))) int overdrive_capture_reset(overdrive_capture* capture);
/* calls, eager, recorded, checked, replayed, undone, outdated. */
__attribute__((visibility("default"))) int overdrive_capture_stats(const overdrive_capture* capture,
                                                                   uint64_t counts[7]);
/* As snprintf: cut to size, always terminated; returns the whole length, or -1. */
__attribute__((visibility("default"))) int overdrive_capture_refusal(const overdrive_capture* capture,
                                                                     char* buffer, size_t size);
__attribute__((visibility("default"))) int overdrive_capture_explain(const overdrive_capture* capture,
                                                                     char* buffer, size_t size);

/* Of this thread: 1 while a function is recorded. */
__attribute__((visibility("default"))) int overdrive_capture_recording(void);
/* Operators are left out of the recording, or noted again. */
__attribute__((visibility("default"))) void overdrive_capture_pause(int paused);
/* The call under way cannot be replayed, and this sentence says why. */
__attribute__((visibility("default"))) void overdrive_capture_refuse(const char* reason);

#ifdef __cplusplus
}
#endif
#endif
