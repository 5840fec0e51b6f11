/* Overdrive for other languages. Nothing here throws; a failure is 0 or -1. */
#ifndef OVERDRIVE_ENGINE_C_API_H
#define OVERDRIVE_ENGINE_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 when every OVERDRIVE_* variable has a value that it may have, else 0. overdrive_install() looks by itself.
 */
__attribute__((visibility("default"))) int overdrive_check_environment(void);
/* 1 when Overdrive is the default engine afterwards, else 0. */
__attribute__((visibility("default"))) int overdrive_install(void);
/* 1 when Overdrive is not the default engine afterwards, else 0. */
__attribute__((visibility("default"))) int overdrive_uninstall(void);
/* 1 when the default engine is Overdrive now, else 0. */
__attribute__((visibility("default"))) int overdrive_installed(void);
__attribute__((visibility("default"))) uint64_t overdrive_backward_count(void);
/* Writes stats() as JSON, cut to size and always terminated; returns the length of the
   whole text without the final zero, as snprintf does, or -1. */
__attribute__((visibility("default"))) int overdrive_stats_json(char* buffer, size_t size);
/* stats() as one sentence for people, cut and counted in the same way. */
__attribute__((visibility("default"))) int overdrive_stats_summary(char* buffer, size_t size);
/* overdrive::keep_memory(): 1 when it is set, 0 where malloc is not glibc's or bytes are too many. */
__attribute__((visibility("default"))) int overdrive_keep_memory(size_t bytes);
__attribute__((visibility("default"))) void overdrive_reset_stats(void);
/* Why the last of the calls above failed on this thread, "" when it did not. Good until the next. */
__attribute__((visibility("default"))) const char* overdrive_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
