"""Bytecode: decoded to one stream for all versions of CPython, analysed, and assembled again."""
