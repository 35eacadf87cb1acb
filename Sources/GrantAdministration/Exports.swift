// The mounts and their daemons are a part of this library, in a target of their own that the daemon uses as well.
@_exported import GrantMounts
