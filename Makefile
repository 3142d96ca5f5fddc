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
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARN) -fno-strict-aliasing -isystem /usr/include/libxml2 $(CFLAGS) -pthread
LIBS := -lZydis -lZycore -lext2fs -lcom_err -lz -lzstd -llzma -llz4 -lxxhash -ljansson -pthread

include rooms.mk
LIB_SRC := $(filter-out cli/main.c,$(foreach d,$(ROOMS),$(wildcard $(d)/*.c)))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
UNIT_SRC := $(foreach d,$(ROOMS),$(wildcard tests/unit/$(d)/test_*.c))
UNIT_BIN := $(patsubst %.c,$(B)/unit/%,$(notdir $(UNIT_SRC)))

all: dittovm

dittovm: $(B)/cli/main.o $(B)/libditto.a
	$(SHOW) LINK $@
	$(Q)$(CC) $(CFLAGS) -o $@ $^ $(LIBS)

$(B)/libditto.a: $(LIB_OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^

$(B)/%.o: %.c config.mk Makefile rooms.mk | $(B)/rooms/made
	@mkdir -p $(@D)
	$(SHOW) CC $<
	$(Q)$(CC) $(ALL_CFLAGS) $(call include_path,$<) -MMD -MP -c -o $@ $<

# The init of a machine that runs one command; whatever this program is built with, it is not.
COMMAND_INIT := $(addprefix guest-tools/command/init,.c _device.c _network.c _root.c)
$(B)/command-init: $(COMMAND_INIT) guest-tools/command/init.h base/command_protocol.h
	@mkdir -p $(@D)
	$(SHOW) GUEST $@
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(WARN) -Os -s -static -I. -o $@ $(COMMAND_INIT)

$(B)/boot/root/ram_disk.o: $(B)/command-init
$(B)/boot/root/ram_disk.o: ALL_CFLAGS += -DCOMMAND_INIT='"$(abspath $(B))/command-init"'

# For each room its links, looked after when a file comes, goes or is replaced. One that is good is
# never away, nor is it for a moment: a make of several jobs would take what includes it for made.
$(B)/rooms/made: rooms.mk $(ROOMS)
	@[ $@ -nt rooms.mk ] || rm -rf $(@D)
	@$(foreach room,$(ROOMS),$(foreach seen,$(call visible,$(room)),\
		mkdir -p $(@D)/$(room)/links/$(seen) && \
		find $(CURDIR)/$(seen) -maxdepth 1 -name '*.h' -exec ln -sf -t $(@D)/$(room)/links/$(seen) {} + &&)) :
	@find $(@D) -xtype l -delete
	@touch $@

# Their programs lie side by side, whichever room they are of.
define unit_program
$(B)/unit/$(basename $(notdir $(1))): $(B)/$(1:.c=.o) $(B)/libditto.a
	@mkdir -p $$(@D)
	$$(SHOW) LINK $$@
	$$(Q)$$(CC) $$(CFLAGS) -o $$@ $$^ -lcmocka $$(LIBS)
endef
$(foreach source,$(UNIT_SRC),$(eval $(call unit_program,$(source))))

-include $(LIB_OBJ:.o=.d) $(B)/cli/main.d $(patsubst %.c,$(B)/%.d,$(UNIT_SRC)) $(wildcard $(B)/tests/tools/*.d)
include guest-tools/guest.mk
include Makefile.test

# The manual page says what --help says.
docs/dittovm.1: dittovm
	$(Q)./dittovm --man >$@

# The emulated KVM host's kernel and initrd; quick when they are up to date.
khost:
	@sh guest-tools/khost/build.sh $(B)/khost

# QEMU without a fault of its CPU's, which is preferred to the one in PATH once it is there.
khost-qemu:
	@sh guest-tools/khost-qemu/build.sh $(B)/khost

# The emulated Intel host: a stock kvm_intel on Bochs. For tests: `dittovm --host vmx`; its run.sh runs any
# command there.
khost-vmx: khost
	@sh guest-tools/khost-vmx/build.sh $(B)/khost

.PHONY: all khost khost-qemu khost-vmx
.SECONDARY:
