// Package tensor holds the values that travel between steps: element types, shapes, places,
// reference-counted buffers and the pools they come from.
//
// # Ownership
//
// Every signature that passes a tensor says who must release it, with one of three words:
//
//   - moves: the callee owns the reference afterwards and must release it, also on error. For
//     example, infer.Sink.Send takes the outputs of a response.
//   - borrows: the callee may read the tensor until the call (or the batch) returns, and must
//     not keep it. For example, the inputs of backends.Batch.
//   - shares: the callee takes its own reference with Retain and releases that. For example, a
//     step that returns its input as its output.
//
// A buffer is immutable once it has a second holder. BYTES tensors keep the layout of the wire, a 4-byte little-endian
// length before each element, from socket to socket. They are always on the host.
//
// # Devices
//
// Device memory is a Buffer like any other, but Bytes panics and only the device may use Pointer. Work on it goes into
// a Stream and executes later, until an Event is done. Four rules order the work without blocking the host:
//
//   - Code that fills a buffer must call SetReady with an event of its stream before it shares the buffer.
//   - Code that puts work on a buffer into another stream must make that stream wait for Ready.
//   - Code that puts such work into a stream must call UsedUntil before it releases the
//     buffer. Stream.Copy and Stream.Fill hold references and need not.
//   - An owner must not reuse memory before the events of TakeOrder are done.
//
// The scheduler follows these rules for every model. Backends only put work into the stream of their batch.
//
// Package simdev is a device in software that detects violations. CUDA maps to the same interfaces as follows.
// Accelerator is a device with its cudaMemPool_t; Stream is a cudaStream_t; Stream.Alloc is cudaMallocAsync on it, and
// Free is cudaFreeAsync on a separate stream of the pool, after cudaStreamWaitEvent for each event of TakeOrder, so
// that no release stops the host; Accelerator.Alloc is cudaMallocAsync on that same stream with a wait. Event is a
// cudaEvent_t with timing disabled: Done is cudaEventQuery, Wait cudaEventSynchronize (with blocking sync, on a
// separate thread), WaitOn cudaStreamWaitEvent. Copy is cudaMemcpyAsync, or cudaMemcpyPeerAsync between devices; what
// it holds is released when the event after it is done. Fill is cudaMemsetAsync or its 2, 4 and 8 byte relatives.
// Pinned memory is a Pool over cudaHostAlloc, handed to Places.SetPinned; copies from and to it are asynchronous,
// others are staged by the driver. A runtime such as ONNX Runtime is given the stream (user_compute_stream), binds
// inputs and outputs by Pointer, and need not wait.
package tensor
