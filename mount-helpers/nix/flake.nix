# Nix flake of grantfs. UNTESTED: parsed by nix-instantiate (.ci/distributions), neither evaluated nor built.
#
# Intended use, in a clone: nix build 'git+file:.?dir=mount-helpers/nix'
# Likely to need work: nixpkgs must have Swift 6.2 or later, and a linker named gold. `make release` links the C++
# library statically. Scripts of .ci begin with /bin/sh, which the sandbox of Nix has.
{
  description = "Grants directories to programs, and takes them back while they run";
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
    in {
      packages.${system}.default = pkgs.swiftPackages.stdenv.mkDerivation {
        pname = "grantfs";
        version = "0.1.0";
        src = ../..;
        nativeBuildInputs = with pkgs; [ swift swiftpm pkg-config gnumake ];
        buildInputs = with pkgs; [ fuse3 sqlite libseccomp ncurses tomlplusplus systemd curl jansson libmicrohttpd gnutls ];
        buildPhase = "make release";
        # Units, sysusers and the mount helper stay in the package. NixOS would need a module to link them.
        installPhase = "make install DESTDIR= PREFIX=$out LIBEXECDIR=$out/libexec/grantfs HELPERDIR=$out/sbin";
        meta = {
          license = pkgs.lib.licenses.asl20;
          platforms = [ system ];
          mainProgram = "grantfs";
        };
      };
    };
}
