# dittovm: `make` builds, `make demo` shows, `make check` tests; README.md lists the rest.
ifeq ($(wildcard config.mk),)
$(shell ./configure >&2)
endif
-include config.mk

B ?= build
# Commands are shown with V=1.
ifneq ($(V),1)
Q := @
SHOW = @printf '%-6s %s\n'
else
SHOW = @true
endif
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
# Guest memory is read as what it is taken for, and registers of struct kvm_regs also by their index.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. $(WARN) -fno-strict-aliasing $(CFLAGS) -pthread
LIBS := -lZydis -lZycore -lext2fs -lcom_err -lz -lzstd -llzma -llz4 -lxxhash -ljansson -pthread

DIRS := base mmu devices recorder replay vmm
LIB_SRC := $(filter-out vmm/main.c,$(foreach d,$(DIRS),$(wildcard $(d)/*.c)))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/unit/%)

all: dittovm

dittovm: $(B)/vmm/main.o $(B)/libditto.a
	$(SHOW) LINK $@
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

$(B)/libditto.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/%.o: %.c config.mk Makefile
	@mkdir -p $(@D)
	$(SHOW) CC $<
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/unit/%: $(B)/tests/unit/%.o $(B)/libditto.a
	@mkdir -p $(@D)
	$(SHOW) LINK $@
	$(Q)$(CC) $(CFLAGS) -o $@ $^ -lcmocka $(LIBS)

-include $(wildcard $(B)/*/*.d $(B)/tests/*/*.d)
include guest-tools/guest.mk
include Makefile.test

# The emulated KVM host's kernel and initrd; quick when they are up to date.
khost:
	@sh guest-tools/khost/build.sh $(B)/khost

# QEMU without a fault of its CPU's, which is preferred to the one in PATH once it is there.
khost-qemu:
	@sh guest-tools/khost-qemu/build.sh $(B)/khost

.PHONY: all khost khost-qemu
.SECONDARY:
