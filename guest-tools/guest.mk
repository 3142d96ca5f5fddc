# Guest disk images; the scripts decide themselves what is out of date. Debian packages: install-deps.sh.
GUEST_CACHE ?= $(B)/cache

guest-image: $(B)/guest/small.img $(B)/guest/modules.img
guest-debian: $(B)/guest/debian.img

$(B)/guest/small.img: FORCE
	@guest-tools/image/build-image.sh --cache $(GUEST_CACHE) $@

# The same with the kernel that is not for the cloud, whose ext4 is a module; it is the emulated host's, too.
$(B)/guest/modules.img: FORCE khost
	@guest-tools/image/build-image.sh --kernel-package $(B)/khost/khost-cache/linux-image-*.deb $@

$(B)/guest/debian.img: FORCE
	@guest-tools/image/build-debootstrap.sh --cache $(GUEST_CACHE) $@

FORCE:
.PHONY: FORCE guest-image guest-debian
