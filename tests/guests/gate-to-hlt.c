#include "tests/guests/guest.h"

struct interrupt_frame;

/* The #GP gate leads to a HLT, as in memory that a machine under dittovm has written to its disk:
 * that is no handler to go on in. */
__attribute__((naked)) static void general_protection(struct interrupt_frame *frame)
{
    (void)frame;
    __asm__ volatile("hlt");
}

static void user(void)
{
    __asm__ volatile("cli");
    leave_user();
}

static void then(void)
{
    put("there was no #GP\n");
    power_off();
}

void guest_main(void)
{
    set_handler(13, general_protection);
    enter_user(user, then);
}
