#include "shim.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(result, name, args) #name,
	OV_FUNCTIONS(X)
#undef X
};

size_t tov_functions(void) { return sizeof names / sizeof *names; }

const char *tov_function(size_t i) { return names[i]; }

void tov_bind(ov_functions *f, size_t i, void *address) { ((void **)f)[i] = address; }

// The text belongs to the thread that failed, so it is copied before the return to Go.
tov_error tov_failed(const ov_functions *f, int code) {
	tov_error e = {code, NULL};
	if (code == 0) return e;
	const char *text = f->ov_get_last_err_msg();
	e.text = strdup(text != NULL && *text != 0 ? text : f->ov_get_error_info(code));
	if (text != NULL) f->ov_free(text);
	return e;
}

char *tov_version(const ov_functions *f) {
	ov_version v = {NULL, NULL};
	if (f->ov_get_openvino_version(&v) != 0) return NULL;
	char *text = v.build != NULL ? strdup(v.build) : NULL;
	f->ov_version_free(&v);
	return text;
}

tov_error tov_core(const ov_functions *f, ov_core **core) { return tov_failed(f, f->ov_core_create(core)); }

void tov_load_plugin(const ov_functions *f, ov_core *core, const char *device) {
	char *name = NULL;
	if (f->ov_core_get_property(core, device, "FULL_DEVICE_NAME", &name) == 0) f->ov_free(name);
}

void tov_core_free(const ov_functions *f, ov_core *core) { f->ov_core_free(core); }

tov_error tov_extend(const ov_functions *f, ov_core *core, const char *path) {
	return tov_failed(f, f->ov_core_add_extension(core, path));
}

tov_error tov_read(const ov_functions *f, ov_core *core, const char *path, ov_model **model) {
	return tov_failed(f, f->ov_core_read_model(core, path, NULL, model));
}

void tov_model_free(const ov_functions *f, ov_model *model) {
	f->ov_model_free(model);
	// Loading leaves a second copy of the weights in freed pages: return them to the system.
	malloc_trim(0);
}

tov_error tov_count(const ov_functions *f, ov_model *model, int output, size_t *n) {
	return tov_failed(f, output ? f->ov_model_outputs_size(model, n) : f->ov_model_inputs_size(model, n));
}

static tov_error describe(const ov_functions *f, ov_port *port, tov_port *p) {
	char *name = NULL;
	ov_partial_shape shape = {{0, 0}, NULL};
	if (f->ov_port_get_any_name(port, &name) == 0 && name != NULL) {
		p->name = strdup(name);
		f->ov_free(name);
	}
	int st = f->ov_port_get_element_type(port, &p->type);
	if (st == 0) st = f->ov_port_get_partial_shape(port, &shape);
	if (st == 0) {
		p->rank = shape.rank.min == shape.rank.max ? shape.rank.max : -1;
		for (int64_t i = 0; i < p->rank && i < TOV_MAX_RANK; i++) {
			const ov_dimension *d = &shape.dims[i];
			p->dims[i] = d->min == d->max ? d->max : -1;
		}
		f->ov_partial_shape_free(&shape);
	}
	f->ov_output_const_port_free(port);
	return tov_failed(f, st);
}

tov_error tov_declared(const ov_functions *f, ov_model *model, int output, size_t i, tov_port *p) {
	ov_port *port = NULL;
	memset(p, 0, sizeof *p);
	int st = output ? f->ov_model_const_output_by_index(model, i, &port) : f->ov_model_const_input_by_index(model, i, &port);
	return st != 0 ? tov_failed(f, st) : describe(f, port, p);
}

tov_error tov_alias(const ov_functions *f, ov_model *model, int output, const char *name, tov_port *p) {
	ov_port *port = NULL;
	memset(p, 0, sizeof *p);
	int st = output ? f->ov_model_const_output_by_name(model, name, &port) : f->ov_model_const_input_by_name(model, name, &port);
	return st != 0 ? tov_failed(f, st) : describe(f, port, p);
}

tov_error tov_reshape(const ov_functions *f, ov_model *model, size_t n, const int64_t *ranks, const int64_t *dims) {
	size_t total = 0;
	for (size_t i = 0; i < n; i++) total += (size_t)ranks[i];
	ov_partial_shape *shapes = calloc(n + 1, sizeof *shapes);
	ov_dimension *extents = calloc(total + 1, sizeof *extents);
	size_t *indexes = calloc(n + 1, sizeof *indexes);
	tov_error e = {-17, NULL};
	if (shapes != NULL && extents != NULL && indexes != NULL) {
		ov_dimension *next = extents;
		for (size_t i = 0; i < n; i++) {
			indexes[i] = i;
			shapes[i] = (ov_partial_shape){{ranks[i], ranks[i]}, next};
			for (int64_t k = 0; k < ranks[i]; k++, next++, dims++)
				*next = *dims < 0 ? (ov_dimension){0, -1} : (ov_dimension){*dims, *dims};
		}
		e = tov_failed(f, f->ov_model_reshape_by_port_indexes(model, indexes, shapes, n));
	} else {
		e.text = strdup("no memory");
	}
	free(shapes), free(extents), free(indexes);
	return e;
}

#define MAX_PROPERTIES 64

tov_error tov_compile(const ov_functions *f, ov_core *core, ov_model *model, const char *device, size_t n,
                      const char **keys, const char **values, ov_compiled_model **compiled) {
	ov_property properties[MAX_PROPERTIES];
	if (n > MAX_PROPERTIES) n = MAX_PROPERTIES;
	for (size_t i = 0; i < n; i++) properties[i] = (ov_property){keys[i], values[i]};
	return tov_failed(f, f->ov_core_compile_model_props(core, model, device, n, properties, compiled));
}

char *tov_property(const ov_functions *f, ov_compiled_model *compiled, const char *key) {
	char *value = NULL;
	if (f->ov_compiled_model_get_property(compiled, key, &value) != 0 || value == NULL) return NULL;
	char *copy = strdup(value);
	f->ov_free(value);
	return copy;
}

tov_error tov_find(const ov_functions *f, ov_compiled_model *compiled, int output, size_t i, const char *name, ov_port **port) {
	if (name != NULL)
		return tov_failed(f, output ? f->ov_compiled_model_output_by_name(compiled, name, port)
		                            : f->ov_compiled_model_input_by_name(compiled, name, port));
	return tov_failed(f, output ? f->ov_compiled_model_output_by_index(compiled, i, port)
	                            : f->ov_compiled_model_input_by_index(compiled, i, port));
}

void tov_port_free(const ov_functions *f, ov_port *port) { f->ov_output_const_port_free(port); }

void tov_compiled_free(const ov_functions *f, ov_compiled_model *compiled) {
	f->ov_compiled_model_free(compiled);
	malloc_trim(0);
}

void tov_release(const ov_functions *f, ov_tensor *t) { f->ov_tensor_free(t); }
