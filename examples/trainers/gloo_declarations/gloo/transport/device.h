// Named by c10d's ProcessGroupGloo; defined inside LibTorch.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
