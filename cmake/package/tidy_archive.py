"""Writes a .tar.gz again with sorted names, root as the owner, plain permissions and the time of SOURCE_DATE_EPOCH.

    tidy_archive.py FILE.tar.gz

CPack leaves the order of the file system and the user of the build in it.
"""
import gzip
import os
import shutil
import sys
import tarfile


def tidy(path, seconds):
    with tarfile.open(path) as old, open(path + ".new", "wb") as raw:
        # Without the name and the time that gzip keeps.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new:
            for member in sorted(old.getmembers(), key=lambda member: member.name):
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                member.mtime = seconds
                if not member.issym():
                    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    shutil.move(path + ".new", path)


if __name__ == "__main__":
    tidy(sys.argv[1], int(os.environ["SOURCE_DATE_EPOCH"]))
