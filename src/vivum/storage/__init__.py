"""Files: the layer that both drivers, simulator and runtime, use to keep what they saw.

Impure: the one place below the drivers that opens files. Imports `vivum.core` and `vivum.observe` alone.
pyarrow comes with the extra `log` and is imported only when a file is really written or read.
"""
