#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host.h"

TRITONSERVER_Error *tl_errorf(TRITONSERVER_Error_Code code, const char *format, ...) {
	char text[2048];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	return TRITONSERVER_ErrorNew(code, text);
}

TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor) {
	*major = TRITONSERVER_API_VERSION_MAJOR;
	*minor = TRITONSERVER_API_VERSION_MINOR;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor) {
	*major = TRITONBACKEND_API_VERSION_MAJOR;
	*minor = TRITONBACKEND_API_VERSION_MINOR;
	return NULL;
}

// Errors.

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *text) {
	if (text == NULL) text = "";
	size_t n = strlen(text) + 1;
	TRITONSERVER_Error *e = malloc(sizeof *e + n);
	if (e == NULL) abort(); // an error must not be taken for success
	e->code = code;
	memcpy(e->text, text, n);
	return e;
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *e) { free(e); }
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *e) { return e->code; }
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *e) { return e->text; }

static const char *named(const char *const *names, size_t count, unsigned value, const char *otherwise) {
	return value < count ? names[value] : otherwise;
}
#define NAMED(value, otherwise, ...) \
	static const char *const names[] = {__VA_ARGS__}; \
	return named(names, sizeof names / sizeof *names, (unsigned)(value), otherwise)

const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *e) {
	NAMED(e->code, "<invalid code>", "Unknown", "Internal", "Not found", "Invalid argument", "Unavailable", "Unsupported", "Already exists", "Cancelled");
}

// Names of types.

static const char *const types[] = {"<invalid>", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16"};
enum { TYPES = sizeof types / sizeof *types };

const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType t) { return named(types, TYPES, t, types[0]); }

TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *name) {
	for (int i = 1; i < TYPES; i++) {
		if (strcmp(types[i], name) == 0) return (TRITONSERVER_DataType)i;
	}
	return TRITONSERVER_TYPE_INVALID;
}

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType t) {
	static const uint8_t sizes[TYPES] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 0, 2};
	return (unsigned)t < TYPES ? sizes[t] : 0;
}

const char *TRITONSERVER_MemoryTypeString(TT_MEM t) { NAMED(t, "<invalid>", "CPU", "CPU_PINNED", "GPU"); }
const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType t) { NAMED(t, "<invalid>", "STRING", "INT", "BOOL", "DOUBLE", "BYTES"); }
const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind k) { NAMED(k, "<invalid>", "AUTO", "CPU", "GPU", "MODEL"); }

// Messages.

TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **m, const char *base, size_t size) {
	*m = malloc(sizeof **m);
	char *json = malloc(size + 1);
	if (*m == NULL || json == NULL) abort();
	memcpy(json, base, size);
	json[size] = 0;
	**m = (TRITONSERVER_Message){json, size};
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *m) {
	if (m != NULL) free(m->json);
	free(m);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *m, const char **base, size_t *size) {
	*base = m->json;
	*size = m->size;
	return NULL;
}

// Parameters.

void tl_parameter_set(TRITONSERVER_Parameter *p, TRITONSERVER_ParameterType type, const void *value, uint64_t size) {
	p->type = type;
	switch (type) {
	case TRITONSERVER_PARAMETER_INT:
		p->number = *(const int64_t *)value;
		break;
	case TRITONSERVER_PARAMETER_BOOL:
		p->truth = *(const bool *)value;
		break;
	case TRITONSERVER_PARAMETER_DOUBLE:
		p->real = *(const double *)value;
		break;
	default:
		if ((p->bytes = malloc(size + 1)) == NULL) abort();
		memcpy(p->bytes, value, size);
		p->bytes[size] = 0;
		p->size = size;
	}
}

void tl_parameter_clear(TRITONSERVER_Parameter *p) {
	free(p->name);
	free(p->bytes);
}

static TRITONSERVER_Parameter *parameter(const char *name, TRITONSERVER_ParameterType type, const void *value, uint64_t size) {
	TRITONSERVER_Parameter *p = calloc(1, sizeof *p);
	if (p == NULL || (p->name = strdup(name)) == NULL) abort();
	tl_parameter_set(p, type, value, size);
	return p;
}

TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(const char *name, TRITONSERVER_ParameterType type, const void *value) {
	if (type > TRITONSERVER_PARAMETER_DOUBLE) return NULL; // bytes have a size: see TRITONSERVER_ParameterBytesNew
	return parameter(name, type, value, type == TRITONSERVER_PARAMETER_STRING ? strlen(value) : 0);
}

TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(const char *name, const void *bytes, uint64_t size) {
	return parameter(name, TRITONSERVER_PARAMETER_BYTES, bytes, size);
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *p) {
	if (p != NULL) tl_parameter_clear(p);
	free(p);
}

// Attributes of buffers.

TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **a) {
	if ((*a = calloc(1, sizeof **a)) == NULL) abort();
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *a) {
	free(a);
	return NULL;
}

#define ATTRIBUTE(name, field, type) \
	TRITONSERVER_Error *TRITONSERVER_BufferAttributesSet##name(TRITONSERVER_BufferAttributes *a, type value) { \
		a->field = value; \
		return NULL; \
	} \
	TRITONSERVER_Error *TRITONSERVER_BufferAttributes##name(TRITONSERVER_BufferAttributes *a, type *value) { \
		*value = a->field; \
		return NULL; \
	}
ATTRIBUTE(MemoryTypeId, id, int64_t)
ATTRIBUTE(MemoryType, type, TT_MEM)
ATTRIBUTE(CudaIpcHandle, handle, void *)
ATTRIBUTE(ByteSize, size, size_t)

// Notices are what the server is told besides responses: packets of a kind, two numbers and texts that each end with 0.

enum { NOTICE_LOG = 1, NOTICE_FAMILY, NOTICE_FAMILY_END, NOTICE_METRIC, NOTICE_METRIC_END, NOTICE_ADD, NOTICE_SET, NOTICE_OBSERVE };
enum { MOST_NOTICE = 32 << 10 };

static int notices = -1, verbosity;
static atomic_uint_least64_t numbers;

void tl_notices(int socket, int verbose) {
	notices = socket;
	verbosity = verbose;
}

struct notice {
	uint64_t kind, a, b;
	size_t n;
	char text[MOST_NOTICE];
};

static void begin(struct notice *n, uint64_t kind, uint64_t a, uint64_t b) {
	n->kind = kind;
	n->a = a;
	n->b = b;
	n->n = 0;
}

static void add_text(struct notice *n, const char *text) {
	size_t size = text == NULL ? 0 : strlen(text);
	if (size > MOST_NOTICE - n->n - 1) size = MOST_NOTICE - n->n > 0 ? MOST_NOTICE - n->n - 1 : 0;
	if (n->n == MOST_NOTICE) return;
	if (size > 0) memcpy(n->text + n->n, text, size);
	n->text[n->n + size] = 0;
	n->n += size + 1;
}

static void tell(struct notice *n) {
	if (notices >= 0) (void)send(notices, n, offsetof(struct notice, text) + n->n, MSG_NOSIGNAL); // without a server there is nothing to do
}

static uint64_t bits(double v) {
	uint64_t b;
	memcpy(&b, &v, sizeof b);
	return b;
}

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) { return level != TRITONSERVER_LOG_VERBOSE || verbosity > 0; }

TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *file, int line, const char *text) {
	if (!TRITONSERVER_LogIsEnabled(level)) return NULL;
	struct notice n;
	begin(&n, NOTICE_LOG, (uint64_t)level, (uint64_t)line);
	add_text(&n, file);
	add_text(&n, text);
	tell(&n);
	return NULL;
}

// Metrics. The server exports them; their values are here as well.

struct TRITONSERVER_MetricFamily {
	TRITONSERVER_MetricKind kind;
	uint64_t number;
	atomic_int metrics;
};

struct TRITONSERVER_Metric {
	TRITONSERVER_MetricFamily *family;
	uint64_t number;
	pthread_mutex_t lock;
	double value; // guarded by lock
};

struct TRITONSERVER_MetricArgs {
	TRITONSERVER_MetricKind kind;
	double *buckets;
	uint64_t count;
};

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **f, TRITONSERVER_MetricKind kind, const char *name, const char *description) {
	if ((unsigned)kind > TRITONSERVER_METRIC_KIND_HISTOGRAM) return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "Unknown metric kind %d", kind);
	if ((*f = calloc(1, sizeof **f)) == NULL) abort();
	(*f)->kind = kind;
	(*f)->number = atomic_fetch_add(&numbers, 1) + 1;
	struct notice n;
	begin(&n, NOTICE_FAMILY, (*f)->number, (uint64_t)kind);
	add_text(&n, name);
	add_text(&n, description);
	tell(&n);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *f) {
	if (atomic_load(&f->metrics) > 0) {
		return tl_errorf(TRITONSERVER_ERROR_INTERNAL, "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.");
	}
	struct notice n;
	begin(&n, NOTICE_FAMILY_END, f->number, 0);
	tell(&n);
	free(f);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(TRITONSERVER_MetricFamily *f, TRITONSERVER_MetricKind *kind) {
	*kind = f->kind;
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args) {
	if ((*args = calloc(1, sizeof **args)) == NULL) abort();
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args, const double *buckets, uint64_t count) {
	double *copy = malloc((count + 1) * sizeof *copy);
	if (copy == NULL) abort();
	memcpy(copy, buckets, count * sizeof *copy);
	free(args->buckets);
	*args = (TRITONSERVER_MetricArgs){TRITONSERVER_METRIC_KIND_HISTOGRAM, copy, count};
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args) {
	if (args != NULL) free(args->buckets);
	free(args);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **m, TRITONSERVER_MetricFamily *f, const TRITONSERVER_Parameter **labels, uint64_t count, const TRITONSERVER_MetricArgs *args) {
	bool histogram = f->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM;
	if (histogram != (args != NULL && args->buckets != NULL)) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, histogram ? "a histogram needs its buckets in the metric arguments" : "only a histogram has buckets");
	}
	for (uint64_t i = 0; i < count; i++) {
		if (labels[i]->type != TRITONSERVER_PARAMETER_STRING) {
			return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "Parameter [%s] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a label.", labels[i]->name);
		}
	}
	if ((*m = calloc(1, sizeof **m)) == NULL) abort();
	(*m)->family = f;
	(*m)->number = atomic_fetch_add(&numbers, 1) + 1;
	pthread_mutex_init(&(*m)->lock, NULL);
	atomic_fetch_add(&f->metrics, 1);
	struct notice n;
	begin(&n, NOTICE_METRIC, (*m)->number, f->number);
	for (uint64_t i = 0; i < count; i++) {
		add_text(&n, labels[i]->name);
		add_text(&n, labels[i]->bytes);
	}
	add_text(&n, ""); // then come buckets
	for (uint64_t i = 0; args != NULL && i < args->count; i++) {
		char number[64];
		snprintf(number, sizeof number, "%.17g", args->buckets[i]);
		add_text(&n, number);
	}
	tell(&n);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **m, TRITONSERVER_MetricFamily *f, const TRITONSERVER_Parameter **labels, uint64_t count) {
	return TRITONSERVER_MetricNewWithArgs(m, f, labels, count, NULL);
}

TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *m) {
	struct notice n;
	begin(&n, NOTICE_METRIC_END, m->number, 0);
	tell(&n);
	atomic_fetch_sub(&m->family->metrics, 1);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_GetMetricKind(TRITONSERVER_Metric *m, TRITONSERVER_MetricKind *kind) {
	*kind = m->family->kind;
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *m, double *value) {
	if (m->family->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value");
	}
	pthread_mutex_lock(&m->lock);
	*value = m->value;
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

// change changes a metric. The packets of a metric are in the order of its changes, because they are sent under its lock.
static TRITONSERVER_Error *change(TRITONSERVER_Metric *m, uint64_t kind, double v) {
	struct notice n;
	begin(&n, kind, m->number, bits(v));
	pthread_mutex_lock(&m->lock);
	m->value = kind == NOTICE_SET ? v : m->value + v;
	tell(&n);
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *m, double v) {
	if (m->family->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment");
	}
	if (m->family->kind == TRITONSERVER_METRIC_KIND_COUNTER && v < 0) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.");
	}
	return change(m, NOTICE_ADD, v);
}

TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *m, double v) {
	if (m->family->kind != TRITONSERVER_METRIC_KIND_GAUGE) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "only TRITONSERVER_METRIC_KIND_GAUGE supports Set");
	}
	return change(m, NOTICE_SET, v);
}

TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *m, double v) {
	if (m->family->kind != TRITONSERVER_METRIC_KIND_HISTOGRAM) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "only TRITONSERVER_METRIC_KIND_HISTOGRAM supports Observe");
	}
	return change(m, NOTICE_OBSERVE, v);
}
