import GrantFUSE
import Glibc
import GrantSystem

// Decodes the library's C callbacks and calls the operations. It does nothing else.
/// Calls `body` with the filesystem and the request behind the library's pointer.
@inline(__always)
private func serve(_ raw: OpaquePointer?, _ body: (ViewFS, consuming Request) -> Void) {
    Request.state(of: raw!, as: ViewFS.self)._withUnsafeGuaranteedRef { body($0, Request(raw!)) }
}

extension ViewFS {
    static var operationTable: OperationTable {
        var table = OperationTable()
        fillNames(&table)
        fillFiles(&table)
        fillDirectories(&table)
        fillAttributes(&table)
        return table
    }

    private static func fillNames(_ table: inout OperationTable) {
        table.lookup = { raw, parent, name in serve(raw) { ViewFS.lookup($0, $1, NodeID(parent), name!) } }
        table.forget = { raw, node, count in
            serve(raw) { view, request in
                let slot = request.worker.pointee.slot
                request.replyNothing()
                view.forget(NodeID(node), count, slot: slot)
                view.throttleForget()
            }
        }
        table.forget_multi = { raw, count, list in
            serve(raw) { view, request in
                // The list belongs to the library until the reply, so it is read first.
                let slot = request.worker.pointee.slot
                for place in 0..<count { view.forget(NodeID(list![place].ino), list![place].nlookup, slot: slot) }
                request.replyNothing()
                view.throttleForget()
            }
        }
        table.readlink = { raw, node in serve(raw) { ViewFS.readlink($0, $1, NodeID(node)) } }
        table.mknod = { raw, parent, name, mode, device in serve(raw) { ViewFS.mknod($0, $1, NodeID(parent), name!, mode, device) }
        }
        table.mkdir = { raw, parent, name, mode in serve(raw) { ViewFS.mkdir($0, $1, NodeID(parent), name!, mode) } }
        table.unlink = { raw, parent, name in serve(raw) { ViewFS.unlink($0, $1, NodeID(parent), name!, directory: false) } }
        table.rmdir = { raw, parent, name in serve(raw) { ViewFS.unlink($0, $1, NodeID(parent), name!, directory: true) } }
        table.symlink = { raw, target, parent, name in serve(raw) { ViewFS.symlink($0, $1, target!, NodeID(parent), name!) } }
        table.rename = { raw, parent, name, newParent, newName, flags in
            serve(raw) { ViewFS.rename($0, $1, NodeID(parent), name!, NodeID(newParent), newName!, flags) }
        }
        table.link = { raw, node, newParent, newName in
            serve(raw) { ViewFS.link($0, $1, NodeID(node), NodeID(newParent), newName!) }
        }
    }

    private static func fillFiles(_ table: inout OperationTable) {
        table.open = { raw, node, info in serve(raw) { ViewFS.open($0, $1, NodeID(node), info!) } }
        table.create = { raw, parent, name, mode, info in serve(raw) { ViewFS.create($0, $1, NodeID(parent), name!, mode, info!) } }
        table.read = { raw, node, size, offset, info in serve(raw) { ViewFS.read($0, $1, NodeID(node), size, offset, info!.pointee) } }
        table.write_buf = { raw, node, vector, offset, info in
            serve(raw) { view, request in
                guard let bytes = vector!.pointee.contiguousBytes else {
                    request.reply(error: EIO)
                    return
                }
                ViewFS.write(view, request, NodeID(node), bytes.baseAddress!, bytes.count, offset, info!.pointee)
            }
        }
        table.flush = { raw, node, info in serve(raw) { ViewFS.flush($0, $1, NodeID(node), info!.pointee) } }
        table.release = { raw, node, info in serve(raw) { ViewFS.release($0, $1, NodeID(node), info!.pointee) } }
        table.fsync = { raw, node, dataOnly, info in
            serve(raw) { ViewFS.fsync($0, $1, NodeID(node), dataOnly: dataOnly != 0, info!.pointee) }
        }
        table.fallocate = { raw, node, mode, offset, length, info in
            serve(raw) { ViewFS.fallocate($0, $1, NodeID(node), mode, offset, length, info!.pointee) }
        }
        table.lseek = { raw, node, offset, whence, info in serve(raw) { ViewFS.lseek($0, $1, NodeID(node), offset, whence, info!.pointee) }
        }
        table.copy_file_range = { raw, from, sourceOffset, source, to, targetOffset, target, length, flags in
            serve(raw) {
                ViewFS.copyFileRange(
                    $0, $1, from: (NodeID(from), source!.pointee.fh), sourceOffset, to: (NodeID(to), target!.pointee.fh), targetOffset,
                    length,
                    flags)
            }
        }
        table.getlk = { raw, node, info, lock in serve(raw) { ViewFS.getlk($0, $1, NodeID(node), info!.pointee, lock!.pointee) } }
        table.setlk = { raw, node, info, lock, wait in
            serve(raw) { ViewFS.setlk($0, $1, NodeID(node), info!.pointee, lock!.pointee, wait: wait != 0) }
        }
        table.flock = { raw, node, info, operation in serve(raw) { ViewFS.flock($0, $1, NodeID(node), info!.pointee, operation) } }
    }

    private static func fillDirectories(_ table: inout OperationTable) {
        table.opendir = { raw, node, info in serve(raw) { ViewFS.opendir($0, $1, NodeID(node), info!) } }
        table.readdir = { raw, node, size, offset, info in
            serve(raw) { ViewFS.readdir($0, $1, NodeID(node), size, UInt64(truncatingIfNeeded: offset), info!.pointee, plus: false) }
        }
        table.readdirplus = { raw, node, size, offset, info in
            serve(raw) { ViewFS.readdir($0, $1, NodeID(node), size, UInt64(truncatingIfNeeded: offset), info!.pointee, plus: true) }
        }
        table.releasedir = { raw, node, info in serve(raw) { ViewFS.releasedir($0, $1, NodeID(node), info!.pointee) } }
        table.fsyncdir = { raw, node, dataOnly, info in
            serve(raw) { ViewFS.fsyncdir($0, $1, NodeID(node), dataOnly: dataOnly != 0, info!.pointee) }
        }
    }

    private static func fillAttributes(_ table: inout OperationTable) {
        table.getattr = { raw, node, info in
            serve(raw) { ViewFS.getattr($0, $1, NodeID(node), file: info?.pointee.fh) }
        }
        table.setattr = { raw, node, attributes, changes, info in
            serve(raw) {
                ViewFS.setattr($0, $1, NodeID(node), attributes!, AttributeChanges(rawValue: changes), file: info?.pointee.fh)
            }
        }
        table.ioctl = { raw, node, command, argument, info, flags, input, inputSize, outputSize in
            serve(raw) {
                ViewFS.flags(
                    $0, $1, NodeID(node),
                    FlagsCall(
                        command: command, address: argument, isDirectory: flags & 1 << 4 != 0, input: input, inputSize: inputSize,
                        outputSize: outputSize), info!.pointee)
            }
        }
        table.statfs = { raw, node in serve(raw) { ViewFS.statfs($0, $1, NodeID(node)) } }
        table.access = { raw, node, _ in serve(raw) { ViewFS.access($0, $1, NodeID(node)) } }
        table.getxattr = { raw, node, name, size in serve(raw) { ViewFS.getxattr($0, $1, NodeID(node), name!, size) } }
        table.listxattr = { raw, node, size in serve(raw) { ViewFS.listxattr($0, $1, NodeID(node), size) } }
        table.setxattr = { raw, node, name, value, size, flags in
            serve(raw) { ViewFS.setxattr($0, $1, NodeID(node), name!, value, size, flags) }
        }
        table.removexattr = { raw, node, name in serve(raw) { ViewFS.removexattr($0, $1, NodeID(node), name!) } }
    }
}
