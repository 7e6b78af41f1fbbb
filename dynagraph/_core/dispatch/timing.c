/* Timing: of the calls that an entry could serve some run eagerly, and the faster way takes the rest.

   Both are right; what they cost only the machine knows. It is asked again, ever more rarely.

   Calls go one way, then the other, in bursts: a short call is slower where it comes after one that went the other way. What counts is
   the least time of a way: disturbances only add. */
#include "entries.h"
#include <sys/resource.h>
#include <time.h>

enum {
    LONGEST_BURST = 16,   /* calls, */
    BURST_TIME = 100000,  /* or nanoseconds, whichever is reached first */
    MAX_BURSTS = 10,      /* of both ways together, until the faster one is chosen, however close they are */
    MOST_OTHERS = 3,      /* samples of other sizes in a row, until it is these sizes whose times are compared */
    UNDISTURBED = 10000000 /* nanoseconds: another process's turn is not half as long */
};

static PyObject *clock_of_tests; /* gives seconds */

int dg_set_clock(PyObject *clock)
{
    if (clock != Py_None && !PyCallable_Check(clock)) {
        PyErr_Format(PyExc_TypeError, "set_clock: expected a callable or None, got %R", clock);
        return -1;
    }
    Py_XSETREF(clock_of_tests, clock == Py_None ? NULL : Py_NewRef(clock));
    return 0;
}

static double nanoseconds(void)
{
    if (clock_of_tests) {
        PyObject *type, *value, *traceback, *seconds; /* a call may just have failed */
        PyErr_Fetch(&type, &value, &traceback);
        seconds = PyObject_CallNoArgs(clock_of_tests);
        double now = seconds ? 1e9 * PyFloat_AsDouble(seconds) : 0;
        Py_XDECREF(seconds);
        PyErr_Restore(type, value, traceback);
        return now;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static dg_thread_times times_of_thread(void)
{
    dg_thread_times now = {0};
#ifdef RUSAGE_THREAD
    struct timespec running;
    struct rusage usage;
    if (clock_of_tests || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &running) != 0 || getrusage(RUSAGE_THREAD, &usage) != 0)
        return now;
    now = (dg_thread_times){1e9 * (double)running.tv_sec + (double)running.tv_nsec, usage.ru_nvcsw, usage.ru_nivcsw};
#endif
    return now;
}

static int is_complete(const dg_times *times) { return times->plain != 0 && times->compiled != 0; }

/* What is compared: times of the same sizes, and otherwise of all sizes of the class, where the program has to be twice as slow for calls
   to run eagerly. */
static dg_times compared(const dg_choice *of)
{
    return is_complete(&of->same) ? of->same : (dg_times){2 * of->best.plain, of->best.compiled};
}

/* Decides which way to take, and for how many calls: what the other way costs is to be a hundredth of what these calls do. */
static void decide(dg_choice *of)
{
    if (!is_complete(&of->best))
        return;
    dg_times times = compared(of);
    int is_plain = times.plain < times.compiled;
    double ratio = is_plain ? times.compiled / times.plain : times.plain / times.compiled;
    double slower = is_plain ? of->best.compiled : of->best.plain;
    int n_slower = is_plain ? of->n_compiled : of->n_plain;
    /* two samples are not both disturbed so much; of short calls a burst may be, where the processor runs slowly meanwhile */
    int is_short = slower * LONGEST_BURST < BURST_TIME;
    int is_clear = ratio > 1.5 && (n_slower > 1 || slower > UNDISTURBED) && (!is_short || of->n_bursts > 3 || of->n_decisions);
    if (of->n_decisions == 0 && !is_clear && of->n_bursts < MAX_BURSTS)
        return;
    of->way = is_plain ? DG_STAYS_EAGER : DG_SERVES;
    double n_again = is_short ? LONGEST_BURST : 1 + BURST_TIME / slower; /* calls of the slower way */
    of->left = of->taken + 8 + (unsigned long long)(100 * ratio * n_again);
    if (of->way == DG_SERVES && ratio > 8 && is_clear && of->n_plain > 1)
        of->left = 0;
    of->n_bursts = 0;
    of->n_decisions = 1;
}

static void keep_least(dg_times *times, int plain, double took)
{
    double *least = plain ? &times->plain : &times->compiled;
    *least = *least == 0 || took < *least ? took : *least;
}

static void note_sizes(dg_choice *of, uint64_t sizes, int plain, double took)
{
    of->n_others = sizes == of->sizes ? 0 : of->n_others + 1;
    int begins = of->n_bursts == 0 && of->n_calls == 0;
    if (of->n_others && (begins || of->n_others > MOST_OTHERS)) {
        of->sizes = sizes;
        of->same = (dg_times){0};
        of->n_others = 0;
    }
    if (sizes == of->sizes)
        keep_least(&of->same, plain, took);
}

/* A sample: the way that calls go changes where it ends a burst. */
static void note_sample(dg_choice *of, uint64_t sizes, int plain, double took)
{
    keep_least(&of->best, plain, took);
    note_sizes(of, sizes, plain, took);
    of->n_plain += plain;
    of->n_compiled += !plain;
    if (plain != of->plain) /* of another thread, or of a call around this one */
        return;
    if (++of->n_calls < LONGEST_BURST && of->n_calls * (plain ? of->best.plain : of->best.compiled) < BURST_TIME)
        return;
    of->n_calls = 0;
    of->plain = !plain;
    if (++of->n_bursts > 1)
        decide(of);
}

/* Nanoseconds of this thread that no call may count as its own: compiling, and those that calls within it have counted. */
static _Thread_local double compiling, counted;

void dg_note_compiling(double took)
{
    compiling += took;
    counted += took;
}

/* Nanoseconds of the call. Where others took the processor, and it waited for nothing, their time is not its own. */
static double duration(const dg_trial *measured)
{
    double took = nanoseconds() - measured->start;
    dg_thread_times now = times_of_thread();
    if (now.lost != measured->before.lost && now.waits == measured->before.waits)
        took = now.running - measured->before.running;
    took -= compiling - measured->compiling;
    return took > 1 ? took : 1;
}

void dg_trial_start(dg_trial *measured)
{
    measured->compiling = compiling;
    measured->before = times_of_thread();
    measured->start = nanoseconds();
}

void dg_trial_end(dg_trial *measured, int succeeded)
{
    dg_choice *of = measured->of;
    if (succeeded && of->way == DG_MEASURED)
        note_sample(of, measured->sizes, measured->plain, duration(measured));
    Py_DECREF(measured->entry);
}

dg_stopwatch dg_stopwatch_start(void) { return (dg_stopwatch){nanoseconds(), counted}; }

double dg_stopwatch_stop(dg_stopwatch watch)
{
    double took = nanoseconds() - watch.start - (counted - watch.counted);
    took = took > 0 ? took : 0;
    counted += took;
    return took;
}

int dg_entry_is_any(const dg_entry *entry, int way)
{
    int found = 0;
    for (int k = 0; k < entry->n_choices; ++k)
        found |= entry->choices[k].way == way;
    return found;
}

double dg_entry_least_plain(const dg_entry *entry)
{
    double least = 0;
    for (int k = 0; k < entry->n_choices; ++k) {
        double best = entry->choices[k].best.plain;
        least = best != 0 && (least == 0 || best < least) ? best : least;
    }
    return least;
}
