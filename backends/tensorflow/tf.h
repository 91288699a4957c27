// The part of TensorFlow's C interface that this package uses, as function pointers that are looked up by name.
#ifndef TUTTI_TF_H
#define TUTTI_TF_H

#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;                  // code and text of the last failure
typedef struct TF_Tensor TF_Tensor;                  // a reference to typed memory
typedef struct TF_Graph TF_Graph;                    // operations and their edges
typedef struct TF_Operation TF_Operation;            // owned by its graph
typedef struct TF_Session TF_Session;                // a graph with its variables, which can run
typedef struct TF_SessionOptions TF_SessionOptions;  // options of a session
typedef struct TF_ImportOptions TF_ImportOptions;    // options of an import

// One output of an operation.
typedef struct {
	TF_Operation *oper;
	int index;
} TF_Output;

// Serialized bytes.
typedef struct {
	const void *data;
	size_t length;
	void (*free)(void *data, size_t length);
} TF_Buffer;

#define TF_STRING 7        // number of the string type
#define TF_STRING_ROOM 24  // size of a string object of the functions TF_String...

typedef void (*TF_Release)(void *data, size_t len, void *arg);

// X(result, name, arguments)
#define TF_FUNCTIONS(X) \
	X(const char *, Version, (void)) \
	X(TF_Status *, NewStatus, (void)) \
	X(void, DeleteStatus, (TF_Status *)) \
	X(int, GetCode, (const TF_Status *)) \
	X(const char *, Message, (const TF_Status *)) \
	X(TF_Buffer *, NewBuffer, (void)) \
	X(TF_Buffer *, NewBufferFromString, (const void *, size_t)) \
	X(void, DeleteBuffer, (TF_Buffer *)) \
	X(TF_Graph *, NewGraph, (void)) \
	X(void, DeleteGraph, (TF_Graph *)) \
	X(TF_ImportOptions *, NewImportGraphDefOptions, (void)) \
	X(void, DeleteImportGraphDefOptions, (TF_ImportOptions *)) \
	X(void, GraphImportGraphDef, (TF_Graph *, const TF_Buffer *, const TF_ImportOptions *, TF_Status *)) \
	X(TF_Operation *, GraphOperationByName, (TF_Graph *, const char *)) \
	X(int, OperationNumOutputs, (TF_Operation *)) \
	X(int, OperationOutputType, (TF_Output)) \
	X(int, GraphGetTensorNumDims, (TF_Graph *, TF_Output, TF_Status *)) \
	X(void, GraphGetTensorShape, (TF_Graph *, TF_Output, int64_t *, int, TF_Status *)) \
	X(TF_SessionOptions *, NewSessionOptions, (void)) \
	X(void, SetConfig, (TF_SessionOptions *, const void *, size_t, TF_Status *)) \
	X(void, DeleteSessionOptions, (TF_SessionOptions *)) \
	X(TF_Session *, NewSession, (TF_Graph *, const TF_SessionOptions *, TF_Status *)) \
	X(TF_Session *, LoadSessionFromSavedModel, (const TF_SessionOptions *, const TF_Buffer *, const char *, const char *const *, \
	                                            int, TF_Graph *, TF_Buffer *, TF_Status *)) \
	X(void, CloseSession, (TF_Session *, TF_Status *)) \
	X(void, DeleteSession, (TF_Session *, TF_Status *)) \
	X(void, SessionRun, (TF_Session *, const TF_Buffer *, const TF_Output *, TF_Tensor *const *, int, const TF_Output *, \
	                     TF_Tensor **, int, const TF_Operation *const *, int, TF_Buffer *, TF_Status *)) \
	X(TF_Tensor *, NewTensor, (int, const int64_t *, int, void *, size_t, TF_Release, void *)) \
	X(TF_Tensor *, AllocateTensor, (int, const int64_t *, int, size_t)) \
	X(TF_Tensor *, TensorMaybeMove, (TF_Tensor *)) \
	X(void, DeleteTensor, (TF_Tensor *)) \
	X(int, TensorType, (const TF_Tensor *)) \
	X(int, NumDims, (const TF_Tensor *)) \
	X(int64_t, Dim, (const TF_Tensor *, int)) \
	X(size_t, TensorByteSize, (const TF_Tensor *)) \
	X(void *, TensorData, (const TF_Tensor *)) \
	X(void, StringInit, (void *)) \
	X(void, StringCopy, (void *, const char *, size_t)) \
	X(void, StringDealloc, (void *)) \
	X(size_t, StringGetSize, (const void *)) \
	X(const char *, StringGetDataPointer, (const void *))

typedef struct {
#define X(result, name, args) result(*name) args;
	TF_FUNCTIONS(X)
#undef X
} TF_Functions;

#endif
