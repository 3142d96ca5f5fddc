#ifndef RECORDING_WRITER_H
#define RECORDING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "recording/format.h"

/*
 * Writes a recording file (recording/format.h).
 *
 * Order of calls: writer_create, writer_meta once, then any number of writer_put, writer_put_chunk
 * and writer_epoch, then writer_finish or writer_abort, which free the writer. Threads may share a
 * writer: those between writer_meta and the end.
 *
 * Bytes become part of the recording at the next writer_epoch, all streams together; what follows
 * the last epoch is lost when the recorder is killed. Compressing and writing happen on a thread of
 * the writer's; a call waits only while some 40 MiB are queued. Memory: those 40 MiB, and 256 KiB
 * for each stream in use.
 *
 * A write that fails does not raise a signal or stop anything: from then on all that is put is
 * dropped, and every call returns -1. Callers see it at the latest at writer_epoch.
 */
struct recording_writer;

/*
 * Make the file. An existing one is an error unless `overwrite`, and even then unless it is empty
 * or a recording: a slip of -o must not destroy a disk image. The file is readable by its owner
 * only, because it holds the guest's memory. A file another recorder is writing is refused.
 */
struct recording_writer *writer_create(const char *path, bool overwrite, struct err *e);

/*
 * Open a finished recording to add to its streams and chunks; go on with writer_put. Its end must
 * be said again (writer_finish); *end is what it was. Until then, and when anything fails, readers
 * find the recording as it was. What is left of an addition that was interrupted goes. NULL: it is
 * not finished, damaged, not writable, or being written: locks tell, and inside the emulated KVM
 * host, which does not see those of outside, this variable, set by who starts it.
 */
struct recording_writer *writer_reopen(const char *path, struct end_record *end, struct err *e);
#define RECORDING_TAKEN_VARIABLE "DITTO_RECORDING_TAKEN"

/* The description of recorder and machine: JSON text of 1 byte to 1 MiB. */
int writer_meta(struct recording_writer *w, const char *json, size_t len, struct err *e);

/* Append len bytes to a stream (0 to STREAM_COUNT - 1). */
int writer_put(struct recording_writer *w, unsigned stream, const void *data, size_t len);

/*
 * Append a chunk of 1 to CHUNK_MAX_BYTES bytes as it is, and return its number (1, 2, ...); returns
 * 0 when no more chunks can be numbered (2^32 - 1), which the next call reports. Recorders want
 * chunks_add (recording/chunks.h).
 */
uint64_t writer_put_chunk(struct recording_writer *w, const void *data, size_t len);

/* Wait until half of what can be queued is free, so that what others put next need not wait. */
void writer_wait_for_room(struct recording_writer *w);

/* End all streams here. Does nothing when nothing was put since the last epoch. */
int writer_epoch(struct recording_writer *w, struct err *e);

/* 0 while all is well, -1 and *e once writing has failed. */
int writer_error(struct recording_writer *w, struct err *e);

/* Bytes that were put since the last epoch, before compression. */
uint64_t writer_pending(struct recording_writer *w);

/* Bytes in the file by now. */
uint64_t writer_file_size(struct recording_writer *w);

/* Raw bytes put into a stream so far: the offset the next one will have. */
uint64_t writer_tell(const struct recording_writer *w, unsigned stream);
/* Chunks put so far, those that were there included. */
uint64_t writer_chunks(const struct recording_writer *w);

/*
 * Write everything, the index and the end mark. reason_code is the caller's; reason is shown to
 * users, cut after END_REASON_BYTES bytes. Frees w whatever it returns.
 */
int writer_finish(struct recording_writer *w, uint32_t reason_code, const char *reason,
                  struct err *e);

/*
 * Give up: what was not yet written is thrown away. A file without an epoch is removed, any other
 * is left as a killed recorder leaves it. Frees w, which may be NULL.
 */
void writer_abort(struct recording_writer *w);

#endif
