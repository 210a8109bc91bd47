# decode: build, test, install. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
MODE    ?= release
WERROR  ?=

VERSION := 0.1.0
BUILD   := build/$(MODE)

# Where nobody chose a compiler: clang's AddressSanitizer runs a third faster than gcc's, and its
# ThreadSanitizer twice as fast.
ifneq ($(filter asan-default tsan-default,$(MODE)-$(origin CC)),)
CC := $(shell echo 'int main(void) { return 0; }' | \
        clang -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null && echo clang || echo cc)
endif

# All processors, unless a caller has chosen: another make (MAKELEVEL), or MAKEFLAGS with a -j; one
# on the command line comes before this. Not with clean, which nothing may run beside.
ifeq ($(MAKELEVEL)$(filter -j% clean,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS") $(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

# --- flags by mode: one build folder each ----------------------------------------------------

WARN   := -Wall -Wextra -Wshadow -Wvla -Wdouble-promotion -Wstrict-prototypes \
          -Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings
ifneq ($(WERROR),)
WARN   += -Werror
endif

# Floating point must mean the same everywhere: no contraction but where the code says fma.
CFLAGS_COMMON := -std=c11 -D_GNU_SOURCE -Isrc -g -ffp-contract=off -fno-math-errno \
                 -DDECODE_VERSION='"$(VERSION)"' $(WARN)

# Without variables' places, which gcc needs minutes to follow through instrumented kernels.
SAN_COMMON := -fno-omit-frame-pointer -fno-var-tracking
# (What object-size looks at, AddressSanitizer does.)
SAN_ASAN   := -fsanitize=address,undefined -fno-sanitize=object-size -fno-sanitize-recover=all \
              $(SAN_COMMON)
SAN_TSAN   := -fsanitize=thread $(SAN_COMMON)

# Builds that look for mistakes check contracts at any cost, see base/mem.h.
COSTLY := -DDECODE_COSTLY_ASSERTS

MODE_release := -O3
MODE_debug   := -O0 $(COSTLY)
# 32 bits on an x86-64 machine; the last folder has asm/, which only gcc-multilib links to.
MODE_32      := -O2 -m32 -idirafter /usr/include/x86_64-linux-gnu
MODE_asan    := -O1 $(SAN_ASAN) $(COSTLY)
MODE_tsan    := -O1 $(SAN_TSAN) $(COSTLY)
MODE_fuzz    := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
                $(COSTLY)
# SANITIZED in tests/support.h: under valgrind suites leave out what they do under sanitizers.
MODE_valgrind := -O2 -DUNDER_VALGRIND $(COSTLY)
MODE_cov     := -O0 --coverage -fprofile-update=atomic $(COSTLY)

ifeq ($(MODE_$(MODE)),)
$(error MODE=$(MODE) is none of release, debug, 32, asan, tsan, valgrind, fuzz, cov)
endif

CFLAGS  ?=
LDFLAGS ?=

MACHINE    := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
PREDEFINED := $(shell $(CC) $(MODE_$(MODE)) $(CFLAGS) -dM -E -x c /dev/null 2>/dev/null)
# 32 bits: files may still be larger than 2 GiB; x87 registers keep more bits than a float has.
ifeq ($(filter __LP64__,$(PREDEFINED)),)
CFLAGS_COMMON += -D_FILE_OFFSET_BITS=64
endif
ifneq ($(filter __i386__,$(PREDEFINED)),)
CFLAGS_COMMON += -msse2 -mfpmath=sse -Wno-psabi
endif

ALL_CFLAGS := $(CFLAGS_COMMON) $(MODE_$(MODE)) $(CFLAGS)
LINK       := $(CC) $(MODE_$(MODE)) $(CFLAGS) $(LDFLAGS)
LDLIBS     := -lm -lpthread

# One short line a step; V=1 shows the commands, -s nothing.
ifeq ($(V),)
Q := @
ifeq ($(findstring s,$(firstword -$(MAKEFLAGS))),)
say = @printf '  %-5s %s\n' $(1) $@
endif
endif

# --- what is built ---------------------------------------------------------------------------

LIB_DIRS := base formats text compute model engine train convert measure show args
LIB_SRC := $(wildcard $(LIB_DIRS:%=src/%/*.c))
CLI_SRC := $(wildcard src/cli/*.c)
# The parts of attend's page are files, see src/show/explore_page.h.
PAGE_C  := $(BUILD)/src/show/explore_page.c
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(PAGE_C:.c=.o)
# The help's texts are files, see src/cli/help_texts.h.
HELP_TXT := $(wildcard src/cli/help/*.txt)
HELP_C   := $(BUILD)/src/cli/help_texts.c
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o) $(HELP_C:.c=.o)
LIB     := $(BUILD)/libdecode.a
CLI_LIB := $(BUILD)/libcli.a
BIN     := $(BUILD)/decode

TEST_SRC := $(wildcard tests/test_*.c)
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
# What the suites share.
TEST_SUPPORT := $(patsubst %,$(BUILD)/tests/%.o,support checkpoints conversions hostile \
                                            kernel_data plain_model program vocabularies)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS  := $(FUZZ_SRC:tests/fuzz/%.c=%)

.PHONY: all run deps test asan tsan fuzz fuzz-run fuzz-replay format format-check lint check-layers \
        check-neon check-builds check-import clean install uninstall help
# Objects stay after a link.
.PRECIOUS: $(BUILD)/%.o
.DELETE_ON_ERROR:

all: decode ## build ./decode (MODE=release|debug|32|asan|tsan|cov, WERROR=1)

# Phony, because the link must change when MODE does.
.PHONY: decode
decode: $(BIN)
	@ln -sf $(BIN) $@

# The command line without main, for its unit tests.
$(CLI_LIB): $(filter-out %/main.o,$(CLI_OBJ))
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) qcs $@ $^

$(BIN): $(CLI_OBJ) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -o $@ $(CLI_OBJ) $(LIB) $(LDLIBS)

# Made anew, so that a deleted source leaves no member behind.
$(LIB): $(LIB_OBJ)
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) qcs $@ $(LIB_OBJ)

# Instruction sets are switched on for their own objects only; the choice is made at start.
AVX2   := -mavx2 -mfma -mf16c
AVX512 := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
          -mprefer-vector-width=512
# Other machines compile these files to nothing.
ifneq ($(filter x86_64 amd64 i%86,$(MACHINE)),)
%_avx2.o:   ISA_FLAGS := $(AVX2)
%_avx512.o: ISA_FLAGS := $(AVX512)
endif
ifneq ($(filter aarch64 arm64,$(MACHINE)),)
%_neon.o: ISA_FLAGS := -march=armv8.2-a+dotprod
endif

# Their unrolled tiles take a compiler minutes to instrument in place, and instrumented by calls they
# run ten times as long. So sanitizers leave them out, but for AddressSanitizer in the suites that
# are about kernels, which are linked with objects of their own. (UBSan has the scalar kernels.)
VECTOR_SRC := $(wildcard src/compute/*_avx*.c src/compute/*_neon*.c)
VECTOR_OBJ := $(VECTOR_SRC:%.c=$(BUILD)/%.o)
IS_CLANG   := $(findstring clang,$(shell $(CC) --version))
ifneq ($(filter asan,$(MODE))$(IS_CLANG),)
$(VECTOR_OBJ): OBJ_FLAGS := -fno-sanitize=all
endif
ifeq ($(MODE),asan)
CHECKED_OBJ  := $(VECTOR_SRC:%.c=$(BUILD)/checked/%.o)
CHECKED_TEST := $(patsubst %,$(BUILD)/tests/test_%,kernels grad_kernels)
$(CHECKED_OBJ): OBJ_FLAGS := -O0 -fno-sanitize=undefined $(if $(IS_CLANG),-mllvm -,--param \
                              )asan-instrumentation-with-call-threshold=0
$(CHECKED_OBJ): $(BUILD)/checked/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ISA_FLAGS) $(OBJ_FLAGS) -MMD -MP -c -o $@ $<
$(CHECKED_TEST): $(CHECKED_OBJ)
endif

# Lines are all that a profile needs; to say where the tiles' variables are takes half the time.
$(VECTOR_OBJ) $(CHECKED_OBJ): ISA_FLAGS += -g1

# Loops over numbers: tracing their comparisons tells the fuzzer nothing and takes most of its time,
# as do, of a run that counts what ran, counters that threads take in turn. (Without turns a count may
# miss some; it never becomes none.)
LOOPS_OBJ := $(patsubst %,$(BUILD)/src/compute/%.o,linalg linalg_eigen kernels_scalar grad_scalar)
ifeq ($(MODE),fuzz)
$(LOOPS_OBJ): OBJ_FLAGS := -fno-sanitize-coverage=trace-cmp
endif
ifeq ($(MODE),cov)
$(LOOPS_OBJ) $(VECTOR_OBJ): OBJ_FLAGS := -O2 -fprofile-update=single
endif

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ISA_FLAGS) $(OBJ_FLAGS) -MMD -MP -c -o $@ $<

# Files as strings, a line of them a line. $(1): the header that declares these, $(2): what stands
# before their names
embed = $(Q)mkdir -p $(@D); { echo '\#include "$(1)"'; for f in $(filter-out Makefile,$^); do \
    name=$${f\#\#*/}; echo; echo "const char $(2)$$(echo $${name%.txt} | tr . _)[] ="; \
    sed 's/[\\"]/\\&/g; s/.*/    "&\\n"/' "$$f"; echo '    ;'; done } >$@

$(HELP_C): $(HELP_TXT) Makefile
	$(call embed,cli/help_texts.h,help_of_)

$(PAGE_C): $(addprefix src/show/explore.,html css js) Makefile
	$(call embed,show/explore_page.h)

$(HELP_C:.c=.o) $(PAGE_C:.c=.o): %.o: %.c
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(OBJ_FLAGS) -MMD -MP -c -o $@ $<

run: decode ## build, then continue a text from the shipped checkpoint
	./decode generate models/shakespeare-mha.gguf -p "ROMEO:" -n 200

# --- tests -----------------------------------------------------------------------------------

deps: ## install what the tests need (Check); nothing to do when it is there
	@scripts/deps.sh

# `make -j deps test`: nothing of the tests is built before Check is there.
ifneq ($(filter deps,$(MAKECMDGOALS)),)
$(TEST_BIN:=.o) $(TEST_SUPPORT): | deps
endif

CHECK_CFLAGS = $(shell pkg-config --cflags check 2>/dev/null)
CHECK_LIBS   = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck)

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(TEST_SUPPORT) $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -o $@ $(filter %.o,$^) $(CLI_LIB) $(LIB) $(TEST_LDFLAGS) $(CHECK_LIBS) $(LDLIBS)

$(BUILD)/tests/%.o: ALL_CFLAGS += -Itests $(CHECK_CFLAGS)
# Instrumented, what does not compute costs four times as long to optimise as it then saves.
ifneq ($(filter asan tsan,$(MODE)),)
$(foreach dir,tests $(addprefix src/,args cli formats measure model show), \
    $(BUILD)/$(dir)/%.o): OBJ_FLAGS := -O0
endif

# test_pool makes thread creation fail and counts the threads that are not joined.
$(BUILD)/tests/test_pool: TEST_LDFLAGS := -Wl,--wrap=pthread_create,--wrap=pthread_join

# These run the whole program with its calls into the system failing on demand.
FAULT_WRAPS := program_run malloc calloc realloc aligned_alloc strdup strndup free mmap mmap64 \
               munmap open open64 fopen fopen64 fclose read write fsync rename close pipe fork \
               pthread_create pthread_join clock_gettime
FAULT_TESTS := $(BUILD)/tests/test_faults $(BUILD)/tests/test_interrupts
$(FAULT_TESTS): TEST_LDFLAGS := $(FAULT_WRAPS:%=-Wl,--wrap=%)
$(FAULT_TESTS): $(BUILD)/tests/faults.o $(BUILD)/tests/scenarios.o
# And these the library's calls of their own, or count them.
FAULT_CALLS := $(BUILD)/tests/test_schedule
$(FAULT_CALLS): TEST_LDFLAGS := $(FAULT_WRAPS:%=-Wl,--wrap=%)
$(FAULT_CALLS): $(BUILD)/tests/faults.o

# The longest first, so that nothing is waited for at the end. $(1): build/MODE
suites = 'sh tests/cli.sh $(1)/decode' 'sh tests/world.sh $(1)/decode' \
         'sh tests/many.sh $(1)/decode' \
         'sh tests/study.sh $(1)/decode' 'sh tests/readme.sh $(1)/decode $(TEXT)' \
         'sh tests/typed.sh $(1)/decode' 'sh tests/talk.sh $(1)/decode' \
         'sh tests/install.sh $(1)/decode' 'sh tests/page.sh $(1)/decode' \
         $(TEST_SRC:%.c=$(1)/%)

.PHONY: test-all test-binaries
test-binaries: $(BIN) $(TEST_BIN)

test: test-binaries ## run the Check suites and the command-line tests
	@scripts/run_tests.sh $(call suites,$(BUILD))

test-all: ## the same with every fault and signal (DECODE_FAULT_SHARE); TEXT=shakespeare.txt: README's long commands, too
	DECODE_FAULT_SHARE=100 $(MAKE) test

asan: ## the same suites under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) MODE=asan test

.PHONY: cov cov-run valgrind valgrind-quick
cov: ## line and branch coverage of src by the suites (gcov), by file and layer
	$(MAKE) MODE=cov cov-run

cov-run: test-binaries
	@find $(BUILD) -name '*.gcda' -delete
	@GCOV_ERROR_FILE=/dev/null scripts/run_tests.sh $(call suites,$(BUILD)) >$(BUILD)/tests.log || \
	    echo "cov: a suite failed, perhaps because the profile is a file, too: $(BUILD)/tests.log"
	@scripts/coverage.sh $(BUILD)

valgrind: ## the Check suites and a run of every command under valgrind (long)
	$(MAKE) MODE=valgrind valgrind-run

.PHONY: valgrind-run
valgrind-run: $(BIN) $(TEST_BIN)
	@CK_TIMEOUT_MULTIPLIER=100 scripts/run_tests.sh 'scripts/valgrind.sh $(BIN)' \
	    $(TEST_BIN:%='scripts/memcheck.sh %')

valgrind-quick: $(BIN) ## only the run of every command
	@scripts/valgrind.sh $(BIN)

# Only what starts threads, with the scalar kernels, of which ThreadSanitizer sees all that they read
# and write. $(1): build/MODE
THREADED := pool sampler many session batch bench eval quantize convert refit backprop train \
            train_arch train_probe schedule
threaded = $(THREADED:%='env DECODE_ISA=scalar $(1)/tests/test_%')
tsan: ## the suites that use threads under ThreadSanitizer
	$(MAKE) MODE=tsan tsan-run

.PHONY: tsan-run tsan-binaries
tsan-binaries: $(THREADED:%=$(BUILD)/tests/test_%)
tsan-run: tsan-binaries
	@scripts/run_tests.sh $(call threaded,$(BUILD))

fuzz: ## build the libFuzzer targets (clang): build/fuzz/fuzz_*
	$(MAKE) MODE=fuzz CC=clang fuzz-binaries

.PHONY: fuzz-binaries
fuzz-binaries: $(FUZZERS:%=build/fuzz/%)

# These read GGUF files, and share a mutator and a corpus.
$(patsubst %,build/fuzz/fuzz_%,gguf model convert): build/fuzz/tests/fuzz/mutate_gguf.o
CORPUS_fuzz_gguf      := tests/fuzz/corpus/gguf
CORPUS_fuzz_model     := tests/fuzz/corpus/gguf
CORPUS_fuzz_convert   := tests/fuzz/corpus/gguf
CORPUS_fuzz_json      := tests/fuzz/corpus/json

build/fuzz/fuzz_%: build/fuzz/tests/fuzz/fuzz_%.o $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(CLI_LIB) $(LIB) $(LDLIBS)

# Long: targets / JOBS * FUZZ_SECONDS.
FUZZ_SECONDS ?= 1800
JOBS         ?= 2
fuzz-run: fuzz ## run every fuzz target for FUZZ_SECONDS (1800), JOBS (2) at a time
	@scripts/fuzz_run.sh $(FUZZ_SECONDS) $(JOBS) $(foreach f,$(FUZZERS),$(f)=$(CORPUS_$(f)))

fuzz-replay: ## replay the fuzz corpora under ASan and UBSan
	$(MAKE) MODE=asan fuzz-replay-run

# $(1): build/MODE
replays = $(foreach f,$(FUZZERS),'$(1)/replay_$(f) $(CORPUS_$(f))')
.PHONY: fuzz-replay-run replay-binaries
replay-binaries: $(FUZZERS:%=$(BUILD)/replay_%)
fuzz-replay-run: replay-binaries
	@scripts/run_tests.sh $(call replays,$(BUILD))

$(BUILD)/replay_fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)

# All that runs suites, in one queue: no processor waits for the last of one kind before the next.
.PHONY: test-everywhere
test-everywhere: test-binaries ## test, asan, tsan, valgrind-quick and fuzz-replay side by side
	$(MAKE) MODE=asan test-binaries replay-binaries
	$(MAKE) MODE=tsan tsan-binaries
	@scripts/run_tests.sh $(call suites,build/asan) $(call threaded,build/tsan) \
	    'scripts/valgrind.sh $(BIN)' $(call suites,$(BUILD)) $(call replays,build/asan)

# --- checks ----------------------------------------------------------------------------------

SOURCES := $(shell find src tests -name '*.[ch]' 2>/dev/null)

format: ## rewrite the sources with clang-format
	clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run -Werror $(SOURCES)

lint: ## clang-tidy over src
	clang-tidy --quiet $(LIB_SRC) $(CLI_SRC) -- $(CFLAGS_COMMON)

check-layers: $(BIN) ## includes point only downwards, no circles; the library reaches no stdio, exit
	@scripts/check_layers.sh $(LIB)

check-size: $(BIN) ## lines of src by directory, options, size of tests: below their limits
	@scripts/check_size.sh

# BUILDS=all, or names out of scripts/check_builds.sh.
check-builds: $(BIN) ## 32 bits, musl, clang -O0: the same bits from each (BUILDS=all: many more)
	@MAKE='$(MAKE)' scripts/check_builds.sh $(BIN) $(BUILDS)

check-import: decode ## scripts/import.py and export.py against transformers; makes build/venv (network)
	@tests/check_import.sh ./decode

check-neon: $(BIN) ## cross-build for AArch64; under qemu the NEON kernels give the native bits
	@MAKE='$(MAKE)' scripts/check_neon.sh $(BIN)

# --- the rest --------------------------------------------------------------------------------

# What the program itself prints, as `help --format` has it.
INSTALLED := $(DESTDIR)$(PREFIX)
SHARED    := share/man/man1/decode.1 share/bash-completion/completions/decode

$(SHARED:%=$(BUILD)/%): $(BIN)
	@mkdir -p $(@D)
	$(Q)$(BIN) help --format $(if $(filter %.1,$@),man,bash) >$@

install: $(BIN) $(SHARED:%=$(BUILD)/%) ## program, man page, completion to $(DESTDIR)$(PREFIX)
	install -d $(INSTALLED)/bin $(dir $(SHARED:%=$(INSTALLED)/%))
	install -m 755 $(BIN) $(INSTALLED)/bin/decode
	$(foreach file,$(SHARED),install -m 644 $(BUILD)/$(file) $(INSTALLED)/$(file) &&) :

uninstall: ## remove what install put there
	rm -f $(INSTALLED)/bin/decode $(SHARED:%=$(INSTALLED)/%)

DIST := decode-$(VERSION)
.PHONY: dist
dist: ## the committed tree as a tarball, build/decode-VERSION.tar.gz
	@mkdir -p build
	git archive --format=tar.gz --prefix=$(DIST)/ -o build/$(DIST).tar.gz HEAD

clean: ## remove all builds
	rm -rf build decode

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_BIN:=.d) $(CHECKED_OBJ:.o=.d)
-include $(wildcard $(BUILD)/tests/*.d $(BUILD)/tests/fuzz/*.d)
