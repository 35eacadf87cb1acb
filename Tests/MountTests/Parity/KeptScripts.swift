/// A script that differed once, with its cause.
struct KeptScript: Sendable {
    let reason: String
    var caches = ["shared", "exclusive", "none"]
    let text: String

    static let all = [
        KeptScript(
            reason: "a process that has a file open for reading and for writing locks it for both",
            text: """
                0 open 0 f3 66 0644
                0 reopen 1 0 0
                0 reopen 2 0 1
                0 lock 1 0 800 50 0
                0 lock 2 1 200 1000 0
                1 open 0 f3 0 0
                1 getlk 0 0 200 10 0
                """),
        KeptScript(
            reason: "set-id bits stay when root appends, and go when another does",
            text: """
                0 open 0 l1 1601 0770
                0 fchmod 0 02770
                0 write 0 200 89
                0 stat l1 0
                0 open 1 f1 64 0666
                0 fchmod 1 06777
                1 open 1 f1 1025 0
                0 fchmod 1 06777
                1 write 1 10 1
                1 stat f1 0
                """),
        KeptScript(
            reason: "a removed file that is held by O_PATH alone is opened again",
            text: """
                2 open 0 f0 192 0777
                2 open 1 f0 2097152 0
                2 close 0
                2 fsync 1
                2 unlink f0
                2 pause 50
                2 reopen 2 1 2
                2 write 2 10 1
                """),
        KeptScript(
            reason: "set-id bits stay when truncating fails",
            text: """
                2 open 2 f0 66 0755
                2 fchmod 2 06755
                2 ftruncate 2 9223372036854775807
                2 stat f0 0
                2 ftruncate 2 10
                2 stat f0 0
                """),
        KeptScript(
            reason: "a set-gid bit without execution stays when a member of the group, by a supplementary one, changes owners",
            text: """
                0 mkdir d1 0777
                0 chown d1 0 2002 0
                0 chmod d1 02777
                1 open 0 d1/l0 64 02745
                1 fchown 0 -1 2002
                1 stat d1/l0 0
                1 fallocate 0 0 0 10
                1 stat d1/l0 0
                """),
        KeptScript(
            reason: "that bit stays as well when such a member writes or truncates, and goes when another does",
            text: """
                0 mkdir d1 0777
                0 chown d1 0 2002 0
                0 chmod d1 02777
                2 open 3 d1/f0 1089 02745
                2 pwritev2 3 226 4096 165 4
                2 ftruncate 3 100
                2 stat d1/f0 0
                2 chmod d1/f0 02766
                1 open 0 d1/f0 1 0
                1 write 0 10 1
                1 stat d1/f0 0
                0 chown d1/f0 1002 1002 0
                2 chmod d1/f0 02766
                1 write 0 10 1
                1 stat d1/f0 0
                """),
        KeptScript(
            reason: "nobody clears set-id bits of other people's files by chown(2) to the same owner",
            text: """
                0 open 0 f4 66 02755
                0 fchmod 0 06755
                2 chown f4 -1 -1 0
                1 stat f4 0
                1 open 0 f1 66 0666
                1 fchmod 0 06755
                1 chown f1 -1 -1 0
                1 stat f1 0
                """),
        KeptScript(
            reason: "files without a name: written, opened again, linked by those who may, with the umask and the default ACL",
            text: """
                0 mkdir d3 0777
                0 setx d3 system.posix_acl_default x0200000001000700ffffffff02000600ea03000004000500ffffffff08000700d207000010000700ffffffff20000000ffffffff 0
                0 chmod d3 0777
                1 open 0 d3 4259842 0640
                1 fstat 0
                1 write 0 5000 3
                1 reopen 1 0 2
                1 pread 1 100 4990
                1 linkproc 0 d3/f0
                1 stat d3/f0 0
                1 link f0:@ d3/f1 4096
                1 open 2 . 4259970 0640
                1 linkproc 2 d3/f2
                0 snap
                """),
        KeptScript(
            reason: "chown(2) that changes neither owner nor group changes the ctime",
            text: """
                0 open 0 f0 66 0644
                0 mknod p0 0020644 259
                0 snap
                0 chown f0 -1 -1 0
                2 chown p0 -1 -1 256
                0 snap
                """),
        KeptScript(
            reason: "a set-gid bit goes when somebody sets an ACL who is not of the group, and stays when one is by a supplementary group",
            text: """
                0 chmod . 06777
                1 mkdir d1 0644
                1 setx d1 system.posix_acl_access \(ParityACL.example) 0
                0 snap
                0 mkdir d2 0777
                0 chown d2 1001 2001 0
                0 chmod d2 02755
                1 setx d2 system.posix_acl_access \(ParityACL.example) 0
                0 setx d2 system.posix_acl_access \(ParityACL.example) 0
                0 snap
                """),
    ]
}
