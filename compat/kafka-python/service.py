"""What kafka-python's fixtures import and its source archive lacks: a broker that runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    def __init__(self, args=None, env=None):
        raise RuntimeError("the broker under test is started by cargo xtask compat")
