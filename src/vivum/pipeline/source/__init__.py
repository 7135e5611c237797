"""The Spark source `vivum`: batch and streaming reads of a segment log."""
