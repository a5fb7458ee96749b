"""Errors that become a Record's status instead of the end of a sweep."""


class Unsupported(Exception):
    """This Run cannot exist here; the message says why. Its Record's status is `unsupported`."""


class DidNotTrain(Exception):
    """The steps ran but the model did not learn from them: a figure that must not be published."""
