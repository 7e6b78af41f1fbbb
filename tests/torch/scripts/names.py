"""A bigram model and a small MLP over characters, as lectures on language models write them."""

import torch
import torch.nn.functional as F

words = ["emma", "olivia", "ava", "isabella", "sophia", "mia", "amelia", "noah", "liam", "oliver", "elijah", "anna"]
chars = sorted(set("".join(words)))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}
n = len(itos)

N = torch.zeros((n, n), dtype=torch.int32)
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        N[stoi[ch1], stoi[ch2]] += 1
print(N.sum(), N[0], N[0].float() / N[0].sum())
P = (N + 1).float()
P /= P.sum(1, keepdim=True)
log_likelihood = 0.0
count = 0
for w in words:
    for ch1, ch2 in zip("." + w, w + "."):
        log_likelihood += torch.log(P[stoi[ch1], stoi[ch2]])
        count += 1
print(f"{log_likelihood=}", f"{-log_likelihood / count:.4f}")

xs = torch.tensor([stoi[c] for w in words for c in "." + w])
ys = torch.tensor([stoi[c] for w in words for c in w + "."])
W = torch.zeros((n, n), requires_grad=True)
for k in range(50):
    xenc = F.one_hot(xs, num_classes=n).float()
    logits = xenc @ W
    counts = logits.exp()
    probs = counts / counts.sum(1, keepdims=True)
    loss = -probs[torch.arange(len(ys)), ys].log().mean() + 0.01 * (W**2).mean()
    W.grad = None
    loss.backward()
    W.data += -10 * W.grad
print(f"{loss.item():.4f}")

block_size = 3
X, Y = [], []
for w in words:
    context = [0] * block_size
    for ch in w + ".":
        ix = stoi[ch]
        X.append(context)
        Y.append(ix)
        context = context[1:] + [ix]
X = torch.tensor(X)
Y = torch.tensor(Y)
print(X.shape, X.dtype, Y.shape, X[:5])


def drawn(*shape, scale=1.0):
    total = int(torch.tensor(shape).prod())
    return torch.sin(torch.arange(1, total + 1, dtype=torch.float32) ** 1.5).view(shape) * scale


C = drawn(n, 4)
W1 = drawn(12, 30, scale=(5 / 3) / 12**0.5)
bngain = torch.ones((1, 30))
bnbias = torch.zeros((1, 30))
W2 = drawn(30, n, scale=0.1)
b2 = torch.zeros(n)
parameters = [C, W1, bngain, bnbias, W2, b2]
for p in parameters:
    p.requires_grad = True
bnmean_running = torch.zeros((1, 30))
bnstd_running = torch.ones((1, 30))
for i in range(60):
    ix = (torch.arange(16) + 16 * i) % X.shape[0]
    emb = C[X[ix]]
    hpreact = emb.view(emb.shape[0], -1) @ W1
    bnmeani = hpreact.mean(0, keepdim=True)
    bnstdi = hpreact.std(0, keepdim=True)
    h = torch.tanh(bngain * (hpreact - bnmeani) / bnstdi + bnbias)
    with torch.no_grad():
        bnmean_running = 0.9 * bnmean_running + 0.1 * bnmeani
        bnstd_running = 0.9 * bnstd_running + 0.1 * bnstdi
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Y[ix])
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -0.1 * p.grad
    if i % 20 == 0:
        print(f"{i:3d}: {loss.item():.4f} {W1.grad.std() / W1.data.std():.4f} {(h.abs() > 0.97).float().mean():.3f}")


@torch.no_grad()
def evaluate():
    hpreact = C[X].view(-1, 12) @ W1
    h = torch.tanh(bngain * (hpreact - bnmean_running) / bnstd_running + bnbias)
    return F.cross_entropy(h @ W2 + b2, Y).item()


print(f"{evaluate():.3f}", "".join(itos[i.item()] for i in X[7]), sum(p.nelement() for p in parameters))
