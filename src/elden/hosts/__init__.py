"""Environments of others: any Gymnasium environment with a factored observation, stepped on the host.

Light on purpose: processes that only step an environment import `elden.hosts.worker`, and that must not cost them JAX.
"""
