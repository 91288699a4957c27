"""What this process is: the worker whose model runs here, a process that the model has forked from it, or neither."""

import threading


class Place:
    """The state that a model's objects share. Outside a worker nothing is set, and what needs the server fails."""

    def __init__(self):
        self.side = None  # tutti_wire.Side
        self.parent = None  # in a forked process: the side of the one that it was forked from, until it has its own
        self.forks = 0  # how many forks lie between the worker and this process
        self.model = ""  # the model's name
        self.instance = ""  # its instance's
        self.folder = ""
        self.executing = False  # between initialize and finalize
        self.ready = None  # takes the link and the id of a READY, and answers it
        self.lock = threading.Lock()

    def forked(self):
        """Notes that this process was forked from the one that it was. Threads and locks of that one mean nothing here."""
        self.parent, self.side = self.side or self.parent, None
        self.forks += 1
        self.lock = threading.Lock()

    def server(self, what):
        """Returns the side, for what is said to need it."""
        if self.side is not None:
            return self.side
        with self.lock:
            if self.side is None and self.parent is not None:
                self.side, self.parent = self.parent.join(), None
            if self.side is not None:
                return self.side
        raise RuntimeError("%s needs a server: this process is not a worker of the python backend, nor forked from one" % what)


here = Place()
