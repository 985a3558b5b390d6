"""End-to-end speech recognition: recordings in, a trained Transformer and its transcripts out."""

__version__ = "0.1.0"
