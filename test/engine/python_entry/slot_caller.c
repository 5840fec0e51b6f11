/* A library that calls a function of another one. Compiled several ways: see CMakeLists.txt. */
int overdrive_slot_function(void);

#ifdef TWO_SLOTS
int (*overdrive_address_of_slot_function)(void) = overdrive_slot_function;
#endif

int overdrive_call_slot_function(void) { return overdrive_slot_function(); }
