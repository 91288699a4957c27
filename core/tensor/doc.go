// Package tensor holds the values that travel between steps: element types,
// shapes, places, reference-counted buffers and the pools they come from.
//
// Three words say who must release a tensor, and every signature that passes one
// uses one of them:
//
//   - moves: the callee owns the reference afterwards and must release it;
//   - borrows: the callee may look until the call (or the batch) is over;
//   - shares: the callee takes a reference of its own with Retain.
//
// A buffer is immutable once a second holder has it. BYTES tensors keep the wire's
// layout, a 4-byte little-endian length before each element, from socket to socket;
// they always live on the host.
//
// # Devices
//
// Memory of a device is a Buffer like any other, but Bytes panics and Pointer is good
// for the device only. Work on it goes into a Stream and is done later; an Event says
// when. Four rules order it without stopping the host:
//
//   - Who fills a buffer calls SetReady with an event of its stream before anybody
//     else has the buffer.
//   - Who puts work on a buffer into another stream has that stream wait for Ready.
//   - Who puts such work into a stream calls UsedUntil before it releases the buffer.
//     Stream.Copy and Stream.Fill need not: they hold references themselves.
//   - An owner gives memory to somebody else only after the events of TakeOrder.
//
// The scheduler follows these rules for every model; backends put work into the
// batch's stream and nothing else.
//
// Package simdev is a device in software that finds out who breaks them. CUDA fits
// the same interfaces so: Accelerator is a device with its cudaMemPool_t; Stream is a
// cudaStream_t; Stream.Alloc is cudaMallocAsync on it, and Free is cudaFreeAsync on a
// stream of the pool's own after cudaStreamWaitEvent for each event of TakeOrder, so
// that no release stops the host; Accelerator.Alloc is cudaMallocAsync on that same
// stream with a wait. Event is a cudaEvent_t with timing disabled: Done is
// cudaEventQuery, Wait cudaEventSynchronize (with blocking sync, on a thread of its
// own), WaitOn cudaStreamWaitEvent. Copy is cudaMemcpyAsync, or cudaMemcpyPeerAsync
// between devices; what it holds is released when the event after it is done. Fill is
// cudaMemsetAsync or its 2, 4 and 8 byte relatives. Pinned memory is a Pool over
// cudaHostAlloc, handed to Places.SetPinned; copies from and to it are asynchronous,
// others are staged by the driver. A runtime such as ONNX Runtime is given the stream
// (user_compute_stream), binds inputs and outputs by Pointer, and need not wait.
package tensor
