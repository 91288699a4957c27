package tensortest

import (
	"bytes"

	"github.com/tutti-server/tutti/core/tensor"
)

// checkOrder puts operations that depend on each other into one stream, without any event.
func checkOrder(k *kit) {
	k.Helper()
	s := k.stream(0)
	x, y := k.alloc(s, 256), k.alloc(s, 256)
	defer x.Release()
	defer y.Release()
	want := make([]byte, 256)
	for i := range 50 {
		from := k.bytes(pattern(256, i))
		copy(want, from.Bytes())
		k.must(s.Copy(x, 0, from, 0, 256))
		from.Release()
		k.must(s.Fill(x, i, 1, []byte{byte(i)}))
		k.must(s.Copy(y, 0, x, 0, 256))
		k.must(s.Fill(x, 0, 256, nil)) // after the copy has read it
		want[i] = byte(i)
	}
	k.expect(s, y, want)
	k.expect(s, x, make([]byte, 256))
}

// checkEvents passes a buffer along a chain of streams, each of which changes it.
func checkEvents(k *kit) {
	k.Helper()
	var streams []tensor.Stream
	for range 4 {
		streams = append(streams, k.stream(0))
	}
	want := pattern(512, 1)
	x := k.up(streams[0], want)
	defer x.Release()
	for i := range 40 {
		s := streams[(i+1)%len(streams)]
		k.wait(s, x)
		k.must(s.Fill(x, 8*i, 8, []byte{byte(i)}))
		copy(want[8*i:], bytes.Repeat([]byte{byte(i)}, 8))
		x.SetReady(s.Record())
	}
	k.wait(streams[2], x)
	k.expect(streams[2], x, want)
	x.UsedUntil(streams[2].Record())
	e := streams[0].Record()
	k.must(e.WaitOn(streams[0])) // of the same stream: nothing to wait for
	k.must(e.Wait())
	k.must(e.Wait())
	if !e.Done() {
		k.Error("an event is not done after Wait")
	}
}

// checkEnds checks events without work before them, and after their stream is closed.
func checkEnds(k *kit) {
	k.Helper()
	s, err := k.devices[0].NewStream("short")
	k.must(err)
	first := s.Record()
	k.must(first.Wait())
	x := k.alloc(k.devices[0], 64)
	x.SetReady(first) // a stream that was never used
	x.Release()
	b := k.up(s, pattern(64, 3))
	e := s.Record()
	k.must(s.Close())
	if !first.Done() || !e.Done() {
		k.Error("an event of a closed stream is not done")
	}
	k.must(e.Wait())
	other := k.stream(0)
	k.must(e.WaitOn(other))
	k.expect(other, b, pattern(64, 3))
	b.Release()
}

// checkCopies copies to the device, within it and back, at offsets.
func checkCopies(k *kit) {
	k.Helper()
	s := k.stream(0)
	for _, n := range []int{1, 63, 1000, 1 << 20, 3<<20 + 5} {
		content := pattern(n, n)
		x, y := k.up(s, content), k.alloc(s, n+10)
		k.must(s.Fill(y, 0, n+10, []byte{0xee}))
		k.must(s.Copy(y, 7, x, 0, n))
		want := bytes.Repeat([]byte{0xee}, n+10)
		copy(want[7:], content)
		k.expect(s, y, want)
		x.Release()
		y.Release()
	}
}

// checkPeers copies between two devices, by a stream of either.
func checkPeers(k *kit) {
	k.Helper()
	a, b := k.stream(0), k.stream(1)
	content := pattern(4096, 9)
	x := k.up(a, content)
	for _, s := range []tensor.Stream{a, b} {
		k.wait(s, x)
		y := k.alloc(k.devices[1], 4096)
		k.must(s.Copy(y, 0, x, 0, 4096))
		y.SetReady(s.Record())
		k.wait(b, y)
		k.expect(b, y, content)
		y.Release()
	}
	k.must(b.Fill(k.held(b, 64), 0, 64, nil))
	k.must(b.Record().WaitOn(a))
	x.Release()
}

// held returns a buffer that is released when the check ends.
func (k *kit) held(a tensor.Allocator, n int) *tensor.Buffer {
	k.Helper()
	b := k.alloc(a, n)
	k.Cleanup(b.Release)
	return b
}

// checkFills fills with elements of every width, at offsets and over odd lengths.
func checkFills(k *kit) {
	k.Helper()
	s := k.stream(0)
	x := k.alloc(s, 4096)
	defer x.Release()
	want := pattern(4096, 5)
	from := k.bytes(want)
	k.must(s.Copy(x, 0, from, 0, 4096))
	from.Release()
	at := 8
	for _, elem := range [][]byte{
		{7}, {1, 2}, {3, 3}, {1, 2, 3, 4}, {5, 5, 5, 5}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 1, 2, 3, 4}, {9, 9, 9, 9, 9, 9, 9, 9}, nil,
	} {
		width := max(len(elem), 1)
		for _, count := range []int{1, 3, 16} {
			k.must(s.Fill(x, at, count*width, elem))
			fill := bytes.Repeat(elem, count)
			if elem == nil {
				fill = make([]byte, count)
			}
			copy(want[at:], fill)
			at += count*width + 8
			at += -at & 7 // aligned to the widest element
		}
	}
	elem := []byte{1, 2, 3, 4}
	k.must(s.Fill(x, at, 64, elem))
	copy(want[at:], bytes.Repeat([]byte{1, 2, 3, 4}, 16))
	clear(elem) // the stream has its own copy
	k.expect(s, x, want)
}

// checkViews reads and writes parts of one buffer.
func checkViews(k *kit) {
	k.Helper()
	s, other := k.stream(0), k.stream(0)
	content := pattern(1024, 4)
	x := k.up(s, content)
	parts := k.alloc(s, 1024)
	for i := range 16 { // in reverse
		k.must(s.Copy(parts, 64*i, x, 1024-64*(i+1), 64))
	}
	parts.SetReady(s.Record())
	want := make([]byte, 0, 1024)
	for i := range 16 {
		want = append(want, content[1024-64*(i+1):1024-64*i]...)
	}
	view := tensor.Tensor{DType: tensor.Uint8, Shape: tensor.Of(64), Buf: parts, Off: 128, Len: 64}
	shared := view.Retain()
	parts.Release()
	k.wait(other, shared.Buf)
	to := k.alloc(k.host, 64)
	k.must(other.Copy(to, 0, shared.Buf, shared.Off, shared.Len))
	e := other.Record()
	shared.Release()
	k.must(e.Wait())
	if !bytes.Equal(to.Bytes(), want[128:192]) {
		k.Error("a view has other content")
	}
	to.Release()
	x.Release()
}

// checkZero checks that operations on no bytes do nothing, and that buffers of no bytes are allowed.
func checkZero(k *kit) {
	k.Helper()
	s := k.stream(0)
	none, x, from := k.alloc(s, 0), k.alloc(s, 64), k.bytes(pattern(64, 0))
	k.must(s.Copy(none, 0, from, 64, 0))
	k.must(s.Copy(x, 64, none, 0, 0))
	k.must(s.Fill(none, 0, 0, nil))
	k.must(s.Fill(x, 0, 0, []byte{1, 2, 3, 4}))
	k.must(s.Copy(x, 0, from, 0, 64))
	k.expect(s, x, from.Bytes())
	for _, b := range []*tensor.Buffer{none, x, from} {
		b.Release()
	}
}

// checkRelease releases memory while work on it has not run, and takes it again: the new content must not reach the old work.
func checkRelease(k *kit) {
	k.Helper()
	s, reader := k.stream(0), k.stream(0)
	for i := range 40 {
		content := pattern(2048, i)
		x := k.up(s, content)
		k.wait(reader, x)
		to := k.alloc(k.host, 2048)
		k.must(reader.Copy(to, 0, x, 0, 2048))
		e := reader.Record()
		x.UsedUntil(e)
		x.Release()
		y := k.alloc(s, 2048) // may be the same memory
		k.must(s.Fill(y, 0, 2048, []byte{0xff}))
		y.Release()
		k.must(e.Wait())
		if !bytes.Equal(to.Bytes(), content) {
			k.Fatalf("round %d: memory was reused before its last use", i)
		}
		to.Release()
	}
}

// checkStreamAlloc lets another stream use memory of a stream after an event, and memory of the device at once.
func checkStreamAlloc(k *kit) {
	k.Helper()
	s, other := k.stream(0), k.stream(0)
	x := k.alloc(s, 128)
	k.must(s.Record().WaitOn(other))
	k.must(other.Fill(x, 0, 128, []byte{4}))
	k.expect(other, x, bytes.Repeat([]byte{4}, 128))
	x.Release()
	y := k.alloc(k.devices[0], 128)
	k.must(other.Fill(y, 0, 128, []byte{5}))
	k.must(other.Record().WaitOn(s))
	k.expect(s, y, bytes.Repeat([]byte{5}, 128))
	y.Release()
	z := k.alloc(s, 1<<20) // never used
	z.Release()
}

// checkOutlives releases both sides of copies before they run.
func checkOutlives(k *kit) {
	k.Helper()
	s := k.stream(0)
	for i := range 20 {
		from, to := k.bytes(pattern(512, i)), k.alloc(k.host, 512)
		x := k.alloc(s, 512)
		k.must(s.Copy(x, 0, from, 0, 512))
		from.Release()
		k.must(s.Copy(to, 0, x, 0, 512))
		x.Release()
		e := s.Record()
		to.Retain()
		to.Release()
		k.must(e.Wait())
		if !bytes.Equal(to.Bytes(), pattern(512, i)) {
			k.Fatal("a copy lost its memory")
		}
		to.Release()
	}
}
