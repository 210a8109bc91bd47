# decode: build, test, install. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
MODE    ?= release
WERROR  ?=

VERSION := 0.1.0
BUILD   := build/$(MODE)

.DEFAULT_GOAL := all

# All processors are used, unless another make (MAKELEVEL) or MAKEFLAGS with a -j has chosen; a -j on the
# command line has precedence. clean runs alone.
ifeq ($(MAKELEVEL)$(filter -j% clean,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS") $(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

# --- files -----------------------------------------------------------------------------------

LIB_DIRS := base formats text compute model engine train convert measure show args
LIB_SRC  := $(filter-out %_wasm.c,$(wildcard $(LIB_DIRS:%=src/%/*.c)))
CLI_SRC  := $(filter-out %_wasm.c,$(wildcard src/cli/*.c))
# The parts of attend's page are files, see src/show/explore.h.
PAGE_C   := $(BUILD)/src/show/explore_page.c
MODULE_C := $(BUILD)/src/show/explore_module.c
WASM     := build/wasm/decode.wasm
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o) $(PAGE_C:.c=.o) $(MODULE_C:.c=.o)
# The help's texts are files, see src/cli/command.h.
HELP_TXT := $(wildcard src/cli/help/*.txt)
HELP_C   := $(BUILD)/src/cli/help_texts.c
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o) $(HELP_C:.c=.o)
LIB      := $(BUILD)/libdecode.a
CLI_LIB  := $(BUILD)/libcli.a
BIN      := $(BUILD)/decode

# Kernels with vector instructions: each of these files is compiled once for each instruction set
# that machines of this architecture may have.
MACHINE    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ISA_SETS   := $(if $(filter x86_64 amd64 i%86,$(MACHINE)),avx2 avx512)\
              $(if $(filter aarch64 arm64,$(MACHINE)),neon)
VECTOR_SRC := $(patsubst %,src/compute/%.h,kernels_vector kernels_attend grad_vector)
# The objects of these files in the folder $(1).
vector_objects = $(foreach set,$(ISA_SETS),$(VECTOR_SRC:%.h=$(1)/%_$(set).o))
VECTOR_OBJ := $(call vector_objects,$(BUILD))
LIB_OBJ    += $(VECTOR_OBJ)
# The rule for objects of the instruction set $(2) in the folder $(1).
define vector_rule
$(1)/%_$(2).o: %.h Makefile scripts/check/modes.mk
	$$(compile)
endef

# Each tests/DIRECTORY/test_*.c is a program; they share the library tests/support.
TEST_SRC := $(wildcard tests/*/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
TEST_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
TEST_LIB := $(BUILD)/libtests.a

.PHONY: all run wasm deps deps-browser deps-wasm test test-all test-binaries format format-check lint check-layers check-size \
        check-neon check-builds check-import dist clean install uninstall help
# Objects stay after a link.
.PRECIOUS: $(BUILD)/%.o
.DELETE_ON_ERROR:

# --- flags -----------------------------------------------------------------------------------

# modes.mk has flags, objects and targets of sanitizers, fuzzing, coverage and valgrind, each in a build folder
# of its own.
include scripts/check/modes.mk

WARN := -Wall -Wextra -Wshadow -Wvla -Wdouble-promotion -Wstrict-prototypes \
        -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings
ifneq ($(WERROR),)
WARN += -Werror
endif

# Floating point must mean the same everywhere: no contraction but where the code says fma.
CFLAGS_COMMON := -std=c11 -D_GNU_SOURCE -Isrc -g -ffp-contract=off -fno-math-errno \
                 -DDECODE_VERSION='"$(VERSION)"' $(WARN)

CFLAGS  ?=
LDFLAGS ?=

PREDEFINED := $(shell $(CC) $(MODE_$(MODE)) $(CFLAGS) -dM -E -x c /dev/null 2>/dev/null)
# With 32 bits files may still be larger than 2 GiB, and SSE computes, because x87 registers keep more bits
# than a float has.
ifeq ($(filter __LP64__,$(PREDEFINED)),)
CFLAGS_COMMON += -D_FILE_OFFSET_BITS=64
endif
ifneq ($(filter __i386__,$(PREDEFINED)),)
CFLAGS_COMMON += -msse2 -mfpmath=sse -Wno-psabi
endif

ALL_CFLAGS := $(CFLAGS_COMMON) $(MODE_$(MODE)) $(CFLAGS)
LINK       := $(CC) $(MODE_$(MODE)) $(CFLAGS) $(LDFLAGS)
LDLIBS     := -lm -lpthread

# A step prints a short line, a step of tests none. V=1 shows commands, and -s nothing.
ifeq ($(V),)
Q := @
ifeq ($(findstring s,$(firstword -$(MAKEFLAGS))),)
say = $(if $(filter $(BUILD)/tests/% $(TEST_LIB),$@),,@printf '  %-5s %s\n' $(1) $@)
endif
endif

# --- what is built ---------------------------------------------------------------------------

all: decode ## build ./decode (MODE=release|debug|32|asan|tsan|cov, WERROR=1)

# ./decode is a link to the program of the MODE that was built last. It is phony, because the link must change
# when MODE does. A build in another folder (BUILD=...) leaves it as it is.
.PHONY: decode
decode: $(BIN)
	$(if $(filter file,$(origin BUILD)),@ln -sf $(BIN) $@)

# An archive is made anew, so that a deleted source leaves no member behind.
define archive
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) qcs $@ $^
endef

# The command line without main, for its unit tests.
$(CLI_LIB): $(filter-out %/main.o,$(CLI_OBJ))
	$(archive)

$(LIB): $(LIB_OBJ)
	$(archive)

$(BIN): $(BUILD)/src/cli/main.o $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)

# Instruction sets are switched on for their own objects only; the program chooses when it starts.
AVX2   := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
          -mprefer-vector-width=512
%_avx2.o:   ISA_FLAGS := $(AVX2)
%_avx512.o: ISA_FLAGS := $(AVX512)
%_neon.o:   ISA_FLAGS := -march=armv8.2-a+dotprod

# A profile needs lines only. Debug information about the tiles' variables would take half the time.
$(VECTOR_OBJ) $(CHECKED_OBJ): ISA_FLAGS += -g1 -x c

define compile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ISA_FLAGS) $(OBJ_FLAGS) -MMD -MP -c -o $@ $<
endef

$(BUILD)/%.o: %.c Makefile scripts/check/modes.mk
	$(compile)

$(foreach set,$(ISA_SETS),$(eval $(call vector_rule,$(BUILD),$(set))))

# Writes files as strings, line by line. $(1): the header that declares them, $(2): the beginning of their names
embed = $(Q)mkdir -p $(@D); { echo '\#include "$(1)"'; for f in $(filter-out Makefile,$^); do \
    name=$${f\#\#*/}; echo; echo "const char $(2)$$(echo $${name%.txt} | tr . _)[] ="; \
    sed 's/[\\"]/\\&/g; s/.*/    "&\\n"/' "$$f"; echo '    ;'; done } >$@

$(HELP_C): $(HELP_TXT) Makefile
	$(call embed,cli/command.h,help_of_)

# The file also has the digests by which the page's content security policy allows its style and script. (The
# printf of a shell may lack \x; that of env has it.)
$(PAGE_C): $(addprefix src/show/explore,.html .css .js _worker.js) Makefile
	$(call embed,show/explore.h)
	$(Q)for kind in css js; do echo "const char explore_$${kind}_hash[] = \"sha256-$$(env printf "$$( \
	    sha256sum <src/show/explore.$$kind | sed 's/ .*//; s/../\\x&/g')" | base64)\";"; done >>$@

# The module of a live page, if `make wasm` has made it.
$(MODULE_C): $(wildcard $(WASM).gz) Makefile
	$(Q)mkdir -p $(@D); { echo '#include "show/explore.h"'; echo 'const char explore_module[] ='; \
	    { cat $(filter %.gz,$^) </dev/null | base64; } | sed 's/.*/    "&"/'; echo '    "";'; } >$@

$(HELP_C:.c=.o) $(PAGE_C:.c=.o) $(MODULE_C:.c=.o): %.o: %.c
	$(compile)

# --- WebAssembly ------------------------------------------------------------------------------

# NAME_wasm.c takes the place of NAME.c where the platform lacks something. Limits of a process are never asked
# for there.
WASM_ONLY  := $(wildcard src/*/*_wasm.c)
WASM_SRC   := $(filter-out $(WASM_ONLY:_wasm.c=.c) src/base/limits.c src/train/% src/args/% %_avx2.c %_avx512.c %_neon.c,$(LIB_SRC)) \
              $(addprefix src/cli/,attend_page.c live.c variant.c) $(WASM_ONLY)
WASM_OBJ   := $(WASM_SRC:%.c=build/wasm/%.o)
WASM_CC    ?= clang --target=wasm32-wasi --sysroot=/usr
WASM_FLAGS := $(filter-out -g,$(CFLAGS_COMMON)) -O3 -include src/compute/fma_wasm.h

build/wasm/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,WASM)
	$(Q)$(WASM_CC) $(WASM_FLAGS) -MMD -MP -c -o $@ $<

$(WASM): $(WASM_OBJ)
	$(Q)$(WASM_CC) -mexec-model=reactor -Wl,--strip-all,-z,stack-size=1048576 $(foreach name,malloc free live_open live_show,-Wl,--export=$(name)) -o $@ $^

$(WASM).gz: $(WASM)
	$(Q)gzip -9nc $< >$@

wasm: ## build the module of `attend --html --live`, and the program with it
	@scripts/check/deps.sh wasm check
	@$(MAKE) --no-print-directory $(WASM).gz
	@$(MAKE) --no-print-directory all

deps-wasm: ## install what `make wasm` needs (clang, lld, wasi-libc)
	@scripts/check/deps.sh wasm

run: decode ## build, then continue a text from the shipped checkpoint
	./decode generate models/shakespeare-mha.gguf -p "ROMEO:" -n 200

# --- tests -----------------------------------------------------------------------------------

deps: ## install what the tests need (Check); nothing to do when it is there
	@scripts/check/deps.sh

deps-browser: ## install a Chromium for the tests of attend's page, which are skipped without it
	@scripts/check/deps.sh browser

# In `make -j deps test` nothing of the tests is built before Check is there.
ifneq ($(filter deps,$(MAKECMDGOALS)),)
$(TEST_BIN:=.o) $(TEST_OBJ): | deps
endif

CHECK_CFLAGS = $(shell pkg-config --cflags check 2>/dev/null)
CHECK_LIBS   = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck)

$(BUILD)/tests/%.o: ALL_CFLAGS += -Itests/support $(CHECK_CFLAGS)
# Optimisation costs tests more than it saves, except those with references that compute.
ifeq ($(MODE),release)
$(BUILD)/tests/%.o: OBJ_FLAGS := -O0
$(patsubst %,$(BUILD)/tests/%.o,support/plain_model support/kernel_data compute/% convert/% train/%): \
    OBJ_FLAGS := -O1
endif

$(TEST_LIB): $(TEST_OBJ)
	$(archive)

$(TEST_BIN): %: %.o $(TEST_LIB) $(CLI_LIB) $(LIB)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(TEST_LIB) $(CLI_LIB) $(LIB) $(TEST_LDFLAGS) \
	    $(CHECK_LIBS) $(LDLIBS)

# test_pool makes thread creation fail and counts the threads that are not joined.
$(BUILD)/tests/compute/test_pool: TEST_LDFLAGS := -Wl,--wrap=pthread_create,--wrap=pthread_join

# In these suites calls into the system fail on demand (tests/support/faults.h), those of the whole program or
# of the library alone.
FAULT_WRAPS := program_run malloc calloc realloc aligned_alloc strdup strndup free mmap mmap64 \
               munmap open open64 fopen fopen64 fclose read write fsync rename fchmod close pipe fork \
               pthread_create pthread_join clock_gettime
$(addprefix $(BUILD)/tests/,base/test_file cli/test_faults cli/test_interrupts engine/test_schedule): \
    TEST_LDFLAGS := $(FAULT_WRAPS:%=-Wl,--wrap=%)

# The longest suites run first, so that no processor waits at the end. Suites of pages, scripts and what is
# installed are not run with sanitizers. $(1): build/MODE
SHELL_SUITES  := cli/cli cli/world cli/many readme scripts/study scripts/questions cli/typed cli/session cli/install show/page
SUITES_AROUND := readme scripts/study scripts/questions cli/install show/page
suites = $(foreach suite,$(filter-out $(if $(filter %/asan,$(1)),$(SUITES_AROUND)),$(SHELL_SUITES)), \
             'sh tests/$(suite).sh $(1)/decode$(if $(filter readme,$(suite)), $(TEXT))') \
         $(TEST_SRC:%.c=$(1)/%)

test-binaries: $(BIN) $(TEST_BIN)

test: test-binaries ## run the Check suites and the command-line tests
	@scripts/check/run_tests.sh $(call suites,$(BUILD))

test-all: ## the same with every fault, signal and question; TEXT=shakespeare.txt: README's long commands, too
	DECODE_FAULT_SHARE=100 QUESTIONS=all $(MAKE) test

# --- checks ----------------------------------------------------------------------------------

SOURCES := $(shell find src tests -name '*.[ch]' 2>/dev/null)

format: ## rewrite the sources with clang-format
	clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run -Werror $(SOURCES)

lint: ## clang-tidy over src
	clang-tidy --quiet $(LIB_SRC) $(CLI_SRC) -- $(CFLAGS_COMMON)

check-layers: $(BIN) ## includes point only downwards, no circles; the library reaches no stdio, exit
	@scripts/check/layers.sh $(LIB)

check-size: $(BIN) ## lines of src by directory, options, size of tests: below their limits
	@scripts/check_size.sh

# BUILDS=all, or names out of scripts/check/builds.sh.
check-builds: $(BIN) ## 32 bits, musl: the same bits from each (BUILDS=all: many more)
	@MAKE='$(MAKE)' scripts/check/builds.sh $(BIN) $(BUILDS)

check-import: decode ## scripts/import.py and export.py against transformers; makes build/venv (network)
	@tests/scripts/check_import.sh ./decode

check-neon: $(BIN) ## cross-build for AArch64; under qemu the NEON kernels give the native bits
	@MAKE='$(MAKE)' scripts/check/neon.sh $(BIN)

# --- the rest --------------------------------------------------------------------------------

INSTALLED := $(DESTDIR)$(PREFIX)
SHARED    := share/man/man1/decode.1 share/bash-completion/completions/decode

$(BUILD)/share/man/man1/decode.1: scripts/manual.sh $(BIN)
	@mkdir -p $(@D)
	$(Q)scripts/manual.sh $(BIN) >$@

$(BUILD)/share/bash-completion/completions/decode: scripts/completion.bash
	@mkdir -p $(@D)
	$(Q)cp $< $@

install: $(BIN) $(SHARED:%=$(BUILD)/%) ## program, man page, completion to $(DESTDIR)$(PREFIX)
	install -d $(INSTALLED)/bin $(dir $(SHARED:%=$(INSTALLED)/%))
	install -m 755 $(BIN) $(INSTALLED)/bin/decode
	$(foreach file,$(SHARED),install -m 644 $(BUILD)/$(file) $(INSTALLED)/$(file) &&) :

uninstall: ## remove what install put there
	rm -f $(INSTALLED)/bin/decode $(SHARED:%=$(INSTALLED)/%)

DIST := decode-$(VERSION)
dist: ## the committed tree as a tarball, build/decode-VERSION.tar.gz
	@mkdir -p build
	git archive --format=tar.gz --prefix=$(DIST)/ -o build/$(DIST).tar.gz HEAD

clean: ## remove all builds
	rm -rf build decode

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include $(WASM_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_BIN:=.d) $(CHECKED_OBJ:.o=.d)
-include $(wildcard $(BUILD)/tests/*/*.d)
