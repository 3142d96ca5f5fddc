#ifndef DEVICES_AML_H
#define DEVICES_AML_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/*
 * Writing AML, the byte code of ACPI definition blocks (ACPI 6.4, chapter 20.2), and resource
 * descriptors (6.4). Terms with a length are written between aml_begin_... and aml_end, which may
 * be nested; the begin function returns what aml_end needs.
 */
/* A NameString that is its own encoding: "\\_S5_" or "_SB_"; segments are four characters. */
void aml_name_string(struct bytes *out, const char *name);
/* Name (name, ...): the object follows. */
void aml_name(struct bytes *out, const char *name);
/* An integer constant in its shortest form, up to 32 bits. */
void aml_integer(struct bytes *out, uint32_t value);
/* EisaId ("PNP0A03"): three capital letters and four hexadecimal digits. */
void aml_eisa_id(struct bytes *out, const char *id);

size_t aml_begin_scope(struct bytes *out, const char *name);
size_t aml_begin_device(struct bytes *out, const char *name);
size_t aml_begin_package(struct bytes *out, uint8_t elements);
void aml_end(struct bytes *out, size_t begin);

/* ResourceTemplate () { ... }: a buffer of descriptors with its end tag. */
size_t aml_begin_resources(struct bytes *out);
void aml_end_resources(struct bytes *out, size_t begin);
/* IO (Decode16, base, base, 1, length) */
void aml_io(struct bytes *out, uint16_t base, uint8_t length);
/* Ranges that a bridge passes on to its bus; both ends belong to the range. */
void aml_bus_window(struct bytes *out, uint16_t first, uint16_t last);
void aml_io_window(struct bytes *out, uint16_t first, uint16_t last);
void aml_memory_window(struct bytes *out, uint32_t first, uint32_t last);

#endif
