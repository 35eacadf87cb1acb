// swift-tools-version: 6.2
import PackageDescription

// The targets and who may import whom are the table in docs/ARCHITECTURE.md; `make lint` holds the two together.
let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
]
// A package that others depend on may have no `unsafeFlags`.
let strictC: [CSetting] = [.define("_GNU_SOURCE"), .enableWarning("all"), .enableWarning("extra"), .treatAllWarnings(as: .error)]
let strictCXX: [CXXSetting] = [.enableWarning("all"), .enableWarning("extra"), .treatAllWarnings(as: .error)]

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
        name: name, path: "Tests/\(name)", cSettings: strictC,
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
        // Programs that grantfs starts: the daemon of a mount, sandboxes, the desktop's portal, a fleet, volumes of containers.
        .executable(name: "grantfsd", targets: ["grantfsd"]),
        .executable(name: "grantfs-sandbox", targets: ["grantfs-sandbox"]),
        .executable(name: "grantfs-portal", targets: ["grantfs-portal"]),
        .executable(name: "grantfs-fleet", targets: ["grantfs-fleet"]),
        .executable(name: "grantfs-volumes", targets: ["grantfs-volumes"]),
        // The same objects with faults that tests inject. They are not installed.
        .executable(name: "grantfs-faults", targets: ["grantfs", "CGrantFaults"]),
        .executable(name: "grantfs-sandbox-faults", targets: ["grantfs-sandbox", "CGrantFaults"]),
        .executable(name: "grantfs-portal-faults", targets: ["grantfs-portal", "CGrantFaults"]),
        .executable(name: "grantfs-fleet-faults", targets: ["grantfs-fleet", "CGrantFaults"]),
        .executable(name: "grantfs-volumes-faults", targets: ["grantfs-volumes", "CGrantFaults"]),
        .executable(name: "grantfsd-faults", targets: ["FaultyDaemon"]),
        // For programs of your own, in the shapes of Apple's Foundation.
        .library(name: "GrantKit", targets: ["GrantKit"]),
        // What the commands do, without Foundation.
        .library(name: "GrantAdministration", targets: ["GrantAdministration", "GrantModel"]),
    ],
    targets: [
        .systemLibrary(name: "CGrantFUSE", pkgConfig: "fuse3", providers: [.apt(["libfuse3-dev"])]),
        .systemLibrary(name: "CGrantSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(name: "CGrantSeccomp", pkgConfig: "libseccomp", providers: [.apt(["libseccomp-dev"])]),
        // Without pkg-config: it gives definitions that the package manager warns of and that change nothing here.
        .systemLibrary(name: "CGrantNcurses", providers: [.apt(["libncurses-dev"])]),
        .target(name: "CGrantSystem", cSettings: strictC),

        // Without pkg-config: it asks for the shared library, and this compiles what it needs of the headers in.
        .target(name: "CGrantTOML", cxxSettings: strictCXX),

        .target(name: "CGrantFleet", cSettings: strictC, linkerSettings: [.linkedLibrary("curl"), .linkedLibrary("jansson")]),
        .target(name: "CGrantHTTP", cSettings: strictC, linkerSettings: [.linkedLibrary("microhttpd"), .linkedLibrary("gnutls")]),

        library("GrantModel", []),
        library("GrantFiles", ["CGrantTOML", "GrantModel"]),
        library("GrantSystem", ["CGrantSystem"]),
        library("GrantConfinement", ["CGrantSeccomp", "CGrantSystem", "GrantSystem"]),
        library("GrantBookmarks", ["GrantSystem", "GrantModel"]),
        library("GrantStore", ["CGrantSQLite", "GrantModel", "GrantSystem"]),
        library("GrantCoordinator", ["GrantModel"]),
        library("GrantProxy", ["GrantModel", "GrantSystem"]),
        library("GrantFUSE", ["CGrantFUSE", "CGrantSystem", "GrantSystem"]),
        library("GrantViewTree", ["GrantModel", "CGrantSystem", "GrantSystem"]),
        library("GrantLocks", ["GrantFUSE", "GrantViewTree", "GrantCoordinator", "CGrantSystem", "GrantSystem"]),
        library(
            "GrantViewFS", ["GrantLocks", "GrantFUSE", "GrantViewTree", "GrantCoordinator", "CGrantSystem", "GrantSystem", "GrantModel"]),
        library("GrantControl", ["GrantModel", "GrantSystem"]),
        library("GrantMounts", ["GrantBookmarks", "GrantControl", "GrantModel", "GrantStore", "GrantSystem"]),
        library(
            "GrantAdministration",
            ["GrantMounts", "GrantFiles", "GrantModel", "GrantBookmarks", "GrantStore", "GrantControl", "GrantSystem"]),
        library("GrantFleet", ["CGrantFleet", "GrantAdministration", "GrantModel", "GrantStore", "GrantSystem"]),
        library("GrantWeb", ["CGrantHTTP", "GrantModel", "GrantSystem"]),
        .target(
            name: "GrantFleetConsole", dependencies: ["GrantFleet", "GrantModel", "GrantSystem", "GrantWeb"],
            resources: [
                .embedInCode("Page/index.html"), .embedInCode("Page/console.css"), .embedInCode("Page/console.js"),
                .embedInCode("Page/icon.svg"),
            ], swiftSettings: strict),
        library(
            "GrantKit",
            ["GrantAdministration", "GrantModel", "GrantBookmarks", "GrantStore", "GrantCoordinator", "GrantControl", "GrantSystem"]),
        library("GrantTerminal", ["CGrantNcurses", "GrantSystem", "GrantModel"]),
        // It needs the headers of libsystemd alone, which it loads when a person is asked on the desktop.
        .target(name: "CGrantDesktop", cSettings: strictC),
        .target(name: "CGrantPortal", cSettings: strictC, linkerSettings: [.linkedLibrary("systemd")]),
        library("GrantDesktop", ["CGrantDesktop", "GrantModel", "GrantSystem"]),
        library(
            "GrantConsoles", ["GrantTerminal", "GrantAdministration", "GrantStore", "GrantControl", "GrantModel", "GrantSystem"]),
        library("GrantFleetTop", ["GrantConsoles", "GrantTerminal", "GrantFleet", "GrantModel"]),
        library("GrantPortal", ["CGrantPortal", "GrantAdministration", "GrantBookmarks", "GrantModel", "GrantStore", "GrantSystem"]),
        library("GrantCommandLine", ["GrantMounts", "GrantModel", "GrantStore", "GrantSystem"]),
        library("GrantDeclarations", ["GrantCommandLine", "GrantModel", "GrantSystem"]),
        library(
            "GrantCommandSupport",
            [
                "CGrantSQLite", "GrantCommandLine", "GrantAdministration", "GrantControl", "GrantFiles", "GrantModel", "GrantStore",
                "GrantSystem",
            ]),
        library(
            "GrantDaemon",
            [
                "GrantCommandLine", "GrantViewFS", "GrantFUSE", "GrantViewTree", "GrantCoordinator", "GrantControl", "GrantStore",
                "GrantBookmarks", "GrantConfinement", "GrantMounts", "CGrantSystem", "GrantSystem", "GrantModel",
            ]),
        .executableTarget(name: "grantfsd", dependencies: ["GrantDaemon"], swiftSettings: strict),
        .executableTarget(
            name: "grantfs",
            dependencies: [
                "GrantDeclarations", "GrantCommandSupport", "GrantCommandLine", "CGrantSystem", "GrantSystem", "GrantModel", "GrantStore",
                "GrantControl", "GrantAdministration", "GrantFiles", "GrantTerminal", "GrantConsoles", "GrantDesktop",
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "grantfs-sandbox",
            dependencies: [
                "GrantDeclarations", "GrantCommandSupport", "GrantCommandLine", "GrantConfinement", "GrantDesktop", "GrantProxy",
                "GrantAdministration", "GrantFiles", "GrantStore", "GrantModel", "GrantSystem",
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "grantfs-portal",
            dependencies: [
                "GrantDeclarations", "GrantCommandLine", "GrantPortal", "GrantAdministration", "GrantStore", "GrantModel", "GrantSystem",
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "grantfs-fleet",
            dependencies: [
                "GrantDeclarations", "GrantCommandSupport", "GrantCommandLine", "GrantFleet", "GrantFleetConsole", "GrantFleetTop",
                "GrantConsoles", "GrantTerminal", "GrantAdministration", "GrantFiles", "GrantStore", "GrantModel", "GrantSystem",
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "grantfs-volumes",
            dependencies: [
                "GrantDeclarations", "GrantCommandSupport", "GrantCommandLine", "GrantWeb", "GrantAdministration", "GrantStore",
                "GrantModel", "GrantSystem",
            ],
            swiftSettings: strict),

        example("DirectoryList"),
        example("NoteEditor"),
        example("TextEditor"),
        example("DocumentBrowser"),
        example("DialogLoop"),
        .executableTarget(
            name: "AccessProbe",
            path: "Tests/AccessProbe",
            cSettings: strictC),
        .executableTarget(
            name: "ParityProbe",
            path: "Tests/ParityProbe",
            cSettings: strictC),
        .executableTarget(
            name: "HungSource", dependencies: ["CGrantFUSE", "CGrantSystem"],
            path: "Tests/HungSource",
            cSettings: strictC),
        .executableTarget(
            name: "ClaimProbe", dependencies: ["GrantAdministration", "GrantControl", "GrantModel", "GrantStore", "GrantSystem"],
            path: "Tests/ClaimProbe", swiftSettings: strict),
        .executableTarget(
            name: "LibraryStress", dependencies: ["GrantKit"], path: "Tests/LibraryStress", swiftSettings: strict),
        .executableTarget(
            name: "FakePortal", path: "Tests/FakePortal",
            cSettings: strictC,
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
            cSettings: strictC),
        .executableTarget(
            name: "GateBenchmark", dependencies: ["GrantCoordinator", "GrantSystem"], path: "Tests/Benchmarks/Gate", swiftSettings: strict),
        // A target of its own: a target that names grantfsd has the program built that comes first of its products.
        .executableTarget(
            name: "FaultyDaemon", dependencies: ["GrantDaemon", "CGrantFaults"], path: "Tests/FaultyDaemon", swiftSettings: strict),
        .target(name: "CGrantFaults", dependencies: ["CGrantSystem"], path: "Tests/Faults", cSettings: strictC),
        .target(name: "TestSupport", path: "Tests/TestSupport", swiftSettings: strict),
        tests("MountTests", ["TestSupport"]),
        tests("GrantModelTests", ["GrantModel", "TestSupport"]),
        tests("GrantCoordinatorTests", ["GrantCoordinator", "TestSupport"]),
        tests("GrantViewTreeTests", ["GrantViewTree", "GrantSystem", "CGrantSystem"]),
        tests("GrantLocksTests", ["GrantLocks", "GrantCoordinator", "GrantFUSE", "GrantViewTree", "GrantSystem"]),
        tests(
            "GrantViewFSTests",
            ["GrantViewFS", "GrantCoordinator", "GrantFUSE", "GrantModel", "GrantSystem", "CGrantSystem", "TestSupport"]),
        tests("GrantStoreTests", ["GrantStore", "GrantModel", "GrantSystem", "StoreWriter", "TestSupport"]),
        tests("GrantBookmarksTests", ["GrantBookmarks", "GrantModel", "GrantSystem", "CGrantSystem", "TestSupport"]),
        .executableTarget(
            name: "StoreWriter", dependencies: ["GrantStore", "GrantModel"], path: "Tests/StoreWriter", swiftSettings: strict),
        .executableTarget(
            name: "ConfinedProbe", dependencies: ["GrantConfinement", "GrantSystem"], path: "Tests/ConfinedProbe", swiftSettings: strict),
        .executableTarget(
            name: "DecoderFuzzer", dependencies: ["GrantControl", "GrantAdministration", "GrantModel"], path: "Tests/DecoderFuzzer",
            exclude: ["Corpus"], swiftSettings: strict),
        .executableTarget(
            name: "RequestFuzzer", dependencies: ["GrantViewFS", "GrantFUSE", "CGrantSystem", "GrantSystem", "GrantModel"],
            path: "Tests/RequestFuzzer",
            swiftSettings: strict),
        tests("GrantControlTests", ["GrantControl", "GrantModel", "GrantSystem", "TestSupport"]),
        tests(
            "GrantAdministrationTests",
            ["GrantAdministration", "GrantMounts", "GrantControl", "GrantStore", "GrantBookmarks", "GrantModel", "GrantSystem"]),
        tests("GrantTerminalTests", ["GrantTerminal", "CGrantNcurses", "GrantModel"]),
        tests(
            "GrantConsolesTests",
            [
                "GrantConsoles", "GrantDesktop", "GrantFleetTop", "GrantTerminal", "GrantAdministration", "GrantMounts", "GrantFleet",
                "GrantModel", "GrantSystem", "TestSupport",
            ],
            data: ["Screens"]),
        tests(
            "GrantKitTests",
            [
                "GrantKit", "GrantStore", "GrantModel", "GrantCoordinator", "GrantSystem", "TestSupport", "DirectoryList", "NoteEditor",
                "TextEditor", "DocumentBrowser", "DialogLoop",
            ]),
        tests(
            "GrantPortalTests", ["GrantPortal", "TestSupport"], data: ["portal-client", "impostor", "chooser-backend", "permission-store"]),
        tests("GrantProxyTests", ["GrantProxy", "GrantModel"]),
        tests("GrantFilesTests", ["GrantFiles", "GrantModel"]),
        tests("GrantFleetTests", ["CGrantHTTP", "GrantFleet", "GrantModel", "TestSupport"]),
        tests(
            "CommandLineTests",
            [
                "grantfs", "grantfs-sandbox", "grantfs-portal", "grantfs-fleet", "grantfs-volumes", "GrantDeclarations",
                "GrantCommandSupport", "GrantCommandLine", "GrantDaemon", "GrantControl", "GrantAdministration", "GrantModel",
                "GrantSystem", "TestSupport",
            ]),
    ],
    cxxLanguageStandard: .cxx17
)
