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
    uint64_t check_every, int passes, int lanes, int is_part);
__attribute__((visibility("default"))) void overdrive_capture_free(overdrive_capture* capture);
/* A recording for each value of the number, which must outlive the capture. */
__attribute__((visibility("default"))) int overdrive_capture_watch(overdrive_capture* capture,
                                                                   const int64_t* number);
/* The numbers of each call, and how many there are; both outlive the capture. They are read when a recording
   ends and before a replay, and a constant that is one of them in two recordings is it in every replay. */
__attribute__((visibility("default"))) int overdrive_capture_numbers(overdrive_capture* capture,
                                                                     const double* numbers,
                                                                     const int64_t* count);
__attribute__((visibility("default"))) int overdrive_capture_reset(overdrive_capture* capture);
/* calls, eager, recorded, checked, replayed, undone, outdated, backwards, again. */
__attribute__((visibility("default"))) int overdrive_capture_stats(const overdrive_capture* capture,
                                                                   uint64_t counts[9]);
/* As snprintf: cut to size, always terminated; returns the whole length, or -1. */
__attribute__((visibility("default"))) int overdrive_capture_refusal(const overdrive_capture* capture,
                                                                     char* buffer, size_t size);
__attribute__((visibility("default"))) int overdrive_capture_explain(const overdrive_capture* capture,
                                                                     char* buffer, size_t size);

/* A number for the recordings that the last call belonged to, or the call under way; 0: there are none. No two
   recordings of a process have the same number. */
__attribute__((visibility("default"))) uint64_t overdrive_capture_current(const overdrive_capture* capture);

/* Of this thread: 1 while a function is recorded. */
__attribute__((visibility("default"))) int overdrive_capture_recording(void);
/* Of this thread, while the function of a part runs once more in a backward: the number that was watched in its
   call; else -1. */
__attribute__((visibility("default"))) int64_t overdrive_capture_again(void);
/* Operators are left out of the recording, or noted again. */
__attribute__((visibility("default"))) void overdrive_capture_pause(int paused);
/* Is called with the reasons for which the recording under way on its thread is refused, the first of them
   first, where the operator is called; null: nothing is. One for the process. */
__attribute__((visibility("default"))) void overdrive_capture_on_refusal(void (*told)(const char* reason));
/* Is called with the name of each operator that a recording of this thread notes, where it is called; null:
   nothing is. */
__attribute__((visibility("default"))) void overdrive_capture_on_operator(void (*told)(const char* name));
/* Functions that run apart, by overdrive::apart_outside with a number: called by this, as
   overdrive_capture_function with the number; and told when a number is used no more. Null: none may be called.
   For the process. */
__attribute__((visibility("default"))) void overdrive_capture_on_apart(int (*called)(int64_t number),
                                                                       void (*forgotten)(int64_t number));
/* Numbers by which the function under way changes what lives on: why they may change unseen, as a part of a
   sentence; "": the caller looks at every one of them in every call. */
__attribute__((visibility("default"))) void overdrive_capture_unseen_numbers(const char* reason);
/* The call under way cannot be replayed, and this sentence says why. */
__attribute__((visibility("default"))) void overdrive_capture_refuse(const char* reason);

/* Registers the operators of step files: overdrive::step_save, overdrive::step_load and others. */
__attribute__((visibility("default"))) int overdrive_step_operators(void);

/* Kinds of values. ENTRY: `holder`, a dict, has `expected` under `key`; null: it has nothing there. VALUES: the
   dict has, in its order, the `key` objects whose addresses begin at `expected`, and no others. SIZE: the list
   or dict has `key` items. ITEM: item `key` of the list. CELL: the content of the cell. KIND: the object's
   class. */
enum {
  OVERDRIVE_CAPTURE_ENTRY = 0,
  OVERDRIVE_CAPTURE_VALUES = 1,
  OVERDRIVE_CAPTURE_SIZE = 2,
  OVERDRIVE_CAPTURE_ITEM = 3,
  OVERDRIVE_CAPTURE_CELL = 4,
  OVERDRIVE_CAPTURE_KIND = 5
};
/* A value that a function of Python read: objects of Python, by address, which live as long as this does. */
typedef struct overdrive_capture_value {
  int64_t kind;
  void* holder;
  void* key;
  void* expected;
} overdrive_capture_value;
/* The first of these, from `begin` on, that is another object now; `end`: all are as they were. The caller
 * holds the GIL. */
__attribute__((visibility("default"))) size_t overdrive_capture_first_changed(
    const overdrive_capture_value* values, size_t begin, size_t end);

#ifdef __cplusplus
}
#endif
#endif
