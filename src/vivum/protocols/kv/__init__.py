"""The key-value store on a replicated log: `docs/design/kv.md`."""
