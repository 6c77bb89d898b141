"""Public sets of questions with answers: read, asked, scored by one rule, put in one table."""
