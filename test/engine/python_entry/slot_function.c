int overdrive_slot_function(void);
int overdrive_slot_function(void) { return 1; }
