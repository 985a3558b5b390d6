"""The families of transformers' encoders: what each is made of, and our way through its parts.

One more is a file in this folder with its settings and its way, and its name in read.py.
"""
