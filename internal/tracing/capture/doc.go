// Package capture records the tensors of selected requests: the inputs and the outputs of each step, copied into
// memory of a fixed size in which new requests replace the oldest. Nothing is recorded until a capture is started,
// and every capture ends.
//
// Redacted contents are never copied. Only type and shape are recorded of a tensor that has a redacted name (in an
// ensemble, nested ones included, or as an input that reads it), or that a redacted model produces or reads. A
// tensor that a step computes from a redacted one is another tensor: it needs its own rule.
//
// - store.go: Store, its memory, its captures and the selection of requests
// - snapshot.go: recording the tensors of one request, and the views that the dashboard and the CLI read
// - npy.go: tensors as NumPy files
// - preview.go: previews of contents
//
// # Files
//
// An .npz file has one array for each tensor with content, under its name STEP.TENSOR, and loads without pickle.
// FP16 is float16. BF16, which NumPy lacks, is the uint16 of its bits: shifted left by 16 they are the bits of a
// float32. A BYTES tensor is an array of fixed-width bytes (S) when that preserves every byte and is not much
// larger; else it is three arrays: NAME.data, all elements as uint8, NAME.offsets, where each begins and the last
// ends, and NAME.shape. Content that does not match its type and shape is a flat uint8 array. __capture__ is the
// list of all tensors, including redacted ones, as the UTF-8 bytes of JSON.
package capture
