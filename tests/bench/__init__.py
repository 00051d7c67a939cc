"""The benchmarks: `python -m tests.bench [NAME ...]`. They print what they measured, and on what."""
