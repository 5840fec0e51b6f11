import os, sys, time, torch, overdrive
torch.set_num_threads(1)
kind = sys.argv[1] if len(sys.argv) > 1 else "mlp"
def once():
    torch.manual_seed(0)
    if kind == "mlp":
        m = torch.nn.Sequential(torch.nn.Linear(8,32),torch.nn.Tanh(),torch.nn.Linear(32,1)); shape=(16,8)
    else:
        m = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16,2,32,batch_first=True),4); shape=(4,5,16)
    o = torch.optim.Adam(m.parameters(), lr=1e-2)
    def train(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss
    x = torch.randn(shape)
    for _ in range(3): train(x)
    step = overdrive.capture(train, optimizer=o)
    t=[]
    for _ in range(8):
        a=time.process_time(); step(x); t.append((time.process_time()-a)*1e3)
    a=time.perf_counter()
    for _ in range(3): step(x)
    w=(time.perf_counter()-a)/3000*1e6
    return t, w, step
res=[]
for i in range(12):
    r,w=os.pipe()
    if os.fork()==0:
        t,wall,step=once()
        # second step in the same process
        t2,wall2,step2=once()
        os.write(w,repr((t,wall,t2,wall2,step.stats()["replayed"])).encode()); os._exit(0)
    os.close(w); res.append(eval(os.read(r,100000))); os.wait()
f=lambda g: " ".join(f"{v:.2f}" for v in g)
print(kind,"first process calls min:", f(min(r[0][k] for r in res) for k in range(6)), "replay us %.2f"%min(r[1] for r in res))
print(kind,"second step min:", f(min(r[2][k] for r in res) for k in range(6)), "replay us %.2f"%min(r[3] for r in res), res[0][4])
