for i in 1 2 3 4 5 6 7 8; do for p in .base build; do for k in mlp enc; do
echo $p $k $(PYTHONPATH=/work/main/$p/python OMP_NUM_THREADS=1 PYTHONHASHSEED=0 .deps/python/bin/python -B .one.py $k 2>/dev/null); done; done; done | python3 -c "
import sys,collections
d=collections.defaultdict(list)
for l in sys.stdin:
    p,k,*v=l.split(); d[k,p].append(list(map(float,v)))
for k in sorted(d): print(*k, 'min', [min(x) for x in zip(*d[k])], 'median', [sorted(x)[len(x)//2] for x in zip(*d[k])])
"
