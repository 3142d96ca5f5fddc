#ifndef HOST_DOMAIN_XML_H
#define HOST_DOMAIN_XML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/*
 * XML by libxml2, which is loaded by who needs it: with its own (ICU) it is larger than we are.
 * Who wrote a text may be hostile: it is bounded, has no DTD, so no entities, and nothing is
 * fetched.
 */
#define XML_TEXT_MAX (1u << 20)

struct _xmlDoc;
struct _xmlNode;
typedef struct _xmlNode xml_node;

/* The document, for xml_free(), or NULL. `what` names the text in an error. */
struct _xmlDoc *xml_parse(const char *text, size_t len, const char *what, struct err *e);
void xml_free(struct _xmlDoc *doc); /* NULL is fine */

/*
 * Reading. Each takes NULL for an element that is not there, and has nothing then. `name` is that
 * of an element, NULL is any; elements of another namespace are found by NULL only.
 */
const xml_node *xml_root(const struct _xmlDoc *doc);
const xml_node *xml_child(const xml_node *of, const char *name);
const xml_node *xml_next(const xml_node *node, const char *name);
const char *xml_name(const xml_node *node);
const char *xml_prefix(const xml_node *node); /* of its namespace; "": none */
bool xml_is(const xml_node *node, const char *name);
/* NULL: there is no such attribute. */
const char *xml_attribute(const xml_node *node, const char *name);
bool xml_attribute_is(const xml_node *node, const char *name, const char *value);
const char *xml_text(const xml_node *node); /* "": none */
/* That of the child of this name. */
const char *xml_child_text(const xml_node *of, const char *name);

/*
 * Writing: a document, with elements added to it in the order in which they stand. Only what can
 * be loaded has elements; xml_new() says whether. Texts are escaped, and may be NULL: none.
 */
struct _xmlDoc *xml_new(const char *root, struct err *e);
xml_node *xml_top(struct _xmlDoc *doc);
xml_node *xml_add(xml_node *to, const char *name, const char *text);
void xml_set(xml_node *node, const char *attribute, const char *value);
/* -1: it cannot be written. */
int xml_write(struct _xmlDoc *doc, FILE *out, struct err *e);
/* Whether XML can have this text: it is UTF-8 without control characters. */
bool xml_can_have(const char *text);

#endif
