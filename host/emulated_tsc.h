#ifndef HOST_EMULATED_TSC_H
#define HOST_EMULATED_TSC_H

#include <stdbool.h>

/*
 * The frequency of this machine's TSC in kHz, which QEMU's TCG hands on to the emulated host; 0
 * where it cannot be measured. Takes 15 ms.
 *
 * The emulated kernel would measure it while it starts. On a busy machine it may come to a number
 * that is wrong by a factor; its clock is wrong by that factor then for as long as it runs.
 */
unsigned emulated_tsc_khz(void);

/*
 * Frequencies that count as one are a step. `steps` gets the two steps that one of `khz` may be in
 * when it is measured again, the likelier first. A step's middle, not its edge, is at a multiple of
 * its width: most TSCs have a round frequency. False: `khz` is too small.
 */
#define EMULATED_TSC_STEP_KHZ 4000u
bool emulated_tsc_steps(unsigned khz, unsigned steps[2]);

#endif
