/* A caller in C: that the header is C, and that its functions can be called from there. */
#include "engine/c_api.h"

int c_api_user_switches_on_and_off(void);

int c_api_user_switches_on_and_off(void) {
  return overdrive_installed() == 0 && overdrive_install() == 1 && overdrive_installed() == 1 &&
         overdrive_install() == 1 && overdrive_uninstall() == 1 && overdrive_installed() == 0 &&
         overdrive_uninstall() == 1;
}
