// swift-tools-version: 6.1
import PackageDescription

// The targets and who may import whom are the table in docs/ARCHITECTURE.md; `make lint` holds the two together.
let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .unsafeFlags(["-warnings-as-errors"]),
]

func library(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

/// `data`: what lies among the tests and is no source.
func tests(_ name: String, _ dependencies: [Target.Dependency], data: [String] = []) -> Target {
    .testTarget(name: name, dependencies: dependencies, exclude: data, swiftSettings: strict)
}

/// A program in C that works on files in every way and knows nothing of grantfs.
func exerciser(_ name: String, linkerSettings: [LinkerSetting] = []) -> Target {
    .executableTarget(
        name: name, path: "Tests/\(name)", cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])],
        linkerSettings: linkerSettings)
}

/// A program as users of the library write them.
func example(_ name: String) -> Target {
    .executableTarget(name: name, dependencies: ["GrantKit"], path: "docs/Examples/\(name)", swiftSettings: strict)
}

let package = Package(
    name: "grantfs",
    products: [
        .executable(name: "grantfs", targets: ["grantfs"]),
        .library(name: "GrantKit", targets: ["GrantKit"]),
    ],
    targets: [
        .systemLibrary(name: "CFuse3", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(name: "CSeccomp", pkgConfig: "libseccomp", providers: [.apt(["libseccomp-dev"])]),
        // Without pkg-config: it gives definitions that the package manager warns of and that change nothing here.
        .systemLibrary(name: "CNcurses", providers: [.apt(["libncurses-dev"])]),
        .target(
            name: "CLinux", dependencies: ["CFuse3"], cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),

        // Without pkg-config: it asks for the shared library, and this compiles what it needs of the headers in.
        .target(name: "CTOML", cxxSettings: [.unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),

        // Without pkg-config, and with the headers of libcurl and libjansson alone: they are loaded by the commands that speak to a fleet.
        .target(name: "CFleet", cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),

        // As CFleet: libmicrohttpd and libgnutls are loaded by the command that shows a fleet to browsers.
        .target(name: "CHTTP", cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),

        library("GrantModel", []),
        library("GrantFiles", ["CTOML", "GrantModel"]),
        library("LinuxFS", ["CLinux"]),
        library("Confinement", ["CSeccomp", "CLinux", "LinuxFS"]),
        library("Bookmarks", ["LinuxFS", "GrantModel"]),
        library("GrantStore", ["CSQLite", "GrantModel", "LinuxFS"]),
        library("Coordinator", ["GrantModel"]),
        library("HostProxy", ["GrantModel", "LinuxFS"]),
        library("FUSEKit", ["CFuse3", "CLinux", "LinuxFS"]),
        library("ViewTree", ["GrantModel", "CLinux", "LinuxFS"]),
        library("ViewFS", ["FUSEKit", "ViewTree", "Coordinator", "CLinux", "LinuxFS", "GrantModel"]),
        library("Control", ["GrantModel", "LinuxFS"]),
        library("GrantAdministration", ["GrantFiles", "GrantModel", "Bookmarks", "GrantStore", "Control", "LinuxFS"]),
        library("Fleet", ["CFleet", "GrantAdministration", "GrantModel", "GrantStore", "LinuxFS"]),
        .target(
            name: "FleetConsole", dependencies: ["CHTTP", "Fleet", "GrantModel", "LinuxFS"],
            resources: [
                .embedInCode("Page/index.html"), .embedInCode("Page/console.css"), .embedInCode("Page/console.js"),
                .embedInCode("Page/icon.svg"),
            ], swiftSettings: strict),
        library("GrantKit", ["GrantAdministration", "GrantModel", "Bookmarks", "GrantStore", "Coordinator", "Control", "LinuxFS"]),
        library("TerminalUI", ["CNcurses", "LinuxFS", "GrantModel"]),
        // It needs the headers of libsystemd alone, which it loads when it is used.
        .target(name: "CPortal", cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
        library("Consoles", ["CPortal", "TerminalUI", "GrantAdministration", "GrantStore", "Control", "Fleet", "GrantModel", "LinuxFS"]),
        .executableTarget(
            name: "grantfs",
            dependencies: [
                "CSQLite", "LinuxFS", "GrantModel", "Bookmarks", "GrantStore", "Coordinator", "FUSEKit", "ViewTree", "ViewFS", "Control",
                "Confinement", "GrantAdministration", "GrantFiles", "TerminalUI", "Consoles",
                "HostProxy",
                "Fleet", "FleetConsole",
            ],
            swiftSettings: strict),

        example("DirectoryList"),
        example("NoteEditor"),
        .executableTarget(
            name: "AccessProbe",
            path: "Tests/AccessProbe",
            cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
        .executableTarget(
            name: "ParityProbe",
            path: "Tests/ParityProbe",
            cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
        .executableTarget(
            name: "HungSource", dependencies: ["CFuse3", "CLinux"],
            path: "Tests/HungSource",
            cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
        .executableTarget(
            name: "ClaimProbe", dependencies: ["GrantAdministration", "Control", "GrantModel", "GrantStore", "LinuxFS"],
            path: "Tests/ClaimProbe", swiftSettings: strict),
        .executableTarget(
            name: "FakePortal", path: "Tests/FakePortal",
            cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])],
            linkerSettings: [.linkedLibrary("systemd")]),
        exerciser("FileExerciser"),
        exerciser("NamespaceStress"),
        exerciser("CallTable"),
        exerciser("HostileSource"),
        exerciser("AsynchronousWriter"),
        // It runs where Swift's libraries are not to be seen.
        exerciser("Attacker", linkerSettings: [.unsafeFlags(["-static-stdlib"])]),
        .executableTarget(
            name: "Workloads",
            path: "Tests/Benchmarks/Workloads",
            cSettings: [.define("_GNU_SOURCE"), .unsafeFlags(["-Wall", "-Wextra", "-Werror"])]),
        .executableTarget(
            name: "GateBenchmark", dependencies: ["Coordinator", "LinuxFS"], path: "Tests/Benchmarks/Gate", swiftSettings: strict),
        .target(name: "TestSupport", path: "Tests/TestSupport", swiftSettings: strict),
        tests("MountTests", ["TestSupport"]),
        tests("GrantModelTests", ["GrantModel"]),
        tests("CoordinatorTests", ["Coordinator", "TestSupport"]),
        tests("ViewTreeTests", ["ViewTree", "LinuxFS", "CLinux"]),
        tests("ViewFSTests", ["ViewFS", "Coordinator", "FUSEKit", "GrantModel", "LinuxFS"]),
        tests("GrantStoreTests", ["GrantStore", "GrantModel", "LinuxFS", "StoreWriter", "TestSupport"]),
        tests("BookmarksTests", ["Bookmarks", "GrantModel", "LinuxFS", "CLinux", "TestSupport"]),
        .executableTarget(
            name: "StoreWriter", dependencies: ["GrantStore", "GrantModel"], path: "Tests/StoreWriter", swiftSettings: strict),
        .executableTarget(
            name: "ConfinedProbe", dependencies: ["Confinement", "LinuxFS"], path: "Tests/ConfinedProbe", swiftSettings: strict),
        .executableTarget(
            name: "DecoderFuzzer", dependencies: ["Control", "GrantAdministration", "GrantModel"], path: "Tests/DecoderFuzzer",
            exclude: ["Corpus"], swiftSettings: strict),
        .executableTarget(
            name: "RequestFuzzer", dependencies: ["ViewFS", "FUSEKit", "CLinux", "LinuxFS", "GrantModel"], path: "Tests/RequestFuzzer",
            swiftSettings: strict),
        tests("ControlTests", ["Control", "GrantModel", "LinuxFS", "TestSupport"]),
        tests("GrantAdministrationTests", ["GrantAdministration", "Control", "GrantStore", "Bookmarks", "GrantModel", "LinuxFS"]),
        tests("TerminalUITests", ["TerminalUI", "CNcurses", "GrantModel"]),
        tests(
            "ConsoleTests", ["Consoles", "TerminalUI", "GrantAdministration", "Fleet", "GrantModel", "LinuxFS", "TestSupport"],
            data: ["Screens"]),
        tests("GrantKitTests", ["GrantKit", "GrantModel", "Coordinator", "LinuxFS", "TestSupport", "DirectoryList", "NoteEditor"]),
        tests("HostProxyTests", ["HostProxy", "GrantModel"]),
        tests("GrantFilesTests", ["GrantFiles", "GrantModel"]),
        tests("FleetTests", ["Fleet", "GrantModel", "TestSupport"]),
        tests("CommandLineTests", ["grantfs", "Control", "GrantAdministration", "GrantModel", "TestSupport"]),
    ],
    cxxLanguageStandard: .cxx17
)
