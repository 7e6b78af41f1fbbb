// A stand-in of cuBLASLt on memory of the host: the functions that dynagraph calls, with their C signatures, as strict as the real
// library is or stricter.  Products are plain loops, sums are made in the compute type, and what the descriptors say is obeyed.
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, C_32F = 4, C_64F = 5 };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32 };
const uint64_t MAGIC = 0x6c74616c676fu;

struct Context {};

struct Operation {
    int compute, scale;
    int32_t transposes[2] = {0, 0};
    uint32_t epilogue = EPILOGUE_DEFAULT;
    const char *bias = nullptr;
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t step;
    int32_t count = 1;
    int64_t stride = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = 7, alignments[4] = {256, 256, 256, 256};
};

struct Algorithm { // 64 bytes
    uint64_t magic, workspace;
    uint32_t alignments[4];
    uint64_t bias_alignment, shape, reserved[2];
};
static_assert(sizeof(Algorithm) == 64, "as cublasLtMatmulAlgo_t");

struct Found {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

// what tests set, and read
uint64_t wanted_workspace = 0;
int heuristic_status = SUCCESS, matmul_status = SUCCESS;
long descriptors = 0, contexts = 0, heuristics = 0, calls = 0;
std::string mistake;

int refuse(const char *why)
{
    mistake = why;
    return INVALID_VALUE;
}

template <typename T> int read_attribute(T &out, const void *value, size_t bytes)
{
    if (bytes != sizeof(T))
        return refuse("an attribute of another size");
    std::memcpy(&out, value, sizeof(T));
    return SUCCESS;
}

size_t size_of(int type) { return type == R_16F ? 2 : type == R_32F ? 4 : type == C_64F ? 16 : 8; }

uint64_t shape_of(const Operation &o, const Layout *const layouts[4])
{
    uint64_t hash = 1469598103934665603u;
    auto mix = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
    for (int k = 0; k < 4; ++k)
        for (uint64_t value : {layouts[k]->rows, layouts[k]->columns, (uint64_t)layouts[k]->step, (uint64_t)layouts[k]->count,
                               (uint64_t)layouts[k]->stride, (uint64_t)layouts[k]->type})
            mix(value);
    for (uint64_t value : {(uint64_t)o.compute, (uint64_t)o.epilogue, (uint64_t)o.transposes[0], (uint64_t)o.transposes[1]})
        mix(value);
    return hash;
}

int check(const Operation &o, const Layout *const layouts[4])
{
    const Layout &c = *layouts[2], &d = *layouts[3];
    for (int k = 0; k < 4; ++k)
        if (layouts[k]->type != d.type || layouts[k]->count != d.count)
            return refuse("matrices of several types, or batches of several lengths");
    auto rows = [&](int k) { return o.transposes[k] ? layouts[k]->columns : layouts[k]->rows; };
    auto columns = [&](int k) { return o.transposes[k] ? layouts[k]->rows : layouts[k]->columns; };
    if (rows(0) != d.rows || columns(1) != d.columns || columns(0) != rows(1) || c.rows != d.rows || c.columns != d.columns)
        return refuse("sizes that do not fit");
    if (d.count > 1 && d.stride < (int64_t)d.rows)
        return refuse("results that lie over each other");
    const bool is_double = d.type == R_64F || d.type == C_64F, is_complex = d.type == C_32F || d.type == C_64F;
    const int scale = d.type == R_16F ? (int)R_32F : d.type;
    if (o.scale != scale || (o.compute == COMPUTE_64F) != is_double || (o.compute == COMPUTE_32F_FAST_TF32 && d.type != R_32F))
        return NOT_SUPPORTED;
    if (o.epilogue != EPILOGUE_DEFAULT && is_complex)
        return NOT_SUPPORTED;
    if ((o.epilogue & EPILOGUE_BIAS) && !o.bias)
        return refuse("a bias without an address");
    return SUCCESS;
}

template <typename T> struct Sum { using type = T; };
template <> struct Sum<_Float16> { using type = float; };

struct Call {
    Operation o;
    Layout layouts[4];
    unsigned char alpha[16], beta[16];
    const char *a, *b, *c;
    char *d, *workspace;
    size_t workspace_bytes;

    template <typename T> void run() const
    {
        using S = typename Sum<T>::type;
        S alpha_value, beta_value;
        std::memcpy(&alpha_value, alpha, sizeof(S));
        std::memcpy(&beta_value, beta, sizeof(S));
        const Layout &la = layouts[0], &lb = layouts[1], &lc = layouts[2], &ld = layouts[3];
        const uint64_t depth = o.transposes[0] ? la.rows : la.columns;
        for (int32_t batch = 0; batch < ld.count; ++batch) {
            const T *ma = (const T *)a + batch * la.stride, *mb = (const T *)b + batch * lb.stride, *mc = (const T *)c + batch * lc.stride;
            T *md = (T *)d + batch * ld.stride;
            for (uint64_t j = 0; j < ld.columns; ++j)
                for (uint64_t i = 0; i < ld.rows; ++i) {
                    S sum = 0;
                    for (uint64_t k = 0; k < depth; ++k)
                        sum += (S)(o.transposes[0] ? ma[k + i * la.step] : ma[i + k * la.step]) *
                               (S)(o.transposes[1] ? mb[j + k * lb.step] : mb[k + j * lb.step]);
                    S value = alpha_value == S(0) ? S(0) : alpha_value * sum;
                    if (beta_value != S(0))
                        value += beta_value * (S)mc[i + j * lc.step];
                    md[i + j * ld.step] = (T)finish<T>(value, i);
                }
        }
    }

    template <typename T, typename S> S finish(S value, uint64_t row) const
    {
        if constexpr (std::is_floating_point<S>::value) {
            if (o.epilogue & EPILOGUE_BIAS)
                value += (S)((const T *)o.bias)[row];
            if (o.epilogue & EPILOGUE_RELU)
                value = value > 0 ? value : 0;
            if (o.epilogue & EPILOGUE_GELU)
                value = S(0.5) * value * (S(1) + std::tanh(S(0.7978845608028654) * (value + S(0.044715) * value * value * value)));
        }
        return value;
    }
};

struct Range {
    const char *begin, *end;
};

Range range(const char *at, const Layout &l)
{
    int64_t last = (int64_t)l.rows - 1 + ((int64_t)l.columns - 1) * l.step + (l.count - 1) * l.stride;
    return {at, at + (last + 1) * (int64_t)size_of(l.type)};
}

bool overlap(Range x, Range y) { return x.begin < y.end && y.begin < x.end; }

} // namespace

extern "C" {

void stand_in_set(uint64_t workspace, int of_heuristic, int of_matmul)
{
    wanted_workspace = workspace;
    heuristic_status = of_heuristic;
    matmul_status = of_matmul;
}
long stand_in_descriptors() { return descriptors; }
long stand_in_contexts() { return contexts; }
long stand_in_heuristics() { return heuristics; }
long stand_in_calls() { return calls; }
const char *stand_in_mistake() { return mistake.c_str(); }

size_t cublasLtGetVersion() { return 120903; }
const char *cublasLtGetStatusString(int status) { return status == INVALID_VALUE ? mistake.c_str() : "the status of a stand-in"; }

int cublasLtCreate(Context **out)
{
    ++contexts;
    *out = new Context;
    return SUCCESS;
}

int cublasLtMatmulDescCreate(Operation **out, int compute, int scale)
{
    ++descriptors;
    *out = new Operation;
    (*out)->compute = compute;
    (*out)->scale = scale;
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(Operation *o, int attribute, const void *value, size_t bytes)
{
    switch (attribute) {
    case 3: return read_attribute(o->transposes[0], value, bytes);
    case 4: return read_attribute(o->transposes[1], value, bytes);
    case 7: return read_attribute(o->epilogue, value, bytes);
    case 8: return read_attribute(o->bias, value, bytes);
    default: return refuse("an unknown attribute of an operation");
    }
}

int cublasLtMatmulDescDestroy(Operation *o)
{
    --descriptors;
    delete o;
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(Layout **out, int type, uint64_t rows, uint64_t columns, int64_t step)
{
    if (rows == 0 || columns == 0 || step < (int64_t)rows)
        return refuse("a leading dimension below the number of rows");
    ++descriptors;
    *out = new Layout{type, rows, columns, step};
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(Layout *l, int attribute, const void *value, size_t bytes)
{
    switch (attribute) {
    case 5: return read_attribute(l->count, value, bytes);
    case 6: return read_attribute(l->stride, value, bytes);
    default: return refuse("an unknown attribute of a layout");
    }
}

int cublasLtMatrixLayoutDestroy(Layout *l)
{
    --descriptors;
    delete l;
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(Preference **out)
{
    ++descriptors;
    *out = new Preference;
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *value, size_t bytes)
{
    switch (attribute) {
    case 1: return read_attribute(p->workspace, value, bytes);
    case 3: return read_attribute(p->reductions, value, bytes);
    case 5: case 6: case 7: case 8: return read_attribute(p->alignments[attribute - 5], value, bytes);
    default: return refuse("an unknown attribute of a preference");
    }
}

int cublasLtMatmulPreferenceDestroy(Preference *p)
{
    --descriptors;
    delete p;
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(Context *context, Operation *o, Layout *a, Layout *b, Layout *c, Layout *d, Preference *p,
                                   int wanted, Found *found, int *count)
{
    ++heuristics;
    *count = 0;
    if (!context || wanted < 1)
        return refuse("no context, or no algorithm wanted");
    if (heuristic_status)
        return heuristic_status;
    const Layout *layouts[] = {a, b, c, d};
    int status = check(*o, layouts);
    if (status)
        return status;
    *found = Found{};
    found->algorithm.magic = MAGIC;
    found->algorithm.workspace = found->workspace = wanted_workspace <= p->workspace ? wanted_workspace : 0;
    std::memcpy(found->algorithm.alignments, p->alignments, sizeof p->alignments);
    uintptr_t bias = (uintptr_t)o->bias;
    found->algorithm.bias_alignment = o->epilogue & EPILOGUE_BIAS ? bias & -bias : 1;
    found->algorithm.shape = shape_of(*o, layouts);
    *count = 1;
    return SUCCESS;
}

// what `stand_in_execute` does later, with descriptors as they are now; null: *status says why
Call *stand_in_record(int *status, Context *context, Operation *o, const void *alpha, const char *a, Layout *la, const char *b, Layout *lb,
                      const void *beta, const char *c, Layout *lc, char *d, Layout *ld, const Algorithm *algorithm, char *workspace,
                      size_t workspace_bytes, void *)
{
    const Layout *layouts[] = {la, lb, lc, ld};
    const char *pointers[] = {a, b, c, d};
    *status = context ? check(*o, layouts) : refuse("no context");
    if (*status == SUCCESS)
        *status = matmul_status;
    if (*status == SUCCESS && (algorithm->magic != MAGIC || algorithm->shape != shape_of(*o, layouts)))
        *status = refuse("an algorithm for something else");
    for (int k = 0; k < 4 && *status == SUCCESS; ++k)
        if ((uintptr_t)pointers[k] % algorithm->alignments[k] || (uintptr_t)pointers[k] % size_of(ld->type))
            *status = refuse("an address that is not as aligned as was said");
    if (*status == SUCCESS && (o->epilogue & EPILOGUE_BIAS) && (uintptr_t)o->bias % algorithm->bias_alignment)
        *status = refuse("a bias that is not as aligned as was said");
    if (*status == SUCCESS && algorithm->workspace && (workspace_bytes < algorithm->workspace || (uintptr_t)workspace % 256))
        *status = refuse("a workspace that is too small, or not aligned");
    if (*status == SUCCESS && (overlap(range(d, *ld), range(a, *la)) || overlap(range(d, *ld), range(b, *lb))))
        *status = refuse("a result over an operand");
    if (*status == SUCCESS && c == d && (lc->step != ld->step || lc->stride != ld->stride))
        *status = refuse("an addend that lies otherwise than the result over it");
    if (*status)
        return nullptr;
    ++calls;
    Call *call = new Call{*o, {*la, *lb, *lc, *ld}, {}, {}, a, b, c, d, workspace, workspace_bytes};
    const size_t scalar = ld->type == R_16F ? 4 : size_of(ld->type);
    std::memcpy(call->alpha, alpha, scalar);
    std::memcpy(call->beta, beta, scalar);
    return call;
}

void stand_in_execute(const Call *call)
{
    if (call->workspace_bytes)
        std::memset(call->workspace, 0xff, call->workspace_bytes); // NaN, for whoever has something there
    switch (call->layouts[3].type) {
    case R_16F: call->run<_Float16>(); break;
    case R_32F: call->run<float>(); break;
    case R_64F: call->run<double>(); break;
    case C_32F: call->run<std::complex<float>>(); break;
    default: call->run<std::complex<double>>();
    }
}

void stand_in_forget(Call *call) { delete call; }

int cublasLtMatmul(Context *context, Operation *o, const void *alpha, const char *a, Layout *la, const char *b, Layout *lb,
                   const void *beta, const char *c, Layout *lc, char *d, Layout *ld, const Algorithm *algorithm, char *workspace,
                   size_t workspace_bytes, void *stream)
{
    int status;
    Call *call = stand_in_record(&status, context, o, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, workspace, workspace_bytes, stream);
    if (call) {
        stand_in_execute(call);
        stand_in_forget(call);
    }
    return status;
}

} // extern "C"
