// LibTorch's own dual level 0, which holds the tangents of every layer of forward mode and which a process can
// enter only once. Entered for our first level and left with the last. A level 0 that the program entered
// itself is borrowed, and never left by us. Any thread. Knows nothing of our levels but their number.
#pragma once

namespace overdrive::forward_ad::host_level {

// One more of our levels needs level 0. Throws when the program left it meanwhile.
void acquire();

// As acquire(), for a level that keeps its tangents on plain tensors. False, and nothing done, when level 0 is
// in use.
bool try_acquire_alone();

// True while plain tensors may have tangents: the program's, or those of a bare level.
bool has_plain_tangents();

// One of our levels less. The last one leaves level 0, if we entered it.
void release() noexcept;

// Throws when somebody left level 0, or entered it anew, while our levels are open: their tangents are gone
// then.
void check();

}  // namespace overdrive::forward_ad::host_level
