"""What this process is: the worker whose model runs here, if any."""


class Place:
    """The state that a model's objects share. Outside a worker nothing is set, and what needs the server fails."""

    def __init__(self):
        self.side = None  # tutti_wire.Side
        self.model = ""
        self.folder = ""
        self.executing = False  # between initialize and finalize

    def server(self, what):
        """Returns the side, for what is said to need it."""
        if self.side is None:
            raise RuntimeError("%s needs a server: this process is not a worker of the python backend" % what)
        return self.side


here = Place()
