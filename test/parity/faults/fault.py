"""What a seeded mistake is: an exact replacement in one source, and the tests that have to notice it.

`before` must stand in the file exactly once. `after` replaces it, in a copy of the sources that makes a library of
its own; there a mistake is on when OVERDRIVE_TEST_FAULT names it, which the text asks with FAULT. `found_by` is the
command of a test that passes with the sound library and must fail with the mistake: a program of the build folder
and its arguments.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    name: str
    meaning: str
    file: str
    before: str
    after: str
    found_by: tuple
    unseen_because: str = ""  # of a mistake that no test can see: one line

    @property
    def replacement(self):
        return self.after.replace("FAULT", f'::overdrive::faults::on("{self.name}")')


def tests(program, gtest_filter, *more):
    return (program, f"--gtest_filter={gtest_filter}", *more)
