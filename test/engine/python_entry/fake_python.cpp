// Stands for a libtorch_python.so that the entry cannot use: with no linker slot for Engine::execute(), or with
// two.
#if defined(TWO_SLOTS)
extern "C" void execute() __asm__(
    "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_");
extern "C" __attribute__((visibility("default"))) void (*const overdrive_fake_table)() = &execute;
extern "C" __attribute__((visibility("default"))) void overdrive_fake_call() { execute(); }
#else
extern "C" __attribute__((visibility("default"))) void overdrive_fake_call() {}
#endif
