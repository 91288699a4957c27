package tensor

// Event is a position in a stream. It is done when all work that was put into the stream
// before it has executed. A nil Event counts as done. It is safe for concurrent use.
//
// Lifecycle:
//
//  1. Stream.Record returns it.
//  2. Done, Wait and WaitOn may be called any number of times, in any order, also after the
//     stream is closed.
//
// For example, a response waits for its copy: stream.Copy(host, 0, device, 0, n) and then
// stream.Record().Wait().
type Event interface {
	// Done reports whether the event is done. It never blocks.
	Done() bool
	// Wait blocks until the event is done. The error is that of the work before it.
	Wait() error
	// WaitOn makes work put into s from now on wait for the event. It does not block.
	WaitOn(s Stream) error
}

// Stream is a queue of device work, executed in order while the host goes on. Work of
// different streams is ordered only by events.
//
// A Stream is also an Allocator: memory that it returns may be used by work put into it from
// then on, and by work of streams that wait for an event recorded after the allocation.
//
// Lifecycle:
//
//  1. Accelerator.NewStream returns it, and the caller must call Close.
//  2. Alloc, Copy, Fill and Record may be called by one goroutine at a time.
//  3. Close waits for the work and ends the stream. Nothing may follow but Close.
type Stream interface {
	Allocator
	// Copy puts a copy of n bytes into the stream. At least one buffer must be at the stream's
	// device; the other may be on the host or at another device. The stream holds a reference
	// on both until the copy is done. The caller must call dst.SetReady.
	Copy(dst *Buffer, dstOff int, src *Buffer, srcOff, n int) error
	// Fill repeats elem over n bytes of dst; a nil elem writes zeros. len(elem) must divide n.
	// The stream holds a reference on dst until the fill is done.
	Fill(dst *Buffer, off, n int, elem []byte) error
	// Record returns an event after all work put into the stream so far.
	Record() Event
	// Close waits for the work of the stream and ends it. It may be called twice. The error is
	// that of the first work that failed.
	Close() error
}

// Accelerator is a device: memory that the host cannot read, and streams of work on it. It is
// safe for concurrent use. Memory of its own Alloc may be used by every stream at once.
//
// Lifecycle:
//
//  1. A backend opens the device and registers it with Places.Add.
//  2. Models allocate, and start streams.
//  3. When every stream is closed and every buffer released, the backend calls Places.Remove
//     and closes the device.
type Accelerator interface {
	Allocator
	// NewStream starts a stream, which moves to the caller. name appears in error texts.
	NewStream(name string) (Stream, error)
}
