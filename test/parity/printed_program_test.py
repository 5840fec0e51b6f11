"""A program that the fuzzer printed says the same of stock and of Overdrive: printed_program_test.py PROGRAM"""
import subprocess
import sys

output = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
_, stock, ours = output.split("----- ")
owner_of_stock, stock = stock.split("\n", 1)
owner_of_ours, ours = ours.split("\n", 1)
assert owner_of_stock != owner_of_ours, owner_of_stock
assert len(stock.splitlines()) > 20, "hardly anything was printed:\n" + stock
for number, (left, right) in enumerate(zip(stock.splitlines(), ours.splitlines())):
    assert left == right, f"line {number}: {owner_of_stock} {left!r}, {owner_of_ours} {right!r}"
assert stock == ours, "one of the two printed more"
print(f"{len(stock.splitlines())} lines are equal")
