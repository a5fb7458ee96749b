"""What is read of the study's own Records and of the documents' tables."""
