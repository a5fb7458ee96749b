"""Read the study's own Records and the documents' tables."""
