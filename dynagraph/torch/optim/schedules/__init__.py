"""Schedules of learning rates; ``torch.optim.lr_scheduler`` has their names."""
