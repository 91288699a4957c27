package rpc

import "google.golang.org/grpc/mem"

// inbox has the bytes of messages that were not read.
type inbox struct {
	list mem.BufferSlice
	tail *[]byte // the last bytes, in memory with room for more; nil for none
	size int
}

// smallest is the memory for bytes after which more come, so that many small frames take little.
const smallest = 4 << 10

// add copies p. last says that nothing follows.
func (b *inbox) add(p []byte, last bool) {
	b.size += len(p)
	if b.tail != nil && cap(*b.tail)-len(*b.tail) >= len(p) {
		*b.tail = append(*b.tail, p...)
		return
	}
	b.seal()
	if last && mem.IsBelowBufferPoolingThreshold(len(p)) {
		b.list = append(b.list, append(mem.SliceBuffer(nil), p...))
		return
	}
	n := len(p)
	if !last {
		n = max(n, smallest)
	}
	b.tail = mem.DefaultBufferPool().Get(n)
	*b.tail = append((*b.tail)[:0], p...)
}

// seal moves the last bytes to the list.
func (b *inbox) seal() {
	if b.tail != nil {
		b.list = append(b.list, mem.NewBuffer(b.tail, mem.DefaultBufferPool()))
		b.tail = nil
	}
}

// copy moves up to len(p) bytes to p.
func (b *inbox) copy(p []byte) (n int) {
	for n < len(p) && b.size > 0 {
		b.next()
		var m int
		m, b.list[0] = mem.ReadUnsafe(p[n:], b.list[0])
		n += m
		b.size -= m
		if b.list[0] == nil {
			b.pop()
		}
	}
	return n
}

// move moves up to n bytes to the end of a list, and returns how many are left.
func (b *inbox) move(to mem.BufferSlice, n int) (mem.BufferSlice, int) {
	for n > 0 && b.size > 0 {
		b.next()
		first := b.list[0]
		if first.Len() > n {
			first, b.list[0] = mem.SplitUnsafe(first, n)
		} else {
			b.pop()
		}
		to = append(to, first)
		n -= first.Len()
		b.size -= first.Len()
	}
	return to, n
}

// next makes list[0] the next bytes.
func (b *inbox) next() {
	if len(b.list) == 0 {
		b.seal()
	}
}

func (b *inbox) pop() {
	b.list[0] = nil
	if b.list = b.list[1:]; len(b.list) == 0 {
		b.list = nil
	}
}

func (b *inbox) free() {
	b.seal()
	b.list.Free()
	b.list, b.size = nil, 0
}
