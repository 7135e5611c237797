"""Looks at a running world and makes numbers of it. Nothing here changes what happens in the world.

`probe` decides who is looked at and sums up; `streams`, `rounds`, `recovery`, `timers` and `memory` each look at one
thing; `link` says what a link could carry.
"""
