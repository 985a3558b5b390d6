"""The families of transformers' encoders: what each is made of, and our way through its parts."""
