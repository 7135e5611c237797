"""Worlds for QSM that are harder than those of the swarm, and what must be true of them at the end."""
