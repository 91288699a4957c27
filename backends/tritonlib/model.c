#include <stdlib.h>
#include <string.h>

#include "host.h"

// Of normalise.go.
extern char *tuttiCompletedConfig(char *text, char **whole);

// Properties of the backend, the model and its instances. A call cannot fail unless it says so.

#define GET(function, object, type, value) \
	TRITONSERVER_Error *function(object *o, type *v) { \
		*v = value; \
		return NULL; \
	}
#define SET(function, object, type, field) \
	TRITONSERVER_Error *function(object *o, type v) { \
		o->field = v; \
		return NULL; \
	}

static TRITONBACKEND_MemoryManager manager;
static TRITONSERVER_Server server; // has no calls: a library that makes some is refused when it is loaded

GET(TRITONBACKEND_BackendName, TRITONBACKEND_Backend, const char *, o->name)
GET(TRITONBACKEND_BackendConfig, TRITONBACKEND_Backend, TRITONSERVER_Message *, &o->config)
GET(TRITONBACKEND_BackendExecutionPolicy, TRITONBACKEND_Backend, TRITONBACKEND_ExecutionPolicy, o->policy)
SET(TRITONBACKEND_BackendSetExecutionPolicy, TRITONBACKEND_Backend, TRITONBACKEND_ExecutionPolicy, policy)
GET(TRITONBACKEND_BackendState, TRITONBACKEND_Backend, void *, o->state)
SET(TRITONBACKEND_BackendSetState, TRITONBACKEND_Backend, void *, state)

TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend *b, TRITONBACKEND_MemoryManager **m) {
	(void)b;
	*m = &manager;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend *b, TRITONBACKEND_ArtifactType *type, const char **location) {
	*type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
	*location = b->folder;
	return NULL;
}

// The attributes are hints about GPUs and about loading, which this server does not need.

TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(TRITONBACKEND_BackendAttribute *a, TRITONSERVER_InstanceGroupKind kind, uint64_t count, const uint64_t *devices, uint64_t device_count) {
	(void)a, (void)kind, (void)count, (void)devices, (void)device_count;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(TRITONBACKEND_BackendAttribute *a, bool enabled) {
	(void)a, (void)enabled;
	return NULL;
}

// Memory that is not of requests. "Pinned" memory is ordinary memory here, because no device reads it.

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager *m, void **buffer, TT_MEM type, int64_t id, uint64_t size) {
	(void)m;
	*buffer = NULL;
	if (type == TRITONSERVER_MEMORY_GPU) {
		return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "memory of GPU %lld is not available: instances are on the CPU", (long long)id);
	}
	if (posix_memalign(buffer, 64, size == 0 ? 1 : size) != 0) {
		return tl_errorf(TRITONSERVER_ERROR_UNAVAILABLE, "cannot allocate %llu bytes", (unsigned long long)size);
	}
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager *m, void *buffer, TT_MEM type, int64_t id) {
	(void)m, (void)id;
	if (type == TRITONSERVER_MEMORY_GPU) return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "memory of GPU %lld is not available", (long long)id);
	free(buffer);
	return NULL;
}

// The model.

GET(TRITONBACKEND_ModelName, TRITONBACKEND_Model, const char *, o->name)
GET(TRITONBACKEND_ModelVersion, TRITONBACKEND_Model, uint64_t, o->version)
GET(TRITONBACKEND_ModelAutoCompleteConfig, TRITONBACKEND_Model, bool, o->complete)
GET(TRITONBACKEND_ModelBackend, TRITONBACKEND_Model, TRITONBACKEND_Backend *, o->backend)
GET(TRITONBACKEND_ModelState, TRITONBACKEND_Model, void *, o->state)
SET(TRITONBACKEND_ModelSetState, TRITONBACKEND_Model, void *, state)

TRITONSERVER_Error *TRITONBACKEND_ModelServer(TRITONBACKEND_Model *m, TRITONSERVER_Server **s) {
	(void)m;
	*s = &server;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *m, TRITONBACKEND_ArtifactType *type, const char **location) {
	*type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
	*location = m->folder;
	return NULL;
}

static TRITONSERVER_Error *check_version(TRITONBACKEND_Model *m, uint32_t version) {
	if (version == 1) return NULL;
	return tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "model '%s': model configuration version %u not supported, supported versions are: 1", m->name, version);
}

TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *m, uint32_t version, TRITONSERVER_Message **config) {
	TRITONSERVER_Error *e = check_version(m, version);
	if (e != NULL) return e;
	pthread_mutex_lock(&m->lock);
	e = TRITONSERVER_MessageNewFromSerializedJson(config, m->config.json, m->config.size);
	pthread_mutex_unlock(&m->lock);
	return e;
}

TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *m, uint32_t version, TRITONSERVER_Message *config) {
	TRITONSERVER_Error *e = check_version(m, version);
	if (e != NULL) return e;
	char *given = strndup(config->json, config->size), *json = NULL;
	if (given == NULL) abort();
	char *why = tuttiCompletedConfig(given, &json);
	free(given);
	if (why != NULL) {
		e = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, why);
		free(why);
		return e;
	}
	pthread_mutex_lock(&m->lock);
	if (m->inputs != NULL) { // the server has the signature
		e = tl_errorf(TRITONSERVER_ERROR_UNSUPPORTED, "model '%s': TRITONBACKEND_ModelSetConfig must be called by TRITONBACKEND_ModelInitialize", m->name);
		free(json);
	} else {
		free(m->config.json);
		m->config = (TRITONSERVER_Message){json, strlen(json)};
		m->set = true;
	}
	pthread_mutex_unlock(&m->lock);
	return e;
}

// The server measures the memory of this process itself.
TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model *m, TRITONSERVER_BufferAttributes **usage, uint32_t count) {
	(void)m, (void)usage, (void)count;
	return NULL;
}

// Instances.

GET(TRITONBACKEND_ModelInstanceName, TRITONBACKEND_ModelInstance, const char *, o->name)
GET(TRITONBACKEND_ModelInstanceKind, TRITONBACKEND_ModelInstance, TRITONSERVER_InstanceGroupKind, o->kind)
GET(TRITONBACKEND_ModelInstanceDeviceId, TRITONBACKEND_ModelInstance, int32_t, o->device)
GET(TRITONBACKEND_ModelInstanceHostPolicy, TRITONBACKEND_ModelInstance, TRITONSERVER_Message *, &o->policy)
GET(TRITONBACKEND_ModelInstanceProfileCount, TRITONBACKEND_ModelInstance, uint32_t, o->profile_count)
GET(TRITONBACKEND_ModelInstanceModel, TRITONBACKEND_ModelInstance, TRITONBACKEND_Model *, o->model)
GET(TRITONBACKEND_ModelInstanceState, TRITONBACKEND_ModelInstance, void *, o->state)
SET(TRITONBACKEND_ModelInstanceSetState, TRITONBACKEND_ModelInstance, void *, state)

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance *x, bool *passive) {
	(void)x;
	*passive = false;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance *x, uint32_t index, const char **name) {
	*name = NULL;
	if (index >= x->profile_count) {
		return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index %u: instance is configured with %u profiles", index, x->profile_count);
	}
	*name = x->profiles[index];
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceCount(TRITONBACKEND_ModelInstance *x, uint32_t *count) {
	(void)x;
	*count = 0;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(TRITONBACKEND_ModelInstance *x, uint32_t index, const char **kind, int64_t *id) {
	(void)kind, (void)id;
	return tl_errorf(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds index %u: instance '%s' is configured with 0 secondary devices", index, x->name);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportMemoryUsage(TRITONBACKEND_ModelInstance *x, TRITONSERVER_BufferAttributes **usage, uint32_t count) {
	(void)x, (void)usage, (void)count;
	return NULL;
}

// Statistics. The server has its own: it measures the queue, the batch, and the execution with its transfers, for every backend alike.

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance *x, TRITONBACKEND_Request *r, bool success, uint64_t start, uint64_t compute_start, uint64_t compute_end, uint64_t end) {
	(void)x, (void)r, (void)success, (void)start, (void)compute_start, (void)compute_end, (void)end;
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *x, uint64_t size, uint64_t start, uint64_t compute_start, uint64_t compute_end, uint64_t end) {
	(void)x, (void)size, (void)start, (void)compute_start, (void)compute_end, (void)end;
	return NULL;
}

struct TRITONBACKEND_ModelInstanceResponseStatistics {
	TRITONBACKEND_ModelInstance *instance;
	TRITONBACKEND_ResponseFactory *factory;
	uint64_t start, output, end;
	TRITONSERVER_Error *error; // borrowed
};
typedef TRITONBACKEND_ModelInstanceResponseStatistics response_statistics;

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(response_statistics **s) {
	if ((*s = calloc(1, sizeof **s)) == NULL) abort();
	return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(response_statistics *s) {
	free(s);
	return NULL;
}

SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance, response_statistics, TRITONBACKEND_ModelInstance *, instance)
SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory, response_statistics, TRITONBACKEND_ResponseFactory *, factory)
SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart, response_statistics, uint64_t, start)
SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart, response_statistics, uint64_t, output)
SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd, response_statistics, uint64_t, end)
SET(TRITONBACKEND_ModelInstanceResponseStatisticsSetError, response_statistics, TRITONSERVER_Error *, error)

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(response_statistics *s) {
	(void)s;
	return NULL;
}
