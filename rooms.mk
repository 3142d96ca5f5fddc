# The rooms of the house, and what each may include: itself, the rooms named here, and what those may
# include in turn. The build gives each room an include path of just these (a folder of links), so that
# another include is "no such file". ARCHITECTURE.md says what lives in each room; tests/rooms.sh tests this.
#
# Lowest first.
ROOMS := base mmu recording recording/order recording/places devices devices/virtio devices/disk boot boot/diskimage \
	boot/root vmm/kvm vmm/points vmm/points/trace vmm/points/pmu recorder vmm/machine vmm/machine/crew \
	replay replay/gdb replay/live host host/net host/control host/domain host/doctor cli/command_unit cli cli/ctl

sees.base :=
sees.mmu := base
# The recording file and its language: no KVM, no devices.
sees.recording := mmu
sees.recording/order := recording
sees.recording/places := recording
# Devices know no hypervisor.
sees.devices := mmu devices/virtio devices/disk
sees.devices/disk := base
sees.devices/virtio := devices
sees.boot := mmu
sees.boot/diskimage := devices/disk
# A directory as a root file system.
sees.boot/root := boot devices/disk
sees.vmm/kvm := recording
sees.vmm/points := vmm/kvm boot vmm/points/trace vmm/points/pmu
sees.vmm/points/trace := vmm/points
sees.vmm/points/pmu := vmm/points
# The funnel.
sees.recorder := vmm/kvm recording/order devices
sees.vmm/machine := vmm/points recorder vmm/machine/crew
sees.vmm/machine/crew := vmm/machine
# A replay has no devices and no machine.
sees.replay := vmm/points recording/order recording/places
sees.replay/gdb := replay
# Going live is where the two meet.
sees.replay/live := replay vmm/machine
# What NICs are connected to: processes of their own.
sees.host/net := base
# Whoever tells a running machine something.
sees.host/control := base
# libvirt's domains as options of ours, and back.
sees.host/domain := host/net recording devices/disk
sees.host/doctor := vmm/points
sees.host := host/doctor host/net host/control . guest-tools/khost
# dittovm run --root DIR -- COMMAND.
sees.cli/command_unit := boot/root vmm/machine
sees.cli := host host/domain boot/diskimage cli/command_unit vmm/machine replay/gdb replay/live
sees.cli/ctl := cli

# Everything that a room sees: $(call visible,ROOM). The table is not deeper than these steps.
step = $(sort $(1) $(foreach room,$(1),$(sees.$(room))))
visible = $(call step,$(call step,$(call step,$(call step,$(call step,$(call step,$(call step,$(1))))))))

# $(call include_path,FILE): of a product's file that of its room, else the whole tree.
include_path = $(if $(filter $(patsubst %/,%,$(dir $(1))),$(ROOMS)),-iquote $(B)/rooms/$(patsubst %/,%,$(dir $(1)))/links,-I.)
