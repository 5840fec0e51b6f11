/* Graphs, profiles and memory of a step for other languages. Nothing here throws; a failure is a null pointer
   or -1, and overdrive_last_error() of engine/c_api.h tells why. Texts are cut to `size` and always terminated;
   the result is the length of the whole text without the final zero, as snprintf has it. */
#ifndef OVERDRIVE_INSPECT_LOOK_C_API_H
#define OVERDRIVE_INSPECT_LOOK_C_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct overdrive_graph overdrive_graph;
typedef struct overdrive_profile overdrive_profile;
typedef struct overdrive_memory overdrive_memory;

/* The graph of a backward from these tensors. A tensor is the address of its c10::TensorImpl, in Python
   tensor._cdata. `names` are names of `leaves`; both have `num_leaves` elements. */
__attribute__((visibility("default"))) overdrive_graph* overdrive_graph_read(const void* const* tensors,
                                                                             size_t num_tensors,
                                                                             const void* const* leaves,
                                                                             const char* const* names,
                                                                             size_t num_leaves);
/* Times of nodes from a trace that was written while a backward ran through the graph, for the page's colours.
   Returns how many nodes have one now, or -1. */
__attribute__((visibility("default"))) int overdrive_graph_add_times(overdrive_graph* graph,
                                                                     const char* trace_file);
/* `format`: "json", "dot" or "html"; `title` is for the page, and may be null. */
__attribute__((visibility("default"))) int overdrive_graph_text(const overdrive_graph* graph,
                                                                const char* format, const char* title,
                                                                char* buffer, size_t size);
__attribute__((visibility("default"))) void overdrive_graph_free(overdrive_graph* graph);

/* Calls `step` once, on this thread. `step` returns 0 when it failed, and then there is no result. */
typedef int (*overdrive_step)(void* context);
__attribute__((visibility("default"))) overdrive_profile* overdrive_profile_step(overdrive_step step,
                                                                                 void* context);
/* `format`: "json" or "text", a table of 60 columns. */
__attribute__((visibility("default"))) int overdrive_profile_text(const overdrive_profile* profile,
                                                                  const char* format, char* buffer,
                                                                  size_t size);
/* One page that needs no network; `title` may be null. */
__attribute__((visibility("default"))) int overdrive_profile_page(const overdrive_profile* profile,
                                                                  const char* title, char* buffer, size_t size);
__attribute__((visibility("default"))) void overdrive_profile_free(overdrive_profile* profile);

__attribute__((visibility("default"))) overdrive_memory* overdrive_memory_step(overdrive_step step,
                                                                               void* context);
/* `format`: "json", "text" or "html"; `title` is for the page, and may be null. */
__attribute__((visibility("default"))) int overdrive_memory_text(const overdrive_memory* memory,
                                                                 const char* format, const char* title,
                                                                 char* buffer, size_t size);
__attribute__((visibility("default"))) void overdrive_memory_free(overdrive_memory* memory);

#ifdef __cplusplus
}
#endif
#endif
