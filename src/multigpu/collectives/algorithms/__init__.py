"""All-reduce algorithms, one a file."""
