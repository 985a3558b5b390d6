"""Sentences in, translations out, by the recognizer's search."""
