"""Asking nodes what they do: what `vivum top` shows. Design note: `docs/design/runtime.md`, "Survey"."""
