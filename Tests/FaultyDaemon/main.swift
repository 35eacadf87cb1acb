import Glibc
import GrantDaemon

// `grantfsd` with faults that tests inject: see CGrantFaults.
exit(DaemonCommandLine.main())
