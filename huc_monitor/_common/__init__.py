"""What every folder needs and no folder owns: arrays, threads, times."""
