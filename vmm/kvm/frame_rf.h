#ifndef VMM_KVM_FRAME_RF_H
#define VMM_KVM_FRAME_RF_H

#include "vmm/kvm/isolated.h"

/*
 * Which frames of exceptions and interrupts have RF set. Those of faults on a real CPU, so that the
 * breakpoint of an instruction is not met again when it is restarted (Intel SDM vol. 3,
 * "Instruction-Breakpoint Exception Condition"; AMD APM vol. 2, "RFLAGS Register"). QEMU sets it in
 * none before version 8, and later in those of interrupts, too. The CPU writes frames into the
 * guest's memory by itself: a guest that takes faults replays on a CPU that does the same.
 */
enum frame_rf {
    FRAME_RF_UNKNOWN, /* it could not be tried */
    FRAME_RF_FAULTS,
    FRAME_RF_NONE,
    FRAME_RF_ALL,
    FRAME_RFS,
};

/* This host's, tried by small guests the first time. */
enum frame_rf frame_rf_here(void);

/* How a recording says it, and doctor; "unknown". */
const char *frame_rf_name(enum frame_rf rf);
/* FRAME_RF_UNKNOWN when no name is like that, or it is NULL. */
enum frame_rf frame_rf_named(const char *name);

/* For doctor: OK when it is as on a real CPU. */
void probe_frame_rf(struct probe_outcome *o);

#endif
