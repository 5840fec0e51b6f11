/* The traces of inspect/ for other languages. Nothing here throws; a failure is a null pointer or 0, and
   overdrive_last_error() of engine/c_api.h tells why. */
#ifndef OVERDRIVE_INSPECT_C_API_H
#define OVERDRIVE_INSPECT_C_API_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct overdrive_trace overdrive_trace;

/* A trace that is open until overdrive_trace_end(). The flags are those of TraceOptions. */
__attribute__((visibility("default"))) overdrive_trace* overdrive_trace_begin(const char* file, int forward,
                                                                              int live_bytes);
/* On the thread that began it, once, also after an error. 1 when all of the trace is in the file. */
__attribute__((visibility("default"))) int overdrive_trace_end(overdrive_trace* trace);

#ifdef __cplusplus
}
#endif
#endif
