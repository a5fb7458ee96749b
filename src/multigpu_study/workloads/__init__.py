"""The documents' models that the tool itself does not bring."""
