"""Finding the configuration service of a domain: beacons, seekers, and which of two services gives way.

Design note: `docs/design/runtime.md`, "Discovery".
"""
