# What each MODE is compiled with beyond a release build, and the targets that run what a mode is for.
# The Makefile includes this after its lists of files.

# --- compilers and flags ---------------------------------------------------------------------

# Sanitizers use clang unless another compiler is chosen: its AddressSanitizer runs a third faster than
# gcc's, and its ThreadSanitizer twice as fast.
ifneq ($(filter asan-default tsan-default,$(MODE)-$(origin CC)),)
CC := $(shell echo 'int main(void) { return 0; }' | \
        clang -fsanitize=address,undefined -x c - -o /dev/null 2>/dev/null && echo clang || echo cc)
endif

# A report needs no more than lines. (To follow variables through instrumented kernels takes gcc minutes,
# and clang a quarter of its time.)
SAN_COMMON := -fno-omit-frame-pointer -fno-var-tracking -g1
# object-size finds nothing that AddressSanitizer does not.
SAN_ASAN   := -fsanitize=address,undefined -fno-sanitize=object-size -fno-sanitize-recover=all \
              $(SAN_COMMON)
SAN_TSAN   := -fsanitize=thread $(SAN_COMMON)

# Builds that look for mistakes check contracts at any cost, see base/mem.h.
COSTLY := -DDECODE_COSTLY_ASSERTS

MODE_release := -O3
MODE_debug   := -O0 $(COSTLY)
# A build of 32 bits on an x86-64 machine. The folder has asm/, which only gcc-multilib links to.
MODE_32      := -O2 -m32 -idirafter /usr/include/x86_64-linux-gnu
MODE_asan    := -O1 $(SAN_ASAN) $(COSTLY)
MODE_tsan    := -O1 $(SAN_TSAN) $(COSTLY)
MODE_fuzz    := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all \
                $(COSTLY)
# UNDER_VALGRIND sets SANITIZED in tests/support/support.h: suites leave out the same as with sanitizers.
MODE_valgrind := -O2 -DUNDER_VALGRIND $(COSTLY)
MODE_cov     := -O0 --coverage -fprofile-update=atomic $(COSTLY)

ifeq ($(MODE_$(MODE)),)
$(error MODE=$(MODE) is none of release, debug, 32, asan, tsan, valgrind, fuzz, cov)
endif

# --- objects that a mode compiles otherwise --------------------------------------------------

# The kernels' unrolled tiles take a compiler minutes to instrument in place; instrumented by calls,
# they run ten times as long. So sanitizers leave them out, except AddressSanitizer in the suites of the
# kernels, which are linked with instrumented objects. (UBSan checks the scalar kernels.)
IS_CLANG := $(findstring clang,$(shell $(CC) --version))
ifneq ($(filter asan,$(MODE))$(IS_CLANG),)
$(VECTOR_OBJ): OBJ_FLAGS := -fno-sanitize=all
endif
ifeq ($(MODE),asan)
CHECKED_OBJ  := $(call vector_objects,$(BUILD)/checked)
CHECKED_TEST := $(patsubst %,$(BUILD)/tests/compute/test_%,kernels grad_kernels)
$(CHECKED_OBJ): OBJ_FLAGS := -O0 -fno-sanitize=undefined $(if $(IS_CLANG),-mllvm -,--param \
                              )asan-instrumentation-with-call-threshold=0
$(foreach set,$(ISA_SETS),$(eval $(call vector_rule,$(BUILD)/checked,$(set))))
$(CHECKED_TEST): $(CHECKED_OBJ)
endif

# In loops over numbers the fuzzer would learn nothing from comparisons, and tracing these takes most of
# its time. Coverage counts there without atomic counters, which would take as long: a count may miss
# some, but what ran never counts as not run.
LOOPS_OBJ := $(patsubst %,$(BUILD)/src/compute/%.o,linalg kernels_scalar grad_scalar)
ifeq ($(MODE),fuzz)
$(LOOPS_OBJ): OBJ_FLAGS := -fno-sanitize-coverage=trace-cmp
endif
ifeq ($(MODE),cov)
$(LOOPS_OBJ) $(VECTOR_OBJ): OBJ_FLAGS := -O2 -fprofile-update=single
endif

# Optimising instrumented code that does not compute takes four times as long as it then saves.
ifneq ($(filter asan tsan,$(MODE)),)
$(BUILD)/tests/%.o: OBJ_FLAGS := -O0
$(foreach dir,args cli formats measure model show,$(BUILD)/src/$(dir)/%.o): OBJ_FLAGS := -O0
endif

# --- targets ---------------------------------------------------------------------------------

.PHONY: asan cov cov-run valgrind valgrind-run valgrind-quick tsan tsan-run tsan-binaries \
        fuzz fuzz-binaries fuzz-run fuzz-replay fuzz-replay-run replay-binaries test-everywhere

asan: ## the suites under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) MODE=asan test

cov: ## line and branch coverage of src by the suites (gcov), by file and layer
	$(MAKE) MODE=cov cov-run

cov-run: test-binaries
	@find $(BUILD) -name '*.gcda' -delete
	@GCOV_ERROR_FILE=/dev/null scripts/check/run_tests.sh $(call suites,$(BUILD)) >$(BUILD)/tests.log || \
	    echo "cov: a suite failed, perhaps because the profile is a file, too: $(BUILD)/tests.log"
	@scripts/check/coverage.sh $(BUILD)

valgrind: ## the Check suites and a run of every command under valgrind (long)
	$(MAKE) MODE=valgrind valgrind-run

valgrind-run: $(BIN) $(TEST_BIN)
	@CK_TIMEOUT_MULTIPLIER=100 scripts/check/run_tests.sh 'scripts/check/valgrind.sh $(BIN)' \
	    $(TEST_BIN:%='scripts/check/memcheck.sh %')

valgrind-quick: $(BIN) ## only the run of every command
	@scripts/check/valgrind.sh $(BIN)

# ThreadSanitizer runs the suites that start threads, with the scalar kernels, because it sees all that
# these read and write. $(1): build/MODE
THREADED := compute/test_pool convert/test_convert convert/test_quantize \
            measure/test_bench measure/test_eval \
            $(patsubst %,engine/test_%,sampler session batch schedule) \
            $(patsubst %,train/test_%,backprop train train_arch)
threaded = $(THREADED:%='env DECODE_ISA=scalar $(1)/tests/%')
tsan: ## the suites that use threads under ThreadSanitizer
	$(MAKE) MODE=tsan tsan-run

tsan-binaries: $(THREADED:%=$(BUILD)/tests/%)
tsan-run: tsan-binaries
	@scripts/check/run_tests.sh $(call threaded,$(BUILD))

fuzz: ## build the libFuzzer targets (clang): build/fuzz/fuzz_*
	$(MAKE) MODE=fuzz CC=clang fuzz-binaries

FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz-binaries: $(FUZZERS:%=build/fuzz/%)

# Both targets read GGUF files; they share a mutator and a corpus.
$(patsubst %,build/fuzz/fuzz_%,gguf model): build/fuzz/tests/fuzz/mutate_gguf.o
CORPUS_fuzz_gguf  := tests/fuzz/corpus/gguf
CORPUS_fuzz_model := tests/fuzz/corpus/gguf

build/fuzz/fuzz_%: build/fuzz/tests/fuzz/fuzz_%.o $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(CLI_LIB) $(LIB) $(LDLIBS)

# All takes FUZZ_SECONDS times the number of targets / JOBS.
FUZZ_SECONDS ?= 1800
JOBS         ?= 2
fuzz-run: fuzz ## run every fuzz target for FUZZ_SECONDS (1800), JOBS (2) at a time
	@scripts/check/fuzz_run.sh $(FUZZ_SECONDS) $(JOBS) $(foreach f,$(FUZZERS),$(f)=$(CORPUS_$(f)))

fuzz-replay: ## replay the fuzz corpora under ASan and UBSan
	$(MAKE) MODE=asan fuzz-replay-run

# $(1): build/MODE
replays = $(foreach f,$(FUZZERS),'$(1)/replay_$(f) $(CORPUS_$(f))')
replay-binaries: $(FUZZERS:%=$(BUILD)/replay_%)
fuzz-replay-run: replay-binaries
	@scripts/check/run_tests.sh $(call replays,$(BUILD))

$(BUILD)/replay_fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(CLI_LIB) $(LIB)
	$(call say,LINK)
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)

# All suites run from one queue, so that no processor waits for the last of one kind before the next kind
# begins. The program with sanitizers, which clang builds where it is there, gives the same bits.
test-everywhere: test-binaries ## test, asan, tsan, valgrind-quick and fuzz-replay side by side
	$(MAKE) MODE=asan test-binaries replay-binaries
	$(MAKE) MODE=tsan tsan-binaries
	@scripts/check/run_tests.sh $(call suites,build/asan) $(call threaded,build/tsan) \
	    'scripts/check/valgrind.sh $(BIN)' $(call suites,$(BUILD)) $(call replays,build/asan) \
	    'scripts/check/same_bits.sh sanitizers $(BIN) build/asan/decode'
