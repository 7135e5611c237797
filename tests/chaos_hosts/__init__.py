"""Chaos between hosts: programs on several computers, faults drawn from a seed, and a judge that reads their logs."""
