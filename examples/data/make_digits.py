"""Makes the two digits files from the table that scikit-learn ships.

    pip download --no-deps scikit-learn && python3 make_digits.py scikit_learn-*.whl
"""

import gzip
import struct
import sys
import zipfile


def main(wheel):
    table = gzip.decompress(zipfile.ZipFile(wheel).read("sklearn/datasets/data/digits.csv.gz")).decode()
    rows = [[int(float(cell)) for cell in line.split(",")] for line in table.split()]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    # IDX: two zero bytes, 8 = unsigned byte, the number of dimensions, the dimensions (big-endian), the data.
    with open("digits-images.idx3-ubyte", "wb") as images:
        images.write(struct.pack(">BBBB3I", 0, 0, 8, 3, len(rows), 8, 8))
        images.write(bytes(pixel for row in rows for pixel in row[:64]))
    with open("digits-labels.idx1-ubyte", "wb") as labels:
        labels.write(struct.pack(">BBBB1I", 0, 0, 8, 1, len(rows)))
        labels.write(bytes(row[64] for row in rows))


main(sys.argv[1])
