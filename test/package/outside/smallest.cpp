// The smallest program on Overdrive. The linker sees no use of LibTorch in it.
#include <overdrive/engine/engine.h>

int main() {
  overdrive::install();
  return overdrive::installed() ? 0 : 1;
}
