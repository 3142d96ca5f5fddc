#include "host/domain/xml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/tree.h>

#define LIBRARY "libxml2.so.2"
#define FUNCTIONS(X)                                                                               \
    X(xmlReadMemory)                                                                               \
    X(xmlFreeDoc)                                                                                  \
    X(xmlNewDoc)                                                                                   \
    X(xmlNewDocNode)                                                                               \
    X(xmlDocSetRootElement)                                                                        \
    X(xmlNewTextChild) X(xmlNewChild) X(xmlNewProp) X(xmlDocFormatDump) X(xmlGetLastError)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

static int load_library(struct err *e)
{
    void *library = lib.xmlReadMemory ? NULL : dlopen(LIBRARY, RTLD_NOW);

    if (lib.xmlReadMemory)
        return 0;
    if (!library)
        return err_set(e, STATUS_ERROR, LIBRARY " cannot be loaded; run 'apt-get install libxml2'");
#define LOAD(name)                                                                                 \
    if (!(lib.name = (__typeof__(lib.name))dlsym(library, #name))) {                               \
        lib.xmlReadMemory = NULL;                                                                  \
        return err_set(e, STATUS_ERROR, LIBRARY " has no " #name);                                 \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    return 0;
}

/* ---- reading ---- */

static int refuse_damage(const char *what, struct err *e)
{
    const xmlError *const error = lib.xmlGetLastError();
    const char *const message = error && error->message ? error->message : "";

    return err_set(e, STATUS_ERROR, "%s is not XML: line %d: %.*s", what, error ? error->line : 0,
                   (int)strcspn(message, "\n"), message);
}

struct _xmlDoc *xml_parse(const char *text, size_t len, const char *what, struct err *e)
{
    if (load_library(e) < 0)
        return NULL;
    if (!len || len > XML_TEXT_MAX) {
        err_set(e, STATUS_ERROR, "%s is %s", what,
                len ? "larger than a domain's XML may be, 1 MiB" : "empty");
        return NULL;
    }
    /* Before it is parsed: even of entities that nobody asks for, attributes are made. One of
     * UTF-16 would hide it from us, so there may be no zero byte. */
    if (memchr(text, 0, len) || memmem(text, len, "<!DOCTYPE", 9)) {
        err_set(e, STATUS_ERROR,
                "%s is not taken: a domain's XML has neither zero bytes nor a DOCTYPE", what);
        return NULL;
    }
    xmlDoc *doc = lib.xmlReadMemory(text, (int)len, NULL, NULL,
                                    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING |
                                        XML_PARSE_NOCDATA);
    if (!doc)
        refuse_damage(what, e);
    if (doc && doc->intSubset) {
        err_set(e, STATUS_ERROR, "%s is not taken: a domain's XML has no DTD", what);
        xml_free(doc);
        doc = NULL;
    }
    return doc;
}

void xml_free(struct _xmlDoc *doc)
{
    if (doc)
        lib.xmlFreeDoc(doc);
}

bool xml_is(const xml_node *node, const char *name)
{
    return node && node->type == XML_ELEMENT_NODE &&
           (!name || (!node->ns && !strcmp((const char *)node->name, name)));
}

static const xml_node *first_of(const xml_node *node, const char *name)
{
    while (node && !xml_is(node, name))
        node = node->next;
    return node;
}

const xml_node *xml_root(const struct _xmlDoc *doc)
{
    return first_of(doc->children, NULL);
}

const xml_node *xml_child(const xml_node *of, const char *name)
{
    return of ? first_of(of->children, name) : NULL;
}

const xml_node *xml_next(const xml_node *node, const char *name)
{
    return node ? first_of(node->next, name) : NULL;
}

const char *xml_name(const xml_node *node)
{
    return node ? (const char *)node->name : "";
}

const char *xml_prefix(const xml_node *node)
{
    return node && node->ns && node->ns->prefix ? (const char *)node->ns->prefix : "";
}

/* Without entities a text is one node. */
static const char *content_of(const xmlNode *child)
{
    while (child && child->type != XML_TEXT_NODE)
        child = child->next;
    return child && child->content ? (const char *)child->content : "";
}

const char *xml_attribute(const xml_node *node, const char *name)
{
    for (const xmlAttr *a = node ? node->properties : NULL; a; a = a->next)
        if (!a->ns && !strcmp((const char *)a->name, name))
            return content_of(a->children);
    return NULL;
}

bool xml_attribute_is(const xml_node *node, const char *name, const char *value)
{
    const char *text = xml_attribute(node, name);

    return text && !strcmp(text, value);
}

const char *xml_text(const xml_node *node)
{
    return node ? content_of(node->children) : "";
}

const char *xml_child_text(const xml_node *of, const char *name)
{
    return xml_text(xml_child(of, name));
}

/* ---- writing ---- */

static const xmlChar *chars(const char *text)
{
    return (const xmlChar *)text;
}

struct _xmlDoc *xml_new(const char *root, struct err *e)
{
    if (load_library(e) < 0)
        return NULL;
    xmlDoc *doc = lib.xmlNewDoc(chars("1.0"));
    xmlNode *node = doc ? lib.xmlNewDocNode(doc, NULL, chars(root), NULL) : NULL;
    if (!node)
        abort(); /* out of memory */
    lib.xmlDocSetRootElement(doc, node);
    return doc;
}

xml_node *xml_top(struct _xmlDoc *doc)
{
    return doc->children;
}

xml_node *xml_add(xml_node *to, const char *name, const char *text)
{
    xmlNode *node = text ? lib.xmlNewTextChild(to, NULL, chars(name), chars(text))
                         : lib.xmlNewChild(to, NULL, chars(name), NULL);

    if (!node)
        abort();
    return node;
}

void xml_set(xml_node *node, const char *attribute, const char *value)
{
    if (value && !lib.xmlNewProp(node, chars(attribute), chars(value)))
        abort();
}

int xml_write(struct _xmlDoc *doc, FILE *out, struct err *e)
{
    return lib.xmlDocFormatDump(out, doc, 1) < 0 ? err_set(e, STATUS_ERROR, "cannot write the XML")
                                                 : 0;
}

bool xml_can_have(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < ' ' && *p != '\t')
            return false;
    return strstr(text, "\xef\xbf\xbe") == NULL && strstr(text, "\xef\xbf\xbf") == NULL;
}
