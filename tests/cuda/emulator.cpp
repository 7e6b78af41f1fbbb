// The machine that compiled kernels run on: threads are fibers of one system thread, blocks run one after the other.
//
// A fiber runs until it waits at a barrier or in a warp operation; the order of threads and blocks is the caller's choice, so that
// what depends on it shows. What a GPU leaves undefined ends the launch with a text: a barrier that some threads do not reach, a
// shuffle from a lane that takes no part, an access outside memory. One launch runs at a time, in any thread.

#define EMU_MACHINE
#include "emulator.h"
#include "fibers.h"
#include "races.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id // glibc has no name for it before 2.38
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace {

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_LAUNCH_FAILED = 719,
};

constexpr unsigned WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP;
constexpr unsigned MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535, MAX_BLOCK_XY = 1024, MAX_BLOCK_Z = 64;
constexpr unsigned MAX_SHARED = 227 * 1024;
constexpr size_t PAGE = 64 * 1024; // the largest page of any Linux that this runs on
constexpr size_t STACK_STRIDE = FIBER_STACK + PAGE;
constexpr size_t ALTERNATE_STACK = 64 * 1024;
constexpr unsigned char POISON = 0xff; // NaN as a float or a double, -1 as an integer

enum ThreadOrder { FORWARD, REVERSE, RANDOM, WARPS_FORWARD, WARPS_REVERSE };

// --- state -----------------------------------------------------------------------------------------------------------------------

enum Status : unsigned char { READY, AT_BARRIER, IN_WARP_OPERATION, ENDED };

struct Fiber {
    emu_thread thread; // first, as emu_position.thread points at it
    Context context;
    int line; // of the operation it waits in
    int operation;
    int predicate;            // of barriers
    unsigned mask;            // of warp operations
    unsigned long long value; // what it gives to a warp operation, and then what it gets
    int source;
};

struct Warp {
    unsigned alive, waiting; // one bit per lane
    uint16_t syncs;
};

struct Machine {
    Fiber fibers[MAX_THREADS];
    Status status[MAX_THREADS];
    unsigned sequence[MAX_THREADS];
    Warp warps[MAX_WARPS];
    unsigned threads, alive, at_barrier;
    unsigned prepared; // fibers whose context stands at the start of a thread
    int barrier_result;
    Context scheduler;

    const emu_kernel *kernel;
    void **arguments;
    unsigned dynamic_shared;
    uint32_t epoch, block_epoch; // of races::Moment
    bool block_fenced, all_fenced, block_atomic;
    ThreadOrder order;
    uint64_t random;

    char *stacks, *shared_end, *alternate_stack;
    volatile sig_atomic_t running;
    pthread_t system_thread;
    sigjmp_buf failure;
    struct sigaction handlers_before[NSIG];
};

Machine machine;
std::mutex mutex;
ThreadOrder chosen_order = FORWARD, chosen_block_order = FORWARD;
uint64_t chosen_seed;
double time_limit = 60; // seconds of the processor
thread_local char error_text[1024];
thread_local void *error_address; // where in the code a fault happened

unsigned index_of(const Fiber &fiber) { return unsigned(&fiber - machine.fibers); }
Fiber &current() { return *const_cast<Fiber *>(reinterpret_cast<const Fiber *>(emu_position.thread)); }

uint64_t next_random()
{
    machine.random ^= machine.random << 13;
    machine.random ^= machine.random >> 7;
    machine.random ^= machine.random << 17;
    return machine.random;
}

// --- errors ----------------------------------------------------------------------------------------------------------------------

const char *name_of_operation(const Fiber &fiber)
{
    static const char *const warp_names[] = {"__syncwarp",      "__shfl_sync",   "__shfl_up_sync", "__shfl_down_sync",
                                             "__shfl_xor_sync", "__ballot_sync", "__any_sync",     "__all_sync"};
    static const char *const barrier_names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"};
    return machine.status[index_of(fiber)] == AT_BARRIER ? barrier_names[fiber.operation] : warp_names[fiber.operation];
}

struct Words {
    char text[160];
};

Words thread_name(const Fiber &fiber)
{
    Words words;
    const uint3 &index = fiber.thread.index;
    snprintf(words.text, sizeof words.text, "thread (%u, %u, %u)", index.x, index.y, index.z);
    return words;
}

// "thread (1, 0, 0) waits in __syncthreads of line 12"
Words whereabouts(const Fiber &fiber)
{
    Words words = thread_name(fiber);
    const size_t used = strlen(words.text);
    if (machine.status[index_of(fiber)] == ENDED)
        snprintf(words.text + used, sizeof words.text - used, " has ended");
    else
        snprintf(words.text + used, sizeof words.text - used, " waits in %s of line %d", name_of_operation(fiber), fiber.line);
    return words;
}

__attribute__((format(printf, 2, 3))) int set_error(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return code;
}

// The frames between here and the launch have nothing to destroy.
[[noreturn]] void fail(const Fiber *fiber, int line, const char *format, va_list arguments)
{
    const uint3 &block = emu_position.block;
    char at_line[24] = "";
    if (line > 0)
        snprintf(at_line, sizeof at_line, ", line %d", line);
    snprintf(error_text, sizeof error_text, "%s: block (%u, %u, %u), %s%s: ", machine.kernel->name, block.x, block.y, block.z,
             fiber ? thread_name(*fiber).text : "between threads", at_line);
    const size_t used = strlen(error_text);
    vsnprintf(error_text + used, sizeof error_text - used, format, arguments);
    siglongjmp(machine.failure, 1);
}

[[noreturn]] __attribute__((format(printf, 3, 4))) void fail_at(const Fiber *fiber, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(fiber, line, format, arguments);
}

// --- waiting ---------------------------------------------------------------------------------------------------------------------

void wait(Fiber &fiber, Status status)
{
    machine.status[index_of(fiber)] = status;
    switch_context(fiber.context, machine.scheduler);
}

// Where all living lanes of mask wait, they get their results and are ready.
void try_warp_operation(unsigned warp, unsigned mask)
{
    const unsigned lanes = mask & machine.warps[warp].alive;
    if (!lanes || (machine.warps[warp].waiting & lanes) != lanes)
        return;
    Fiber *fibers = machine.fibers + warp * WARP;
    const Fiber &first = fibers[__builtin_ctz(lanes)];
    unsigned votes = 0;
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest);
        const Fiber &fiber = fibers[lane];
        if (fiber.mask != first.mask || fiber.operation != first.operation)
            fail_at(&fiber, fiber.line, "lanes of one warp meet in different operations: %s with mask %#x, but %s with mask %#x",
                    whereabouts(fiber).text, fiber.mask, whereabouts(first).text, first.mask);
        votes |= unsigned(fiber.value != 0) << lane;
    }
    unsigned long long results[WARP];
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest);
        const Fiber &fiber = fibers[lane];
        switch (fiber.operation) {
        case EMU_SYNCWARP:
            break;
        case EMU_BALLOT:
            results[lane] = votes;
            break;
        case EMU_ANY:
            results[lane] = votes != 0;
            break;
        case EMU_ALL:
            results[lane] = votes == lanes;
            break;
        default:
            if (fiber.source < 0 || !(lanes >> fiber.source & 1))
                fail_at(&fiber, fiber.line, "%s reads lane %d, which %s", name_of_operation(fiber), fiber.source,
                        fiber.source < 0 || !(mask >> fiber.source & 1)            ? "is outside its mask"
                        : warp * WARP + unsigned(fiber.source) >= machine.threads ? "is behind the end of the block"
                                                                                   : "has ended");
            results[lane] = fibers[fiber.source].value;
        }
    }
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest);
        fibers[lane].value = results[lane];
        machine.status[warp * WARP + lane] = READY;
    }
    machine.warps[warp].waiting &= ~lanes;
    machine.warps[warp].syncs += first.operation == EMU_SYNCWARP;
}

void release_barrier()
{
    const Fiber &first = machine.fibers[0];
    int trues = 0;
    for (unsigned i = 0; i < machine.threads; ++i) {
        const Fiber &fiber = machine.fibers[i];
        if (fiber.line != first.line || fiber.operation != first.operation)
            fail_at(&fiber, fiber.line, "divergent barrier: %s, but %s", whereabouts(fiber).text, whereabouts(first).text);
        trues += fiber.predicate;
    }
    machine.barrier_result = first.operation == EMU_BARRIER_OR    ? trues > 0
                             : first.operation == EMU_BARRIER_AND ? trues == int(machine.threads)
                                                                  : trues;
    memset(machine.status, READY, machine.threads);
    machine.at_barrier = 0;
    machine.epoch += 1;
}

// Nobody can run: say who keeps whom waiting.
[[noreturn]] void fail_stuck()
{
    for (unsigned i = 0; i < machine.threads; ++i) {
        const Fiber &fiber = machine.fibers[i];
        if (machine.status[i] != IN_WARP_OPERATION)
            continue;
        const unsigned warp = i / WARP;
        const unsigned missing = fiber.mask & machine.warps[warp].alive & ~machine.warps[warp].waiting;
        if (missing)
            fail_at(&fiber, fiber.line, "deadlock: %s with mask %#x for lanes that never come (%#x): %s", whereabouts(fiber).text,
                    fiber.mask, missing, whereabouts(machine.fibers[warp * WARP + __builtin_ctz(missing)]).text);
    }
    const Fiber *waiting = nullptr, *elsewhere = nullptr;
    for (unsigned i = machine.threads; i-- > 0;)
        (machine.status[i] == AT_BARRIER ? waiting : elsewhere) = &machine.fibers[i];
    if (waiting && elsewhere)
        fail_at(waiting, waiting->line, "divergent barrier: %u of %u threads wait, but %s", machine.at_barrier, machine.threads,
                whereabouts(*elsewhere).text);
    fail_at(&machine.fibers[0], machine.fibers[0].line, "deadlock: %s", whereabouts(machine.fibers[0]).text);
}

// --- scheduling ------------------------------------------------------------------------------------------------------------------

// One fiber runs the same thread of block after block.
void run_thread()
{
    for (;;) {
        machine.kernel->run(machine.arguments);
        Fiber &fiber = current();
        const unsigned warp = index_of(fiber) / WARP;
        machine.status[index_of(fiber)] = ENDED;
        machine.alive -= 1;
        machine.warps[warp].alive &= ~(1u << fiber.thread.lane);
        for (unsigned rest = machine.warps[warp].waiting; rest; rest &= machine.warps[warp].waiting & (rest - 1))
            try_warp_operation(warp, machine.fibers[warp * WARP + __builtin_ctz(rest)].mask);
        switch_context(fiber.context, machine.scheduler);
    }
}

void resume(unsigned i)
{
    Fiber &fiber = machine.fibers[i];
    emu_position.thread = &fiber.thread;
    switch_context(machine.scheduler, fiber.context);
    emu_position.thread = nullptr;
}

// Run what is ready in machine.sequence[from:to] once; whether there was anything.
bool run_ready(unsigned from, unsigned to)
{
    bool ran = false;
    for (unsigned i = from; i < to; ++i) {
        const unsigned thread = machine.sequence[i];
        if (machine.status[thread] == READY) {
            resume(thread);
            ran = true;
        }
    }
    return ran;
}

bool run_warps_as_far_as_they_can()
{
    bool ran = false;
    const unsigned n = machine.threads, short_warp = n % WARP;
    // the warp that is not full is the last one, and so the first in reverse
    for (unsigned from = 0, to; from < n; from = to) {
        to = from + (from == 0 && machine.order == WARPS_REVERSE && short_warp ? short_warp : WARP);
        to = to < n ? to : n;
        while (run_ready(from, to))
            ran = true;
    }
    return ran;
}

bool run_pass()
{
    if (machine.order == WARPS_FORWARD || machine.order == WARPS_REVERSE)
        return run_warps_as_far_as_they_can();
    if (machine.order == RANDOM)
        for (unsigned i = machine.threads; i > 1; --i)
            std::swap(machine.sequence[i - 1], machine.sequence[next_random() % i]);
    return run_ready(0, machine.threads);
}

void run_block()
{
    const unsigned n = machine.threads;
    for (unsigned warp = 0; warp * WARP < n; ++warp) {
        const unsigned lanes = n - warp * WARP < WARP ? n - warp * WARP : WARP;
        machine.warps[warp] = {0xffffffffu >> (WARP - lanes), 0, 0};
    }
    memset(machine.status, READY, n);
    machine.alive = n;
    machine.at_barrier = 0;
    machine.epoch += 1;
    machine.block_epoch = machine.epoch;
    machine.block_fenced = machine.block_atomic = false;
    memset(machine.kernel->shared_begin, POISON, size_t(machine.kernel->shared_end - machine.kernel->shared_begin));
    memset(emu_position.dynamic_shared, POISON, machine.dynamic_shared);
    while (machine.alive > 0) {
        const bool ran = run_pass();
        if (machine.at_barrier == n)
            release_barrier();
        else if (!ran)
            fail_stuck();
    }
    machine.all_fenced &= machine.block_fenced;
}

void prepare_threads()
{
    const uint3 size = emu_position.block_size;
    const bool reverse = machine.order == REVERSE || machine.order == WARPS_REVERSE;
    const unsigned n = machine.threads;
    for (unsigned i = 0; i < n; ++i) {
        machine.fibers[i].thread = {{i % size.x, i / size.x % size.y, i / size.x / size.y}, i % WARP};
        machine.sequence[i] = reverse ? n - 1 - i : i;
    }
    for (; machine.prepared < n; ++machine.prepared) {
        char *end = machine.stacks + (machine.prepared + 1) * STACK_STRIDE;
        // stacks that start at the same place in a page would share few lines of the processor's cache
        prepare_context(machine.fibers[machine.prepared].context, end - machine.prepared % 64 * 64, run_thread);
    }
}

uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void run_grid(ThreadOrder block_order)
{
    const uint3 grid = emu_position.grid_size;
    const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
    prepare_threads();
    races::forget();
    machine.epoch = 0;
    machine.all_fenced = true;
    // at random: from some block on, in steps that meet each block once
    uint64_t block = block_order == FORWARD ? 0 : block_order == REVERSE ? blocks - 1 : next_random() % blocks;
    uint64_t step = block_order == FORWARD ? 1 : block_order == REVERSE ? blocks - 1 : 1 + next_random() % blocks;
    while (greatest_common_divisor(step, blocks) != 1)
        step += 1;
    for (uint64_t i = 0; i < blocks; ++i, block = (block + step) % blocks) {
        emu_position.block = {unsigned(block % grid.x), unsigned(block / grid.x % grid.y), unsigned(block / grid.x / grid.y)};
        run_block();
    }
}

// --- faults ----------------------------------------------------------------------------------------------------------------------

const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE};

void on_fault(int signal, siginfo_t *info, void *context)
{
    if (!machine.running || !pthread_equal(pthread_self(), machine.system_thread) || !emu_position.thread) {
        // not of a kernel: it happens again, under who handled it before
        sigaction(signal, &machine.handlers_before[signal], nullptr);
        return;
    }
    const Fiber &fiber = current();
    const char *what = "access to";
    error_address = nullptr;
#ifdef __x86_64__
    const greg_t *registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    what = registers[REG_ERR] & 2 ? "write to" : "read of";
    error_address = reinterpret_cast<void *>(registers[REG_RIP]);
#endif
    const char *address = static_cast<char *>(info->si_addr);
    const char *stack = machine.stacks + index_of(fiber) * STACK_STRIDE;
    if (signal == SIGFPE)
        fail_at(&fiber, 0, "integer division by zero");
    if (address >= stack && address < stack + PAGE)
        fail_at(&fiber, 0, "the stack of a thread, %zu KiB, is full", FIBER_STACK / 1024);
    if (address >= machine.shared_end && address < machine.shared_end + PAGE)
        fail_at(&fiber, 0, "%s dynamic shared memory %td bytes behind its end (%u bytes)", what, address - machine.shared_end,
                machine.dynamic_shared);
    fail_at(&fiber, 0, "%s address 0x%zx, outside every array", what, reinterpret_cast<size_t>(info->si_addr));
}

// A thread that waits for what another one writes, or a loop without an end.
void on_timeout(int, siginfo_t *, void *)
{
    if (machine.running && pthread_equal(pthread_self(), machine.system_thread))
        fail_at(emu_position.thread ? &current() : nullptr, 0, "still runs after %g s: does a loop never end?", time_limit);
}

class TimeLimit {
    timer_t timer;
    struct sigaction handler_before;
    static int signal() { return SIGRTMIN + 3; }

public:
    TimeLimit()
    {
        struct sigaction action = {};
        action.sa_sigaction = on_timeout;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(signal(), &action, &handler_before);
        struct sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
        timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
        struct itimerspec when = {};
        when.it_value.tv_sec = static_cast<time_t>(time_limit);
        when.it_value.tv_nsec = static_cast<long>((time_limit - static_cast<double>(when.it_value.tv_sec)) * 1e9);
        timer_settime(timer, 0, &when, nullptr);
    }
    ~TimeLimit()
    {
        timer_delete(timer);
        sigaction(signal(), &handler_before, nullptr);
    }
    TimeLimit(const TimeLimit &) = delete;
    TimeLimit &operator=(const TimeLimit &) = delete;
};

// Faults of kernels are the emulator's while an object of this class lives.
class FaultHandlers {
    stack_t stack_before;

public:
    FaultHandlers()
    {
        stack_t stack = {};
        stack.ss_sp = machine.alternate_stack;
        stack.ss_size = ALTERNATE_STACK;
        sigaltstack(&stack, &stack_before);
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        for (int fault : FAULTS)
            sigaction(fault, &action, &machine.handlers_before[fault]);
        machine.system_thread = pthread_self();
    }
    ~FaultHandlers()
    {
        for (int fault : FAULTS)
            sigaction(fault, &machine.handlers_before[fault], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
    FaultHandlers(const FaultHandlers &) = delete;
    FaultHandlers &operator=(const FaultHandlers &) = delete;
};

// --- races -----------------------------------------------------------------------------------------------------------------------

void note_access(const void *place, size_t size, bool write, bool atomic, void *code)
{
    const char *address = static_cast<const char *>(place);
    const auto lies_in = [=](const void *begin, const void *end) { return address >= begin && address < end; };
    if (lies_in(&machine, &machine + 1) || lies_in(&emu_position, &emu_position + 1) ||
        lies_in(machine.stacks, machine.stacks + MAX_THREADS * STACK_STRIDE))
        return;
    const bool shared = lies_in(machine.kernel->shared_begin, machine.kernel->shared_end) ||
                        lies_in(emu_position.dynamic_shared, machine.shared_end);
    const Fiber &fiber = current();
    const unsigned i = index_of(fiber);
    machine.block_atomic |= atomic;
    const races::Moment now = {machine.epoch, machine.block_epoch, uint16_t(i), machine.warps[i / WARP].syncs,
                               machine.all_fenced && machine.block_atomic};
    const races::Access *other = races::note(reinterpret_cast<uintptr_t>(address), size, now, shared, write, atomic);
    if (!other)
        return;
    error_address = static_cast<char *>(code) - 1; // in the call, not behind it
    const bool other_block = other->epoch < machine.block_epoch;
    fail_at(&fiber, 0, "race: %s of %s memory (address 0x%zx) that %s accesses too, with %s in between", write ? "write" : "read",
            shared ? "shared" : "global", reinterpret_cast<size_t>(address),
            other_block                             ? "another block"
            : other->thread >= races::SEVERAL_OF_WARP ? "another thread"
                                                      : thread_name(machine.fibers[other->thread]).text,
            other_block ? "no __threadfence and atomic operation" : "no barrier");
}

// --- launching -------------------------------------------------------------------------------------------------------------------

char *map_memory(size_t size)
{
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
}

bool allocate()
{
    if (machine.stacks)
        return true;
    const size_t shared = (MAX_SHARED + PAGE - 1) / PAGE * PAGE;
    char *stacks = map_memory(MAX_THREADS * STACK_STRIDE), *memory = map_memory(shared + PAGE);
    machine.alternate_stack = map_memory(ALTERNATE_STACK);
    if (!stacks || !memory || !machine.alternate_stack)
        return false;
    for (unsigned i = 0; i < MAX_THREADS; ++i)
        mprotect(stacks + i * STACK_STRIDE, PAGE, PROT_NONE);
    machine.shared_end = memory + shared;
    mprotect(machine.shared_end, PAGE, PROT_NONE);
    machine.stacks = stacks;
    return true;
}

int check_launch(const emu_kernel *kernel, const uint3 &grid, const uint3 &block, unsigned shared, void **extra)
{
    if (!kernel)
        return set_error(CUDA_ERROR_INVALID_HANDLE, "launch: the function is null");
    const uint64_t threads = uint64_t(block.x) * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || grid.x > MAX_GRID_X || grid.y > MAX_GRID_YZ || grid.z > MAX_GRID_YZ)
        return set_error(CUDA_ERROR_INVALID_VALUE, "%s: grid (%u, %u, %u): each size is at least 1, and at most %u, %u and %u",
                         kernel->name, grid.x, grid.y, grid.z, MAX_GRID_X, MAX_GRID_YZ, MAX_GRID_YZ);
    if (!block.x || !block.y || !block.z || block.x > MAX_BLOCK_XY || block.y > MAX_BLOCK_XY || block.z > MAX_BLOCK_Z ||
        threads > kernel->max_threads)
        return set_error(CUDA_ERROR_INVALID_VALUE,
                         "%s: block (%u, %u, %u): each size is at least 1, and at most %u, %u and %u; "
                         "this kernel takes at most %u threads",
                         kernel->name, block.x, block.y, block.z, MAX_BLOCK_XY, MAX_BLOCK_XY, MAX_BLOCK_Z, kernel->max_threads);
    if (shared > kernel->max_dynamic_shared)
        return set_error(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of dynamic shared memory: at most %u are allowed", kernel->name,
                         shared, kernel->max_dynamic_shared);
    if (extra)
        return set_error(CUDA_ERROR_INVALID_VALUE, "%s: arguments through `extra` are not emulated", kernel->name);
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

struct emu_position emu_position;

int emu_barrier(int line, emu_barrier_operation operation, int predicate)
{
    Fiber &fiber = current();
    fiber.line = line;
    fiber.operation = operation;
    fiber.predicate = predicate != 0;
    machine.at_barrier += 1;
    wait(fiber, AT_BARRIER);
    return machine.barrier_result;
}

unsigned long long emu_warp(int line, emu_warp_operation operation, unsigned mask, unsigned long long bits, int source)
{
    Fiber &fiber = current();
    const unsigned i = index_of(fiber), warp = i / WARP, lane = i % WARP;
    fiber.line = line;
    fiber.operation = operation;
    fiber.mask = mask;
    fiber.value = bits;
    fiber.source = source;
    machine.status[i] = IN_WARP_OPERATION;
    if (!(mask >> lane & 1))
        fail_at(&fiber, line, "%s: the calling lane %u is outside its mask %#x", name_of_operation(fiber), lane, mask);
    machine.warps[warp].waiting |= 1u << lane;
    try_warp_operation(warp, mask);
    if (machine.status[i] != READY)
        switch_context(fiber.context, machine.scheduler);
    return fiber.value;
}

void emu_fail(int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(&current(), line, format, arguments);
}

// as cuLaunchKernel; the text of an error is in emu_error_text
int emu_launch_kernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra)
{
    (void)stream;
    const emu_kernel *kernel = static_cast<const emu_kernel *>(function);
    const uint3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    error_text[0] = 0;
    error_address = nullptr;
    if (const int code = check_launch(kernel, grid, block, shared, extra))
        return code;
    std::lock_guard<std::mutex> lock(mutex);
    if (!allocate())
        return set_error(CUDA_ERROR_OUT_OF_MEMORY, "%s: no memory for the stacks of threads", kernel->name);
    machine.kernel = kernel;
    machine.arguments = arguments;
    machine.threads = block_x * block_y * block_z;
    machine.dynamic_shared = shared;
    machine.order = chosen_order;
    machine.random = 0x9e3779b97f4a7c15u * (chosen_seed + 1);
    emu_position.block_size = block;
    emu_position.grid_size = grid;
    emu_position.dynamic_shared = machine.shared_end - (shared + 15) / 16 * 16;
    FaultHandlers handlers;
    TimeLimit limit;
    if (sigsetjmp(machine.failure, 1)) {
        machine.running = 0;
        emu_position.thread = nullptr;
        machine.prepared = 0; // fibers stand wherever they were
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    machine.running = 1;
    run_grid(chosen_block_order);
    machine.running = 0;
    return CUDA_SUCCESS;
}

int emu_set_max_shared(void *function, unsigned bytes)
{
    emu_kernel *kernel = static_cast<emu_kernel *>(function);
    error_text[0] = 0;
    if (!kernel)
        return set_error(CUDA_ERROR_INVALID_HANDLE, "emu_set_max_shared: the function is null");
    if (bytes > MAX_SHARED)
        return set_error(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of dynamic shared memory: a block has at most %u", kernel->name,
                         bytes, MAX_SHARED);
    kernel->max_dynamic_shared = bytes;
    return CUDA_SUCCESS;
}

void emu_set_order(int threads, int blocks, unsigned long long seed)
{
    std::lock_guard<std::mutex> lock(mutex);
    chosen_order = ThreadOrder(threads);
    chosen_block_order = ThreadOrder(blocks);
    chosen_seed = seed;
}

void emu_set_time_limit(double seconds)
{
    std::lock_guard<std::mutex> lock(mutex);
    time_limit = seconds;
}

// of this system thread's last launch; "" where it succeeded
const char *emu_error_text() { return error_text; }

// the file that the code of the last fault is in, and where in it; null where there was none
const char *emu_error_place(unsigned long *offset)
{
    Dl_info info;
    if (!error_address || !dladdr(error_address, &info))
        return nullptr;
    *offset = static_cast<unsigned long>(static_cast<char *>(error_address) - static_cast<char *>(info.dli_fbase));
    return info.dli_fname;
}

// --- what g++'s sanitizers call: an index outside an array, a misaligned address and such

struct emu_source_location {
    const char *file;
    unsigned line, column;
};

void __ubsan_handle_out_of_bounds_abort(const emu_source_location *where, uintptr_t index)
{
    fail_at(&current(), int(where->line), "index %td is outside its array", intptr_t(index));
}

void __ubsan_handle_type_mismatch_v1_abort(const emu_source_location *where, uintptr_t address)
{
    fail_at(&current(), int(where->line), "address %#zx is not aligned as its type needs", size_t(address));
}

void __ubsan_handle_divrem_overflow_abort(const emu_source_location *where, uintptr_t, uintptr_t)
{
    fail_at(&current(), int(where->line), "integer division by zero, or of the smallest integer by -1");
}

void __ubsan_handle_shift_out_of_bounds_abort(const emu_source_location *where, uintptr_t, uintptr_t)
{
    fail_at(&current(), int(where->line), "shift by a negative number of bits, or by all of them");
}

// --- what code compiled with -fsanitize=thread calls

void emu_atomic(const void *place, unsigned size, void *code) { note_access(place, size, true, true, code); }
void emu_fence() { machine.block_fenced = true; }

#define DEFINE_ACCESS(size)                                                                                                \
    void __tsan_read##size(void *place) { note_access(place, size, false, false, __builtin_return_address(0)); }           \
    void __tsan_write##size(void *place) { note_access(place, size, true, false, __builtin_return_address(0)); }           \
    void __tsan_unaligned_read##size(void *place) { note_access(place, size, false, false, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##size(void *place) { note_access(place, size, true, false, __builtin_return_address(0)); } \
    void __tsan_volatile_read##size(void *place) { note_access(place, size, false, true, __builtin_return_address(0)); }   \
    void __tsan_volatile_write##size(void *place) { note_access(place, size, true, true, __builtin_return_address(0)); }
DEFINE_ACCESS(1)
DEFINE_ACCESS(2)
DEFINE_ACCESS(4)
DEFINE_ACCESS(8)
DEFINE_ACCESS(16)
void __tsan_read_range(void *place, size_t size) { note_access(place, size, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void *place, size_t size) { note_access(place, size, true, false, __builtin_return_address(0)); }
void __tsan_init() {}
/* whether a static variable has been made; shared arrays of complex numbers ask, although nothing is done to make one */
char __tsan_atomic8_load(const volatile char *place, int) { return *place; }
}
