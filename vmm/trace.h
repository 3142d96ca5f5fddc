#ifndef VMM_TRACE_H
#define VMM_TRACE_H

#include "vmm/clock.h"
struct trace_filter { bool active; };
static inline uint64_t trace_filter_original(struct trace_filter *f, uint64_t rip) { (void)f; return rip; }
static inline bool trace_filter_handle(struct trace_filter *f, struct vcpu *v, struct vcpu_exit *e) { (void)f; (void)v; (void)e; return false; }
static inline void trace_filter_stop(struct trace_filter *f) { (void)f; }
static inline bool trace_filter_start(struct trace_filter *f, struct vcpu *v, const struct gp_hook *h, const struct landmark *l, const struct kvm_regs *r, const struct kvm_sregs *s, const struct kvm_regs *last) { (void)f; (void)v; (void)h; (void)l; (void)r; (void)s; (void)last; return false; }
#endif
