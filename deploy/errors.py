"""What can go wrong while the ground is laid. The text of each is one sentence for the user, without a stack trace."""


class DeployError(Exception):
    """Something that Offsetwatch needs is not there. `str()` is one line that names it and what to do."""


class JavaMissing(DeployError):
    """There is no Java 17 or newer, and none could be installed."""


class JarsMissing(DeployError):
    """A set of jars could not be resolved."""


class KafkaFailed(DeployError):
    """A local broker did not start, stopped by itself, or cannot be started in this folder."""


class AddressInUse(KafkaFailed):
    """Somebody else listens on one of its ports."""
