#ifndef HOST_DOMAIN_DOMAIN_INSIDE_H
#define HOST_DOMAIN_DOMAIN_INSIDE_H

#include "host/domain/domain.h"
#include "host/domain/xml.h"

/* What reading a domain's XML consists of. All add to *d; -1 with *e, which begins with the
 * domain's name. */
int domain_read_disks(struct domain *d, const xml_node *devices, const struct domain_around *around,
                      struct err *e);
int domain_read_nics(struct domain *d, const xml_node *devices, const struct domain_around *around,
                     struct err *e);
void domain_read_left(struct domain *d, const xml_node *domain);

/* Add a text to one of the lists; twice the same is once. A list does not grow without bounds. */
void domain_note(json_t *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
void domain_option(struct domain *d, const char *option, const char *value);

/* The name of the first child that is none of these (a list that ends with NULL), from *at on, NULL
 * at first; NULL: there is no more. */
const char *domain_other_child(const xml_node *of, const char *const *known, const xml_node **at);

#endif
