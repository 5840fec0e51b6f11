// OVERDRIVE_NAN=first: one warning a process, at the end of the backward that made the first NaN or infinity.
// Any thread. Leaves the search to NanWatch's run.
#pragma once

namespace overdrive::inspect {

// From now on, while the options ask for it.
void warn_of_nan();

}  // namespace overdrive::inspect
