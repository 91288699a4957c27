// The part of OpenVINO's C interface that this package uses: types, numbers, and functions that are looked up by name.
#ifndef TUTTI_OV_H
#define TUTTI_OV_H

#include <stddef.h>
#include <stdint.h>

typedef struct ov_core ov_core;
typedef struct ov_model ov_model;
typedef struct ov_compiled_model ov_compiled_model;
typedef struct ov_infer_request ov_infer_request;
typedef struct ov_port ov_port;
typedef struct ov_tensor ov_tensor;

typedef struct {
	const char *build;
	const char *description;
} ov_version;

typedef struct {
	int64_t rank;
	int64_t *dims;
} ov_shape;

// A dynamic dimension has different min and max.
typedef struct {
	int64_t min, max;
} ov_dimension;

typedef struct {
	ov_dimension rank;
	ov_dimension *dims;
} ov_partial_shape;

typedef struct {
	const char *key;
	const void *value;
} ov_property;

// Every function that returns int returns a status, 0 on success.
#define OV_FUNCTIONS(X)                                                                                               \
	X(int, ov_get_openvino_version, (ov_version *))                                                                   \
	X(void, ov_version_free, (ov_version *))                                                                          \
	X(const char *, ov_get_error_info, (int))                                                                         \
	X(const char *, ov_get_last_err_msg, (void))                                                                      \
	X(void, ov_free, (const char *))                                                                                  \
	X(int, ov_core_create, (ov_core **))                                                                              \
	X(void, ov_core_free, (ov_core *))                                                                                \
	X(int, ov_core_get_property, (const ov_core *, const char *, const char *, char **))                              \
	X(int, ov_core_add_extension, (const ov_core *, const char *))                                                    \
	X(int, ov_core_read_model, (const ov_core *, const char *, const char *, ov_model **))                            \
	X(int, ov_core_compile_model_props,                                                                               \
	  (const ov_core *, const ov_model *, const char *, size_t, const ov_property *, ov_compiled_model **))           \
	X(void, ov_model_free, (ov_model *))                                                                              \
	X(int, ov_model_inputs_size, (const ov_model *, size_t *))                                                        \
	X(int, ov_model_outputs_size, (const ov_model *, size_t *))                                                       \
	X(int, ov_model_const_input_by_index, (const ov_model *, size_t, ov_port **))                                     \
	X(int, ov_model_const_output_by_index, (const ov_model *, size_t, ov_port **))                                    \
	X(int, ov_model_const_input_by_name, (const ov_model *, const char *, ov_port **))                                \
	X(int, ov_model_const_output_by_name, (const ov_model *, const char *, ov_port **))                               \
	X(int, ov_model_reshape_by_port_indexes, (const ov_model *, const size_t *, const ov_partial_shape *, size_t))    \
	X(int, ov_port_get_any_name, (const ov_port *, char **))                                                          \
	X(int, ov_port_get_partial_shape, (const ov_port *, ov_partial_shape *))                                          \
	X(int, ov_port_get_element_type, (const ov_port *, int *))                                                        \
	X(void, ov_output_const_port_free, (ov_port *))                                                                   \
	X(void, ov_partial_shape_free, (ov_partial_shape *))                                                              \
	X(int, ov_compiled_model_input_by_index, (const ov_compiled_model *, size_t, ov_port **))                         \
	X(int, ov_compiled_model_output_by_index, (const ov_compiled_model *, size_t, ov_port **))                        \
	X(int, ov_compiled_model_input_by_name, (const ov_compiled_model *, const char *, ov_port **))                    \
	X(int, ov_compiled_model_output_by_name, (const ov_compiled_model *, const char *, ov_port **))                   \
	X(int, ov_compiled_model_get_property, (const ov_compiled_model *, const char *, char **))                        \
	X(int, ov_compiled_model_create_infer_request, (const ov_compiled_model *, ov_infer_request **))                  \
	X(void, ov_compiled_model_free, (ov_compiled_model *))                                                            \
	X(int, ov_infer_request_set_tensor_by_const_port, (ov_infer_request *, const ov_port *, const ov_tensor *))       \
	X(int, ov_infer_request_get_tensor_by_const_port, (const ov_infer_request *, const ov_port *, ov_tensor **))      \
	X(int, ov_infer_request_infer, (ov_infer_request *))                                                              \
	X(int, ov_infer_request_cancel, (ov_infer_request *))                                                             \
	X(void, ov_infer_request_free, (ov_infer_request *))                                                              \
	X(int, ov_tensor_create_from_host_ptr, (int, ov_shape, void *, ov_tensor **))                                     \
	X(int, ov_tensor_create, (int, ov_shape, ov_tensor **))                                                           \
	X(int, ov_tensor_create_from_string_array, (const char **, size_t, ov_shape, ov_tensor **))                       \
	X(int, ov_tensor_get_shape, (const ov_tensor *, ov_shape *))                                                      \
	X(int, ov_shape_free, (ov_shape *))                                                                               \
	X(int, ov_tensor_get_byte_size, (const ov_tensor *, size_t *))                                                    \
	X(int, ov_tensor_data, (const ov_tensor *, void **))                                                              \
	X(void, ov_tensor_free, (ov_tensor *))

typedef struct {
#define X(result, name, args) result(*name) args;
	OV_FUNCTIONS(X)
#undef X
} ov_functions;

#endif
