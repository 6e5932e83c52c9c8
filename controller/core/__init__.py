"""Decisions: plain synchronous code without I/O, clock, threads or randomness."""
