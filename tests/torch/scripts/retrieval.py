"""Sorting, top-k retrieval, embeddings, tokens and padding, as data code does it."""

import numpy as np
import torch
import torch.nn.functional as F

rng = np.random.RandomState(0)
documents = torch.from_numpy(rng.randn(50, 16)).float()
queries = documents[[3, 17, 42]] + 0.1 * torch.from_numpy(rng.randn(3, 16)).float()
similarity = F.normalize(queries, dim=1) @ F.normalize(documents, dim=1).T
scores, found = similarity.topk(4, dim=1)
print(found)
print(scores)
print((found[:, 0] == torch.tensor([3, 17, 42])).all())

values = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0])
ordered, order = torch.sort(values, descending=True)
print(ordered, order, torch.argsort(order))
ranks = torch.empty_like(order)
ranks[order] = torch.arange(len(order))
print(ranks)
print(torch.kthvalue(values, 2), values.median(), torch.quantile(values, torch.tensor([0.25, 0.5])))

words = ["the", "cat", "sat", "on", "the", "mat", "the", "end"]
vocabulary = {w: i for i, w in enumerate(dict.fromkeys(words))}
ids = torch.tensor([vocabulary[w] for w in words])
table = torch.arange(len(vocabulary) * 3, dtype=torch.float32).view(-1, 3).requires_grad_()
embedded = F.embedding(ids, table)
print(embedded.shape, embedded[-1])
embedded.sum().backward()
print(table.grad[:, 0])
print(torch.bincount(ids), torch.unique(ids, return_inverse=True)[1])

lengths = torch.tensor([3, 1, 2])
mask = torch.arange(lengths.max())[None, :] < lengths[:, None]
print(mask)
padded = torch.full((3, 3), -1).masked_scatter(mask, torch.arange(6))
print(padded)
print(padded[mask].split(lengths.tolist()))
print(torch.cat([padded, padded.flip(1)], dim=1).where(torch.tensor([[True], [False], [True]]), torch.tensor(0)))

logits = torch.tensor([[2.0, 1.0, 0.5, -1.0]])
probabilities = logits.softmax(-1)
ordered, places = probabilities.sort(descending=True)
kept = ordered.cumsum(-1) - ordered < 0.8
nucleus = torch.zeros_like(probabilities).scatter_(1, places, ordered * kept)
print(nucleus / nucleus.sum(-1, keepdim=True))
print(torch.searchsorted(torch.tensor([1, 3, 5, 7]), torch.tensor([3, 6])), torch.bucketize(values, torch.tensor([2.0, 4.0])))
