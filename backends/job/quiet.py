"""Imported first by the server from which workers fork: Ctrl-C then ends it, and them, without a word.

It reaches all processes of a terminal, and the one that started the others tells what came of it. Those that were still
importing torch each wrote a traceback.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
