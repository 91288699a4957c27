// Package capture keeps the tensors of chosen requests: what a request came with and
// what each of its steps made, copied in memory of fixed size in which the oldest make
// room for the newest. Nothing is kept until a rule asks for it, and every rule ends.
//
// What is redacted is never copied: of a tensor that goes by a redacted name anywhere
// on its way (in an ensemble, nested ones included, or as an input that reads it), or
// that a redacted model makes or reads, only shape and type are known. A tensor that a
// step computes from a redacted one is another tensor.
//
//   - store.go: Store, what is kept and the bound of it
//   - rule.go: which requests are chosen
//   - snapshot.go: the tensors of a request while it goes on
//   - view.go: what is shown
//   - npy.go: tensors as files of NumPy
//   - preview.go, image.go: contents for people
//
// # Files
//
// An .npz file has an array per tensor that has content, under its name STEP.TENSOR,
// and loads without pickle. FP16 is float16; BF16, which NumPy lacks, is the uint16 of
// its bits (shifted left by 16 they are those of a float32). A BYTES tensor is
// an array of fixed-width bytes (S) when that keeps every byte and is not much larger;
// else it is NAME.data, all elements one after another as uint8, NAME.offsets, where
// each begins and the last ends, and NAME.shape. Content that is not what type and
// shape say is a flat uint8 array. __capture__ is the list of all tensors, the
// redacted included, as the UTF-8 bytes of JSON.
package capture
