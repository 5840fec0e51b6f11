/* Saved-tensor hooks for other languages. A packer is made by one of the first functions, and freed by its
   owner; graphs built under it keep what they need. Nothing here throws: a failure is a null pointer, and
   overdrive_last_error() of engine/c_api.h says why. Sizes are bytes. */
#ifndef OVERDRIVE_HOOKS_C_API_H
#define OVERDRIVE_HOOKS_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct overdrive_hooks overdrive_hooks;
typedef struct overdrive_hooks_scope overdrive_hooks_scope;

__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_keep(void);
/* type: "int8" or "bfloat16"; rounding: "nearest" or "stochastic". */
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_quantise(const char* type,
                                                                                 const char* rounding,
                                                                                 int64_t block, uint64_t seed,
                                                                                 int64_t min_bytes);
/* folder: "" for TMPDIR, or /tmp where that is not set. */
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_spill_to_disk(const char* folder,
                                                                                      int64_t min_bytes,
                                                                                      int64_t max_waiting_bytes,
                                                                                      int drop_cached);
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_offload_to_cpu(int64_t min_bytes);
/* Made of others, which stay their owner's. */
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_compose(const overdrive_hooks* first,
                                                                                const overdrive_hooks* second);
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_min_bytes(int64_t bytes,
                                                                                  const overdrive_hooks* hooks);
__attribute__((visibility("default"))) overdrive_hooks* overdrive_hooks_schedulable(
    const overdrive_hooks* hooks);
__attribute__((visibility("default"))) void overdrive_hooks_free(overdrive_hooks* hooks);

/* What this thread saves from here on goes to `hooks`; to none when that is null. The flags are those of
   HookOptions. The scope is left on the same thread, the innermost first. */
__attribute__((visibility("default"))) overdrive_hooks_scope* overdrive_hooks_enter(
    const overdrive_hooks* hooks, int skip_parameters, int share, int check_in_place);
__attribute__((visibility("default"))) void overdrive_hooks_leave(overdrive_hooks_scope* scope);

#ifdef __cplusplus
}
#endif
#endif
