# The targets that users and the gate call. Each installs what it needs first, after listing it.

PREFIX  ?= /usr/local
DESTDIR ?=
# Of `make install`: with 'yes' it also makes the group whim-admin and /etc/whim/config.toml, which are not below PREFIX.
SYSTEM  ?= no
PART    ?= 1/1
# Of `make deb`, `make apt-repo` and `make rpm`: what is built (release, dev), and the package's revision.
PROFILE  ?= release
REVISION ?= 1

TARGET   := $(or $(CARGO_TARGET_DIR),target)
RUST     := scripts/with-rust
CARGO    := $(RUST) cargo
PROGRAMS := whim whimd whim-home whim-guest
# Where built programs are, and what is made of their command lines.
BUILT     := $(TARGET)/release
GENERATED := $(TARGET)/dist
# The image toolkit's packages and its program. Cargo leaves them out where nothing names them.
TOOLKIT   := 'pipt*'
PIPT      := $(BUILT)/pipt
# The MPIs that it is built for, each with the compiler that knows where it is, and their libraries.
MPIS          := mpich openmpi
MPICC_mpich   ?= mpicc.mpich
MPICC_openmpi ?= mpicc.openmpi
MPI_BUILT      = $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
MPI_LIBRARIES  = $(wildcard $(MPIS:%=$(BUILT)/libwhim_mpi_%.so))

bindir     = $(DESTDIR)$(PREFIX)/bin
mandir     = $(DESTDIR)$(PREFIX)/share/man
datadir    = $(DESTDIR)$(PREFIX)/share
zshdir     = $(datadir)/zsh/site-functions
unitdir    = $(DESTDIR)$(PREFIX)/lib/systemd/system
piptdir    = $(DESTDIR)$(PREFIX)/lib/pipt
userdir    = $(DESTDIR)$(PREFIX)/lib/systemd/user
sysusers   = $(DESTDIR)$(PREFIX)/lib/sysusers.d
confdir    = $(DESTDIR)/etc/whim

.PHONY: help demo build test test-full bench pipt pipt-mpi pipt-wheel test-pipt test-python test-mpi bench-pipt install-pipt uninstall-pipt install install-files deb apt-repo rpm uninstall fmt lint
.PHONY: test-pipt-full pipt-gallery test-qgis qgis-plugin
.PHONY: mpi-packages pipt-mpich pipt-openmpi lint-mpich lint-openmpi

help:
	@echo "make demo                a program moves through a lab of three nodes and comes home"
	@echo "make test                the gate: lints, unit, integration and quick system tests"
	@echo "make test-full PART=k/n  all tests, also fuzz targets, or a part; can be taken up again"
	@echo "make bench               the measurements of docs/benchmarks.md"
	@echo "make install PREFIX=DIR  programs, units, man pages, completions; with SYSTEM=yes also group and /etc/whim"
	@echo "make deb                 a Debian package of them, in $(TARGET)/deb (PROFILE=dev: quickly built)"
	@echo "make apt-repo            a repository of it for apt, in $(TARGET)/apt (KEY=...: signed with this key of gpg's)"
	@echo "make rpm                 an RPM of the same, in $(TARGET)/rpm"
	@echo "make fmt lint            format the sources; run the linter"
	@echo "make pipt test-pipt      the image toolkit of mpi/: build it; lint and test it"
	@echo "make test-pipt-full      its long tests: beside other programs of Python's package index, killed and resumed"
	@echo "make pipt-gallery        the pictures of docs/pipt-gallery.md and the numbers of docs/pipt-recipes.md"
	@echo "make qgis-plugin test-qgis  its plugin for QGIS, as a zip file; the plugin's tests, in a QGIS"
	@echo "make pipt-mpi test-mpi   its libraries for MPICH and Open MPI: build them; test them with both"
	@echo "make pipt-wheel test-python  its Python package: into $(TARGET)/wheels; installed and tested"
	@echo "make install-pipt PREFIX=DIR  its program, man pages, completions"
	@echo "make bench-pipt          its measurements, of docs/benchmarks-pipt.md"

# Of the profile 'dev', not of that of 'install': a release build takes minutes more, and who only looks whether it works
# shall see a program move within the first five.
demo:
	@scripts/bootstrap demo
	$(CARGO) build --locked --bins
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

pipt:
	@scripts/bootstrap demo
	$(CARGO) build --locked --release -p $(TOOLKIT)

# The libraries that the toolkit opens where a launcher of an MPI starts it, beside its program. Each MPI has a
# build directory of its own, for cargo does not see that $MPICC is another one.
pipt-mpi: $(MPIS:%=pipt-%)

pipt-mpich pipt-openmpi: pipt-%: mpi-packages
	MPICC=$(MPICC_$*) $(CARGO) build --locked --profile $(PROFILE) -p whim-mpi --features link --target-dir $(TARGET)/mpi/$*
	install -D -m 644 $(TARGET)/mpi/$*/$(notdir $(MPI_BUILT))/libwhim_mpi.so $(MPI_BUILT)/libwhim_mpi_$*.so

mpi-packages:
	@scripts/bootstrap demo
	@scripts/bootstrap mpi

# As a user: `make pipt` and perhaps `make pipt-mpi`, then `sudo make install-pipt`, which builds nothing that is
# built already.
install-pipt: pipt
	install -d $(bindir) $(mandir)/man1 $(mandir)/man7
	install -m 755 $(PIPT) $(bindir)
	$(if $(MPI_LIBRARIES),install -d $(piptdir))
	$(if $(MPI_LIBRARIES),install -m 644 $(MPI_LIBRARIES) $(piptdir))
	rm -rf $(PIPT)-pages
	install -d $(PIPT)-pages
	$(PIPT) man $(PIPT)-pages
	install -m 644 $(PIPT)-pages/*.1 $(mandir)/man1
	install -m 644 $(PIPT)-pages/*.7 $(mandir)/man7
	install -d $(datadir)/bash-completion/completions $(zshdir) $(datadir)/fish/vendor_completions.d
	$(PIPT) completions bash > $(datadir)/bash-completion/completions/pipt
	$(PIPT) completions zsh > $(zshdir)/_pipt
	$(PIPT) completions fish > $(datadir)/fish/vendor_completions.d/pipt.fish

uninstall-pipt:
	rm -f $(bindir)/pipt $(mandir)/man1/pipt.1 $(mandir)/man1/pipt-*.1 $(mandir)/man7/pipt-routines.7
	rm -f $(datadir)/bash-completion/completions/pipt $(zshdir)/_pipt
	rm -f $(datadir)/fish/vendor_completions.d/pipt.fish
	rm -f $(MPIS:%=$(piptdir)/libwhim_mpi_%.so)

test-pipt:
	@scripts/bootstrap demo
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked -p $(TOOLKIT) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked -p $(TOOLKIT) --no-deps --quiet
	$(CARGO) test --locked -p $(TOOLKIT) --lib --bins --tests
	$(CARGO) test --locked -p $(TOOLKIT) --doc

# The Python package, and its tests in an environment of their own. What they need comes from PyPI.
PYTHON_TOOLS := $(abspath $(TARGET))/python-tools
PYTHON_TESTS := $(abspath $(TARGET))/python-tests

pipt-wheel:
	@scripts/bootstrap demo
	@scripts/bootstrap python
	test -x $(PYTHON_TOOLS)/bin/maturin || python3 -m venv $(PYTHON_TOOLS)
	test -x $(PYTHON_TOOLS)/bin/maturin || $(PYTHON_TOOLS)/bin/pip install --quiet 'maturin>=1.7,<2'
	rm -f $(TARGET)/wheels/pipt-*.whl
	cd mpi/pipt-python && $(abspath scripts/with-rust) $(PYTHON_TOOLS)/bin/maturin build --locked --compatibility linux \
		--profile $(PROFILE) --out $(abspath $(TARGET))/wheels

test-python: pipt-wheel
	@scripts/bootstrap mpi
	test -x $(PYTHON_TESTS)/bin/pytest || python3 -m venv $(PYTHON_TESTS)
	$(PYTHON_TESTS)/bin/pip install --quiet -r mpi/pipt-python/tests/requirements.txt
	$(PYTHON_TESTS)/bin/pip install --quiet --force-reinstall --no-deps $(TARGET)/wheels/pipt-*.whl
	cd mpi/pipt-python/tests && PIPT_WHEELS=$(abspath $(TARGET))/wheels $(PYTHON_TESTS)/bin/pytest -q .

# What takes longer: beside other programs, which come from Python's package index and are put below the build
# directory; killed and resumed; and odd files for a while.
ORACLES := $(abspath $(TARGET))/oracles
FUZZ    ?= 30

test-pipt-full: build pipt-mpi $(ORACLES)/made
	$(CARGO) test --locked --release -p pipt --features full,mpi
	PIPT_PYTHON=$(ORACLES)/bin/python $(CARGO) test --locked --release -p pipt -p pipt-simd \
		--features pipt/oracles,pipt-simd/oracles -- oracles_ routines_are scipy_gives --nocapture
	mpi/fuzz/run $(FUZZ)

$(ORACLES)/made: mpi/pipt/tests/oracles/requirements.txt
	rm -rf $(ORACLES)
	python3 -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

pipt-gallery: pipt $(ORACLES)/made
	$(ORACLES)/bin/python mpi/gallery/gallery.py $(PIPT)
	$(ORACLES)/bin/python mpi/gallery/recipes.py $(PIPT)

qgis-plugin:
	mpi/qgis/package $(TARGET)

# QGIS's Python is the distribution's, of its package python3-qgis.
test-qgis: pipt
	@scripts/bootstrap qgis
	QT_QPA_PLATFORM=offscreen PIPT=$(abspath $(PIPT)) /usr/bin/python3 mpi/qgis/tests/test_plugin.py

# With both libraries, and ranks that the launchers of both MPIs start.
test-mpi: PROFILE = dev
test-mpi: pipt-mpi $(MPIS:%=lint-%)
	RUSTDOCFLAGS="-D warnings" MPICC=$(MPICC_mpich) $(CARGO) doc --locked -p whim-mpi --features link --no-deps --quiet \
		--target-dir $(TARGET)/mpi/mpich
	$(CARGO) clippy --locked -p pipt-load -p pipt --features pipt-load/mpi,pipt/mpi,pipt/full --all-targets -- -D warnings
	$(CARGO) build --locked -p pipt-load --example ranks
	$(CARGO) test --locked -p whim-mpi -p pipt-load -p pipt --features pipt-load/mpi,pipt/mpi --lib --test launchers --test ranks

lint-mpich lint-openmpi: lint-%: pipt-%
	MPICC=$(MPICC_$*) $(CARGO) clippy --locked -p whim-mpi --features link --target-dir $(TARGET)/mpi/$* -- -D warnings

bench-pipt:
	@scripts/bootstrap demo
	mpi/bench/run

fmt:
	@scripts/bootstrap demo
	$(CARGO) fmt --all

lint:
	@scripts/bootstrap demo
	$(CARGO) clippy --locked --all-targets -- -D warnings

# As a user: `make build`, then `sudo make install`, which builds nothing that is built already.
build:
	@scripts/bootstrap demo
	$(CARGO) build --locked --release --bins
	$(CARGO) xtask dist $(TARGET)/dist

install: build
	@$(MAKE) install-files
	@if [ -z "$(DESTDIR)" ] && [ "$(SYSTEM)" = yes ]; then dist/make-group; fi
	@dist/say-next "$(PREFIX)" "$(SYSTEM)"

# What belongs where, of programs that are built already. What only debuggers need stays with those.
install-files:
	install -d $(bindir) $(mandir)/man1 $(unitdir) $(userdir) $(sysusers)
	install -m 755 -s $(PROGRAMS:%=$(BUILT)/%) $(bindir)
	install -m 644 $(GENERATED)/man/*.1 $(mandir)/man1
	install -D -m 644 $(GENERATED)/completions/whim.bash $(datadir)/bash-completion/completions/whim
	install -D -m 644 $(GENERATED)/completions/_whim $(zshdir)/_whim
	install -D -m 644 $(GENERATED)/completions/whim.fish $(datadir)/fish/vendor_completions.d/whim.fish
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whimd.service > $(unitdir)/whimd.service
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whimd-user.service > $(userdir)/whimd.service
	sed 's|@bindir@|$(PREFIX)/bin|' dist/whim-evacuate.service > $(unitdir)/whim-evacuate.service
	install -m 644 dist/whim.sysusers $(sysusers)/whim.conf
	@if [ "$(SYSTEM)" = yes ] && ! [ -e $(confdir)/config.toml ]; then \
		install -D -m 644 dist/config.toml $(confdir)/config.toml; \
	fi

# Cargo puts programs of the profile 'dev' into 'debug'.
deb:
	@scripts/bootstrap deb
	$(CARGO) build --locked --workspace --exclude $(TOOLKIT) --exclude xtask --bins --profile $(PROFILE)
	scripts/deb $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE)) $(TARGET)/deb $(REVISION)

# A directory that a web server can serve to apt, of the packages in $(TARGET)/deb; signed, if KEY names a key of gpg's.
apt-repo: deb
	scripts/apt-repo $(TARGET)/deb $(TARGET)/apt $(KEY)

rpm:
	@scripts/bootstrap deb
	@scripts/bootstrap rpm
	$(CARGO) build --locked --workspace --exclude $(TOOLKIT) --exclude xtask --bins --profile $(PROFILE)
	scripts/rpm $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE)) $(TARGET)/rpm $(REVISION)

uninstall:
	rm -f $(PROGRAMS:%=$(bindir)/%) $(mandir)/man1/whim.1 $(mandir)/man1/whim-*.1
	rm -f $(mandir)/man1/whimd.1 $(unitdir)/whimd.service $(unitdir)/whim-evacuate.service
	rm -f $(userdir)/whimd.service $(sysusers)/whim.conf
	rm -f $(datadir)/bash-completion/completions/whim $(zshdir)/_whim
	rm -f $(datadir)/fish/vendor_completions.d/whim.fish
