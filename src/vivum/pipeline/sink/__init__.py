"""The Spark sink `vivum`: stages rows, then publishes each batch exactly once."""
