"""The library asks for nothing that the C and C++ libraries of 2018 lack, as LibTorch's own builds do (manylinux_2_28).

    symbols_test.py READELF NM LIBRARY...
"""
import platform
import re
import subprocess
import sys
import unittest

READELF, NM, *LIBRARIES = sys.argv[1:]
del sys.argv[1:]
# glibc, libstdc++ and its runtime.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
# As a system before glibc 2.34 names the libraries of the functions that are in libc.so.6 now.
OLD_NAMES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1",
             "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libtorch.so", "libtorch_cpu.so", "libc10.so"}

# LibTorch's libraries export parts of the C++ library that they were built with, without a version, and a linker takes these.
# Every LibTorch from 2.11 on exports these ones.
FROM_LIBTORCH = {"_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv", "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv",
                 "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev", "_ZSt28__throw_bad_array_new_lengthv"}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parts(version):
    return tuple(map(int, version.split(".")))


class OldSystems(unittest.TestCase):
    def setUp(self):
        # The headers of a newer glibc or C++ library may call functions of their own, in the name of old ones.
        if parts(platform.libc_ver()[1]) > (2, 36):
            self.skipTest(f"glibc {platform.libc_ver()[1]} is newer than the one that wheels are made with (Debian 12's 2.36)")

    def test_no_function_is_newer_than_2018(self):
        for library in LIBRARIES:
            listed = run(NM, "-D", "--undefined-only", "--with-symbol-versions", library)
            needs = re.findall(r" [Uw] (\S+)@+(GLIBC|GLIBCXX|CXXABI)_([\d.]+)$", listed, re.M)
            self.assertGreater(len(needs), 5, listed)
            newer = [f"{name} of {kind} {version}" for name, kind, version in needs if parts(version) > NEWEST[kind]]
            self.assertEqual(newer, [], f"{library} would not load on older systems: see cmake/OverdriveOlderSystems.cmake")

    def test_no_function_of_the_cpp_library_comes_from_one_libtorch_and_not_from_another(self):
        for library in LIBRARIES:
            listed = run(NM, "-D", "--undefined-only", "--with-symbol-versions", library)
            given = set(re.findall(r" [Uw] (_Z(?:N[KVRO]*|T[VTIS]N?)?S[t-z]\w+)$", listed, re.M))
            self.assertLessEqual(given, FROM_LIBTORCH, f"{library}: engine/base/older_systems.cpp may stand in for it")

    def test_the_libraries_it_needs_are_on_every_system(self):
        for library in LIBRARIES:
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", run(READELF, "-d", library)))
            self.assertLessEqual(needed, OLD_NAMES, library)


if __name__ == "__main__":
    unittest.main()
