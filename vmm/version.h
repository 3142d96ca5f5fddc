#ifndef VMM_VERSION_H
#define VMM_VERSION_H

#define DITTO_VERSION "0.1.0"

#endif
