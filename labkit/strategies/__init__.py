"""Parallel strategies, each one as a timeline: who is busy when, and what waits for what."""
