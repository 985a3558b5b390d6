"""Bad inputs of every command: what is given, and what a user should get. tests/test_bad_inputs.py runs them."""
