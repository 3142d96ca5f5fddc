# Guest disk images; the scripts decide themselves what is out of date. Debian packages: install-deps.sh.
GUEST_CACHE ?= $(B)/cache

guest-image: $(B)/guest/small.img
guest-debian: $(B)/guest/debian.img

$(B)/guest/small.img: FORCE
	@guest-tools/image/build-image.sh --cache $(GUEST_CACHE) $@

$(B)/guest/debian.img: FORCE
	@guest-tools/image/build-debootstrap.sh --cache $(GUEST_CACHE) $@

FORCE:
.PHONY: FORCE guest-image guest-debian
