// Which accesses of threads to the same place nothing orders, though one of them writes: what each place was last accessed by.
//
// Barriers order the accesses of a block, __syncwarp those of a warp; shuffles and votes order nothing. Blocks are ordered only by
// __threadfence and an atomic operation after it. Places are words of 4 bytes, and single bytes for smaller types: races between
// accesses of both kinds are not seen.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <unordered_map>

namespace {
namespace races {

constexpr unsigned WARP_LANES = 32;
constexpr uint16_t SEVERAL_OF_WARP = 0x8000, SEVERAL = 0xffff; // for `thread` below; with the warp added

struct Access {
    uint32_t epoch; // 0: there was none
    uint16_t thread;
    uint16_t warp_syncs : 15, atomic : 1;
};

// when the running thread accesses something
struct Moment {
    uint32_t epoch;       // grows with each barrier and each block
    uint32_t block_epoch; // the first of this block
    uint16_t thread, warp_syncs;
    bool after_other_blocks;
};

struct Place {
    Access write, read;
};

class Shadow {
    static constexpr size_t PAGE = 1024, CACHED = 64;
    std::unordered_map<uintptr_t, Place *> pages;
    struct {
        uintptr_t page;
        Place *places;
    } cache[CACHED] = {};

public:
    Place &operator[](uintptr_t index)
    {
        const uintptr_t page = index / PAGE;
        auto &found = cache[page % CACHED];
        if (!found.places || found.page != page) {
            Place *&places = pages[page];
            if (!places)
                places = static_cast<Place *>(calloc(PAGE, sizeof(Place)));
            found = {page, places};
        }
        return found.places[index % PAGE];
    }
    void clear()
    {
        for (auto &page : pages)
            free(page.second);
        pages.clear();
        for (auto &entry : cache)
            entry = {};
    }
};

Shadow words, bytes;

void forget()
{
    words.clear();
    bytes.clear();
}

unsigned warp_of(uint16_t thread)
{
    return thread < SEVERAL_OF_WARP ? thread / WARP_LANES : thread - SEVERAL_OF_WARP;
}

bool is_ordered(const Access &before, const Moment &now, bool shared)
{
    if (!before.epoch)
        return true;
    if (before.epoch < now.block_epoch)
        return shared || now.after_other_blocks;
    if (before.epoch < now.epoch || before.thread == now.thread)
        return true;
    return warp_of(before.thread) == warp_of(now.thread) && before.warp_syncs < now.warp_syncs;
}

bool is_race(const Access &before, const Moment &now, bool shared, bool atomic)
{
    return !(before.atomic && atomic) && !is_ordered(before, now, shared);
}

uint16_t both(uint16_t a, uint16_t b)
{
    return warp_of(a) == warp_of(b) ? uint16_t(SEVERAL_OF_WARP + warp_of(a)) : SEVERAL;
}

// Note an access; what it races with, null where nothing. `shared`: in memory of the block's own.
const Access *note(Place &place, const Moment &now, bool shared, bool write, bool atomic)
{
    if (is_race(place.write, now, shared, atomic))
        return &place.write;
    Access access = {now.epoch, now.thread, uint16_t(now.warp_syncs & 0x7fff), atomic};
    if (write) {
        if (is_race(place.read, now, shared, atomic))
            return &place.read;
        place.write = access;
        return nullptr;
    }
    if (place.read.epoch == now.epoch && !is_ordered(place.read, now, shared)) {
        access.thread = both(place.read.thread, now.thread);
        access.atomic = place.read.atomic && atomic;
    }
    place.read = access;
    return nullptr;
}

const Access *note(uintptr_t address, size_t size, const Moment &now, bool shared, bool write, bool atomic)
{
    const bool whole_words = address % 4 == 0 && size % 4 == 0;
    Shadow &shadow = whole_words ? words : bytes;
    const uintptr_t first = whole_words ? address / 4 : address, count = whole_words ? size / 4 : size;
    for (uintptr_t i = first; i < first + count; ++i)
        if (const Access *other = note(shadow[i], now, shared, write, atomic))
            return other;
    return nullptr;
}

} // namespace races
} // namespace
