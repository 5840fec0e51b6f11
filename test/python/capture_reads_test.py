"""Values that a captured function finds in many ways: another value after the first replays gives eager's results, in steps and parts.

A row has what is defined, what the function reads, and what the program changes: with put() what is not its own, which is put back after the test. The
data differ from call to call."""
import dataclasses
import functools
import sys
import threading
import types
import warnings

import pytest
import torch

import overdrive

IMPORTS = ("import abc, argparse, array, asyncio, collections, contextvars, copy, ctypes, dataclasses, decimal, functools, operator, socket, statistics, sys, types\n"
           "import typing, weakref, torch\n"
           "from torch import nn\nfrom torch.utils import data\nspace = types.SimpleNamespace\n")
MATCHED = "def g(o):\n match o:\n  case C(k): return k\n  case [a, b]: return a + b\n  case _: return 0.5\n"
ROWS = {
    "a function that is not called": ("def g(): pass\ng.k = 1.0", "g.k", "g.k = 2.0"),
    "an object at a function": ("def g(): pass\ng.c = space(k=1.0)", "g.c.k", "g.c.k = 2.0"),
    "a partial": ("g = functools.partial(print)\ng.k = 1.0", "g.k", "g.k = 2.0"),
    "a cached function": ("@functools.lru_cache\ndef g(): return 1.0\ng.k = 1.0", "g.k", "g.k = 2.0"),
    "keyword defaults": ("def g(x, *, k=1.0): return k", "g(x)", "g.__kwdefaults__ = {'k': 2.0}"),
    "other code in a function": ("def g(x): return 1.0\ndef h(x): return 2.0", "g(x)", "g.__code__ = h.__code__"),
    "other code in a method": ("class C:\n def m(self): return 1.0\ndef h(self): return 2.0\nc = C()", "c.m()", "C.m.__code__ = h.__code__"),
    "an object of a class": ("class C:\n inner = space(k=1.0)", "C.inner.k", "C.inner.k = 2.0"),
    "another object of a class": ("class C:\n inner = space(k=1.0)\nc = C()", "c.inner.k", "C.inner = space(k=2.0)"),
    "a class in a class": ("class C:\n class D:\n  k = 1.0", "C.D.k", "C.D.k = 2.0"),
    "a class in the class of an object": ("class C:\n class D:\n  k = 1.0\nc = C()", "c.D.k", "C.D.k = 2.0"),
    "a function of PyTorch in a class": ("class C:\n f = torch.tanh", "C.f(x)", "C.f = torch.exp"),
    "a tensor of a class": ("class C:\n t = torch.ones(2)\nc = C()", "c.t", "C.t = torch.ones(2) * 2"),
    "an attribute of a parameter by another name": (
        "c = space(m=nn.Linear(2, 2).requires_grad_(False)); c.p = c.m.weight", "c.m(x) * getattr(c.p, 'k', 1.0)", "c.p.k = 2.0"),
    "an attribute of a parameter in a list": (
        "c = space(m=nn.Linear(2, 2).requires_grad_(False)); c.ps = list(c.m.parameters()); c.ps[0].k = 1.0",
        "c.m(x) * sum(getattr(p, 'k', 0.5) for p in c.ps)", "c.ps[1].k = 2.0"),
    "an attribute of a buffer in a closure": (
        "m = nn.BatchNorm1d(2).eval()\nm.bias.requires_grad_(False); m.weight.requires_grad_(False)\n"
        "def make(bs): return lambda: sum(b.k for b in bs if hasattr(b, 'k'))\ng = make([b for b in m.buffers()])",
        "m(x[None])[0] + g()", "m.running_var.k = 2.0"),
    "a mask of a parameter": (
        "c = space(m=nn.Linear(2, 2).requires_grad_(False)); c.ps = [*c.m.parameters()]; c.ps[0].mask = None",
        "c.m(x) * (1.0 if c.ps[0].mask is None else c.ps[0].mask)", "c.ps[0].mask = torch.ones(2) * 3"),
    "an attribute of a parameter that a text names": (
        "m = nn.Linear(2, 2).requires_grad_(False)", "m(x) * getattr(m.get_parameter('weight'), 'k', 1.0)", "m.weight.k = 2.0"),
    "an attribute of a parameter in nn.ParameterList": (
        "m = nn.ParameterList([nn.Parameter(torch.ones(2), requires_grad=False)])", "m[0] * getattr(m[0], 'k', 1.0)", "m[0].k = 2.0"),
    "an attribute of a parameter in nn.ParameterDict": (
        "m = nn.ParameterDict({'a': nn.Parameter(torch.ones(2), requires_grad=False)})", "m['a'] * getattr(m['a'], 'k', 1.0)", "m['a'].k = 2.0"),
    "the version of a weight that a module has": (
        "class M(nn.Module):\n def __init__(self): super().__init__(); self.base = nn.Linear(2, 2).requires_grad_(False)\n"
        " def forward(self, x): return self.base(x) * (1 + self.base.weight._version)\nm = M()", "m(x)", "m.base.weight.add_(0)"),
    "a name of a class that a pattern takes by its position": (MATCHED + "class C: k, __match_args__ = 1.0, ('k',)\nc = C()", "g(c)", "c.k = 2.0"),
    "a name that a pattern takes by its position, and that comes": (MATCHED + "class C: __match_args__ = ('k',)\nc = C()", "g(c)", "c.k = 2.0"),
    "a class that becomes a sequence": (
        MATCHED + "class C: __match_args__ = ('k',)\nclass D:\n def __len__(self): return 2\n def __getitem__(self, i): return (1.0, 3.0)[i]\nc = D()",
        "g(c)", "collections.abc.Sequence.register(D)"),
    "a name of a module that an import does not find": (
        "m = types.ModuleType('m'); put(sys, 'modules', {**sys.modules, 'settings_of_mine': m})\ndef g():\n try:\n  from settings_of_mine import k\n  return k\n except ImportError:\n  return 1.0",
        "g()", "m.k = 2.0"),
    "a class of bytes": ("class B(bytearray): k = 1.0\nc = B(b'a')", "c.k", "B.k = 2.0"),
    "an attribute of bytes": ("class B(bytearray): k = 1.0\nc = B(b'a')", "c.k", "c.k = 2.0"),
    "a class of modules of Python": ("class M(types.ModuleType): k = 1.0\nm = M('m')", "m.k", "M.k = 2.0"),
    "a class of weak references": ("class R(weakref.ref): k = 1.0\nclass C: pass\nc = C(); r = R(c)", "r.k", "R.k = 2.0"),
    "a class of a parameter": (
        "class P(nn.Parameter): k = 1.0\nclass M(nn.Module):\n def __init__(self): super().__init__(); self.w = P(torch.ones(2), requires_grad=False)\n"
        " def forward(self, x): return x * self.w * self.w.k\nm = M()", "m(x)", "P.k = 2.0"),
    "an attribute that hides that of a parameter's class": (
        "class P(nn.Parameter): k = 1.0\nc = space(m=nn.Linear(2, 2).requires_grad_(False)); c.m.weight = P(torch.ones(2, 2), requires_grad=False)",
        "c.m(x) * c.m.weight.k", "c.m.weight.k = 2.0"),
    "a method of a parameter's class": (
        "class P(nn.Parameter):\n def k(self): return 1.0\nm = nn.Linear(2, 2).requires_grad_(False); m.weight = P(torch.ones(2, 2), requires_grad=False)",
        "m(x) * next(m.parameters()).k()", "P.k = lambda self: 2.0"),
    "a class of a tensor": ("class T(torch.Tensor): k = 1.0\nc = space(t=torch.ones(1).as_subclass(T))", "c.t.k", "T.k = 2.0"),
    "a cell that is asked": (
        "def make(v):\n def g(): return v\n return g\ng = make(1.0)", "g.__closure__[0].cell_contents", "g.__closure__[0].cell_contents = 2.0"),
    "a metaclass": ("class M(type):\n k = 1.0\nclass C(metaclass=M): pass", "C.k", "M.k = 2.0"),
    "a class above": ("class A:\n k = 1.0\nclass B(A):\n def r(self): return super().k\nb = B()", "b.r()", "A.k = 2.0"),
    "a descriptor": ("class D:\n v = 1.0\n def __get__(self, o, t=None): return self.v\nclass C:\n d = D()\nc = C()", "c.d", "C.__dict__['d'].v = 2.0"),
    "an object of the class of a module": (
        "class Q(nn.Module):\n k = space(v=1.0)\n def forward(self, x): return x * self.k.v\nq = Q()", "q(x)", "Q.k.v = 2.0"),
    "a dataclass as a dict": ("@dataclasses.dataclass\nclass C:\n k: float = 1.0\nc = C()", "dataclasses.asdict(c)['k']", "c.k = 2.0"),
    "all variables of an object": ("c = space(k=1.0)", "sum(vars(c).values())", "c.k = 2.0"),
    "all options of a program": ("c = argparse.Namespace(k=1.0)", "sum(c.__dict__.values())", "c.k = 2.0"),
    "attrgetter()": ("c = space(k=1.0)", "operator.attrgetter('k')(c)", "c.k = 2.0"),
    "attrgetter() of two": ("c = space(d=space(k=1.0))", "operator.attrgetter('d.k')(c)", "c.d.k = 2.0"),
    "a getter that was made before": ("c = space(d=space(k=1.0)); get = operator.attrgetter('d.k')", "get(c)", "c.d.k = 2.0"),
    "a field of a text": ("c = space(k=1.0)", "float('{0.k}'.format(c))", "c.k = 2.0"),
    "a field of a text that was made before": ("c = space(k=1.0); text = '{0.k}'", "float(text.format(c))", "c.k = 2.0"),
    "a name that a method makes": ("c = types.SimpleNamespace(q_a=1.0)", "getattr(c, 'Q_A'.lower())", "c.q_a = 2.0"),
    "a name that is joined": ("c = types.SimpleNamespace(q_a=1.0)", "getattr(c, '_'.join(['q', 'a']))", "c.q_a = 2.0"),
    "a name that is cut out": ("c = types.SimpleNamespace(q_a=1.0)", "getattr(c, 'xq_a'[1:])", "c.q_a = 2.0"),
    "a name that is filled in": ("c = types.SimpleNamespace(q_1=1.0)", "getattr(c, 'q_%d' % 1)", "c.q_1 = 2.0"),
    "a made name that comes": ("c = types.SimpleNamespace()", "hasattr(c, '_'.join(['q', 'a']))", "c.q_a = 2.0"),
    "a namespace in a text": ("c = types.SimpleNamespace(q=1.0)", "float(len(f'{c}'))", "c.other = 2.0"),
    "a namespace among others": ("c, d = types.SimpleNamespace(q=1.0), [types.SimpleNamespace(q=1.0)]", "float(c in d)", "c.q = 2.0"),
    "a namespace that is filled in": ("c = types.SimpleNamespace(q=1.0)", "float(len('%s' % c))", "c.other = 2.0"),
    "a namespace that is sought": ("c, d = types.SimpleNamespace(q=1.0), [types.SimpleNamespace(q=1.0)]", "float(d.count(c))", "c.q = 2.0"),
    "a made key of vars()": ("c = types.SimpleNamespace(q_a=1.0)", "vars(c).get('Q_A'.lower(), 3.0)", "c.q_a = 2.0"),
    "a name that another function makes": ("c = space(k=1.0)\ndef make(n): return chr(n)", "getattr(c, make(107))", "c.k = 2.0"),
    "a name that a comprehension makes": ("c = space(k1=1.0)", "sum([getattr(c, n) for n in ['k%d' % i for i in (1,)]])", "c.k1 = 2.0"),
    "names of a generator": (
        "c = space(k1=1.0)\ndef get(o, *names): return sum(getattr(o, n) for n in names)", "get(c, *('k%d' % i for i in (1,)))", "c.k1 = 2.0"),
    "a name with a width": ("c = space(k01=1.0)", "getattr(c, f'k{1:02d}')", "c.k01 = 2.0"),
    "a made name of an unknown object": ("c = space(k=1.0)\ndef which(): return c", "getattr(which(), 'K'.lower())", "c.k = 2.0"),
    "a made name of a class": ("class C: k = 1.0", "getattr(C, 'K'.lower())", "C.k = 2.0"),
    "a made name of the class of an object": ("class C: k = 1.0\nc = C()", "getattr(c, 'K'.lower())", "C.k = 2.0"),
    "a made name of a metaclass": ("class M(type): k = 1.0\nclass C(metaclass=M): pass", "getattr(C, 'K'.lower())", "M.k = 2.0"),
    "a made name of a slot": ("class C: __slots__ = ('k',)\nc = C(); c.k = 1.0", "getattr(c, 'K'.lower())", "c.k = 2.0"),
    "a made name of a function": ("def g(): pass\ng.k = 1.0", "getattr(g, 'K'.lower())", "g.k = 2.0"),
    "a made name of a partial": ("g = functools.partial(print)\ng.k = 1.0", "getattr(g, 'K'.lower())", "g.k = 2.0"),
    "a made name of a module of Python": ("m = types.ModuleType('m'); m.k = 1.0", "getattr(m, 'K'.lower())", "m.k = 2.0"),
    "a made name of a function of PyTorch": ("m = types.ModuleType('m'); m.f = nn.functional.relu", "getattr(m, 'F'.lower())(x)", "m.f = torch.tanh"),
    "a made name of a module": ("q = nn.Linear(2, 2); q.k = 1.0", "getattr(q, 'K'.lower())", "q.k = 2.0"),
    "a made name of PyTorch's module": ("q = nn.Dropout(0.5)", "getattr(q, 'P'.lower())", "q.p = 0.25"),
    "a made key of a module's attributes": ("q = nn.Linear(2, 2); q.k = 1.0", "vars(q)['K'.lower()]", "q.k = 2.0"),
    "a name of a module from a list": ("q = nn.Linear(2, 2); q.k = 1.0; keys = ['k']", "sum(getattr(q, key) for key in keys)", "q.k = 2.0"),
    "a made name of a tensor": ("w = torch.ones(2); w.k = 1.0", "getattr(w, 'K'.lower())", "w.k = 2.0"),
    "a made name of an optimizer": ("o = torch.optim.SGD([torch.ones(1)], lr=1.0)", "getattr(o, 'DEFAULTS'.lower())['lr']", "o.defaults['lr'] = 2.0"),
    "a made name behind a weak proxy": ("class C: pass\nc = C(); c.k = 1.0; p = weakref.proxy(c)", "getattr(p, 'K'.lower())", "c.k = 2.0"),
    "a made name of a copy": ("c = space(k=1.0)", "getattr(copy.copy(c), 'K'.lower())", "c.k = 2.0"),
    "a made name for __getattribute__()": ("c = space(k=1.0)", "object.__getattribute__(c, 'K'.lower())", "c.k = 2.0"),
    "a bound __getattribute__()": ("c = space(k=1.0); get = c.__getattribute__", "get('K'.lower())", "c.k = 2.0"),
    "a made name for attrgetter()": ("c = space(k=1.0)", "operator.attrgetter('K'.lower())(c)", "c.k = 2.0"),
    "builtins.getattr()": ("import builtins\nc = space(k=1.0)", "builtins.getattr(c, 'K'.lower())", "c.k = 2.0"),
    "a made field of a text": ("c = space(k=1.0)\ndef make(n): return '{0.' + n + '}'", "float(make('k').format(c))", "c.k = 2.0"),
    "another default of a dict": ("d = collections.defaultdict(float)", "d.copy()['j']", "d.default_factory = lambda: 2.0"),
    "a child with another name": ("q = nn.Module(); q.a = nn.Tanh()", "(1.0 if hasattr(q, 'a') else 2.0)", "q.b = q._modules.pop('a')"),
    "the names of buffers": ("q = nn.Module(); q.register_buffer('a', torch.ones(2))", "float(len([*q.named_buffers()][0][0]))",
                             "q._buffers['long'] = q._buffers.pop('a')"),
    "buffers that are not kept": ("q = nn.Module(); q.register_buffer('a', torch.ones(2))", "float(len(q._non_persistent_buffers_set))",
                                  "q._non_persistent_buffers_set.add('a')"),
    "how much a module keeps": ("q = nn.Module(); q.register_buffer('a', torch.ones(2))", "float(len(q.state_dict()))",
                                "q._non_persistent_buffers_set.add('a')"),
    "flags of hooks": ("q = nn.Tanh(); h = q.register_forward_hook(lambda *a: None)", "float(len(q._forward_hooks_with_kwargs))",
                       "q._forward_hooks_with_kwargs[h.id] = True"),
    "a hook that gets keywords": ("q = nn.Tanh()\ndef hook(*a): return a[-1] * len(a)\nh = q.register_forward_hook(hook)", "q(x)",
                                  "h.remove(); q.register_forward_hook(hook, with_kwargs=True)"),
    "a flag of backward hooks": ("q = nn.Tanh()", "float(q._is_full_backward_hook or 0)", "q._is_full_backward_hook = True"),
    "what hides a parameter": ("q = nn.Linear(2, 2).requires_grad_(False)", "q(x)", "q.__dict__['weight'] = torch.ones(2, 2)"),
    "an equal namespace": ("c = space(k=1.0)", "(1.0 if c == space(k=1.0) else 2.0)", "c.k = 2.0"),
    "a namespace as a text": ("c = space(k=1.0)", "float(len(repr(c)))", "c.k = 2.25"),
    "a warning that is an error": (
        "import warnings\ndef f():\n try: warnings.warn('x')\n except UserWarning: return 2.0\n return 1.0\nwarnings.simplefilter('ignore')", "f()",
        "warnings.simplefilter('error')"),
    "a setting of a backend": ("torch.backends.cudnn.benchmark = False", "(1.0 if torch.backends.cudnn.benchmark else 2.0)",
                               "torch.backends.cudnn.benchmark = True"),
    "a setting of a backend that a class asks for": ("torch.backends.cuda.matmul.allow_tf32 = False",
                                                     "(1.0 if torch.backends.cuda.matmul.allow_tf32 else 2.0)",
                                                     "torch.backends.cuda.matmul.allow_tf32 = True"),
    "what hides a module's __getattr__()": ("class M(torch.nn.Module):\n    def __getattr__(self, name):\n        return 2.0 if name == 'k' else "
                                            "super().__getattr__(name)\nc = M()", "c.k", "c.k = 3.0"),
    "an option that comes": ("c = argparse.Namespace(k=1.0)", "('j' in c)", "c.j = 2.0"),
    "an option of a class of one's own that comes": ("class N(argparse.Namespace): pass\nc = N(k=1.0)", "('j' in c)", "c.j = 2.0"),
    "another class above": ("class A: k = 1.0\nclass B: k = 2.0\nclass C(A): pass\nc = C()", "c.k", "C.__bases__ = (B,)"),
    "the length of a data set": ("d = data.TensorDataset(torch.ones(3))", "len(d)", "d.tensors = (torch.ones(4),)"),
    "the length of a data set of one's own class": (
        "class D(data.TensorDataset): pass\nd = D(torch.ones(3))", "len(d)", "d.tensors = (torch.ones(4),)"),
    "the length of a part of a data set": ("d = data.Subset(range(9), [0])", "len(d)", "d.indices.append(1)"),
    "the length of a long part of a data set": ("d = data.Subset(range(9999), list(range(5000)))", "len(d)", "d.indices.append(1)"),
    "an item of a part of a data set": ("d = data.Subset([1.0, 2.0], [0])", "d[0]", "d.indices[0] = 1"),
    "the length of data sets in a row": ("d = data.ConcatDataset([[1.0], [2.0]])", "len(d)", "d.cumulative_sizes = [1, 2, 3]"),
    "the length of a loader": ("p = [1]\nd = data.DataLoader(data.Subset(range(9), p))", "len(d)", "p.append(2)"),
    "the length of a sampler": ("p = [1.0]\nd = data.WeightedRandomSampler([1.0, 2.0], 1)", "len(d)", "d.num_samples = 2"),
    "defaults of an optimizer": ("o = torch.optim.SGD([torch.ones(1)], lr=1.0)", "o.defaults['lr']", "o.defaults['lr'] = 2.0"),
    "how many states an optimizer has": ("o = torch.optim.SGD([torch.ones(1)], lr=1.0)", "len(o.state)", "o.state['z'] = 1"),
    "a state of an optimizer": ("o = torch.optim.SGD([torch.ones(1)], lr=1.0); o.state['z'] = 1.0", "o.state['z']", "o.state['z'] = 2.0"),
    "a gradient that is none": ("w = torch.ones(2)", "(1.0 if w.grad is None else 2.0)", "w.grad = torch.ones(2)"),
    "a method of PyTorch in a module": ("class Q(nn.Module):\n def forward(s, x): return x * len(s.extra_repr())\nq = Q()", "q(x)",
                                        "q.extra_repr = lambda: 'ab'"),
    "a name in the place of another": ("class A:\n k = 1.0\nclass C(A): pass\nc = C(); c.b = 1", "c.k", "del c.b; c.k = 2.0"),
    "another class of a module": ("q = nn.Sequential(nn.Tanh())", "q(x)", "q[0].__class__ = nn.Sigmoid"),
    "an attribute in the place of another object's": (
        "class W:\n def __init__(self, c): self.c = c\n def __getattr__(self, key): return getattr(self.c, key)\nw = W(space(k=1.0))", "w.k", "w.k = 2.0"),
    "a method of a dict": ("d = {'k': 1.0}; get = d.get", "get('k')", "d['k'] = 2.0"),
    "a method of a dict in an object": ("d = {'k': 1.0}; o = space(get=d.get)", "o.get('k')", "d['k'] = 2.0"),
    "a method of a dict that finds nothing": ("d = {'k': 1.0}; get = d.get", "get('j', 1.0)", "d['j'] = 2.0"),
    "a method of a dict with its argument": ("d = {'k': 1.0}; get = functools.partial(d.get, 'k')", "get()", "d['k'] = 2.0"),
    "a method of a list": ("l = [1.0, 2.0]; at = l.index", "at(2.0)", "l.reverse()"),
    "the entries of a dict": ("d = {'k': 1.0}; all = d.items()", "dict(all)['k']", "d['k'] = 2.0"),
    "the values of a dict": ("d = {'k': 1.0}; all = d.values()", "sum(all)", "d['k'] = 2.0"),
    "the last entry of a dict": ("d = {'j': 1.0, 'k': 2.0}", "d.copy().popitem()[1]", "d['j'] = d.pop('j')"),
    "other attributes for an object": ("class C: pass\nc = C(); c.k = 1.0", "c.k", "c.__dict__ = {'k': 2.0}"),
    "other attributes for a module": ("q = nn.Identity(); q.k = 1.0", "q.k", "q.__dict__ = {**q.__dict__, 'k': 2.0}"),
    "an attribute that a function gets": ("def f(): pass", "getattr(f, 'k', 1.0)", "f.k = 2.0"),
    "a method that Python calls, in the place of an attribute": (
        "class C: k = 1.0\nc = C()", "(1.0 if c else 2.0)", "del C.k; C.__len__ = lambda c: 0"),
    "a method of C that Python calls": ("class L(list): __len__ = list.__len__\nc = L([1])", "float(len(c))", "L.__len__ = list.__sizeof__"),
    "a method that Python calls": ("class C: pass\nc = C()", "(1.0 if c else 2.0)", "C.__len__ = lambda c: 0"),
    "a module that makes attributes": (
        "m = types.ModuleType('m'); m.k = 1.0; m.__getattr__ = lambda name: m.k + 1", "m.j", "m.k = 2.0"),
    "another function of a module that makes attributes": (
        "m = types.ModuleType('m'); m.__getattr__ = lambda name: 1.0", "m.k", "m.__getattr__ = lambda name: 2.0"),
    "other code in a function of a module that makes attributes": (
        "m = types.ModuleType('m'); m.__getattr__ = lambda name: 1.0", "m.k", "m.__getattr__.__code__ = (lambda name: 2.0).__code__"),
    "annotations of a class": ("class C: k: 1.0", "C.__annotations__['k']", "C.__annotations__['k'] = 2.0"),
    "abstract methods of a class": (
        "class C(abc.ABC):\n @abc.abstractmethod\n def m(self): pass", "len(C.__abstractmethods__)", "C.__abstractmethods__ = frozenset('abc')"),
    "other annotations of a function": ("def g(k: 1.0): pass", "g.__annotations__['k']", "g.__annotations__ = {'k': 2.0}"),
    "a class that is a protocol": ("class C(typing.Protocol): k = 1.0", "C.k", "C.k = 2.0"),
    "a generic class with a parameter": ("class C(typing.Generic[typing.TypeVar('T')]): k = 1.0\nB = C[int]", "B.k", "C.k = 2.0"),
    "the description of a field": (
        "@dataclasses.dataclass\nclass C: k: float = 1.0\nf = dataclasses.fields(C)[0]", "f.default", "f.default = 2.0"),
    "an object of a class with a foreign module": ("class C: k = 1.0\nC.__module__ = 'numpy.program'\nc = C()", "c.k", "c.k = 2.0"),
    "an equal tuple with another attribute": (
        "class T(tuple): pass\nt = T((1.0,)); t.k = 1.0", "(t[0] + t.k)", "t = T((1.0,)); t.k = 2.0"),
    "a function of C that PyTorch's own calls": (
        "", "nn.functional.mse_loss(x, x * 2)", "put(torch._C._nn, 'mse_loss', lambda *given: torch.ones(()) * 7)"),
    "builtins of one's own": (
        "own = {'k': 1.0}\ng = types.FunctionType((lambda: k).__code__, {'__builtins__': own})", "g()", "own['k'] = 2.0"),
    "globals()": ("k = 1.0", "globals()['k']", "k = 2.0"),
    "a chain of dicts": ("b = collections.ChainMap({'a': 1.0}, {'b': 1.0})", "b['b']", "b.maps[0]['b'] = 2.0"),
    "a list with attributes": ("class L(list): pass\nb = L([1.0]); b.k = 1.0", "b.k", "b.k = 2.0"),
    "a dict with attributes": ("class L(dict): pass\nb = L(a=1.0); b.k = 1.0", "b.k", "b.k = 2.0"),
    "a tuple with attributes": ("class T(tuple): pass\nb = T([1.0]); b.k = 1.0", "b.k", "b.k = 2.0"),
    "a set with attributes": ("class S(set): pass\nb = S([1.0]); b.k = 1.0", "b.k", "b.k = 2.0"),
    "a group that is added": ("o = torch.optim.SGD([torch.ones(1, requires_grad=True)], 1.0)", "sum(g['lr'] for g in o.param_groups)",
                              "o.add_param_group({'params': [torch.ones(1, requires_grad=True)]})"),
    "a hook that a parameter gets": ("w = nn.Parameter(torch.ones(2))", "(2.0 if w._backward_hooks else 1.0)", "w.register_hook(lambda g: g)"),
    "a hook that a parameter of a module gets": (
        "q = nn.Linear(2, 2)", "(2.0 if q.weight._post_accumulate_grad_hooks else 1.0)", "q.weight.register_post_accumulate_grad_hook(lambda p: None)"),
    "an attribute of a class of PyTorch": ("put(nn.Linear, 'k', 1.0)", "nn.Linear.k", "put(nn.Linear, 'k', 2.0)"),
    "an object of a class of PyTorch": ("put(nn.Linear, 'c', space(k=1.0)); q = nn.Linear(2, 2)", "q.c.k", "nn.Linear.c.k = 2.0"),
    "a class of PyTorch that gets what one above it has": (
        "put(nn.Module, 'k', 1.0); q = nn.Linear(2, 2)", "q.k", "put(nn.Linear, 'k', 2.0)"),
    "an attribute that a class of PyTorch gets": ("q = nn.Linear(2, 2)", "getattr(q, 'k', 1.0)", "put(nn.Module, 'k', 2.0)"),
    "a property that a class of PyTorch gets": ("q = nn.Linear(2, 2)", "float(q.in_features)", "put(nn.Linear, 'in_features', property(lambda q: 5.0))"),
    "a made name of a class of PyTorch": ("put(nn.Linear, 'k', 1.0); q = nn.Linear(2, 2)", "getattr(q, 'K'.lower())", "put(nn.Linear, 'k', 2.0)"),
    "the class of parameters": ("put(nn.Parameter, 'k', 1.0); q = nn.Linear(2, 2)", "next(q.parameters()).k", "put(nn.Parameter, 'k', 2.0)"),
    "an object of the class of tensors": ("put(torch.Tensor, 'c', space(k=1.0))", "x.c.k", "torch.Tensor.c.k = 2.0"),
    "a class of optimizers": (
        "put(torch.optim.SGD, 'k', 1.0); o = torch.optim.SGD([torch.ones(1)], lr=1.0)", "o.k", "put(torch.optim.SGD, 'k', 2.0)"),
    "a class of data sets": ("put(data.TensorDataset, 'k', 1.0); d = data.TensorDataset(x)", "d.k", "put(data.TensorDataset, 'k', 2.0)"),
    "an attribute of a class of Python": ("put(collections.Counter, 'k', 1.0); c = collections.Counter()", "c.k", "put(collections.Counter, 'k', 2.0)"),
    "an attribute of ABC": ("put(abc.ABC, 'k', 1.0)\nclass C(abc.ABC): pass", "C.k", "put(abc.ABC, 'k', 2.0)"),
    "a method of a class of Python": (
        "c = collections.ChainMap({'a': 1.0})", "c['a']", "put(collections.ChainMap, '__getitem__', lambda c, key: 2.0)"),
    "an attribute that a module of Python gets": ("import sys", "(2.0 if getattr(sys, 'frozen', False) else 1.0)", "put(sys, 'frozen', True)"),
    "an attribute that a module of PyTorch gets": (
        "", "(2.0 if hasattr(nn.functional, 'my_flag') else 1.0)", "put(nn.functional, 'my_flag', True)"),
    "an attribute of PyTorch's module of C": ("put(torch._C, 'k', 1.0)", "torch._C.k", "put(torch._C, 'k', 2.0)"),
    "what PyTorch keeps in a variable": ("put(torch.hub, '_hub_dir', 'a')", "float(len(torch.hub.get_dir()))", "put(torch.hub, '_hub_dir', 'ab')"),
    "what Python's library keeps in a variable": (
        "n = statistics.NormalDist()", "n.pdf(0.0)", "put(statistics, 'tau', 1.0)"),
    "a cell in a variable": ("def m(k):\n def g(): return k\n def put(v):\n  nonlocal k\n  k = v\n return g, put\ng, put_k = m(1.0); c = g.__closure__[0]",
                             "c.cell_contents", "put_k(2.0)"),
    "a slot by its descriptor": (
        "class C: __slots__ = ('k',)\nc = C(); c.k = 1.0", "C.__dict__['k'].__get__(c)", "c.k = 2.0"),
    "an attribute by its descriptor": (
        "class C: __slots__ = ('k',)\nc = C(); c.k = 1.0; d = C.k", "d.__get__(c, C)", "c.k = 2.0"),
    "an attribute of an exception": ("e = ValueError(); e.k = 1.0", "e.k", "e.k = 2.0"),
    "a note of an exception": ("e = ValueError(); e.__notes__ = ['a']", "float(len(e.__notes__))", "e.__notes__.append('b')"),
    "the arguments of an exception": ("e = ValueError(1.0)", "e.args[0]", "e.args = (2.0,)"),
    "an attribute of an array": ("class A(array.array): pass\na = A('d', [1.0]); a.k = 1.0", "a.k", "a.k = 2.0"),
    "an attribute of a value of C": ("class D(ctypes.c_double): pass\nc = D(1.0); c.k = 1.0", "c.k", "c.k = 2.0"),
    "an attribute of a structure of C": ("class S(ctypes.Structure): pass\nc = S(); c.k = 1.0", "c.k", "c.k = 2.0"),
    "an attribute of a static method": ("c = staticmethod(abs); c.k = 1.0", "c.k", "c.k = 2.0"),
    "an attribute that C hides": ("class K(asyncio.Future): pass\no = K(loop=asyncio.new_event_loop()); o.k = 1.0", "o.k", "o.k = 2.0"),
    "what C keeps of an object": ("o = asyncio.new_event_loop().create_future()", "float(len(o._state))", "o.set_result(1)"),
    "a setting of an object of C": ("c = decimal.Context(prec=10)", "float(c.prec)", "c.prec = 20"),
    "a socket's time": ("s = socket.socket(); s.settimeout(1.0)", "s.timeout", "s.settimeout(2.0)"),
    "the type of a tensor that no operator uses": ("w = torch.ones(2)", "(2.0 if w.dtype == torch.float64 else 1.0)", "w.data = w.double()"),
    "the place of a tensor that no operator uses": (
        "b = torch.ones(4); w = b[:2]", "float(w.storage_offset())", "w.set_(b.untyped_storage(), 2, (2,), (1,))"),
    "a tensor that keeps its gradient": ("w = torch.ones(2, requires_grad=True) * 2", "(2.0 if w.retains_grad else 1.0)", "w.retain_grad()"),
    "a function that a function of Python calls": ("", "float(statistics.mean([1.0, 1.0]))", "put(statistics, '_sum', lambda values: (float, 4.0, 2))"),
}


@pytest.fixture(autouse=True)
def settings_are_put_back():
    before = torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32
    with warnings.catch_warnings():
        yield
    torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
@pytest.mark.parametrize("row", ROWS)
def test_another_value_gives_the_results_of_eager(row, capture, monkeypatch):
    definition, read, change = ROWS[row]
    program = {"__name__": "program", "put": functools.partial(monkeypatch.setattr, raising=False), "x": torch.ones(2)}
    exec(f"{IMPORTS}{definition}\ndef function(x):\n    return x + {read}\n", program)
    function, captured = program["function"], capture(program["function"])
    batches = [torch.randn(2, generator=torch.Generator().manual_seed(seed)) for seed in range(9)]
    for x in batches:
        assert torch.equal(captured(x), function(x))
    assert captured.stats()["replayed"] > 0, captured.refusal()
    before = function(batches[0])
    exec(change, program)
    assert not torch.equal(function(batches[0]), before), "the change is none"
    for x in [*batches, *batches]:
        assert torch.equal(captured(x), function(x))
    assert captured.stats()["replayed"] > 6, captured.refusal()


NAMERS = {"another name": ("get = getattr", "get"), "an item": ("d = {'get': getattr}", "d['get']"),
          "a default": ("def g(o, n, get=getattr): return get(o, n)", "g"), "a slot of object": ("get = object.__getattribute__", "get")}


@pytest.mark.parametrize("row", NAMERS)
def test_a_function_that_takes_names_is_no_value(row):
    definition, read = NAMERS[row]
    program = {"__name__": "program"}
    exec(f"{IMPORTS}c = space(k=1.0)\n{definition}\ndef function(x):\n    return x + {read}(c, 'K'.lower())\n", program)
    captured = overdrive.capture(program["function"])
    for call in range(24):
        program["c"].k = float(call // 8)
        x = torch.ones(2)
        assert torch.equal(captured(x), program["function"](x))
    assert "as a value" in captured.refusal() and "may take any name by it" in captured.refusal()


@pytest.mark.parametrize("change", [lambda opt: opt.param_groups[0]["params"].pop(), lambda opt: opt.param_groups.pop()], ids=["parameter", "group"])
def test_a_parameter_that_has_left_an_optimizer_keeps_its_gradient(change):
    sides = []
    for captured in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(2, 2)
        opt = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias]}], 0.1)

        def function(x, net=net, opt=opt):
            net(x).square().sum().backward()
            opt.zero_grad()

        step = overdrive.capture(function) if captured else function
        for seed in range(8):
            step(torch.randn(3, 2, generator=torch.Generator().manual_seed(seed)))
        if captured:
            assert step.stats()["replayed"] > 0, step.refusal()
        change(opt)
        gradients = []
        for seed in range(14):
            step(torch.randn(3, 2, generator=torch.Generator().manual_seed(seed)))
            gradients.append([None if p.grad is None else p.grad.tolist() for p in net.parameters()])
        sides.append(gradients)
    assert any(gradient is not None for gradient in sides[0][0])
    assert sides[0] == sides[1]


def test_a_function_that_pytorchs_own_code_calls_may_be_replaced(monkeypatch):
    weight, usual = torch.nn.Parameter(torch.ones(2)), torch.autograd._make_grads

    def step(x):
        weight.grad = None
        (weight * x).sum().backward()
        return weight.grad * 1

    captured = overdrive.capture(step)
    for call in range(24):
        if call == 12:
            monkeypatch.setattr(torch.autograd, "_make_grads", lambda *given, **named: tuple(each * 2 for each in usual(*given, **named)))
        x = torch.ones(2) * (call + 1)
        assert torch.equal(captured(x), x * (2 if call >= 12 else 1)), call
    assert captured.stats()["replayed"] > 6, captured.refusal()


class InSlots:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


class Counted(int):
    pass


def with_k(value, k):
    value.k = k
    return value


ARGUMENTS = {
    "slots": InSlots, "slots with a default": dataclasses.make_dataclass("D", ["k"], slots=True, eq=False) if sys.version_info >= (3, 10) else InSlots,
    "a namespace": lambda k: types.SimpleNamespace(k=k), "a class": lambda k: type("C", (), {"k": k}),
    "a module": lambda k: with_k(types.ModuleType("m"), k), "a number with attributes": lambda k: with_k(Counted(1), k),
    "an object in slots": lambda k: types.SimpleNamespace(k=k)}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_what_a_function_reads_of_its_arguments(kind):
    step = overdrive.capture(lambda x, c: x * c.k)
    one, other = ARGUMENTS[kind](1.0), ARGUMENTS[kind](2.0)
    x = torch.ones(2)
    for call in range(48):
        if call in (12, 36):
            one.k += 4.0
        if call in (24, 40):
            other.k += 16.0
        for each in (one, other) if call > 6 else (one,):
            assert torch.equal(step(x, each), x * each.k), call
    assert step.stats()["replayed"] > 16, step.refusal()


def test_an_attribute_of_an_argument_that_is_no_number_is_refused():
    step, x = overdrive.capture(lambda x: x * x.meta[0]), torch.ones(2)
    x.meta = [1.0]
    for call in range(24):
        x.meta[0] = float(call // 12)
        assert torch.equal(step(x), torch.ones(2) * (call // 12))
    assert "an attribute, `meta`, that is no number" in step.refusal()


def test_a_class_method_is_captured():
    class Model:
        k = 1.0

        @classmethod
        @overdrive.capture
        def step(cls, x):
            return x * cls.k

    for call in range(24):
        Model.k = float(call // 12)
        assert torch.equal(Model.step(torch.ones(2)), torch.ones(2) * (call // 12)), call


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_a_function_of_tensors_in_the_place_of_another(capture):
    captured, x = capture(lambda x: x.tanh()), torch.ones(2)
    try:
        torch.Tensor.another = torch.Tensor.tan
        for _ in range(9):
            assert torch.equal(captured(x), torch.tanh(x))
        assert captured.stats()["replayed"] > 0, captured.refusal()
        del torch.Tensor.another
        torch.Tensor.tanh = torch.Tensor.tan
        for _ in range(9):
            assert torch.equal(captured(x), torch.tan(x))
    finally:
        for name in {"another", "tanh"} & set(vars(torch.Tensor)):
            delattr(torch.Tensor, name)


def test_a_method_of_tensors_that_python_calls(monkeypatch):
    captured, x, usual = overdrive.capture(lambda x: sum(each * 2 for each in x)), torch.arange(3.0), torch.Tensor.__iter__
    for _ in range(9):
        assert captured(x) == 6
    assert captured.stats()["replayed"] > 0, captured.refusal()
    monkeypatch.setattr(torch.Tensor, "__iter__", lambda self: usual(self * 3))
    for _ in range(9):
        assert captured(x) == 18


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_a_kernel_may_be_registered_in_between(capture):
    captured, x = capture(lambda x: torch.sinh(x).sum()), torch.ones(2)
    expected = torch.sinh(x).sum()
    for _ in range(9):
        assert torch.equal(captured(x), expected)
    assert captured.stats()["replayed"] > 0, captured.refusal()
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("sinh", lambda x: x * 5, "CPU")
        for _ in range(12):
            assert captured(x).item() == 10
    for _ in range(12):
        assert torch.equal(captured(x), expected)


def test_a_variable_of_a_thread_is_that_of_the_calling_thread():
    local = threading.local()
    local.k = 1.0
    captured, results = overdrive.capture(lambda x: x * getattr(local, "k", 3.0)), []
    for call in range(24):
        if call % 5 == 4:
            thread = threading.Thread(target=lambda: results.append(captured(torch.ones(2))))
            thread.start()
            thread.join()
        else:
            results.append(captured(torch.ones(2)))
    assert [result[0].item() for result in results] == [3.0 if call % 5 == 4 else 1.0 for call in range(24)]


def test_a_captured_part_in_a_captured_step_is_looked_at():
    factor = {"k": 1.0}
    inner = overdrive.captured(lambda x: x * factor["k"])
    outer = overdrive.capture(lambda x: inner(x) + 1)
    for call in range(24):
        factor["k"] = 1.0 if call < 12 else 2.0
        x = torch.randn(2)
        assert torch.equal(outer(x), x * factor["k"] + 1)
    assert outer.stats()["replayed"] > 12, outer.refusal()


@pytest.mark.parametrize("capture", [overdrive.capture, overdrive.captured], ids=["step", "part"])
def test_an_error_that_the_function_catches_decides_in_each_call(capture):
    def function(a):
        try:
            return torch.linalg.cholesky(a).sum()
        except torch.linalg.LinAlgError:
            return a.diagonal().sum()

    captured, good = capture(function), torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    for call in range(24):
        a = good * (-1 if call < 12 else 1) * (call + 1)
        assert torch.equal(captured(a), function(a))
    assert "throws an error that the function catches" in captured.refusal() or capture is overdrive.captured, captured.explain()
