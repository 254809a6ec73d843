"""A board that anyone can replay: scores of a frozen suite, entries, their verification, and the page."""
