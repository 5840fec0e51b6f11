// The dispatch key by which a recording of operators sees them: below autograd, the keys of views and Python's,
// above the choice of a backend. The host keeps it for a mode that C++ programs do not have.
#pragma once

#include <c10/core/DispatchKeySet.h>

namespace overdrive::base {

inline constexpr c10::DispatchKey kRecordingKey = c10::DispatchKey::Fake;

// Whether operators of the call are recorded. What makes a result without one is not seen.
inline bool is_recording(c10::DispatchKeySet keys) { return keys.has(kRecordingKey); }

}  // namespace overdrive::base
