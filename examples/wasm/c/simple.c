/* The model simple_wasm: OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1. */
#include "tutti.h"

const tutti_response *tutti_execute(const tutti_tensor *inputs, uint32_t count) {
	const tutti_tensor *a = tutti_find(inputs, count, "INPUT0"), *b = tutti_find(inputs, count, "INPUT1");
	if (!a || !b)
		return tutti_fail(TUTTI_INTERNAL, "expected inputs 'INPUT0' and 'INPUT1'");
	if (a->rank != b->rank)
		return tutti_fail(TUTTI_INVALID_ARGUMENT, "expected inputs of one shape");
	for (uint32_t i = 0; i < a->rank; i++)
		if (a->dims[i] != b->dims[i])
			return tutti_fail(TUTTI_INVALID_ARGUMENT, "expected inputs of one shape");

	tutti_reset();
	float *sums = tutti_alloc(a->data_length), *differences = tutti_alloc(a->data_length);
	if (!sums || !differences)
		return tutti_fail(TUTTI_INTERNAL, "no memory for the outputs");
	const float *x = a->data, *y = b->data;
	for (uint32_t i = 0; i < a->data_length / sizeof(float); i++) {
		sums[i] = x[i] + y[i];
		differences[i] = x[i] - y[i];
	}

	static tutti_tensor outputs[2];
	static tutti_response response;
	outputs[0] = (tutti_tensor){"OUTPUT0", 7, TUTTI_FP32, a->rank, a->dims, sums, a->data_length, 0};
	outputs[1] = (tutti_tensor){"OUTPUT1", 7, TUTTI_FP32, a->rank, a->dims, differences, a->data_length, 0};
	response = (tutti_response){outputs, 2, NULL, 0};
	return &response;
}
