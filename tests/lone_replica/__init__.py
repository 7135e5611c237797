"""One replica whose peers are the test."""
