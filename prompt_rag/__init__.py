"""prompt-rag: put the notes you forgot beside the prompt you type.

This file stays empty of imports: the hook imports the package on every prompt.
"""

__version__ = "0.1.0"
