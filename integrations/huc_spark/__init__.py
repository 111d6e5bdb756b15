"""The audit on Spark: the same arguments, the same kernels, the same answer."""
