// LibTorch's own dual level 0, which every layer of forward mode keeps its tangents in
// and which a process can enter only once. Entered for the first level of ours and left
// with the last; a level that the program entered itself is borrowed, and never left by
// us. Any thread. Knows nothing of our levels but how many there are.
#pragma once

namespace overdrive::forward_ad::host_level {

// One more level of ours needs it. Throws when the program left it under our feet.
void acquire();

// As acquire(), for a level that keeps its tangents on plain tensors; false, and nothing
// done, when anybody is on level 0 already.
bool try_acquire_alone();

// True while tangents on plain tensors may be about: the program's, or a bare level's.
bool has_plain_tangents();

// One level less. Leaves it with the last, if we entered it.
void release() noexcept;

// Throws when somebody left it, or entered it anew, while levels of ours are open:
// their tangents went with it.
void check();

}  // namespace overdrive::forward_ad::host_level
