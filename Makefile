# The targets that users and the gate call. Each installs what it needs first, after listing it.

PREFIX  ?= /usr/local
DESTDIR ?=
PART    ?= 1/1

TARGET   := $(or $(CARGO_TARGET_DIR),target)
RUST     := scripts/with-rust
CARGO    := $(RUST) cargo
PROGRAMS := whim whimd whim-home whim-guest

bindir     = $(DESTDIR)$(PREFIX)/bin
mandir     = $(DESTDIR)$(PREFIX)/share/man
datadir    = $(DESTDIR)$(PREFIX)/share
unitdir    = $(DESTDIR)$(PREFIX)/lib/systemd/system
userdir    = $(DESTDIR)$(PREFIX)/lib/systemd/user
sysusers   = $(DESTDIR)$(PREFIX)/lib/sysusers.d
confdir    = $(DESTDIR)/etc/whim

.PHONY: help demo build test test-full bench install uninstall fmt lint

help:
	@echo "make demo                a program moves through a lab of three nodes and comes home"
	@echo "make test                the gate: lints, unit, integration and quick system tests"
	@echo "make test-full PART=k/n  all tests, also fuzz targets, or a part; can be taken up again"
	@echo "make bench               the measurements of docs/benchmarks.md"
	@echo "make install PREFIX=DIR  programs, units, man pages, completions"
	@echo "make fmt lint            format the sources; run the linter"

demo:
	@scripts/bootstrap demo
	$(CARGO) build --locked --workspace --bins
	@$(CARGO) xtask demo

test:
	@scripts/bootstrap test
	$(CARGO) xtask test

test-full:
	@scripts/bootstrap test
	@scripts/bootstrap full
	$(CARGO) xtask test-full $(PART)

bench:
	@scripts/bootstrap bench
	$(CARGO) xtask bench

fmt:
	@scripts/bootstrap demo
	$(CARGO) fmt --all

lint:
	@scripts/bootstrap demo
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# As a user: `make build`, then `sudo make install`, which builds nothing that is built already.
build:
	@scripts/bootstrap demo
	$(CARGO) build --locked --release --workspace --bins
	$(CARGO) xtask dist $(TARGET)/dist

install: build
	install -d $(bindir) $(mandir)/man1 $(unitdir) $(userdir) $(sysusers) $(confdir)
	install -m 755 $(PROGRAMS:%=$(TARGET)/release/%) $(bindir)
	install -m 644 $(TARGET)/dist/man/*.1 $(mandir)/man1
	install -D -m 644 $(TARGET)/dist/completions/whim.bash $(datadir)/bash-completion/completions/whim
	install -D -m 644 $(TARGET)/dist/completions/_whim $(datadir)/zsh/site-functions/_whim
	install -D -m 644 $(TARGET)/dist/completions/whim.fish $(datadir)/fish/vendor_completions.d/whim.fish
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whimd.service > $(unitdir)/whimd.service
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whimd-user.service > $(userdir)/whimd.service
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whim-evacuate.service > $(unitdir)/whim-evacuate.service
	install -m 644 dist/whim.sysusers $(sysusers)/whim.conf
	test -e $(confdir)/config.toml || install -m 644 dist/config.toml $(confdir)/config.toml
	@if [ -z "$(DESTDIR)" ]; then dist/make-group; fi

uninstall:
	rm -f $(PROGRAMS:%=$(bindir)/%) $(mandir)/man1/whim.1 $(mandir)/man1/whim-*.1
	rm -f $(mandir)/man1/whimd.1 $(unitdir)/whimd.service $(unitdir)/whim-evacuate.service
	rm -f $(userdir)/whimd.service $(sysusers)/whim.conf
	rm -f $(datadir)/bash-completion/completions/whim $(datadir)/zsh/site-functions/_whim
	rm -f $(datadir)/fish/vendor_completions.d/whim.fish
