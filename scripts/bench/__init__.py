"""Benchmarks: `python -m scripts.bench.NAME`, from the checkout; see README.md."""
