"""What the toolkit is measured, planned and compared with: `python -m scripts.NAME`, from the checkout."""
