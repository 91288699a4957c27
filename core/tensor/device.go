package tensor

// Event is a moment of a stream: it is done once everything that was put into the
// stream before it has been executed. No event at all, nil, means done.
type Event interface {
	// Done reports whether the moment has passed. It never blocks.
	Done() bool
	// Wait stops the host until the event is done. The error is that of device work
	// before it.
	Wait() error
	// WaitOn has what is put into s from now on wait for the event, without stopping
	// the host.
	WaitOn(s Stream) error
}

// Stream is a queue of device work that is executed in order, while the host goes on.
// Works of different streams have no order but the one that events give them.
//
// It is an allocator, too: the memory it hands out may be used by the work put into
// it from then on, and by that of other streams which wait for an event after that.
type Stream interface {
	Allocator
	// Copy puts a copy of n bytes into the stream. One buffer at least is at the
	// stream's device; the other may be there, on the host or at another device. The
	// stream holds a reference on both until the copy is done.
	Copy(dst *Buffer, dstOff int, src *Buffer, srcOff, n int) error
	// Fill puts the writing of n bytes into the stream: elem over and over, whose size
	// divides n, or zeros when elem is nil. It holds a reference on dst as Copy does.
	Fill(dst *Buffer, off, n int, elem []byte) error
	// Record returns an event after everything put into the stream so far.
	Record() Event
	// Close waits for what is in the stream, and ends it. Safe to call twice.
	Close() error
}

// Accelerator is a device: memory that the host cannot reach, and streams of work on
// it. What Alloc hands out may be used by any stream at once.
type Accelerator interface {
	Allocator
	// NewStream starts a stream, which moves to the caller; name is for error texts.
	NewStream(name string) (Stream, error)
}
