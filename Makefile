# grantfs: `make run DIR=~/Documents AT=~/view` and `make test` are all that a newcomer needs.

SWIFT   ?= swift
PREFIX  ?= /usr/local
DESTDIR ?=
BINDIR  ?= $(PREFIX)/bin
# Where grantfs searches for the programs that it starts: beside itself, or in ../libexec/grantfs, which packages use.
LIBEXECDIR ?= $(BINDIR)
MANDIR  ?= $(PREFIX)/share/man
# The shells' directories for completions.
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# mount(8) searches only here for helpers, independent of PREFIX. The link serves the type fuse.grantfs of /proc/mounts,
# which mount(8) uses for a remount.
HELPERDIR ?= /sbin
# systemd's directories for an administrator's units, users and tmpfiles.
UNITDIR ?= $(PREFIX)/lib/systemd
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
# Profiles of `grantfs run --tool`. The program searches for them in ../share.
PROFILEDIR = $(PREFIX)/share/grantfs/profiles
# A bwrap that runs grantfs bwrap. Users put the directory first in PATH.
BWRAPDIR = $(PREFIX)/share/grantfs/bin
# The file by which a session bus starts the document portal. A user copies it, because xdg-desktop-portal owns this name in the bus's directory.
DBUSDIR = $(PREFIX)/share/grantfs/dbus-1/services
# Profiles of AppArmor and a module of SELinux. An administrator copies or loads them: docs/guides/containers.md.
APPARMORDIR = $(PREFIX)/share/grantfs/apparmor
SELINUXDIR = $(PREFIX)/share/grantfs/selinux
# An example policy.
POLICYEXAMPLE = $(PREFIX)/share/grantfs/policy.toml.example
INSTALL ?= install

program := .build/release/grantfs
# The programs that grantfs starts.
companions := grantfsd grantfs-sandbox grantfs-portal grantfs-fleet grantfs-volumes
# They are beside it in a build, and in libexec in some installations.
companion = $(firstword $(shell ls -d '$(dir $(program))$(1)' '$(dir $(program))../libexec/grantfs/$(1)' 2>/dev/null))
sources := Package.swift $(shell find Sources -type f 2>/dev/null)

export SWIFT

.PHONY: help build release faults test check conformance bench run install deb dist verify test-debian test-kernels uninstall manual documentation site pictures transcript lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

build: ## build everything for debugging, with tests
	@.ci/packages build
	$(SWIFT) build --build-tests

release: $(program) ## build the programs as they are installed

# Swift's runtime and the C++ library that it needs are linked statically. The programs export no symbols and have no run path, so each
# starts in a fifth less time. $(static)/libstdc++.a is a linker script: the linker finds it before the shared library and links the two
# archives that it names. Each program links the libraries that it uses, and not those of the other.
static := $(CURDIR)/.build/static
# Swift's modules for regular expressions and concurrency are not imported into each file, and so not linked.
lean = $(foreach module,string-processing concurrency,-Xswiftc -Xfrontend -Xswiftc -disable-implicit-$(module)-module-import)
quickstart = $(lean) --disable-local-rpath -Xlinker --no-export-dynamic -Xlinker --as-needed -Xlinker '-L$(static)'

# The touch marks it as up to date, even if the build linked nothing.
$(program): $(sources)
	@.ci/packages build
	@mkdir -p "$(static)" && printf 'GROUP ( %s %s )\n' "$$(g++ -print-file-name=libstdc++.a)" "$$(g++ -print-file-name=libgcc_eh.a)" >"$(static)/libstdc++.a"
	for product in $(companions) grantfs; do \
		$(SWIFT) build -c release --static-swift-stdlib $(quickstart) --product $$product && .ci/program-contents .build/release/$$product || exit 1; done
	@touch -c $@

# Other programs of the same objects.
faults: release
	for product in $(companions) grantfs; do $(SWIFT) build -c release --static-swift-stdlib $(quickstart) --product $$product-faults || exit 1; done

test: ## install packages, build, run all tests, real mounts included (ARGS='--filter Name' for some, ARGS=--times for the slowest)
	@.ci/packages build run test
	@.ci/test $(ARGS)

check: ## build for debugging, run the tests of one area and the lint: AREA=locks (.ci/test.d/areas has the areas)
	@.ci/packages build run test lint
	@.ci/check '$(AREA)'

# Each program runs in a directory and in each kind of mount. Needs root for mounts and devices.
conformance: ## run programs of other projects natively and in mounts, print one table (TIME=2 seconds each, ONLY='git fio', JSON=file, UPGRADES=1, DEATHS=seconds. FLEET=schedules runs only a fleet with faults, SEED=N repeats it)
	@.ci/packages build run test $(if $(FLEET),,conformance)
	@$(MAKE) --no-print-directory faults
	@$(if $(FLEET),exec .ci/fleet-faults --schedules '$(FLEET)' $(if $(SEED),--seed '$(SEED)') $(if $(JSON),--json '$(JSON)');) for tool in FileExerciser NamespaceStress CallTable; do \
		$(SWIFT) build -c release --static-swift-stdlib --product $$tool >/dev/null || exit 1; done
	@$(if $(FLEET),exit;) $(if $(DEATHS),.ci/deaths --time '$(DEATHS)' &&) $(if $(UPGRADES),$(if $(ONLY),,.ci/deaths --upgrades --time 60 &&)) .ci/conformance --time '$(or $(TIME),2)' $(if $(JSON),--json '$(JSON)') $(if $(UPGRADES),--upgrades) $(ONLY)

bench: ## measure against the native directory and bindfs (ARGS='--rounds 9 --json FILE DIR…' for more)
	@.ci/packages build run bench
	@$(MAKE) --no-print-directory release
	$(SWIFT) build -c release --product Workloads
	$(SWIFT) build -c release --static-swift-stdlib --product GateBenchmark
	@.build/release/GateBenchmark
	@PYTHONDONTWRITEBYTECODE=1 python3 Tests/Benchmarks/bench $(ARGS)

# The values are passed unexpanded: $(value) keeps a dollar sign.
run: export GRANTFS_TRY_DIR = $(value DIR)
run: export GRANTFS_TRY_AT = $(value AT)
run: export GRANTFS_TRY_NAME = $(value NAME)
run: ## grant DIR, mount the view at AT, suggest commands: make run DIR=~/Documents AT=~/view
	@.ci/try --check
	@.ci/packages build run
	@$(MAKE) --no-print-directory release
	@.ci/try $(program)

# $(call write,COMMAND,FILE,MODE): writes the output of COMMAND to a new FILE with MODE, independent of the umask.
define write
rm -f "$(2)" && (umask 077 && $(1) >"$(2)") && chmod $(3) "$(2)"
endef

install: $(program) ## install the programs, the mount helper, units, man pages and completions (PREFIX, DESTDIR)
	@[ -n '$(DESTDIR)' ] || .ci/beside-package install '$(UNITDIR)' '$(HELPERDIR)'
	$(INSTALL) -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(LIBEXECDIR)' '$(DESTDIR)$(HELPERDIR)' '$(DESTDIR)$(MANDIR)/man1' '$(DESTDIR)$(MANDIR)/man5' '$(DESTDIR)$(MANDIR)/man8'
	$(INSTALL) -m 755 $(program) '$(DESTDIR)$(BINDIR)/grantfs'
	@[ '$(LIBEXECDIR)' = '$(BINDIR)' ] || rm -f $(patsubst %,'$(DESTDIR)$(BINDIR)/%',$(companions))
	$(foreach name,$(companions),$(INSTALL) -m 755 '$(call companion,$(name))' '$(DESTDIR)$(LIBEXECDIR)/$(name)' &&) :
	$(call write,sed 's|^PATH=.*|&:$(BINDIR)|' mount-helpers/mount.grantfs,$(DESTDIR)$(HELPERDIR)/mount.grantfs,755)
	ln -sf mount.grantfs '$(DESTDIR)$(HELPERDIR)/mount.fuse.grantfs'
	$(INSTALL) -m 644 docs/man/grantfs.1 '$(DESTDIR)$(MANDIR)/man1/grantfs.1'
	$(INSTALL) -m 644 docs/man/grantfs.5 '$(DESTDIR)$(MANDIR)/man5/grantfs.5'
	$(INSTALL) -m 644 docs/man/mount.grantfs.8 '$(DESTDIR)$(MANDIR)/man8/mount.grantfs.8'
	$(INSTALL) -d '$(DESTDIR)$(BASHDIR)' '$(DESTDIR)$(ZSHDIR)' '$(DESTDIR)$(FISHDIR)'
	$(call write,$(program) completion bash,$(DESTDIR)$(BASHDIR)/grantfs,644)
	$(call write,$(program) completion zsh,$(DESTDIR)$(ZSHDIR)/_grantfs,644)
	$(call write,$(program) completion fish,$(DESTDIR)$(FISHDIR)/grantfs.fish,644)
	$(INSTALL) -d '$(DESTDIR)$(PROFILEDIR)'
	$(INSTALL) -m 644 mount-helpers/profiles/* '$(DESTDIR)$(PROFILEDIR)'
	$(INSTALL) -m 644 mount-helpers/policy.toml.example '$(DESTDIR)$(POLICYEXAMPLE)'
	$(INSTALL) -d '$(DESTDIR)$(BWRAPDIR)'
	$(INSTALL) -m 755 mount-helpers/bwrap '$(DESTDIR)$(BWRAPDIR)'
	$(INSTALL) -d '$(DESTDIR)$(APPARMORDIR)' '$(DESTDIR)$(SELINUXDIR)'
	$(INSTALL) -m 644 mount-helpers/apparmor/* '$(DESTDIR)$(APPARMORDIR)'
	$(INSTALL) -m 644 mount-helpers/selinux/* '$(DESTDIR)$(SELINUXDIR)'
	$(INSTALL) -d '$(DESTDIR)$(UNITDIR)/system' '$(DESTDIR)$(UNITDIR)/user' '$(DESTDIR)$(TMPFILESDIR)' '$(DESTDIR)$(SYSUSERSDIR)'
	for kind in system user; do \
		for unit in grantfs@.service grantfs-apply.service; do \
			$(call write,sed 's|@BINDIR@|$(BINDIR)|' "mount-helpers/systemd/$$kind/$$unit",$(DESTDIR)$(UNITDIR)/$$kind/$$unit,644) || exit 1; \
		done; done
	for unit in grantfs-agent.service grantfs-system@.service grantfs-system.socket grantfs-volumes.service grantfs-volumes.socket; do \
		$(call write,sed 's|@BINDIR@|$(BINDIR)|' "mount-helpers/systemd/system/$$unit",$(DESTDIR)$(UNITDIR)/system/$$unit,644) || exit 1; \
	done
	$(call write,sed 's|@BINDIR@|$(BINDIR)|' mount-helpers/systemd/user/grantfs-portal.service,$(DESTDIR)$(UNITDIR)/user/grantfs-portal.service,644)
	$(INSTALL) -d '$(DESTDIR)$(DBUSDIR)'
	$(call write,sed 's|@BINDIR@|$(BINDIR)|' mount-helpers/org.freedesktop.portal.Documents.service,$(DESTDIR)$(DBUSDIR)/org.freedesktop.portal.Documents.service,644)
	$(INSTALL) -m 644 mount-helpers/systemd/grantfs.tmpfiles '$(DESTDIR)$(TMPFILESDIR)/grantfs.conf'
	$(INSTALL) -m 644 mount-helpers/systemd/grantfs.sysusers '$(DESTDIR)$(SYSUSERSDIR)/grantfs.conf'

deb: ## build the Debian packages in .build. As root also test them in a temporary copy of this machine
	@.ci/packages build package
	@$(MAKE) --no-print-directory release
	@packages=$$(.ci/deb) && echo "$$packages" && for try in .ci/test-deb .ci/test-deb-units; do $$try $$packages || [ $$? = 77 ] || exit 1; done
	@.ci/test-dist

dist: ## make the signed files of a release in .build/dist: make dist KEY=FILE (PACKAGES='trixie=FILE' adds packages of other Debians)
	@.ci/packages build package
	@.ci/dist --check --key '$(KEY)' $(PACKAGES)
	@$(MAKE) --no-print-directory release
	@.ci/dist --key '$(KEY)' $(PACKAGES)

verify: ## verify a downloaded release: make verify DIR=DIRECTORY SIGNERS=FILE
	@.ci/verify '$(DIR)' '$(SIGNERS)'

# Another Debian than this machine's needs a network once, and some minutes.
test-debian: ## `make deb` in Debian 13, made by debootstrap, as root (SUITE=bookworm for Debian 12)
	@.ci/debian '$(or $(SUITE),trixie)'

# The kernels are Debian's packages, downloaded once and not installed. User Mode Linux needs no virtual machine.
test-kernels: ## run the tests that depend on the kernel on Linux 6.1, 6.12 and later, as root (KERNELS="uml-6.1 qemu-6.12", PARTS="access load")
	@.ci/packages build run test kernels emulation
	@$(MAKE) --no-print-directory release
	@rm -rf .build/installed
	@(umask 022 && $(MAKE) --no-print-directory install DESTDIR= PREFIX="$(CURDIR)/.build/installed" HELPERDIR="$(CURDIR)/.build/installed/sbin" >/dev/null)
	@$(MAKE) --no-print-directory faults && install -m 755 .build/release/grantfs*-faults .build/installed/bin/
	$(SWIFT) build --build-tests
	@.ci/kernels $(if $(PARTS),--parts '$(PARTS)') $(KERNELS)

uninstall: ## remove the files of `make install` with the same PREFIX and DESTDIR, except the package's
	@for file in '$(BINDIR)/grantfs' $(patsubst %,'$(LIBEXECDIR)/%',$(companions)) '$(HELPERDIR)/mount.grantfs' '$(HELPERDIR)/mount.fuse.grantfs' \
		'$(MANDIR)/man1/grantfs.1' '$(MANDIR)/man5/grantfs.5' '$(MANDIR)/man8/mount.grantfs.8' \
		'$(UNITDIR)/system/grantfs@.service' '$(UNITDIR)/user/grantfs@.service' \
		'$(UNITDIR)/system/grantfs-apply.service' '$(UNITDIR)/user/grantfs-apply.service' \
		'$(UNITDIR)/system/grantfs-agent.service' '$(UNITDIR)/system/grantfs-system@.service' \
		'$(UNITDIR)/system/grantfs-system.socket' '$(UNITDIR)/system/grantfs-volumes.service' \
		'$(UNITDIR)/system/grantfs-volumes.socket' '$(POLICYEXAMPLE)' \
		'$(UNITDIR)/user/grantfs-portal.service' '$(DBUSDIR)/org.freedesktop.portal.Documents.service' \
		'$(TMPFILESDIR)/grantfs.conf' '$(SYSUSERSDIR)/grantfs.conf' \
		'$(BWRAPDIR)/bwrap' \
		$(patsubst mount-helpers/profiles/%,'$(PROFILEDIR)/%',$(wildcard mount-helpers/profiles/*)) \
		$(patsubst mount-helpers/apparmor/%,'$(APPARMORDIR)/%',$(wildcard mount-helpers/apparmor/*)) \
		$(patsubst mount-helpers/selinux/%,'$(SELINUXDIR)/%',$(wildcard mount-helpers/selinux/*)) \
		'$(BASHDIR)/grantfs' '$(ZSHDIR)/_grantfs' '$(FISHDIR)/grantfs.fish'; do \
		if [ -z '$(DESTDIR)' ] && .ci/beside-package owns "$$file"; then echo "left, because it is the package's: $$file"; \
		else echo "rm -f $(DESTDIR)$$file"; rm -f '$(DESTDIR)'"$$file" || exit 1; fi; done

manual: ## update the parts of grantfs(1) made from the declarations of commands and options
	$(SWIFT) build --product grantfs
	.ci/manual .build/debug/grantfs

documentation: ## make the library's pages in .build/documentation and compile their examples
	@.ci/packages build
	@rm -rf .build/documentation
	@.ci/documentation .build/documentation

site: ## make a site of docs/ and the man pages in .build/site and check every link
	@.ci/packages lint
	@rm -rf .build/site
	@.ci/site .build/site

pictures: $(program) ## draw docs/images from the screens of `top`, `pick` and, with chromium, the console, as root
	@.ci/packages run test
	@.ci/pictures $(program)
	@.ci/console-browser $(program) --pictures || [ $$? = 77 ]

transcript: ## record the output of the tour in Tests/Fixtures/tour-transcript.md, as root
	@.ci/packages build run test
	@GRANTFS_RECORD_TRANSCRIPT=1 .ci/test --filter Tours/everyCommand

lint: ## check format, imports, banned calls, man pages, scripts, links, names, spelling, prose, commits
	@.ci/packages build lint
	@.ci/lint

clean: ## remove what was built
	rm -rf .build
