import Glibc
import GrantDaemon

exit(DaemonCommandLine.main())
