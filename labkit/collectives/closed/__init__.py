"""Closed forms of the lock-step alpha-beta model, one file per family: each gives (seconds, steps).

All take ``size`` in bytes, ``n`` ranks (floats holding whole numbers), the ``Place`` they sit at and, where
messages are pipelined, ``segments``; all broadcast. Chunks are the smooth size / n, never rounded.
"""
