package tensor

// Spill says that memory is slower than what was asked for, because a pool was full. For example, memory of device:0 was asked for, and
// pinned memory was given, which the device reads over the bus.
type Spill struct {
	From, To Place // where it was asked for, and where it is
	// Reason names the pool, its bound in bytes and the option that raises it.
	Reason string
}

// Spill returns why the memory is slower than what was asked for, nil if it is not. Owners of such memory have a method Spill. The caller
// must not change it.
func (b *Buffer) Spill() *Spill {
	if o, ok := b.owner.(interface{ Spill() *Spill }); ok {
		return o.Spill()
	}
	return nil
}

// SpilledBytes returns the bytes of all allocations so far whose memory is slower than what was asked for; 0 for allocators that have
// no method SpilledBytes. It is for traces: the difference between two calls is what the work between them spilled.
func SpilledBytes(a Allocator) int64 {
	if s, ok := a.(interface{ SpilledBytes() int64 }); ok {
		return s.SpilledBytes()
	}
	return 0
}
