"""The state of this process: the worker that runs the model, a process that the model forked from the worker, or neither."""

import threading


class Process:
    """The state that the model's objects share. Outside a worker nothing is set, and whatever needs the server fails."""

    def __init__(self):
        self.side = None  # tutti_wire.Side
        self.parent = None  # in a forked process: the parent's side channel, until this process opens one
        self.forks = 0  # the number of forks between the worker and this process
        self.model = ""  # the model's name
        self.instance = ""  # the instance's name
        self.folder = ""  # the folder of model.py
        self.executing = False  # between initialize and finalize
        self.ready = None  # called with the link and the id of a READY packet; answers it
        self.lock = threading.Lock()

    def forked(self):
        """Runs in a new child process. The parent's threads and locks do not exist in it."""
        self.parent, self.side = self.side or self.parent, None
        self.forks += 1
        self.lock = threading.Lock()

    def server(self, what):
        """Returns the side channel. what names the operation in the error of a process that has none."""
        if self.side is not None:
            return self.side
        with self.lock:
            if self.side is None and self.parent is not None:
                self.side, self.parent = self.parent.join(), None
            if self.side is not None:
                return self.side
        raise RuntimeError("%s needs a server: this process is not a worker of the python backend, nor forked from one" % what)


process = Process()
