#ifndef HOST_EMULATED_TSC_H
#define HOST_EMULATED_TSC_H

/*
 * The frequency of this machine's TSC in kHz, which QEMU's TCG hands on to the emulated host; 0
 * where it cannot be measured. Takes 15 ms.
 *
 * The emulated kernel would measure it while it starts. On a busy machine it may come to a number
 * that is wrong by a factor; its clock is wrong by that factor then for as long as it runs.
 */
unsigned emulated_tsc_khz(void);

#endif
