// Switching between stacks: by hand on x86-64, where swapcontext would spend most of its time on the signal mask.

#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT
#endif

#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

constexpr size_t FIBER_STACK = 64 * 1024;

namespace {

#ifdef EMU_UCONTEXT

typedef ucontext_t Context;

void switch_context(Context &from, Context &to) { swapcontext(&from, &to); }

void prepare_context(Context &context, char *top, void (*run)())
{
    getcontext(&context);
    context.uc_stack.ss_sp = top - FIBER_STACK / 2;
    context.uc_stack.ss_size = FIBER_STACK / 2;
    context.uc_link = nullptr;
    makecontext(&context, run, 0);
}

#else

typedef void *Context; // the stack pointer; on the stack lie the registers that a call keeps

extern "C" void emu_switch(Context *from, Context to) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .globl emu_switch
    .hidden emu_switch
    .type emu_switch, @function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_switch, .-emu_switch
)");

void switch_context(Context &from, Context &to) { emu_switch(&from, to); }

void prepare_context(Context &context, char *top, void (*run)())
{
    void **slot = reinterpret_cast<void **>(top);
    *--slot = nullptr; // a function starts with its stack 8 bytes off a multiple of 16, where the return address lies
    *--slot = reinterpret_cast<void *>(run);
    for (int saved = 0; saved < 6; ++saved)
        *--slot = nullptr;
    context = slot;
}

#endif

} // namespace
