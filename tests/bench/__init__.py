"""The benchmarks: `python -m tests.bench [rules] [plain] [catchup] [latency]`. They print what they measured, and on what."""
