#ifndef DEVICES_DEVICE_REQUEST_H
#define DEVICES_DEVICE_REQUEST_H

/*
 * What the guest asks of the machine as a whole through one of its devices. The device only reports
 * it: the access that asked completes normally and the machine acts on it afterwards.
 */
enum machine_request {
    MACHINE_POWEROFF,
    MACHINE_RESET,
};

/* Where requests go; send may be NULL (then they are lost). */
struct machine_request_pin {
    void (*send)(void *opaque, enum machine_request request);
    void *opaque;
};

static inline void machine_request_send(const struct machine_request_pin *pin,
                                        enum machine_request request)
{
    if (pin->send)
        pin->send(pin->opaque, request);
}

#endif
