import Foundation

/// The functions of GLib that the program calls.
///
/// They are found as the program runs, so that the examples need no headers of GLib. A program of your own imports a system library
/// target with `pkgConfig: "glib-2.0"`, or a binding of GTK.
struct GLib {
    typealias Callback = @convention(c) (Int32, UInt32, UnsafeMutableRawPointer?) -> Int32

    /// The conditions G_IO_IN, and G_IO_IN with G_IO_HUP.
    static let readable: UInt32 = 1, readableOrEnded: UInt32 = 17
    /// What a callback returns to be called again: G_SOURCE_CONTINUE.
    static let goOn: Int32 = 1

    let makeLoop: @convention(c) (OpaquePointer?, Int32) -> OpaquePointer
    let run: @convention(c) (OpaquePointer) -> Void
    let quit: @convention(c) (OpaquePointer) -> Void
    let watch: @convention(c) (Int32, UInt32, Callback, UnsafeMutableRawPointer?) -> UInt32

    /// The result is nil if GLib is not installed.
    init?() {
        guard let library = dlopen("libglib-2.0.so.0", RTLD_NOW), let makeLoop = dlsym(library, "g_main_loop_new"),
            let run = dlsym(library, "g_main_loop_run"), let quit = dlsym(library, "g_main_loop_quit"),
            let watch = dlsym(library, "g_unix_fd_add")
        else { return nil }
        self.makeLoop = unsafeBitCast(makeLoop, to: (@convention(c) (OpaquePointer?, Int32) -> OpaquePointer).self)
        self.run = unsafeBitCast(run, to: (@convention(c) (OpaquePointer) -> Void).self)
        self.quit = unsafeBitCast(quit, to: (@convention(c) (OpaquePointer) -> Void).self)
        self.watch = unsafeBitCast(watch, to: (@convention(c) (Int32, UInt32, Callback, UnsafeMutableRawPointer?) -> UInt32).self)
    }
}
