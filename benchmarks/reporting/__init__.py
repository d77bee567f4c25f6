"""What was found out: one form of result, its statistics, and its report as text and as a page."""
