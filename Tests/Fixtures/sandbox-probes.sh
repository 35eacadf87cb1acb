# Prints what a program in a sandbox sees, may write and reaches, a line each: sandbox-probes.sh WORKSPACE OTHER
# WORKSPACE is bound for writing, with .git for reading and secret hidden. OTHER is a directory of the same user beside it.
work=$1
other=$2
# Says whether a command succeeds.
can() { name=$1; shift; if "$@" > /dev/null 2>&1; then echo "$name: yes"; else echo "$name: no"; fi; }
# Says what a command prints.
tell() { name=$1; shift; echo "$name: $("$@" 2> /dev/null | tr '\n' ' ')"; }
write() { echo x > "$1"; }
append() { echo x >> "$1"; }

# The names that bubblewrap covers with empty ones, and grantfs hides, are not compared.
names() { ls -A "$work" | grep -vxE 'secret|denied|\.agents|\.codex|\.aws'; }

tell 'the workspace' names
tell 'a file of the workspace' cat "$work/file"
tell 'its mode and size' stat -c '%A %s %h' "$work/file"
tell 'its owner' stat -c '%u %g' "$work/file"
tell 'a link in the workspace' readlink "$work/link"
tell 'a file through a link' cat "$work/link"
tell 'the repository' ls -A "$work/.git"
tell 'its configuration' cat "$work/.git/config"
tell 'a hidden directory' ls -A "$work/secret"
can 'a hidden file' cat "$work/secret/key"
can 'read a denied file' grep -q . "$work/denied"
can 'another directory' ls "$other"
tell 'a file there' cat "$other/file"
can 'the users' cat /etc/passwd
can 'the programs' test -x /usr/bin/env
tell 'devices' ls /dev
can 'a disk' ls /dev/sda
can 'fuse' test -e /dev/fuse
can 'the kernel' ls /sys/kernel

can 'write a file' write "$work/file"
can 'append to it' append "$work/file"
can 'make a file' write "$work/new"
can 'make a directory' mkdir "$work/directory"
can 'rename a file' mv "$work/new" "$work/directory/renamed"
can 'make a symbolic link' ln -s file "$work/symbolic"
can 'make a hard link' ln "$work/file" "$work/hard"
can 'change a mode' chmod 700 "$work/file"
can 'change a time' touch -d @0 "$work/file"
can 'make a fifo' mkfifo "$work/fifo"
can 'remove a directory' rm -r "$work/directory"
can 'truncate' truncate -s 0 "$work/file"
can 'write the configuration' write "$work/.git/config"
can 'make a hook' write "$work/.git/hooks/post-commit"
can 'rename the repository' mv "$work/.git" "$work/git"
can 'remove its configuration' rm -f "$work/.git/config"
can 'write the workspace itself' rmdir "$work"
can 'write elsewhere' write "$other/new"
can 'write through a link that leads out' write "$work/out/new"
can 'write for all users' write /etc/sandbox-probe
can 'write programs' write /usr/bin/sandbox-probe
can 'mount' mount -t tmpfs none "$work"
tell 'the workspace at the end' names

can 'the processes of the machine' sh -c 'test "$(ls /proc | grep -c "^[0-9]")" -gt 20'
tell 'the first process' cat /proc/1/comm
tell 'interfaces' ls /sys/class/net
can 'a server on the machine' sh -c 'exec 3<> /dev/tcp/127.0.0.1/1'
tell 'the user' id -u
tell 'the directory' pwd
tell 'a variable' printenv SANDBOX_PROBE
tell 'open files' sh -c 'ls /proc/self/fd | wc -l'
