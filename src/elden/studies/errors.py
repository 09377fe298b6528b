"""The error of a study that cannot be begun with what it was given."""


class StudyError(ValueError):
    """What a study was given does not fit together; the message is one line that says how to mend it.

    It is raised before any training. Whatever goes wrong later is not the user's mistake.
    """
