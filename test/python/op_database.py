"""PyTorch's database of operators through captured steps: `make op-database` runs it.

Every sample of an operator is a step: forward, and the gradients of what requires one. The step is called on the same data
until it is replayed, then on other data of the same shapes, then on the first data again. Every call is compared with the
function called eagerly: bits, strides, types, errors and what is left in the inputs. Prints what differs, and refusals by reason.

    op_database.py [--seconds S] [--only TEXT] [--samples N] [--from NAME]

A worker process makes the operators one after the other, so that a crash is a row of the table.
"""
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import time
import warnings

os.environ["OVERDRIVE_CAPTURE_CHECK"] = "0"
SAME, OTHER, AGAIN = 6, 3, 2
UNINITIALISED = ("empty", "new_empty")


class Hole:
    """The place of a tensor in the arguments of a sample."""

    def __init__(self, index):
        self.index = index


def flat(value, take):
    """The value with `take(tensor)` for each tensor in it."""
    import torch

    if isinstance(value, torch.Tensor):
        return take(value)
    if type(value) in (list, tuple):
        return type(value)(flat(part, take) for part in value)
    if type(value) is dict:
        return {key: flat(part, take) for key, part in value.items()}
    if isinstance(value, tuple):  # a named tuple of results
        return tuple(flat(part, take) for part in value)
    return value


class Sample:
    def __init__(self, sample):
        self.tensors = []
        self.arguments = flat((sample.input, sample.args, sample.kwargs), self._take)

    def _take(self, tensor):
        for index, known in enumerate(self.tensors):
            if known is tensor:
                return Hole(index)
        self.tensors.append(tensor)
        return Hole(len(self.tensors) - 1)

    def look(self):
        return [(tuple(t.shape), t.dtype, t.stride(), t.requires_grad) for t in self.tensors]

    def is_plain(self):
        import torch

        return all(type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and t.device.type == "cpu"
                   and not t.is_quantized for t in self.tensors)


def flat_holes(value, fill):
    if isinstance(value, Hole):
        return fill(value.index)
    if type(value) in (list, tuple):
        return type(value)(flat_holes(part, fill) for part in value)
    if type(value) is dict:
        return {key: flat_holes(part, fill) for key, part in value.items()}
    return value


def step_of(operator, sample, in_place):
    import torch

    arguments, wants = sample.arguments, [t.requires_grad for t in sample.tensors]

    def step(*tensors):
        given = [t.detach().requires_grad_(want) for t, want in zip(tensors, wants)]
        used = [g.clone() for g in given] if in_place else given
        value, args, kwargs = flat_holes(arguments, used.__getitem__)
        results = []
        flat(operator(value, *args, **kwargs), results.append)
        ends = [r for r in results if r.requires_grad]
        leaves = [g for g in given if g.requires_grad]
        gradients = torch.autograd.grad(ends, leaves, [torch.cos(end.detach()) for end in ends], allow_unused=True) if ends else []
        return [r.detach().clone() for r in results], [g for g in gradients if g is not None]

    return step


def bits(tensor):
    import torch

    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    plain = tensor.detach().resolve_conj().resolve_neg().flatten().clone(memory_format=torch.contiguous_format)
    return plain.view(torch.uint8)


def difference(a, b):
    import torch

    if len(a) != len(b):
        return f"{len(a)} tensors and {len(b)}"
    for x, y in zip(a, b):
        if (x.shape, x.dtype, x.layout) != (y.shape, y.dtype, y.layout):
            return f"{x.dtype} {tuple(x.shape)} and {y.dtype} {tuple(y.shape)}"
        if x.layout == torch.strided and x.numel() and x.stride() != y.stride():
            return f"strides {x.stride()} and {y.stride()}"
        if not torch.equal(bits(x), bits(y)):
            return f"eager {x.flatten()[:4].tolist()}, captured {y.flatten()[:4].tolist()}"
    return ""


def inputs_of(sample):
    """Tensors of their own, with the strides of the sample's."""
    import torch

    made = []
    for tensor in sample.tensors:
        whole = tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        made.append(whole.clone().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
    return made


def outcome(function, tensors, seed):
    import torch

    torch.manual_seed(seed)
    try:
        results, gradients = function(*tensors)
    except Exception as error:  # noqa: BLE001 - an error is an outcome
        return type(error).__name__, [], None
    return "", [*results, *gradients], torch.get_rng_state()


def compare(operator, first, second, in_place):
    """(what differs, refusal, replays) of one sample."""
    import torch

    import overdrive

    function = step_of(operator, first, in_place)
    expected_error, before, _ = outcome(function, inputs_of(first), 1)
    if expected_error:
        return None
    again, after, _ = outcome(function, inputs_of(first), 1)
    if again or difference(before, after):
        return None  # eager is not equal to itself
    step = overdrive.capture(function)
    calls = [first] * SAME + [second] * OTHER + [first] * AGAIN
    for number, sample in enumerate(calls):
        tensors, ours_given = (inputs_of(sample) for _ in range(2))
        error, results, state = outcome(function, tensors, number)
        our_error, ours, our_state = outcome(step, ours_given, number)
        text = f"error {error or 'none'} and {our_error or 'none'}" if error != our_error else difference(results, ours)
        if not text and state is not None and not torch.equal(state, our_state):
            text = "the state of random numbers"
        if not text and (what := difference(tensors, ours_given)):
            text = f"an input: {what}"
        if text:
            return f"call {number}: {text}", step.refusal(), step.stats()["replayed"]
    return "", step.refusal(), step.stats()["replayed"]


def work(names, most, kinds):
    """Of each operator a line of JSON: what it was, before it runs, and what came of it."""
    import torch
    import torch.testing._internal.common_methods_invocations as database

    # It would set the seed in the middle of a step. outcome() does before each call.
    database.wrapper_set_seed = lambda operator, *args, **kwargs: operator(*args, **kwargs)
    op_db = [op for op in database.op_db if not op.name.startswith(UNINITIALISED)]
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    known = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
    if names is None:
        print(json.dumps(list(known)))
        return
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        op, rows = known[name], []
        for kind in kinds:
            if kind not in op.supported_dtypes("cpu"):
                continue
            try:
                both = []
                for seed in (1, 2):
                    torch.manual_seed(seed)
                    random.seed(seed)
                    made = op.sample_inputs("cpu", kind, requires_grad=op.supports_autograd and kind in op.supported_backward_dtypes("cpu"))
                    both.append([Sample(s) for s, _ in zip(made, range(400))])
            except Exception as error:  # noqa: BLE001 - the database itself
                rows.append(["no samples", f"{type(error).__name__}: {error}"[:100], 0])
                continue
            pairs = list(zip(*both))
            if len(pairs) > most:
                pairs = random.Random(0).sample(pairs, most)
            for first, second in pairs:
                if not first.is_plain():
                    rows.append(["skipped", "not a dense tensor of the CPU", 0])
                    continue
                if first.look() != second.look():
                    second = first
                for label, function in (("", op.op), ("in place", op.inplace_variant)):
                    if function is None:
                        continue
                    found = compare(function, first, second, bool(label))
                    if found is None:
                        rows.append(["skipped", "eager throws, or differs from itself", 0])
                        continue
                    text, refusal, replayed = found
                    kind_of_row = "differs" if text else "refused" if not replayed else "replayed"
                    about = f"{kind} {label} {[look[0] for look in first.look()]}: {text}" if text else refusal
                    rows.append([kind_of_row, about, replayed])
        print(json.dumps({"end": name, "rows": rows}), flush=True)


def without_details(reason):
    """Refusals that differ in a number or a place alone are one."""
    reason = re.sub(r" \(/[^)]*\)", "", reason.split(" Also: ")[0])
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", reason)[:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--only", default="", help="operators whose name has this")
    parser.add_argument("--from", dest="first", default="", help="begins with this operator")
    parser.add_argument("--samples", type=int, default=8, help="of each operator and type, at most")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    kinds = (torch.float32, torch.float64)
    if options.work is not None:
        work(json.loads(options.work), options.samples, kinds)
        return 0
    here = [sys.executable, "-B", __file__, "--samples", str(options.samples), "--work"]
    names = json.loads(subprocess.run([*here, "null"], stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    if options.first:
        names = names[names.index(options.first):]
    left = [name for name in names if options.only in name]
    counts, reasons, wrong = collections.Counter(), collections.defaultdict(collections.Counter), []
    end, total, done = time.monotonic() + options.seconds, len(left), 0
    while left and time.monotonic() < end:
        worker = subprocess.Popen([*here, json.dumps(left)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        under_way = ""
        for line in worker.stdout:
            if not line.startswith("{"):
                continue
            news = json.loads(line)
            if "begin" in news:
                under_way = news["begin"]
                continue
            left.remove(news["end"])
            done, under_way = done + 1, ""
            for what, about, _ in news["rows"]:
                counts[what] += 1
                if what == "differs":
                    wrong.append(f"{news['end']}: {about}")
                    print(f"DIFFERS {wrong[-1]}", flush=True)
                elif what == "refused":
                    reasons[without_details(about)][news["end"]] += 1
            if time.monotonic() > end:
                worker.kill()
                break
        code = worker.wait()
        if under_way and time.monotonic() < end:
            wrong.append(f"{under_way}: the process ended with {code}")
            print(f"DIFFERS {wrong[-1]}", flush=True)
            left.remove(under_way)
            done += 1
        elif code and time.monotonic() < end:
            print(f"the worker ended with {code}", file=sys.stderr)
            return 2
    print(f"\n{done} of {total} operators, samples: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    if left:
        print(f"the time is over; go on with --from {left[0]}")
    print("\nrefusals by reason")
    for reason, operators in sorted(reasons.items(), key=lambda item: -sum(item[1].values())):
        some = ", ".join(name for name, _ in operators.most_common(6))
        print(f"{sum(operators.values()):6}  {reason}\n        {len(operators)} operators: {some}")
    print(f"\n{len(wrong)} differences")
    for text in wrong:
        print("  " + text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
