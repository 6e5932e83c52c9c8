"""Decisions: synchronous code that computes what to write and push.

This package has the cluster model, the interface to the outside (events, effects, records, outbox), and the machine
that runs each event's handler. Each feature is a room below. Not allowed here: I/O, clocks, threads, randomness,
asyncio, logging, and imports from ``controller`` outside ``controller.core``.
"""
