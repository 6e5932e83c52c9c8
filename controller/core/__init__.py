"""Decisions: plain synchronous code that says what is to be written and pushed.

At this level: the model of the cluster, the protocol with the outside (events, effects, records, outbox), and what
drives one event through its handler. Each feature is a room below. Not here: I/O, clocks, threads, randomness,
asyncio, logging; nothing of ``controller`` outside ``controller.core``.
"""
