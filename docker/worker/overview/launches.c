/* Notes every kernel launch of a process, and how much of it lies in the push/pop range `custom_kernel`.
 *
 * The CUDA driver loads this library where CUDA_INJECTION64_PATH names it. CUPTI's activity records do the work: kernels
 * with their times on the GPU, and NVTX ranges, which arrive as markers where NVTX_INJECTION64_PATH names the same libcupti.
 * Ten thousands of launches cost a fraction of a second, where ncu would take minutes.
 *
 * A kernel belongs to the range when it starts between the range's two ends: evaluators wait for the GPU before and inside
 * the range, so what runs then was launched then. The range may be left and entered again, as warm calls do.
 *
 *   NCU_SERVICE_LAUNCHES_DIR   folder for the results: one file a process, named by its id, replaced as a whole
 *   NCU_SERVICE_LAUNCHES_CUPTI path of libcupti
 *
 * The file is text. `launches` is the version of this format, `process` the id, `lost` the launches without a record, and
 * `range` how often the range was entered and how often it was left, so that whoever ends a program knows where it was.
 * `kernel` lines, numbered from 0: launches in the range, launches outside of it, nanoseconds in the range, grid, block,
 * name with %XX for all that is no plain character. `other` is one more of them, for what found no room. `run` lines: in
 * launch order, so many launches in a row of that kernel line, in the range only. `end` ends it.
 *
 * Nothing here may harm the program: whatever fails, it runs on unobserved.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_nvtx_cbid.h>

static const char RANGE[] = "custom_kernel";

enum {
    FLUSH_MS = 50,
    BUFFER_BYTES = 1 << 20,
    MAX_ROWS = 4096,
    SLOTS = 4 * MAX_ROWS,
    MAX_NAME_BYTES = 4096,
    MAX_NAMES_BYTES = 2 << 20, /* All names together. */
    MAX_RUNS = 1 << 16,
    MAX_RANGES = 64,
    MAX_PENDING = 1 << 22,
    /* Flushes that a kernel waits for the markers around it, which may arrive after it does. */
    PATIENCE = 4,
};

/* Launches of one kernel with one launch size. */
struct row {
    char *name;
    uint64_t hash;
    int32_t size[6];
    uint64_t inside, outside, total_ns;
};

/* One launch that is not yet known to be inside or outside. */
struct launch {
    uint64_t start, end;
    uint32_t correlation;
    uint16_t row;
    uint16_t age;
};

struct range {
    uint64_t start, end;
    uint32_t id;
};

struct run {
    uint32_t row, count;
};

static struct {
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*flush_all)(uint32_t);
    CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped_records)(CUcontext, uint32_t, size_t *);
    CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
    CUptiResult (*enable_callback)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
} cupti;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Behind the lock. Row MAX_ROWS is the one for what found no room. */
static struct row rows[MAX_ROWS + 1];
static uint16_t slots[SLOTS]; /* Row number + 1; 0 is free. */
static uint32_t row_count;
static size_t names_bytes;
static struct range ranges[MAX_RANGES];
static uint32_t range_count;
static struct run *runs;
static uint32_t run_count;
static int runs_are_full;
static struct launch *pending;
static size_t pending_count, pending_room;
static uint64_t lost;
static uint32_t entered, left; /* How often the range was. */
static int changed;

static char result_path[4096], scratch_path[4096];
static sem_t wake;
static volatile sig_atomic_t ending;

/* ---- records ---------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *name, size_t length, const int32_t size[6]) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    for (int i = 0; i < 6; i++) hash = (hash ^ (uint32_t)size[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

static uint16_t row_of(const char *name, const int32_t size[6]) {
    size_t length = strnlen(name, MAX_NAME_BYTES);
    uint64_t hash = hash_of(name, length, size);
    uint32_t slot = hash % SLOTS;
    for (; slots[slot]; slot = (slot + 1) % SLOTS) {
        struct row *row = &rows[slots[slot] - 1];
        if (row->hash == hash && !memcmp(row->size, size, sizeof row->size) && !strncmp(row->name, name, length)
            && !row->name[length])
            return slots[slot] - 1;
    }
    if (row_count == MAX_ROWS || names_bytes + length > MAX_NAMES_BYTES) return MAX_ROWS;
    char *copy = strndup(name, length);
    if (!copy) return MAX_ROWS;
    names_bytes += length;
    struct row *row = &rows[row_count];
    row->name = copy;
    row->hash = hash;
    memcpy(row->size, size, sizeof row->size);
    slots[slot] = ++row_count;
    return row_count - 1;
}

static void note_kernel(const CUpti_ActivityKernel9 *kernel) {
    if (pending_count == pending_room) {
        size_t room = pending_room ? 2 * pending_room : 4096;
        struct launch *grown = room > MAX_PENDING ? NULL : realloc(pending, room * sizeof *pending);
        if (!grown) {
            lost++;
            return;
        }
        pending = grown;
        pending_room = room;
    }
    const int32_t size[6] = {kernel->gridX,  kernel->gridY,  kernel->gridZ,
                             kernel->blockX, kernel->blockY, kernel->blockZ};
    pending[pending_count++] = (struct launch){
        .start = kernel->start,
        .end = kernel->end,
        .correlation = kernel->correlationId,
        .row = row_of(kernel->name ? kernel->name : "", size),
    };
}

static void note_marker(const CUpti_ActivityMarker2 *marker) {
    if (marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_START) {
        if (marker->name && !marker->domain && !strcmp(marker->name, RANGE) && range_count < MAX_RANGES)
            ranges[range_count++] = (struct range){marker->timestamp, UINT64_MAX, marker->id};
    } else if (marker->flags & CUPTI_ACTIVITY_FLAG_MARKER_END) {
        for (uint32_t i = 0; i < range_count; i++)
            if (ranges[i].id == marker->id && ranges[i].end == UINT64_MAX) ranges[i].end = marker->timestamp;
    }
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0;
}

static void CUPTIAPI buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)size;
    size_t dropped = 0;
    cupti.dropped_records(context, stream, &dropped);
    pthread_mutex_lock(&lock);
    lost += dropped;
    CUpti_Activity *record = NULL;
    while (valid > 0 && cupti.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_KERNEL)
            /* Newer layouts only add fields behind those that are read here. */
            note_kernel((const CUpti_ActivityKernel9 *)record);
        else if (record->kind == CUPTI_ACTIVITY_KIND_MARKER)
            note_marker((const CUpti_ActivityMarker2 *)record);
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---- from launches to rows -------------------------------------------------------------------------------------------- */

/* How a start lies to the ranges. One that no range encloses, and one after a range whose end is not known, may yet turn
 * out to be something else. */
enum place { NOWHERE, AFTER_A_START, INSIDE };

static enum place place_of(uint64_t start) {
    enum place place = NOWHERE;
    for (uint32_t i = 0; i < range_count; i++) {
        if (start < ranges[i].start || start >= ranges[i].end) continue;
        if (ranges[i].end != UINT64_MAX) return INSIDE;
        place = AFTER_A_START;
    }
    return place;
}

static int by_launch_order(const void *a, const void *b) {
    const struct launch *left = a, *right = b;
    if (left->correlation != right->correlation) return left->correlation < right->correlation ? -1 : 1;
    return (left->start > right->start) - (left->start < right->start);
}

static void count_inside(const struct launch *launch) {
    struct row *row = &rows[launch->row];
    row->inside++;
    row->total_ns += launch->end > launch->start ? launch->end - launch->start : 0;
    if (!runs || runs_are_full)
        return;
    else if (run_count && runs[run_count - 1].row == launch->row)
        runs[run_count - 1].count++;
    else if (run_count < MAX_RUNS)
        runs[run_count++] = (struct run){launch->row, 1};
    else
        runs_are_full = 1; /* What follows would no longer be in order. */
}

static void settle(int is_last) {
    size_t kept = 0;
    qsort(pending, pending_count, sizeof *pending, by_launch_order);
    for (size_t i = 0; i < pending_count; i++) {
        struct launch *launch = &pending[i];
        enum place place = place_of(launch->start);
        if (place != INSIDE && !is_last && launch->age++ < PATIENCE) {
            pending[kept++] = *launch;
            continue;
        }
        if (place == NOWHERE)
            rows[launch->row].outside++;
        else
            count_inside(launch);
        changed = 1;
    }
    pending_count = kept;
}

/* ---- the file --------------------------------------------------------------------------------------------------------- */

static void put_name(FILE *file, const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c > ' ' && *c < 0x7f && *c != '%')
            putc(*c, file);
        else
            fprintf(file, "%%%02X", *c);
    }
}

static void put_row(FILE *file, const char *kind, const struct row *row) {
    fprintf(file, "%s %llu %llu %llu", kind, (unsigned long long)row->inside, (unsigned long long)row->outside,
            (unsigned long long)row->total_ns);
}

static void save(void) {
    FILE *file = fopen(scratch_path, "we");
    if (!file) return;
    fprintf(file, "launches 2\nprocess %d\nlost %llu\nrange %u %u\n", (int)getpid(), (unsigned long long)lost, entered,
            left);
    for (uint32_t i = 0; i < row_count; i++) {
        put_row(file, "kernel", &rows[i]);
        for (int part = 0; part < 6; part++) fprintf(file, " %d", rows[i].size[part]);
        putc(' ', file);
        put_name(file, rows[i].name);
        putc('\n', file);
    }
    put_row(file, "other", &rows[MAX_ROWS]);
    putc('\n', file);
    for (uint32_t i = 0; i < run_count; i++) {
        uint32_t row = runs[i].row == MAX_ROWS ? row_count : runs[i].row;
        fprintf(file, "run %u %u\n", row, runs[i].count);
    }
    fputs("end\n", file);
    int good = !ferror(file);
    if (fclose(file) == 0 && good && rename(scratch_path, result_path) == 0) changed = 0;
}

static void flush(int is_last) {
    cupti.flush_all(0);
    pthread_mutex_lock(&lock);
    settle(is_last);
    if (changed) save();
    pthread_mutex_unlock(&lock);
}

/* ---- where the program is --------------------------------------------------------------------------------------------- */

/* Of this thread: its ranges, and which of them is the outermost one of ours. */
static __thread uint32_t depth, ours;

static void count_range(uint32_t *counter) {
    pthread_mutex_lock(&lock);
    ++*counter;
    save();
    pthread_mutex_unlock(&lock);
}

/* Called within the program's own call, and so in time: CUPTI hands no record out, that of the marker included, as long as a
 * kernel has not ended. One that never ends is just what this is for. */
static void CUPTIAPI on_nvtx(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)unused, (void)domain;
    if (id == CUPTI_CBID_NVTX_nvtxRangePop) {
        if (ours && depth == ours) {
            ours = 0;
            count_range(&left);
        }
        depth -= depth > 0;
        return;
    }
    depth++;
    if (ours || id != CUPTI_CBID_NVTX_nvtxRangePushA) return;
    /* The call's only parameter. PyTorch, and so every evaluator, makes this one; the others only count as depth. */
    const char *name = *(const char *const *)((const CUpti_NvtxData *)data)->functionParams;
    if (name && !strcmp(name, RANGE)) {
        ours = depth;
        count_range(&entered);
    }
}

/* A program that has a profiler of its own may keep this for itself; then nobody knows where it is. */
static void watch_range(void) {
    static const CUpti_CallbackId calls[] = {CUPTI_CBID_NVTX_nvtxRangePushA, CUPTI_CBID_NVTX_nvtxRangePushW,
                                             CUPTI_CBID_NVTX_nvtxRangePushEx, CUPTI_CBID_NVTX_nvtxRangePop};
    CUpti_SubscriberHandle subscriber;
    if (!cupti.subscribe || !cupti.enable_callback || cupti.subscribe(&subscriber, on_nvtx, NULL)) return;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        cupti.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_NVTX, calls[i]);
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

static void on_term(int signal) {
    ending = signal;
    sem_post(&wake);
}

static void *keep_flushing(void *unused) {
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += FLUSH_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        sem_timedwait(&wake, &until);
        int signal_number = ending;
        flush(signal_number != 0);
        if (signal_number) {
            signal(signal_number, SIG_DFL);
            kill(getpid(), signal_number);
            return unused;
        }
    }
}

static void on_exit_flush(void) { flush(1); }

/* An evaluator ends its child by SIGTERM right after the answer, which would take the last launches along. */
static void flush_before_term(void) {
    struct sigaction now, ours = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL) sigaction(SIGTERM, &ours, NULL);
}

static int start_thread(void) {
    sigset_t all, before;
    pthread_t thread;
    /* The program's signals are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, keep_flushing, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) pthread_detach(thread);
    return error;
}

static int load_cupti(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) return -1;
    cupti.register_callbacks = dlsym(library, "cuptiActivityRegisterCallbacks");
    cupti.enable = dlsym(library, "cuptiActivityEnable");
    cupti.flush_all = dlsym(library, "cuptiActivityFlushAll");
    cupti.next_record = dlsym(library, "cuptiActivityGetNextRecord");
    cupti.dropped_records = dlsym(library, "cuptiActivityGetNumDroppedRecords");
    cupti.subscribe = dlsym(library, "cuptiSubscribe");
    cupti.enable_callback = dlsym(library, "cuptiEnableCallback");
    return cupti.register_callbacks && cupti.enable && cupti.flush_all && cupti.next_record && cupti.dropped_records ? 0 : -1;
}

/* Called by the CUDA driver when the program first uses it. */
__attribute__((visibility("default"))) int InitializeInjection(void) {
    static int called;
    const char *folder = getenv("NCU_SERVICE_LAUNCHES_DIR"), *path = getenv("NCU_SERVICE_LAUNCHES_CUPTI");
    if (called++ || !folder || !path || load_cupti(path)) return 1;
    int length = snprintf(result_path, sizeof result_path, "%s/%d", folder, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof result_path - 4) return 1;
    memcpy(scratch_path, result_path, sizeof scratch_path);
    strcat(scratch_path, ".new");
    runs = malloc(MAX_RUNS * sizeof *runs);
    if (sem_init(&wake, 0, 0) || cupti.register_callbacks(buffer_wanted, buffer_full)
        || cupti.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) || cupti.enable(CUPTI_ACTIVITY_KIND_MARKER) || start_thread())
        return 1;
    watch_range();
    flush_before_term();
    atexit(on_exit_flush);
    return 1;
}
