"""Membership: who is in the domain, who is in which group, and how nodes fall into regions.

Design note: `docs/design/membership.md`. Import from the modules.
"""
