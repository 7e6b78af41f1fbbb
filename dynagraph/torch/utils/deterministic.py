"""``torch.utils.deterministic``"""

# whether `empty` fills what it gives where deterministic algorithms are asked for; kept, as what it gives is not to be read anyway
fill_uninitialized_memory = True
