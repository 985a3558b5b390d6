"""The report of a scoring as one HTML file: every error, heard and seen."""

from asr.scoring.page.page import Compared, is_page, write_page

__all__ = ["Compared", "is_page", "write_page"]
